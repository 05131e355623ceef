"""Check a cluster with a job: the shared folder, TensorFlow, GPUs and clocks on a node."""

from __future__ import annotations

import secrets
import shlex
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

import digits
from digits.core import files
from digits.runtime.executors.cluster import Finding, Overview
from digits.runtime.executors.commands import sleep

# Longest time in the queue, and of the job, in seconds.
START_SECONDS = 120.0
RUN_SECONDS = 180.0
MAX_CLOCK_SECONDS = 30.0
_POLL_SECONDS = 0.2
_LOG = "check.log"

T = TypeVar("T")

# Passed as text: the check has to run where DIGITS is missing, too.
PROBE = Path(digits.__file__).with_name("worker") / "cluster_probe.py"


class _Files(msgspec.Struct):
    text: str
    node: str
    at: float


class _TensorFlow(msgspec.Struct):
    version: str = ""
    gpus: int = 0
    error: str = ""


class Probe:
    """A job that answers with files in a new folder in ``folder``. Its methods block: call them in a native thread.

    Subclasses submit the job; ``cluster`` is what they know about its nodes, and ``environment`` that of tasks there.
    """

    def __init__(self, folder: Path, cluster: Overview, environment: Mapping[str, str]) -> None:
        self._folder = folder / f"check-{secrets.token_hex(4)}"
        self._cluster = cluster
        self._environment = environment

    # The scheduler

    def submit(self, script: Path, log: Path, has_gpu: bool) -> Finding | None:
        """Submit ``script``, with one GPU if ``has_gpu``, to print into ``log``; return why that failed, if it did."""
        raise NotImplementedError

    def state(self) -> str:
        """Return the state of the job in the scheduler's words, empty if it is unknown."""
        raise NotImplementedError

    def is_pending(self, state: str) -> bool:
        return state.startswith("PENDING")

    def is_active(self, state: str) -> bool:
        raise NotImplementedError

    def cancel(self) -> None:
        """End the job, if it was submitted."""
        raise NotImplementedError

    # The findings

    def findings(self) -> Iterator[Finding]:
        """Submit the job, and check its answers; blocks, for minutes if the cluster is busy."""
        self._folder.mkdir(mode=0o700)
        try:
            question = secrets.token_hex(8)
            (self._folder / "question").write_text(question)
            asked_at = time.time()
            problem = self.submit(self._script(), self._folder / _LOG, self._has_gpus)
            if problem is None:
                yield from self._answers(question, asked_at)
            else:
                yield problem
        finally:
            self.cancel()
            files.remove_tree(self._folder)

    @property
    def _has_gpus(self) -> bool:
        return any(node.gpus for node in self._cluster.nodes)

    def _script(self) -> Path:
        script = self._folder / "check.sh"
        exports = [f"export {name}={shlex.quote(value)}" for name, value in self._environment.items()]
        program = shlex.join([sys.executable, "-P", "-c", PROBE.read_text(), str(self._folder)])
        redirection = f"exec >>{shlex.quote(str(self._folder / _LOG))} 2>&1"
        script.write_text("\n".join(["#!/bin/sh", redirection, *exports, f"exec {program}", ""]))
        return script

    def _answers(self, question: str, asked_at: float) -> Iterator[Finding]:
        title = "A job reads and writes files of the jobs folder"
        answer = self._wait("files", _Files, START_SECONDS)
        if answer is None:
            state = self.state()
            if self.is_pending(state):
                hint = "Wait until nodes are free, then check again."
            else:
                place = self._folder.parent
                hint = f"Mount {place} (writable) and {sys.prefix} at the same paths on all nodes."
            detail = f"The job is {state or 'gone'}. {self._log()}"
            yield Finding(title=title, is_ok=False, detail=detail, remedy=hint)
            return
        is_same = answer.text == question
        yield Finding(title=title, is_ok=is_same, detail=f"on node {answer.node}")
        now = time.time()
        # The job answered between these two times of this machine.
        off = max(asked_at - answer.at, answer.at - now, 0.0)
        is_close = off <= MAX_CLOCK_SECONDS
        detail = f"{off:.0f} s apart" if off >= 1 else "less than a second apart"
        hint = (
            ""
            if is_close
            else "Synchronize the clocks, for example with chrony: times on pages are those of the nodes."
        )
        yield Finding(title="The clocks agree", is_ok=is_close, detail=detail, remedy=hint)
        yield from self._tensorflow()

    def _tensorflow(self) -> Iterator[Finding]:
        answer = self._wait("tensorflow", _TensorFlow, RUN_SECONDS)
        if answer is None or answer.error:
            hint = f"Install DIGITS and TensorFlow so that {sys.executable} works on all nodes."
            detail = answer.error if answer else f"no answer within {RUN_SECONDS:g} s. {self._log()}"
            yield Finding(title="TensorFlow can be imported", is_ok=False, detail=detail, remedy=hint)
            return
        yield Finding(title="TensorFlow can be imported", is_ok=True, detail=f"version {answer.version}")
        if self._has_gpus:
            hint = (
                ""
                if answer.gpus
                else "Install the driver on the nodes, and TensorFlow with CUDA (digits[gpu])."
            )
            yield Finding(
                title="TensorFlow sees a GPU",
                is_ok=answer.gpus > 0,
                detail=f"{answer.gpus} of 1",
                remedy=hint,
            )

    def _wait(self, name: str, kind: type[T], seconds: float) -> T | None:
        """Return the answer of this ``name``, or None if there is none in time or the job has ended."""
        deadline = time.monotonic() + seconds
        next_look = time.monotonic() + 5
        is_gone = False
        while time.monotonic() < deadline:
            try:
                return files.read_json(self._folder / name, kind, below=self._folder)
            except files.UnreadableFile:
                if is_gone:
                    return None
            sleep(_POLL_SECONDS)
            if time.monotonic() > next_look:
                next_look += 5
                state = self.state()
                is_gone = bool(state) and not self.is_active(state)
        return None

    def _log(self) -> str:
        try:
            return (self._folder / _LOG).read_text(errors="replace")[-1000:].strip()
        except OSError:
            return ""
