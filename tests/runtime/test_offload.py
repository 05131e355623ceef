"""Computations in native threads and in turns, which leave the event loop to requests."""

from __future__ import annotations

import json
import os
import statistics
import time
from typing import Any

import gevent
import gevent.os
import pytest

from digits.runtime.offload import in_thread, next_turn

COMPUTATIONS = 5
MESSAGES = 20
# One turn may have begun before the message, and another one before its arrival is noticed.
MAX_TURNS_PER_MESSAGE = 3

# Wait in a native thread, which needs a hub of gevent, then read files there; print the open files before and after.
PROGRAM = """
from digits.cli.main import patch_standard_library; patch_standard_library()
import json, os, sys, threading
from pathlib import Path
from digits.core import files
from digits.runtime.offload import in_thread

folder = Path(sys.argv[1], "a", "b")
folder.mkdir(parents=True)
(folder / "file").write_text("text")
semaphore = threading.Semaphore()

def read():
    return files.read_bytes(folder / "file", below=Path(sys.argv[1]))

def wait_and_read():
    with semaphore:
        pass
    threading.Event().wait(0.001)
    return read()

in_thread(read)
counts = [len(os.listdir("/proc/self/fd"))]
for _ in range(50):
    assert in_thread(wait_and_read) == in_thread(read) == b"text"
counts.append(len(os.listdir("/proc/self/fd")))
print(json.dumps(counts))
"""


@pytest.mark.integration
def test_threads_that_wait_leave_no_descriptors(run_clean, tmp_path):
    answer = run_clean("-c", PROGRAM, str(tmp_path))
    assert answer.returncode == 0, answer.stderr
    before, after = json.loads(answer.stdout)
    assert after <= before


def test_errors_are_raised_in_the_calling_greenlet():
    assert in_thread(max, 2, 3) == 3
    with pytest.raises(ZeroDivisionError):
        in_thread(divmod, 1, 0)


@pytest.mark.integration
def test_messages_are_answered_between_the_turns_of_long_computations() -> None:
    turns = sent = 0
    waited: list[int] = []
    incoming, remote_out = os.pipe()
    remote_in, outgoing = os.pipe()
    gevent.os.make_nonblocking(incoming)

    def compute() -> None:
        nonlocal turns
        while len(waited) < MESSAGES:
            until = time.perf_counter() + 0.001
            while time.perf_counter() < until:
                pass
            turns += 1
            next_turn()

    def reply() -> None:
        for _ in range(MESSAGES):
            gevent.os.nb_read(incoming, 1)
            waited.append(turns - sent)
            os.write(outgoing, b".")

    def send() -> None:
        nonlocal sent
        for _ in range(MESSAGES):
            sent = turns
            os.write(remote_out, b".")
            os.read(remote_in, 1)
            time.sleep(0.003)

    greenlets: list[Any] = [gevent.spawn(reply), *(gevent.spawn(compute) for _ in range(COMPUTATIONS))]
    sender = gevent.get_hub().threadpool.spawn(send)  # a native thread
    gevent.joinall([*greenlets, sender], raise_error=True)
    for descriptor in (incoming, outgoing, remote_in, remote_out):
        os.close(descriptor)
    # The median, because the system may suspend the native thread between counting and sending.
    assert statistics.median(waited) <= MAX_TURNS_PER_MESSAGE
