"""Slurm's reasons and messages in words."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Sequence

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
