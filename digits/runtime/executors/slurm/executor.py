"""Run tasks as jobs of Slurm, through its commands ``sbatch``, ``squeue``, ``scancel``, ``scontrol`` and ``sinfo``.

On the nodes, `digits.runtime.executors.slurm.batch` runs a task under the same supervisor as locally.
"""

from __future__ import annotations

import errno
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from digits.core.job import DeviceRequest
from digits.core.task import Failure
from digits.runtime.executors.cluster import Node, Overview, Unreachable
from digits.runtime.executors.cluster_queue import LimitReached, QueuedJob, Refused, Status, Submission
from digits.runtime.executors.commands import CommandNotFound, Commands
from digits.runtime.executors.executor import Waiting
from digits.runtime.executors.queue_executor import QueueExecutor
from digits.runtime.executors.slurm import batch

# Slurm expects a start after a year if it cannot know, as behind a job without a time limit.
MAX_WAIT_SECONDS = 300 * 86400.0
# How often Slurm is asked to start a job again that a node could not start.
MAX_RELEASES = 5
# Time between the warning before the time limit and the limit, in seconds. Slurm checks every 30 s.
WARNING_SECONDS = 120
# Options of `sbatch` that DIGITS sets itself. It follows jobs on one cluster only.
RESERVED_OPTIONS = frozenset(
    "array batch chdir clusters comment error export export-file get-user-env help input job-name nodes no-requeue "
    "ntasks ntasks-per-node open-mode output parsable quiet requeue signal tasks-per-node test-only uid gid usage "
    "version wait wait-all-nodes workdir wrap".split()
)
# Options without a value, or with one that may be left out. Any other one would take the next argument as its value.
FLAGS = frozenset(
    "contiguous exclusive hold ignore-pbs nice no-kill overcommit oversubscribe propagate reboot share spread-job "
    "stepmgr use-min-nodes verbose".split()
)
# Of `squeue`: id, state, reason, expected start and comment.
_FORMAT = "%i|%T|%r|%S|%k"
_PENDING = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "SUSPENDED")
_FAILED = (
    "BOOT_FAIL", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "PREEMPTED", "REVOKED", "TIMEOUT"
)  # fmt: skip
_STATUSES: dict[str, Status] = {
    **dict.fromkeys(_PENDING, "pending"),
    **dict.fromkeys(_FAILED, "failed"),
    "COMPLETING": "ending",  # also if it is queued again
    "CANCELLED": "canceled",
    "OUT_OF_MEMORY": "out of memory",
}
_NETWORK_ERRORS = (
    errno.ECONNREFUSED,
    errno.ECONNRESET,
    errno.EHOSTUNREACH,
    errno.ENETUNREACH,
    errno.ENOTCONN,
    errno.EPIPE,
    errno.ETIMEDOUT,
)
# The controller did not answer, so it is unknown whether it did what it was asked.
UNREACHABLE = re.compile(
    r"unable to contact slurm controller|timed out|\bsocket\b|communications? |zero bytes were transmitted"
    r"|slurm backup controller in standby|invalid auth credential|munge|"
    + "|".join(map(os.strerror, _NETWORK_ERRORS)),
    re.IGNORECASE,
)
# A limit on the number of submitted jobs, by its name.
SUBMIT_LIMIT = re.compile(r"(qos|assoc)\w*submit\w*limit", re.IGNORECASE)
# Such a limit, or another one on the size of a job.
LIMIT = re.compile(
    r"job submit limit|maxsubmit|submitjobs?limit|job queue full|temporarily unable to accept job"
    r"|job violates accounting/qos policy",
    re.IGNORECASE,
)

_HELD = "launch failed requeued held"
# A node could not start a job, for example because it was lost, or the controller started it twice after a crash.
LAUNCH_FAILURES = ("JobLaunchFailure", _HELD)
# By the names that `squeue` prints.
_REASONS = {
    "None": "Slurm has not considered it yet",
    "Resources": "all suitable nodes are in use",
    "Priority": "other jobs are before it in the queue",
    "BeginTime": "it may not begin before a set time",
    "Cleaning": "Slurm is ending its previous attempt",
    "Dependency": "it depends on another Slurm job",
    "JobHeldUser": "it is held: release it with scontrol release {id}",
    "JobHeldAdmin": "an administrator holds it",
    _HELD: "a node could not start it, so Slurm holds it: release it with scontrol release {id}",
    "Licenses": "all licenses are in use",
    "NodeDown": "a node that it needs is down",
    "PartitionDown": "its partition is down",
    "PartitionInactive": "its partition is inactive",
    "PartitionNodeLimit": "its partition permits fewer nodes, or too few are up",
    "PartitionTimeLimit": "its time limit exceeds that of its partition",
    "Reservation": "its reservation has not started",
    "ReqNodeNotAvail": "nodes that it needs are down, drained or reserved",
    "Nodes_required_for_job_are_DOWN": "nodes that it needs are down, drained or reserved",
}
# By what the message of `sbatch` contains.
_REMEDIES = {
    "account": "Enter an account that you may use, or leave it empty for your default account.",
    "qos": "Enter a quality of service (QoS) that you may use, or leave it empty.",
    "time limit": "Enter a shorter time limit, or choose another partition.",
    "node configuration|more processors|node count|gres": "Request fewer cores, GPUs, workers or less memory, "
    "or choose another partition.",
    "option": "Correct the additional options of sbatch.",
}


class SlurmExecutor(QueueExecutor):
    """Runs tasks as jobs of Slurm. See `QueueExecutor` for the arguments."""

    title = "Slurm"
    setup_hint = (
        "Start the controller (slurmctld), and install Slurm's commands and its slurm.conf on this machine."
    )
    lost_hint = "The controller may have lost its state, or the node cannot write to the jobs folder."

    _active = 0  # jobs of this user in the latest listing

    @cached_property
    def _commands(self) -> Commands:
        return Commands(command_environment(self._variables))

    @cached_property
    def _releases(self) -> Counter[str]:
        return Counter()

    def close(self) -> None:
        super().close()
        self._commands.close()

    def overview(self) -> Overview:
        try:
            nodes = self._ask("scontrol", "--oneliner", "--detail", "show", "node")
            partitions = self._ask("sinfo", "--noheader", "--format=%P")
        except Unreachable as error:
            raise Unreachable(f"Slurm does not answer: {error}.") from error
        names = [line.strip() for line in partitions.splitlines() if line.strip()]
        return Overview(
            nodes=tuple(parse_node(line) for line in nodes.splitlines() if line.startswith("NodeName=")),
            partitions=tuple(
                name.rstrip("*") for name in sorted(names, key=lambda name: not name.endswith("*"))
            ),
        )

    def refusal(self, folder: Path, request: DeviceRequest) -> Failure | None:
        if problem := option_problem(request.compute.options):
            return Failure(*problem)
        # With --test-only, `sbatch` also fails for a job that has to wait, as for a drained node. So submit one then,
        # which does nothing.
        probe = ("--begin=now+10minutes", "--job-name=digits-check", "--output=/dev/null", "--wrap=:")
        try:
            if self._commands.run("sbatch", "--test-only", *options(request), "--wrap=:")[0] == 0:
                return None
            self._commands.run("scancel", self._sbatch(request, *probe))
            nodes, workers = len(self.overview().nodes), request.compute.workers
        except CommandNotFound as error:
            return Failure(f"Slurm does not answer: {error}.", "Install it, or run the job on this machine.")
        except Refused as refused:
            return refused.failure
        except (Unreachable, LimitReached):
            return None  # the job waits
        message = f"The cluster has {nodes} nodes, and {workers} workers need one each."
        return Failure(message, "Request fewer workers.") if workers > nodes else None

    # The scheduler

    def command(self, folder: Path, new: Submission) -> list[str]:
        arguments = [str(folder), new.token, str(new.request.compute.workers)]
        return [sys.executable, "-P", "-S", "-m", batch.__name__, *arguments]

    def send(self, folder: Path, new: Submission) -> None:
        log_file = str(self.path(folder, "log")).replace("%", "%%")
        self._sbatch(
            new.request,
            f"--job-name=digits-{folder.parent.name}-{folder.name}",
            f"--comment={self.name_of(folder, new)}",
            f"--chdir={folder}",
            f"--output={log_file}",
            str(self.path(folder, "sh")),
        )

    def list_jobs(self) -> dict[str, QueuedJob]:
        text = self._ask("squeue", "--me", "--noheader", "--states=all", f"--format={_FORMAT}")
        jobs = [job for line in text.splitlines() if (job := parse(line, self._mark))]
        self._active = sum(job.is_active for job in jobs)
        ours = [job for job in jobs if job.name.startswith(self._mark)]
        for job in ours:
            is_held = job.is_pending and job.reason.replace("_", " ") in LAUNCH_FAILURES
            if is_held and self._releases[job.id] < MAX_RELEASES:
                self._releases[job.id] += 1
                self._commands.run("scontrol", "release", job.id)
        # Ids begin at 1 again when the controller has lost its state.
        return {job.name: job for job in sorted(ours, key=lambda job: (job.is_active, int(job.id)))}

    def waiting(self, job: QueuedJob, has_begun: bool) -> Waiting:
        is_known = job.start is not None and job.start < time.time() + MAX_WAIT_SECONDS
        reason = reason_in_words(job.reason, job.id, has_begun=has_begun)
        return Waiting(reason, job.start if is_known else None)

    def cancel(self, gently: Sequence[QueuedJob], at_once: Sequence[QueuedJob]) -> Collection[QueuedJob]:
        pending = [job.id for job in (*gently, *at_once) if job.is_pending]
        killed = [job.id for job in at_once if job.is_active and not job.is_pending]
        stopped = [job.id for job in gently if not job.is_pending]
        # Without a signal, Slurm would kill a task that needs longer to save its state.
        signals = (
            ((), pending + killed),
            (("--signal=KILL", "--full"), killed),
            (("--signal=TERM",), stopped),
        )
        for options, ids in signals:
            if ids:
                self._commands.run("scancel", *options, *ids)
        return ()

    # Commands

    def _ask(self, *command: str) -> str:
        """Return what a command of Slurm prints; raises Unreachable if it fails."""
        code, text = self._commands.run(*command)
        if code != 0:
            raise Unreachable(message_of(text))
        return text

    def _sbatch(self, request: DeviceRequest, *arguments: str) -> str:
        """Submit a job and return its id; raises Unreachable, LimitReached or Refused."""
        code, text = self._commands.run("sbatch", "--parsable", *options(request), *arguments)
        if code == 0:
            return text.strip().rpartition("\n")[2].partition(";")[0]
        message = message_of(text)
        if UNREACHABLE.search(text):
            raise Unreachable(message)
        # The end of other jobs may permit more.
        if SUBMIT_LIMIT.search(text) or (LIMIT.search(text) and self._active):
            raise LimitReached(f"your limit of submitted jobs at Slurm is reached ({message})")
        hint = remedy(message, lambda: self.overview().partitions)
        raise Refused(f"Slurm refused the job: {message}", hint)


def options(request: DeviceRequest) -> list[str]:
    """Return the options of `sbatch` for a task, except those for its folder."""
    compute, gpus = request.compute, request.gpus_per_worker
    warning = min(WARNING_SECONDS, compute.minutes * 20) if compute.minutes else WARNING_SECONDS
    chosen = {
        "partition": compute.partition,
        "account": compute.account,
        "qos": compute.qos,
        "time": compute.minutes,
        "cpus-per-task": compute.cpus,
        "mem": f"{compute.memory_mb}M" if compute.memory_mb else "",
        "gres": f"gpu:{gpus}" if gpus else "",
    }
    return [
        "--open-mode=append",
        "--export=NIL",  # NONE would run a login shell on the node
        "--requeue",
        # To the tasks, not to the script: they save their state, and the script queues the job again.
        f"--signal=TERM@{warning}",
        f"--nodes={compute.workers}",
        f"--ntasks={compute.workers}",
        "--ntasks-per-node=1",
        *(f"--{name}={value}" for name, value in chosen.items() if value),
        *compute.options,
    ]


def option_problem(given: Sequence[str]) -> tuple[str, str] | None:
    """Return what is wrong with one of the options of `sbatch` in ``given``, and a remedy; None if nothing is.

    As `sbatch` does, take the beginning of a name for the name: no other option has one that begins a reserved one.
    """
    for option in given:
        name, _, value = option[2:].partition("=")
        meant = next((full for full in sorted(RESERVED_OPTIONS) if full.startswith(name)), None)
        if meant:
            short = f"--{name} is short for --{meant}, which DIGITS sets itself."
            message = f"DIGITS sets --{name} itself." if name in RESERVED_OPTIONS else short
            return message, "Remove it from the additional options."
        if not value and name not in FLAGS:
            return f"--{name} needs a value, as in --{name}=VALUE.", "Correct the additional options."
    return None


def parse(line: str, mark: str) -> QueuedJob | None:
    """Return the job in a ``line`` of `squeue`, or None if it contains none.

    Raises Unreachable for a line with a comment that begins with ``mark`` but no id of a single job.
    """
    fields = line.strip().split("|", 4)
    if len(fields) < 5 or not re.fullmatch(r"\d+", fields[0], re.ASCII):
        if len(fields) == 5 and fields[4].startswith(mark):
            raise Unreachable(f"squeue printed a line that cannot be read: {line.strip()[:200]}")
        return None
    id, state, reason, when, name = fields
    words = state.lower().replace("_", " ") + (f" ({reason})" if reason != "None" else "")
    start = float(when) if when.isdecimal() else None
    return QueuedJob(id, name, _STATUSES.get(state, "running"), words, reason, start)


def command_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return ``variables`` without those that change what Slurm's commands do or print."""
    kept = {
        name: value
        for name, value in variables.items()
        if not re.match(r"(SBATCH|SQUEUE|SCANCEL|SINFO|SALLOC|SRUN|SLURM)_", name) or name == "SLURM_CONF"
    }
    return {**kept, "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C.UTF-8"}


def parse_node(line: str) -> Node:
    """Return the node in a line of ``scontrol --oneliner --detail show node``."""
    fields = dict(re.findall(r"(?:^|\s)([A-Za-z]\w*)=(\S*)", line))
    reason = re.search(r"\sReason=(.*?)(?: \[[^\]]*\])?\s*(?:\w+=|$)", line)
    memory = fields.get("RealMemory", "")
    return Node(
        name=fields.get("NodeName", ""),
        state=fields.get("State", "unknown").lower(),
        cpus=_number(fields.get("CPUTot", "")),
        cpus_used=_number(fields.get("CPUAlloc", "")),
        gpus=_gpus(fields.get("Gres", "")),
        gpus_used=_gpus(fields.get("GresUsed", "")),
        memory_mb=int(memory) if memory.isdecimal() else None,
        reason=reason[1] if reason else "",
    )


def _gpus(gres: str) -> int:
    """Return the number of GPUs in a list such as ``gpu:a100:4(S:0-1),gpu:2(IDX:0-1)``."""
    plain = re.sub(r"\([^)]*\)", "", gres)
    counts = (re.fullmatch(r"gpu(?::[^:]*?)??(?::(\d+))?", item) for item in plain.split(","))
    return sum(int(count[1] or 1) for count in counts if count)


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def reason_in_words(reason: str, job_id: str, *, has_begun: bool = False) -> str:
    """Return why a job waits, as in “because …”, for the ``reason`` that `squeue` prints.

    One that ``has_begun`` before waits to start again.
    """
    word = re.split(r"[ ,(]", reason, maxsplit=1)[0]
    known = _REASONS.get(reason) or _REASONS.get(word)
    if has_begun and word == "BeginTime":
        known = "Slurm pauses before it starts an interrupted job again"
    if known is None and reason.startswith("Nodes required for job are"):
        known = _REASONS["ReqNodeNotAvail"]
    if known is None and re.match(r"(Assoc|QOS|MaxJobsPer|Max\w+Per)", word):
        known = "a limit of your account or quality of service (QoS) is reached"
    return f"{(known or 'it is queued').format(id=job_id)} (Slurm job {job_id}: {reason})"


def remedy(message: str, partitions: Callable[[], Sequence[str]]) -> str:
    """Return what to change after `sbatch` refused a job with this ``message``."""
    lowered = message.lower()
    if "partition" in lowered and "invalid" in lowered:
        try:
            names = ", ".join(partitions())
        except OSError:
            names = ""
        return f"Choose one of the partitions {names}." if names else "Choose another partition."
    hints = (hint for pattern, hint in _REMEDIES.items() if re.search(pattern, lowered))
    return next(hints, "Change the compute settings, or ask the administrators of the cluster.")


def message_of(text: str) -> str:
    """Return the message that a command of Slurm printed, without the names of programs."""
    lines = [re.sub(r"^\w+: (error: |fatal: )?", "", line).strip() for line in text.strip().splitlines()]
    return "; ".join(dict.fromkeys(filter(None, lines)))[:500] or "no reason was given"
