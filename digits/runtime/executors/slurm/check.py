"""Check that tasks can run as Slurm jobs: the controller, the shared folder, TensorFlow, GPUs and clocks on a node."""

from __future__ import annotations

import secrets
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from digits.core import files
from digits.runtime.executors.cluster import Finding, Overview
from digits.runtime.executors.commands import CommandFailed, Commands, sleep
from digits.runtime.executors.queue_executor import Unreachable
from digits.runtime.executors.slurm import nodes

# Longest time in the queue, and of the job, in seconds.
START_SECONDS = 120.0
RUN_SECONDS = 180.0
MAX_CLOCK_SECONDS = 30.0
_POLL_SECONDS = 0.2

T = TypeVar("T")

# Runs on a node; the argument is the folder. Each answer is a file, written once it is complete.
PROBE = """
import json, os, socket, sys, time
folder = sys.argv[1]
def answer(name, **body):
    with open(f"{folder}/{name}.tmp", "w") as file:
        json.dump(body, file)
        file.flush()
        os.fsync(file.fileno())
    os.rename(f"{folder}/{name}.tmp", f"{folder}/{name}")
with open(folder + "/question") as file:
    answer("files", text=file.read(), node=socket.gethostname(), at=time.time())
try:
    import digits.core.task
    import tensorflow as tf
    answer("tensorflow", version=tf.__version__, gpus=len(tf.config.list_physical_devices("GPU")))
except BaseException as error:
    answer("tensorflow", error=f"{type(error).__name__}: {error}")
"""


class _Files(msgspec.Struct):
    text: str
    node: str
    at: float


class _TensorFlow(msgspec.Struct):
    version: str = ""
    gpus: int = 0
    error: str = ""


def check(commands: Commands, folder: Path, environment: dict[str, str] | None = None) -> Iterator[Finding]:
    """Check the cluster with a job that uses a new folder in ``folder``; blocks, for minutes if the cluster is busy."""
    try:
        cluster = nodes.overview(commands)
    except Unreachable as error:
        hint = "Start the controller (slurmctld), and install Slurm's commands and its slurm.conf on this machine."
        yield Finding(title="Slurm answers", is_ok=False, detail=str(error), remedy=hint)
        return
    detail = f"{len(cluster.nodes)} nodes in the partitions {', '.join(cluster.partitions)}"
    yield Finding(title="Slurm answers", is_ok=True, detail=detail)
    place = folder / f"check-{secrets.token_hex(4)}"
    place.mkdir(mode=0o700)
    try:
        yield from _Probe(commands, place, cluster, environment or {}).findings()
    finally:
        files.remove_tree(place)


class _Probe:
    """A job that answers with files in ``folder``."""

    def __init__(
        self, commands: Commands, folder: Path, nodes: Overview, environment: dict[str, str]
    ) -> None:
        self._commands = commands
        self._folder = folder
        self._nodes = nodes
        self._environment = environment
        self._job = ""

    def findings(self) -> Iterator[Finding]:
        question = secrets.token_hex(8)
        (self._folder / "question").write_text(question)
        asked_at = time.time()
        try:
            problem = self._submit()
            if problem is None:
                yield from self._answers(question, asked_at)
            else:
                yield problem
        finally:
            if self._job:
                self._call("scancel", self._job)

    def _submit(self) -> Finding | None:
        program = shlex.join([sys.executable, "-P", "-c", PROBE, str(self._folder)])
        exports = "".join(
            f"export {name}={shlex.quote(value)}\n" for name, value in self._environment.items()
        )
        script = self._folder / "check.sh"
        script.write_text(f"#!/bin/sh\n{exports}exec {program}\n")
        options = [
            "--parsable",
            "--job-name=digits-check",
            f"--chdir={self._folder}",
            "--export=NIL",
            "--time=5",
        ]
        options += [f"--output={self._folder}/slurm.log", "--no-requeue", "--ntasks=1"]
        if any(node.gpus for node in self._nodes.nodes):
            options.append("--gres=gpu:1")
        code, text = self._call("sbatch", *options, str(script))
        if code != 0:
            last = text.strip().rpartition("\n")[2]
            return Finding(
                title="Slurm accepts a job",
                is_ok=False,
                detail=last,
                remedy="Ask the administrators of the cluster which partition and account you may use.",
            )
        self._job = text.strip().rpartition("\n")[2].partition(";")[0]
        return None

    def _answers(self, question: str, asked_at: float) -> Iterator[Finding]:
        title = "A job reads and writes files of the jobs folder"
        answer = self._wait("files", _Files, START_SECONDS)
        if answer is None:
            state = self._call("squeue", "--noheader", f"--jobs={self._job}", "--format=%T (%r)")[1].strip()
            if state.startswith("PENDING"):
                hint = "Wait until nodes are free, then check again."
            else:
                hint = (
                    f"Mount {self._folder.parent} (writable) and {sys.prefix} at the same paths on all nodes."
                )
            yield Finding(
                title=title, is_ok=False, detail=f"The job is {state or 'gone'}. {self._log()}", remedy=hint
            )
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
        found = self._wait("tensorflow", _TensorFlow, RUN_SECONDS)
        if found is None or found.error:
            hint = f"Install DIGITS and TensorFlow so that {sys.executable} works on all nodes."
            detail = found.error if found else f"no answer within {RUN_SECONDS:g} s. {self._log()}"
            yield Finding(title="TensorFlow can be imported", is_ok=False, detail=detail, remedy=hint)
            return
        yield Finding(title="TensorFlow can be imported", is_ok=True, detail=f"version {found.version}")
        if any(node.gpus for node in self._nodes.nodes):
            hint = (
                ""
                if found.gpus
                else "Install the driver on the nodes, and TensorFlow with CUDA (digits[gpu])."
            )
            yield Finding(
                title="TensorFlow sees a GPU", is_ok=found.gpus > 0, detail=f"{found.gpus} of 1", remedy=hint
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
                code, text = self._call(
                    "squeue", "--noheader", f"--jobs={self._job}", "--states=all", "--format=%T"
                )
                is_gone = code == 0 and text.strip() not in ("PENDING", "CONFIGURING", "RUNNING")
        return None

    def _call(self, *command: str) -> tuple[int, str]:
        try:
            return self._commands.run(*command)
        except CommandFailed as error:
            return 1, str(error)

    def _log(self) -> str:
        try:
            return (self._folder / "slurm.log").read_text(errors="replace")[-1000:].strip()
        except OSError:
            return ""
