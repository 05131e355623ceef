"""Run tasks as jobs of a Ray cluster, through the REST API of its dashboard.

On the nodes, `digits.runtime.executors.ray.job` runs a task under the same supervisor as locally.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import secrets
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Unpack

from digits.core import files
from digits.core.job import DeviceRequest
from digits.core.schema import JsonObject
from digits.core.task import Failure
from digits.runtime.executors import node_job
from digits.runtime.executors.cluster import Finding, Node, Overview
from digits.runtime.executors.commands import Commands
from digits.runtime.executors.executor import Exit, Waiting
from digits.runtime.executors.queue_executor import (
    Listed,
    Listing,
    QueueExecutor,
    QueueOptions,
    Run,
    Submission,
    Unreachable,
    save,
)
from digits.runtime.executors.ray import job as ray_job
from digits.runtime.executors.ray.api import ATTEMPT, COMMENT, RayApi, RayJob, Refused
from digits.runtime.executors.ray.check import check
from digits.runtime.threads import in_thread

log = logging.getLogger(__name__)

# A job that has waited longer than RAY_JOB_START_TIMEOUT_SECONDS, by default 15 minutes.
START_TIMEOUT = "JOB_SUPERVISOR_ACTOR_START_TIMEOUT"
MINUTE_SECONDS = 60.0
# How often in a row a job is started again whose program has not begun.
MAX_FAILED_STARTS = 3
_MIB = 1024 * 1024


class RaySubmission(Submission, kw_only=True):
    """The ``body`` of the request that submits a run, its time limit, and the ``resources`` of each worker.

    Ray's names of the resources are CPU and GPU (numbers), and memory (bytes).
    """

    FILE: ClassVar[str] = ray_job.SUBMISSION_FILE
    SCRIPT: ClassVar[str] = "ray.sh"
    LOG: ClassVar[str] = ray_job.LOG_FILE

    body: JsonObject
    resources: dict[str, float]
    seconds: float | None = None


class RayExecutor(QueueExecutor[RayJob]):
    """Runs tasks as jobs of the Ray cluster whose dashboard has this ``address``, such as ``http://127.0.0.1:8265``.

    ``token`` is that of a cluster with token authentication. ``python`` runs `digits.runtime.executors.ray.job` on the
    nodes; for several workers, it needs the package of Ray. See `QueueExecutor` for the other arguments.
    """

    title = "Ray"
    submissions = RaySubmission
    lost_hint = "The head node may have been started again, or the node cannot write to the jobs folder."

    def __init__(
        self,
        jobs_folder: Path,
        address: str,
        *,
        token: str = "",
        python: str = sys.executable,
        **options: Unpack[QueueOptions],
    ) -> None:
        super().__init__(jobs_folder, **options)
        self._api = RayApi(address, token)
        self._python = python

    # The cluster

    def overview(self) -> Overview:
        return self._api.overview()

    def check(self, folder: Path) -> Iterator[Finding]:
        return check(self._api, folder, self._environment)

    def refusal(self, folder: Path, request: DeviceRequest) -> Failure | None:
        compute = request.compute
        fields = {"partition": compute.partition, "account": compute.account, "QoS": compute.qos}
        for name, value in {**fields, "additional options": compute.options}.items():
            if value:
                return Failure(f"Ray has no {name}.", "Leave it empty.")
        if compute.workers > 1 and not has_ray(self._python):
            hint = f"Install it, in the version of the cluster, for {self._python}, or use one worker."
            return Failure("Several workers need the package of Ray in the Python of DIGITS.", hint)
        try:
            nodes = [node for node in self.overview().nodes if node.state != "dead"]
        except (Unreachable, Refused):
            return None  # the job waits until Ray answers
        return _too_large(nodes, request)

    # The scheduler

    def _create(self, folder: Path, run: int, request: DeviceRequest) -> RaySubmission:
        compute, token = request.compute, secrets.token_hex(8)
        command = [self._python, "-P", "-m", ray_job.__name__, str(folder), token, str(compute.workers)]
        prelude = [
            f'[ "$1" = {token} ] || exit 0',  # the job of an earlier run, which Ray did not stop
            f"exec >>{shlex.quote(str(folder / RaySubmission.LOG))} 2>&1",
        ]
        if compute.cpus is None:
            prelude.append("unset OMP_NUM_THREADS")  # which Ray sets to 1
        script = [*command, *self._program, str(folder)]
        RaySubmission.write_script(folder, run, script, self._environment_of(request), prelude)
        # A node asks for the contents of an existing file, but may remember for a minute that there was none.
        files.write_bytes(folder / node_job.STOP_FILE, b"0")
        resources = _resources(request)
        submission = RaySubmission(
            run=run,
            token=token,
            body=_body(folder, token, self._comment(folder, run), resources if compute.workers == 1 else {}),
            resources=resources,
            seconds=compute.minutes * MINUTE_SECONDS if compute.minutes else None,
        )
        submission.save(folder)
        return submission

    def _submit(self, run: Run[RayJob]) -> None:
        submission = run.submission
        assert isinstance(submission, RaySubmission)
        submission.attempt += 1
        in_thread(save, [run])  # first: Ray may accept it although no answer comes
        id, attempt = f"{submission.body['submission_id']}-{submission.attempt}", str(submission.attempt)
        metadata = {COMMENT: run.comment, ATTEMPT: attempt}
        try:
            in_thread(self._api.submit, {**submission.body, "submission_id": id, "metadata": metadata})
        except Unreachable as error:
            self._postpone(f"Ray does not accept jobs: {error}")
        except Refused as error:
            run.is_unsure = False
            hint = "The check of the compute target may show why."
            run.state = Exit(failure=Failure(f"Ray refused the job: {error}", hint), seconds=0.0)
        else:
            self._accept([run])
            run.wait("Ray has accepted it")

    def _list_jobs(self) -> Listing[RayJob]:
        try:
            return self._api.list_jobs(self._mark)
        except Refused as error:
            raise Unreachable(str(error)) from error

    def _waiting(self, run: Run[RayJob], job: RayJob) -> Waiting:
        is_full = "resources" in (job.message or "")
        reason = "all suitable nodes are in use" if is_full else "Ray is starting it"
        return Waiting(f"{reason} (Ray job {job.id})")

    def _cancel(self, gently: Sequence[Listed[RayJob]], at_once: Sequence[Listed[RayJob]]) -> None:
        for run, job in (*gently, *at_once):
            # Ray does not stop a pending job. It has not begun, and will end at once because of the file.
            if job.is_pending and run.stop_since is not None and self._listed_at >= run.stop_since:
                run.state = Exit(stopped=True, seconds=0.0)
        for _, job in at_once:
            if not job.is_pending:
                self._ask(self._api.stop, job)

    def _discard(self, jobs: Sequence[RayJob]) -> None:
        for job in jobs:
            self._ask(self._api.stop if job.is_active else self._api.delete, job)

    def _is_interrupted(self, run: Run[RayJob], job: RayJob) -> bool:
        return job.error_type == START_TIMEOUT or (run.has_begun and run.phase == "interrupted")

    def _end_of(self, run: Run[RayJob], job: RayJob) -> Exit | None:
        if job.status == "STOPPED":
            return self._canceled()
        if run.has_begun and job.error_type:  # its node was lost
            return None
        run.failed_starts += not run.has_begun
        if not run.has_begun and run.failed_starts <= MAX_FAILED_STARTS:
            return None
        words = (job.message or job.status).strip().splitlines()
        return Exit(
            failure=Failure(
                f"Ray job {job.id} ended without a result: {words[0][:500]}",
                f"The end of {RaySubmission.LOG} in its folder may show why. The check of the compute target shows "
                "whether the nodes share the jobs folder and Python.",
            )
        )

    def _ask(self, request: Callable[[str], None], job: RayJob) -> None:
        try:
            in_thread(request, job.id)
        except (Unreachable, Refused) as error:
            log.warning("a request about Ray job %s failed: %s", job.id, error)


def has_ray(python: str) -> bool:
    """Return whether this ``python`` can import Ray. Blocks while another one than that of this process starts."""
    if python == sys.executable:
        return importlib.util.find_spec("ray") is not None
    program = "import importlib.util, sys; sys.exit(importlib.util.find_spec('ray') is None)"
    return Commands(os.environ).run(python, "-c", program)[0] == 0


def _too_large(nodes: Sequence[Node], request: DeviceRequest) -> Failure | None:
    """Return why ``nodes`` can never run ``request``, or None if they can."""
    compute, gpus = request.compute, request.gpus_per_worker
    needs: dict[str, Callable[[Node], bool]] = {
        f"{compute.cpus or 1} cores": lambda node: node.cpus >= (compute.cpus or 1),
        f"{gpus} GPUs": lambda node: node.gpus >= gpus,
        f"{compute.memory_mb or 0} MiB of memory": lambda node: (
            (node.memory_mb or 0) >= (compute.memory_mb or 0)
        ),
    }
    for what, has in needs.items():
        if not any(map(has, nodes)):
            return Failure(f"No node of the Ray cluster has {what}.", "Request less.")
    fitting = sum(all(has(node) for has in needs.values()) for node in nodes)
    if fitting >= compute.workers:
        return None
    return Failure(
        f"Nodes of the Ray cluster that have what one worker needs: {fitting}. Workers: {compute.workers}.",
        "Request fewer workers, or less for each.",
    )


def _resources(request: DeviceRequest) -> dict[str, float]:
    """Return what each worker needs, by Ray's names."""
    compute, gpus = request.compute, request.gpus_per_worker
    needed = {"CPU": float(compute.cpus or 1)}
    if gpus:
        needed["GPU"] = float(gpus)
    if compute.memory_mb:
        needed["memory"] = float(compute.memory_mb * _MIB)
    return needed


def _body(folder: Path, token: str, comment: str, resources: Mapping[str, float]) -> JsonObject:
    """Return the request for a job that runs the script in ``folder``, on the head node if without ``resources``."""
    names = {"CPU": "entrypoint_num_cpus", "GPU": "entrypoint_num_gpus", "memory": "entrypoint_memory"}
    return {
        "entrypoint": f"exec /bin/sh {shlex.quote(str(folder / RaySubmission.SCRIPT))} {token}",
        "submission_id": re.sub(r"[:/]", "-", comment),
        **{names[name]: int(amount) if name == "memory" else amount for name, amount in resources.items()},
    }
