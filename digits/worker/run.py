"""Runs one task in this process: from the recipe in its folder to its last event.

The table below is the list of everything a worker can do. A program is imported
only when a recipe asks for it, so that a task without tensors never pays for TensorFlow.
"""

from __future__ import annotations

import importlib
import logging
import os
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from digits import recipe as recipes
from digits.events import EventLog, Finished
from digits.task import EVENTS_FILE
from digits.worker.failure import Stopped, UserFault, describe

LOG_FORMAT = "%(asctime)s [%(levelname)s] %(message)s"

# Task name: kind of its recipe, module with ``run(recipe, task_folder, events)``.
PROGRAMS: dict[str, tuple[type[recipes.Recipe], str]] = {
    "create-dataset": (recipes.CreateDataset, "digits.worker.create"),
    "train": (recipes.Train, "digits.worker.train"),
    "visualize": (recipes.Visualize, "digits.worker.visualize"),
    "serve": (recipes.Serve, "digits.worker.infer"),
}

EXIT_FAILED = 1
EXIT_STOPPED = 128 + signal.SIGTERM

# How long a stopping task may take to leave by itself before the process is ended.
STOP_GRACE_SECONDS = 1.5


def run_task(task_folder: Path) -> int:
    """Do what the recipe in ``task_folder`` asks for; returns the exit code.

    0 after a Finished event, 1 after a Failed event, 143 without either when the
    process was asked to stop (SIGTERM).
    """
    _flush_every_line()
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format=LOG_FORMAT, force=True)
    events = EventLog(task_folder / EVENTS_FILE)
    try:
        with _stop_signal():
            return _run(task_folder, events)
    except Stopped:
        return EXIT_STOPPED
    finally:
        events.close()


def import_programs() -> None:
    """Import what tasks with tensors need, for a process that forks one for every task."""
    for module in ("train", "visualize", "infer"):
        importlib.import_module(f"digits.worker.{module}")
    importlib.import_module("digits.worker.face").tensorflow()


def _run(task_folder: Path, events: EventLog) -> int:
    try:
        name = recipes.task_of(task_folder)
        if name not in PROGRAMS:
            raise UserFault(f"There is no task called {name!r}.")
        kind, module = PROGRAMS[name]
        recipe = recipes.load(task_folder, kind)
        result = importlib.import_module(module).run(recipe, task_folder, events)
    except (Stopped, KeyboardInterrupt):
        raise Stopped from None
    except BaseException as error:
        traceback.print_exc()
        events.append(describe(error))
        return EXIT_FAILED
    events.append(Finished(result=result or {}))
    return 0


def _flush_every_line() -> None:
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(line_buffering=True, errors="backslashreplace")


@contextmanager
def _stop_signal() -> Iterator[None]:
    """SIGTERM raises Stopped where the task is; what does not heed it is ended a little later.

    Python runs a signal's handler only between two of its own instructions, which
    may be long in coming while a graph runs. The wake-up descriptor is written at
    once, and a thread that waits on it sees to the end of the process.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may handle signals
        return

    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    watcher = threading.Thread(target=_end_when_asked, args=(reading,), name="stop-watcher", daemon=True)
    watcher.start()
    before = signal.signal(signal.SIGTERM, _raise_stopped)
    wakeup_before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(wakeup_before)
        signal.signal(signal.SIGTERM, before)
        os.close(writing)
        watcher.join(timeout=STOP_GRACE_SECONDS + 1)


def _raise_stopped(signum: int, frame: object) -> None:
    raise Stopped


def _end_when_asked(reading: int) -> None:
    """Read signal numbers until the pipe closes; after SIGTERM wait a little, then end the process."""
    try:
        while number := os.read(reading, 1):
            if number[0] == signal.SIGTERM:
                _wait_for_end_of(reading)
                return
    finally:
        os.close(reading)


def _wait_for_end_of(reading: int) -> None:
    deadline = time.monotonic() + STOP_GRACE_SECONDS
    while (left := deadline - time.monotonic()) > 0:
        if select.select([reading], [], [], left)[0] and not os.read(reading, 64):
            return  # the task left by itself
    os._exit(EXIT_STOPPED)
