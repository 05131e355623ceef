"""End a task whose network does not come to an end: an endless loop, or a wait for what never comes.

The limit is on each call of the network's code, such as of its module or of ``inference``. It counts the processor time
of this process, so that a busy machine does not reach it, and the time in which nothing in this process could
continue: no thread of it is running, or waiting for a processor or a disk.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType

from digits.core.events import EventLog
from digits.core.model_job import NETWORK_SECONDS
from digits.core.task import EXIT_FAILED
from digits.worker.failure import NETWORK_FILE, UserFault, describe

# The interval at which the stacks of the threads are examined.
LOOK_SECONDS = 1.0

_is_excused = False


@contextlib.contextmanager
def watched(events: EventLog) -> Iterator[None]:
    """End the process with a Failed event in ``events`` if a call of the network inside does not come to an end.

    Does nothing at a terminal, where the network may have started a debugger.
    """
    if sys.stdin is not None and sys.stdin.isatty():
        yield
        return
    stop = threading.Event()
    thread = threading.Thread(target=_watch, args=(events, stop), name="network-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextlib.contextmanager
def excused() -> Iterator[None]:
    """Do not count the time inside, in which the network waits for other processes of DIGITS."""
    global _is_excused
    _is_excused = True
    try:
        yield
    finally:
        _is_excused = False


@dataclass
class _Call:
    """A call of the network's code, by its outermost frame, with its seconds, in some of which it only waited."""

    frame: FrameType
    seconds: float = 0.0
    waited: float = 0.0


def _watch(events: EventLog, stop: threading.Event) -> None:
    calls: dict[int, _Call] = {}
    processor = time.process_time()
    while not stop.wait(LOOK_SECONDS):
        before, processor = processor, time.process_time()
        stacks = {} if _is_excused else dict(_stacks())
        calls = {thread: _call_in(stack, calls.get(thread)) for thread, stack in stacks.items()}
        if not calls:
            continue
        waits = not _can_continue()
        # At most the usual time: this process may have been suspended.
        seconds = LOOK_SECONDS if waits else min(processor - before, LOOK_SECONDS)
        for thread, call in calls.items():
            call.seconds += seconds
            call.waited += seconds * waits
            if call.seconds > NETWORK_SECONDS:
                _end(events, call, stacks[thread])


def _stacks() -> Iterator[tuple[int, list[FrameType]]]:
    """Yield the threads that run the network's code, and their frames, innermost first.

    They are the main thread and those of TensorFlow. A thread that the network has started may run forever.
    """
    main = threading.main_thread().ident
    for thread, innermost in sys._current_frames().items():
        frames = [frame for frame, _ in traceback.walk_stack(innermost)]
        is_of_python = frames[-1].f_code.co_filename == threading.__file__
        if (thread == main or not is_of_python) and any(map(_is_own, frames)):
            yield thread, frames


def _is_own(frame: FrameType) -> bool:
    return frame.f_code.co_filename == NETWORK_FILE


def _call_in(stack: list[FrameType], known: _Call | None) -> _Call:
    frame = [frame for frame in stack if _is_own(frame)][-1]
    return known if known and known.frame is frame else _Call(frame)


def _can_continue() -> bool:
    """Return whether another thread of this process is running, or waiting for a processor or a disk."""
    for folder in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # the thread has ended
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            if state in "RD" and int(folder.name) != threading.get_native_id():
                return True
    return False


def _end(events: EventLog, call: _Call, stack: list[FrameType]) -> None:
    minutes = f"{NETWORK_SECONDS / 60:.0f} minutes"
    if call.waited > call.seconds / 2:
        fault = UserFault(
            f"One call of the network has been waiting for {minutes}.",
            "Remove what waits in this line: pauses, input, locks, and what other programs or computers send.",
        )
    else:
        fault = UserFault(
            f"One call of the network has been computing for {minutes} without returning.",
            "Look for an endless loop around this line. A network only describes its layers, in seconds: compute "
            "anything that takes longer beforehand, and read it from a file.",
        )
    trace = None
    for frame in stack:
        trace = TracebackType(trace, frame, frame.f_lasti, frame.f_lineno or frame.f_code.co_firstlineno)
    events.append(describe(fault.with_traceback(trace)))
    with contextlib.suppress(OSError, ValueError):  # the network may have closed its output
        traceback.print_exception(fault)
    os._exit(EXIT_FAILED)  # no exception ends a wait, and a network may catch any
