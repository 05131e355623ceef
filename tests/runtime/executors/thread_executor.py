"""An executor that runs tasks in threads of this process, as a complete example of another executor."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from digits.core.events import EventLog
from digits.core.task import Handle
from digits.runtime.executors.executor import OUTPUT_LIMIT, Exit, Ledger, OpenLedger, Placement, Waiting

_numbers = itertools.count(1)


@dataclass
class ThreadTask:
    """The environment of a task's program: its folder, devices, event log, rank, and whether it should stop."""

    folder: Path
    program: Callable[[ThreadTask], int]
    devices: list[str]
    log: EventLog
    workers: int = 1
    rank: int = 0
    stop: threading.Event = field(default_factory=threading.Event)
    output: list[str] = field(default_factory=list)
    thread: threading.Thread | None = None  # none while it is queued
    exit: Exit | None = None

    @property
    def is_running(self) -> bool:
        return self.thread is not None and self.thread.is_alive()

    def start(self) -> None:
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        """Run all ranks; the first one that fails stops the others."""
        failed: list[Exit] = []

        def run_rank(rank: int) -> None:
            code, was_stopped = self._code(rank), self.stop.is_set()
            if code:
                failed.append(Exit(code=code, stopped=was_stopped, rank=rank if self.workers > 1 else None))
                self.stop.set()

        ranks = [threading.Thread(target=run_rank, args=(rank,), daemon=True) for rank in range(self.workers)]
        for thread in ranks:
            thread.start()
        for thread in ranks:
            thread.join()
        self.log.close()
        self.exit = failed[0] if failed else Exit(code=0, stopped=self.stop.is_set())

    def _code(self, rank: int) -> int:
        try:
            return self.program(replace(self, rank=rank))
        except Exception as error:
            self.say(f"{type(error).__name__}: {error}")
            return 1

    def say(self, text: str) -> None:
        self.output.append(f"{text}\n")


class ThreadExecutor:
    """Runs the functions in ``programs`` by the name in a task's recipe; each returns the exit code.

    A program that raises an exception ends with code 1. At most ``slots`` programs run at the same time; the others
    are queued in the order of their start. It places runs itself, unless its ``ledger`` is replaced.
    """

    def __init__(
        self,
        programs: dict[str, Callable[[ThreadTask], int]],
        *,
        slots: int = 8,
        poll_seconds: float = 0.01,
        stop_seconds: float = 10.0,
    ) -> None:
        self.ledger: Ledger = OpenLedger()
        self.poll_seconds, self.stop_seconds = poll_seconds, stop_seconds
        self.polls: list[float] = []
        self._programs = programs
        self.slots = slots
        self.tasks: dict[str, ThreadTask] = {}

    def start(self, folder: Path, placement: Placement, *, run: int = 1, owned: bool = False) -> Handle:
        name = f"thread {next(_numbers)}"
        program = self._programs[json.loads((folder / "recipe.json").read_text())["name"]]
        log = EventLog(folder / "events.jsonl")
        devices, workers = list(placement.devices), placement.request.compute.workers
        self.tasks[name] = ThreadTask(folder, program, devices, log, workers)
        self._start_queued()
        return {"name": name}

    def find(self, folder: Path, run: int) -> Handle | None:
        return None  # threads end with the server

    def is_alive(self, handle: Handle) -> bool:
        task = self._task(handle)
        return task is not None and task.exit is None

    def poll(self, folder: Path, handle: Handle | None) -> Exit | Waiting | None:
        self.polls.append(time.monotonic())
        self._start_queued()
        task = self._task(handle or {})
        if task is None:
            return Exit(lost=True)
        if task.thread is None and task.exit is None:
            return Waiting("all threads are in use", expected_start=time.time() // 1000 * 1000 + 5000)
        return None if task.is_running else task.exit

    def stop(self, handle: Handle) -> None:
        task = self._task(handle)
        if task is not None:
            self._stop(task)

    def clear(self, folder: Path, handles: Sequence[Handle] = ()) -> bool:
        left = [task for task in self.tasks.values() if task.folder.is_relative_to(folder) and not task.exit]
        for task in left:
            self._stop(task)
        return not left

    def output(self, folder: Path, after: int = 0, limit: int = OUTPUT_LIMIT) -> tuple[str, int]:
        text = "".join(line for task in self.tasks.values() if task.folder == folder for line in task.output)
        return text[max(after, len(text) - limit) :], len(text)

    def warm_up(self) -> None: ...

    def close(self) -> None: ...

    def interrupt(self) -> None:
        """Interrupt the running tasks and queue them again, as a cluster does for more urgent ones."""
        for task in self.tasks.values():
            if task.thread is not None and task.is_running:
                task.stop.set()
                task.thread.join()
                task.thread = task.exit = None
                task.stop.clear()
                task.log = EventLog(task.folder / "events.jsonl")

    def _task(self, handle: Handle) -> ThreadTask | None:
        return self.tasks.get(handle.get("name", ""))

    def _stop(self, task: ThreadTask) -> None:
        task.stop.set()
        if task.thread is None:
            task.log.close()
            task.exit = Exit(stopped=True, seconds=0.0)

    def _start_queued(self) -> None:
        free = self.slots - sum(task.is_running for task in self.tasks.values())
        queued = [task for task in self.tasks.values() if task.thread is None and task.exit is None]
        for task in queued[: max(0, free)]:
            task.start()
