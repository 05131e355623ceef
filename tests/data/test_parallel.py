"""Work in several processes: messages arrive, errors are raised in the parent, and no process remains."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from digits.data import parallel
from digits.data.parallel import ProcessDied, Send
from tests.waiting import has_ended, wait_until

pytestmark = pytest.mark.usefixtures("no_process_remains")


def double(piece: int, send: Send) -> None:
    send(piece * 2)


def messages(*arguments, **options) -> list:
    return [message for message in parallel.run(*arguments, **options) if message is not None]


@pytest.mark.parametrize("processes", [1, 2, 5, None])
def test_every_item_is_processed_once(processes: int | None) -> None:
    assert sorted(messages(double, 20, processes=processes)) == list(range(0, 40, 2))
    assert messages(double, 0, processes=processes) == []


def test_each_process_finishes_once() -> None:
    received = messages(double, 6, processes=3, finish=lambda send: send("finished"))
    assert received.count("finished") == 3


def test_silence_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "QUIET_SECONDS", 0.01)

    def slow(piece: int, send: Send) -> None:
        time.sleep(0.2)

    assert None in list(parallel.run(slow, 1))


class Unpicklable(Exception):
    """An exception that cannot be recreated from its arguments."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def fail(piece: int, send: Send) -> None:
    raise ValueError(f"piece {piece}")


def fail_oddly(piece: int, send: Send) -> None:
    raise Unpicklable(1, 2)


def lose_a_pipe(piece: int, send: Send) -> None:
    raise BrokenPipeError("of another program")


def die(piece: int, send: Send) -> None:
    if piece == 3:
        os.kill(os.getpid(), signal.SIGKILL)


def leave(piece: int, send: Send) -> None:
    os._exit(3)


@pytest.mark.parametrize(
    ("work", "error", "message"),
    [
        (fail, ValueError, "piece 0"),
        (fail_oddly, RuntimeError, "Unpicklable: 1 and 2"),
        (lose_a_pipe, BrokenPipeError, "of another program"),
        (die, ProcessDied, "signal 9, SIGKILL"),
        (leave, ProcessDied, "exit code 3"),
    ],
)
def test_failures_are_raised(work: Callable[[int, Send], None], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        messages(work, 10, processes=1 if work is fail else 2)
    assert work is not fail or "in fail" in caught.value.__notes__[0]


def test_closing_early_ends_the_processes() -> None:
    def endless(piece: int, send: Send) -> None:
        send(piece)
        time.sleep(600)

    before = set(psutil.Process().children())
    with closing(parallel.run(endless, 4, processes=2)) as messages:
        next(messages)
        assert len(set(psutil.Process().children()) - before) == 2


def test_signal_handlers_are_not_inherited() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    os.set_blocking(reading, False)
    handler = signal.signal(signal.SIGTERM, lambda number, frame: None)
    wakeup = signal.set_wakeup_fd(writing)

    def terminate(piece: int, send: Send) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(600)

    try:
        with pytest.raises(ProcessDied, match="signal 15, SIGTERM"):
            messages(terminate, 1)
        with pytest.raises(BlockingIOError):
            os.read(reading, 1)
    finally:
        signal.set_wakeup_fd(wakeup)
        signal.signal(signal.SIGTERM, handler)
        os.close(reading)
        os.close(writing)


PARENT = """
import os, sys, time
from digits.data import parallel

def work(piece, send):
    os.write(1, b"%d\\n" % os.getpid())  # at once, because two write
    while True:
        time.sleep(0.05)
        send("still here")

list(parallel.run(work, 2, processes=2))
"""


@pytest.mark.integration
def test_processes_end_when_their_parent_is_killed(root: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True, cwd=root
    ) as parent:
        assert parent.stdout is not None
        children = [psutil.Process(int(parent.stdout.readline())) for _ in range(2)]
        parent.kill()
    wait_until(lambda: all(map(has_ended, children)))
