"""An executor that runs tasks in threads of this process, as a complete example of another executor."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from digits.core.events import EventLog
from digits.core.task import Handle
from digits.runtime.executor import OUTPUT_LIMIT, Exit

_numbers = itertools.count(1)


@dataclass
class ThreadTask:
    """The environment of a task's program: its folder, devices, event log, and whether it should stop."""

    folder: Path
    devices: list[str]
    log: EventLog
    stop: threading.Event = field(default_factory=threading.Event)
    output: list[str] = field(default_factory=list)

    def say(self, text: str) -> None:
        self.output.append(f"{text}\n")


class ThreadExecutor:
    """Runs the functions in ``programs`` by the name in a task's recipe; each returns the exit code.

    A program that raises an exception ends with code 1.
    """

    def __init__(self, programs: dict[str, Callable[[ThreadTask], int]]) -> None:
        self._programs = programs
        self._threads: dict[int, threading.Thread] = {}
        self._tasks: dict[int, ThreadTask] = {}
        self._exits: dict[int, Exit] = {}

    def start(self, folder: Path, devices: Sequence[str], *, run: int = 1, owned: bool = False) -> Handle:
        number = next(_numbers)
        program = self._programs[json.loads((folder / "recipe.json").read_text())["name"]]
        task = self._tasks[number] = ThreadTask(folder, list(devices), EventLog(folder / "events.jsonl"))
        thread = threading.Thread(target=self._run, args=(number, program, task), daemon=True)
        self._threads[number] = thread
        thread.start()
        return {"boot": "threads", "pid": number, "began": None, "run": run}

    def find(self, folder: Path, run: int) -> Handle | None:
        return None  # threads end with the server

    def is_alive(self, handle: Handle) -> bool:
        return handle["pid"] in self._threads and self._threads[handle["pid"]].is_alive()

    def poll(self, folder: Path, handle: Handle | None) -> Exit | None:
        if handle is None or handle["pid"] not in self._threads:
            return Exit(lost=True)
        return None if self.is_alive(handle) else self._exits[handle["pid"]]

    def stop(self, handle: Handle) -> None:
        self._tasks[handle["pid"]].stop.set()

    def clear(self, folder: Path, handles: Sequence[Handle] = ()) -> bool:
        left = [
            number
            for number, task in self._tasks.items()
            if task.folder.is_relative_to(folder) and self._threads[number].is_alive()
        ]
        for number in left:
            self._tasks[number].stop.set()
        return not left

    def output(self, folder: Path, after: int = 0, limit: int = OUTPUT_LIMIT) -> tuple[str, int]:
        text = "".join(line for task in self._tasks.values() if task.folder == folder for line in task.output)
        return text[max(after, len(text) - limit) :], len(text)

    def warm_up(self) -> None: ...

    def is_warm(self) -> bool:
        return True

    def close(self) -> None: ...

    def _run(self, number: int, program: Callable[[ThreadTask], int], task: ThreadTask) -> None:
        try:
            code = program(task)
        except Exception as error:
            task.say(f"{type(error).__name__}: {error}")
            code = 1
        task.log.close()
        self._exits[number] = Exit(code=code, stopped=task.stop.is_set())
