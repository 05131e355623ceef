"""What the programs of jobs have in common that a scheduler starts on a node to run one task.

They require only the standard library. One supervisor per node runs the task there (see `digits.runtime.supervisor`);
the program waits for all of them, and combines their records: ``exit.json`` is written only when the run is over. A run
that is interrupted, as by a time limit, the loss of a node or a SIGKILL, starts again instead, and continues from its
resume point, unless the user has asked it to stop or `MAX_FRUITLESS` attempts in a row made no progress.

A job whose token is not that of the folder has been replaced by a newer one, and does nothing. So does one whose run is
over: after a crash, a scheduler may start a job that has already ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from typing import Any

ATTEMPT_FILE = "attempt.json"
# Contains the number of the run that the user has asked to stop.
STOP_FILE = "stop"
EXIT_FILE = "exit.json"
EVENTS_FILE = "events.jsonl"
RUN_VARIABLE = "DIGITS_RUN"
# The same as in `digits.core.task`.
RESTARTED_VARIABLE = "DIGITS_RESTARTED"
ATTEMPT_VARIABLE = "DIGITS_ATTEMPT"
WORKERS_VARIABLE = "DIGITS_WORKERS"
# The number of a node, from 0. Its supervisor then writes a record of its own.
NODE_VARIABLE = "DIGITS_NODE"
# Exit code of a process whose task another process is working on, such as one on a node that was considered lost.
EXIT_BUSY = 75
# The same as in `digits.core.task`: the exit code of a rank that lost another one.
EXIT_PARTNER_LOST = 76
# The last event of a log is shorter than this.
MAX_EVENT_BYTES = 2**20
# Attempts in a row that may end without a new resume point.
MAX_FRUITLESS = 5

Record = dict[str, Any]

SUPERVISOR = os.path.abspath(f"{__file__}/../../supervisor.py")


class NodeJob:
    """One attempt of the run in ``folder`` to execute ``program`` on ``workers`` nodes.

    ``title`` is the scheduler's name, ``advice`` how users avoid interruptions.
    """

    title: str
    advice: str

    def __init__(self, folder: str, token: str, workers: str, *program: str) -> None:
        self._folder = folder
        self._token = token
        self._workers = int(workers)
        self._program = program
        self._run = int(os.environ[RUN_VARIABLE])
        self._began = time.monotonic()
        self._fruitless = 0
        self._points: list[str] = []
        self._log_began = self._log_size()  # before the first attempt of this run

    def main(self) -> int:
        """Run the task; return the exit code of the job."""
        if self._read(f"{self.title.lower()}.json").get("token") != self._token or self._is_over():
            return 0
        if self._is_to_stop():
            return self._end(stopped=True)
        before = self._read(ATTEMPT_FILE)
        is_restarted = before.get("run") == self._run
        if is_restarted:
            self._fruitless, self._points = before["fruitless"], before["points"]
            self._log_began = before.get("log", 0)
            os.environ[RESTARTED_VARIABLE] = "1"
            if before["phase"] == "running":  # and could not record its end, as when its node was lost
                records = self._records()
                if self._have_finished(records):
                    return self._end_well(records)
                self._count_attempt()
        if self._fruitless >= MAX_FRUITLESS:
            return self._give_up()
        self._points = self._resume_points()
        for name in os.listdir(self._folder):
            if name.startswith("exit."):
                os.unlink(os.path.join(self._folder, name))
        os.environ[ATTEMPT_VARIABLE] = os.urandom(4).hex()
        if self._workers > 1:
            os.environ[WORKERS_VARIABLE] = str(self._workers)
        self._run_supervisors([sys.executable, "-I", "-S", SUPERVISOR, self._folder, "--", *self._program])
        return self._conclude(is_restarted)

    def _run_supervisors(self, command: list[str]) -> None:
        """Run ``command`` on each node with its number in `NODE_VARIABLE`, and wait for all.

        The first one that fails ends the others. Call `_save` with “running” when they can start.
        """
        raise NotImplementedError

    def _start_again(self, record: Record | None) -> int:
        """Have the scheduler start this job again, which ended with ``record``; return the exit code."""
        raise NotImplementedError

    def _conclude(self, is_restarted: bool) -> int:
        """Record the end of the run, or start it again."""
        records = self._records()
        failed = [record for record in records if record["code"] != 0]
        if self._have_finished(records):
            return self._end_well(records)
        by_itself = [record for record in failed if _failed_by_itself(record)]
        first = min(by_itself or failed, key=lambda record: float(record["at"]), default=None)
        if self._is_to_stop():
            return self._end(first, stopped=True)
        was_lost = len(records) < self._workers or (
            is_restarted and all(r["code"] == EXIT_BUSY for r in by_itself)
        )
        if first and by_itself and not was_lost:
            return self._end(first)
        self._count_attempt()
        return self._give_up() if self._fruitless >= MAX_FRUITLESS else self._start_again(first)

    def _have_finished(self, records: list[Record]) -> bool:
        """Return whether all work is done: a signal between the last event and the exit does not matter."""
        if len(records) == self._workers and all(record["code"] == 0 for record in records):
            return True
        has_failed = any(record["code"] and _failed_by_itself(record) for record in records)
        return not has_failed and self._last_event() == "finished"

    def _last_event(self) -> str:
        """Return the name of the last event that this run has logged; empty if there is none."""
        try:
            with open(os.path.join(self._folder, EVENTS_FILE), "rb") as log:
                log.seek(max(self._log_began, self._log_size() - MAX_EVENT_BYTES))
                return str(json.loads(log.read().splitlines()[-1])["event"])
        except (OSError, ValueError, LookupError, TypeError):
            return ""

    def _log_size(self) -> int:
        try:
            return os.path.getsize(os.path.join(self._folder, EVENTS_FILE))
        except OSError:
            return 0

    def _end_well(self, records: list[Record]) -> int:
        first = records[0] if records else None
        return self._end(first, code=0, signal=None, stopped=False)

    def _records(self) -> list[Record]:
        """Return the records that the supervisors of the latest attempt have left."""
        exits = [self._read(f"exit.{node}.json") for node in range(self._workers)]
        return [
            {**record, "rank": node if self._workers > 1 else None}
            for node, record in enumerate(exits)
            if record.get("run") == self._run
        ]

    def _end_canceled(self, record: Record | None) -> int:
        return self._end(record, stopped=True, failure=failure(*canceled(self.title)))

    def _give_up(self) -> int:
        message = f"The task was interrupted {MAX_FRUITLESS} times in a row before it could make progress."
        hint = f"The end of {self.title.lower()}.log in its folder may show why. {self.advice}, then start it again."
        return self._end(failure=failure(message, hint))

    def _count_attempt(self) -> None:
        self._fruitless = self._fruitless + 1 if self._resume_points() == self._points else 0

    def _resume_points(self) -> list[str]:
        names = os.listdir(os.path.dirname(self._folder))
        return sorted(name for name in names if name.endswith(".resume.json"))

    def _end(self, record: Record | None = None, **changes: Any) -> int:
        """Write ``exit.json``, which ends the run; return the exit code of the job."""
        unknown = {"code": None, "signal": None, "seconds": time.monotonic() - self._began}
        body = {**unknown, **(record or {}), "at": time.time(), "run": self._run, **changes}
        self._write(EXIT_FILE, body)
        return 0 if body["code"] == 0 or body.get("stopped") else 1

    def _is_over(self) -> bool:
        return bool(self._read(EXIT_FILE).get("run") == self._run)

    def _is_to_stop(self) -> bool:
        return is_to_stop(self._folder, self._run)

    def nodes(self) -> str:
        """Return the names of the nodes, for users; empty if they are unknown."""
        return os.uname().nodename if self._workers == 1 else ""

    def _save(self, phase: str) -> None:
        body = {"run": self._run, "token": self._token, "phase": phase, "nodes": self.nodes()}
        progress = {"fruitless": self._fruitless, "points": self._points, "log": self._log_began}
        self._write(ATTEMPT_FILE, {**body, **progress})

    def _read(self, name: str) -> Record:
        try:
            with open(os.path.join(self._folder, name), "rb") as file:
                body = json.load(file)
        except (OSError, ValueError):
            return {}
        return body if isinstance(body, dict) else {}

    def _write(self, name: str, body: Record) -> None:
        temporary = os.path.join(self._folder, f"{name}.{os.uname().nodename}.{os.getpid()}.tmp")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with open(descriptor, "w") as file:
            json.dump(body, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, os.path.join(self._folder, name))


def _failed_by_itself(record: Record) -> bool:
    """Return whether a failed rank was neither stopped, nor killed from outside, nor lost another one."""
    was_killed = record["signal"] == signal.SIGKILL and not record.get("out_of_memory")
    return not (record["stopped"] or was_killed or record["code"] == EXIT_PARTNER_LOST)


def is_to_stop(folder: str, run: int) -> bool:
    """Return whether the user has asked this ``run`` of the task in ``folder`` to stop."""
    try:
        with open(os.path.join(folder, STOP_FILE), "rb") as file:
            return file.read() == b"%d" % run
    except OSError:
        return False


def failure(message: str, hint: str) -> dict[str, str]:
    return {"message": message, "hint": hint}


def canceled(title: str) -> tuple[str, str]:
    """Return the message and the hint for a job that somebody ended with the commands of the scheduler."""
    return f"The job was canceled in {title}, not here.", "Start it again."


def say(text: str) -> None:
    """Print a line to the log of the job."""
    with contextlib.suppress(OSError):  # a full disk
        sys.stdout.write(f"digits: {text}\n")
        sys.stdout.flush()
