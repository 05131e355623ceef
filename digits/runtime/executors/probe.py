"""Check a cluster with a job: the shared folder, TensorFlow, GPUs and clocks on a node."""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

import digits
from digits.core import files
from digits.core.compute import Compute
from digits.core.job import DeviceRequest
from digits.runtime.executors.cluster import Finding, Overview, Unreachable
from digits.runtime.executors.cluster_queue import ClusterQueue, QueuedJob, Submission
from digits.runtime.executors.commands import sleep

# Longest time in the queue, and of the job, in seconds.
START_SECONDS = 120.0
RUN_SECONDS = 180.0
MAX_CLOCK_SECONDS = 30.0
_POLL_SECONDS = 0.2
_LOOK_SECONDS = 5.0

T = TypeVar("T")

# Passed as text: the check has to run where DIGITS is missing, too.
PROGRAM = Path(digits.__file__).with_name("worker") / "cluster_probe.py"


class _Files(msgspec.Struct):
    text: str
    node: str
    at: float


class _TensorFlow(msgspec.Struct):
    version: str = ""
    gpus: int = 0
    error: str = ""


def probe(queue: ClusterQueue, folder: Path, cluster: Overview) -> Iterator[Finding]:
    """Submit a job that answers with files in a new folder in ``folder``, and check its answers.

    Blocks, for minutes if the cluster is busy: call it in a native thread.
    """
    job = _Probe(queue, folder, any(node.gpus for node in cluster.nodes))
    job.folder.mkdir(mode=0o700)
    try:
        yield from job.findings()
    finally:
        with suppress(Unreachable):
            if listed := job.listed():
                queue.cancel((), [listed])
        files.remove_tree(job.folder)


class _Probe:
    def __init__(self, queue: ClusterQueue, folder: Path, has_gpus: bool) -> None:
        self._queue, self._has_gpus = queue, has_gpus
        request = DeviceRequest("short", int(has_gpus), compute=Compute(minutes=5))
        self._submission = Submission(1, secrets.token_hex(8), request, attempt=1)
        self.folder = folder / f"check-{self._submission.token}"

    def listed(self) -> QueuedJob | None:
        return self._queue.list_jobs().get(self._queue.name_of(self.folder, self._submission))

    def findings(self) -> Iterator[Finding]:
        question = self._submission.token
        (self.folder / "question").write_text(question)
        command = [sys.executable, "-P", "-c", PROGRAM.read_text(), str(self.folder)]
        self._queue.prepare(self.folder, self._submission, command)
        asked_at = time.time()
        try:
            self._queue.send(self.folder, self._submission)
        except OSError as error:
            title, hint = f"{self._queue.title} accepts a job", self._queue.setup_hint
            yield Finding(title=title, is_ok=False, detail=str(error), remedy=hint)
            return
        title = "A job reads and writes files of the jobs folder"
        answer = self._wait("files", _Files, START_SECONDS)
        if answer is None:
            job = self.listed()
            place = self.folder.parent
            hint = f"Mount {place} (writable) and {sys.prefix} at the same paths on all nodes."
            if job and job.is_pending:
                hint = "Wait until nodes are free, then check again."
            detail = f"The job is {f'{job.status}: {job.words}' if job else 'gone'}. {self._log()}"
            yield Finding(title=title, is_ok=False, detail=detail, remedy=hint)
            return
        yield Finding(title=title, is_ok=answer.text == question, detail=f"on node {answer.node}")
        # The job answered between these two times of this machine.
        off = max(asked_at - answer.at, answer.at - time.time(), 0.0)
        detail = f"{off:.0f} s apart" if off >= 1 else "less than a second apart"
        hint = "Synchronize the clocks, for example with chrony: times on pages are those of the nodes."
        yield _finding("The clocks agree", off <= MAX_CLOCK_SECONDS, detail, hint)
        yield from self._tensorflow()

    def _tensorflow(self) -> Iterator[Finding]:
        answer = self._wait("tensorflow", _TensorFlow, RUN_SECONDS)
        problem = answer.error if answer else f"no answer within {RUN_SECONDS:g} s. {self._log()}"
        detail = problem or f"version {answer.version if answer else ''}"
        hint = f"Install DIGITS and TensorFlow so that {sys.executable} works on all nodes."
        yield _finding("TensorFlow can be imported", not problem, detail, hint)
        if answer and self._has_gpus and not problem:
            hint = "Install the driver on the nodes, and TensorFlow with CUDA (digits[gpu])."
            yield _finding("TensorFlow sees a GPU", answer.gpus > 0, f"{answer.gpus} of 1", hint)

    def _wait(self, name: str, kind: type[T], seconds: float) -> T | None:
        """Return the answer of this ``name``, or None if there is none in time or the job has ended."""
        deadline = time.monotonic() + seconds
        next_look = time.monotonic() + _LOOK_SECONDS
        has_ended = False
        while time.monotonic() < deadline:
            try:
                return files.read_json(self.folder / name, kind, below=self.folder)
            except files.UnreadableFile:
                if has_ended:
                    return None
            sleep(_POLL_SECONDS)
            if time.monotonic() > next_look:
                next_look += _LOOK_SECONDS
                with suppress(Unreachable):
                    job = self.listed()
                    has_ended = job is None or not job.is_active
        return None

    def _log(self) -> str:
        try:
            return self._queue.path(self.folder, "log").read_text(errors="replace")[-1000:].strip()
        except OSError:
            return ""


def _finding(title: str, is_ok: bool, detail: str, remedy: str) -> Finding:
    return Finding(title=title, is_ok=is_ok, detail=detail, remedy="" if is_ok else remedy)
