"""Run tasks as jobs of a Ray cluster, through the REST API of its dashboard.

On the nodes, `digits.runtime.executors.ray.job` runs a task under the same supervisor as locally.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import math
import os
import re
import shlex
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from digits.core.job import DeviceRequest
from digits.core.task import Failure
from digits.runtime.executors.cluster import Node, Overview, Unreachable
from digits.runtime.executors.cluster_queue import QueuedJob, Refused, Status
from digits.runtime.executors.commands import Commands
from digits.runtime.executors.executor import Waiting
from digits.runtime.executors.queue_executor import QueueExecutor
from digits.runtime.executors.ray import job as ray_job
from digits.runtime.executors.ray.api import RayApi, RayError
from digits.runtime.executors.submission import Submission

log = logging.getLogger(__name__)

MINUTE_SECONDS = 60.0
_MIB = 1024 * 1024
# Ray's resources of a worker, and of the program of a job.
_RESOURCES = {"CPU": "entrypoint_num_cpus", "GPU": "entrypoint_num_gpus", "memory": "entrypoint_memory"}
_STATUSES: dict[str, Status] = {
    "PENDING": "pending",
    "RUNNING": "running",
    "STOPPED": "canceled",
    # It has waited longer than RAY_JOB_START_TIMEOUT_SECONDS, by default 15 minutes.
    "JOB_SUPERVISOR_ACTOR_START_TIMEOUT": "expired",
}


class RayExecutor(QueueExecutor):
    """Runs tasks as jobs of the Ray cluster whose dashboard has this ``address``, such as ``http://127.0.0.1:8265``.

    ``token`` is that of a cluster with token authentication. ``python`` runs `digits.runtime.executors.ray.job` on the
    nodes; for several workers, it needs the package of Ray. See `QueueExecutor` for ``options``.
    """

    title = "Ray"
    setup_hint = (
        "Start the cluster (ray start --head) with ray[default] on all nodes, which includes the agent that starts "
        "jobs, and check the address and the token of the server."
    )
    lost_hint = "The head node may have been started again, or the node cannot write to the jobs folder."

    def __init__(
        self,
        jobs_folder: Path,
        address: str,
        *,
        token: str = "",
        python: str = sys.executable,
        **options: Any,
    ) -> None:
        super().__init__(jobs_folder, **options)
        self._api = RayApi(address, token)
        self._python = python

    def overview(self) -> Overview:
        """Return the nodes. Those that were replaced by a newer one with the same name are left out."""
        version = self._api.ask("version", dict[str, Any])["ray_version"]
        data = self._api.ask("v0/nodes?detail=1&limit=10000", dict[str, Any])["data"]["result"]
        nodes = sorted(data["result"], key=lambda node: node["state"] == "ALIVE")
        status = self._api.ask("cluster_status", dict[str, Any])["data"].get("clusterStatus") or {}
        usage = (status.get("loadMetricsReport") or {}).get("usageByNode") or {}
        known = {node["node_name"]: _node(node, usage.get(node["node_id"]) or {}) for node in nodes}
        return Overview(nodes=tuple(known[name] for name in sorted(known)), version=version)

    def refusal(self, folder: Path, request: DeviceRequest) -> Failure | None:
        compute, gpus = request.compute, request.gpus_per_worker
        fields = {"partition": compute.partition, "account": compute.account, "QoS": compute.qos}
        for name, value in {**fields, "additional options": compute.options}.items():
            if value:
                return Failure(f"Ray has no {name}.", "Leave it empty.")
        if compute.workers > 1 and not has_ray(self._python):
            hint = f"Install it, in the version of the cluster, for {self._python}, or use one worker."
            return Failure("Several workers need the package of Ray in the Python of DIGITS.", hint)
        try:
            fitting = [node for node in self.overview().nodes if node.state != "dead"]
        except Unreachable:
            return None  # the job waits until Ray answers
        for name, what, needed in (
            ("cpus", "cores", compute.cpus or 1),
            ("gpus", "GPUs", gpus),
            ("memory_mb", "MiB of memory", compute.memory_mb or 0),
        ):
            fitting = [node for node in fitting if (getattr(node, name) or 0) >= needed]
            if not fitting:
                return Failure(f"No node of the Ray cluster has {needed} {what}.", "Request less.")
        if len(fitting) >= compute.workers:
            return None
        return Failure(
            f"Nodes of the Ray cluster that have what one worker needs: {len(fitting)}. Workers: {compute.workers}.",
            "Request fewer workers, or less for each.",
        )

    # The scheduler

    def command(self, folder: Path, new: Submission) -> list[str]:
        compute = new.request.compute
        seconds = compute.minutes * MINUTE_SECONDS if compute.minutes else 0.0
        arguments = [folder, new.token, compute.workers, seconds, json.dumps(_resources(new.request))]
        return [self._python, "-P", "-m", ray_job.__name__, *map(str, arguments)]

    def send(self, folder: Path, new: Submission) -> None:
        name, compute = self.name_of(folder, new), new.request.compute
        script, log_file = (shlex.quote(str(self.path(folder, ending))) for ending in ("sh", "log"))
        steps = [
            f"exec >>{log_file} 2>&1",
            f"grep -q {new.token} {script} || exit 0",  # the job of an earlier run, which Ray did not stop
            *(["unset OMP_NUM_THREADS"] if compute.cpus is None else []),  # which Ray sets to 1
            f"exec /bin/sh {script}",
        ]
        # The program of several workers runs on the head, and reserves their nodes.
        resources = _resources(new.request) if compute.workers == 1 else {}
        body = {
            "entrypoint": "; ".join(steps),
            "submission_id": re.sub(r"[:/]", "-", name),
            "metadata": {"digits": name},
            **{_RESOURCES[resource]: amount for resource, amount in resources.items()},
        }
        try:
            self._api.send("POST", "jobs/", body)
        except RayError as error:
            # The head passes requests on to an agent, and reports all of its errors as 500.
            if error.status < 500 or "status code 400" in error.text:
                hint = "The check of the compute target may show why."
                raise Refused(f"Ray refused the job: {error}", hint) from error
            raise

    def list_jobs(self) -> dict[str, QueuedJob]:
        found = {}
        for job in self._api.ask("jobs/", list[dict[str, Any]]):
            name = (job["metadata"] or {}).get("digits", "")
            if name.startswith(self._mark):
                status = _STATUSES.get(job["error_type"] or job["status"], "failed")
                words = (job["message"] or job["status"]).strip().partition("\n")[0][:500]
                found[name] = QueuedJob(job["submission_id"], name, status, words)
        return found

    def waiting(self, job: QueuedJob, has_begun: bool) -> Waiting:
        reason = "all suitable nodes are in use" if "resources" in job.words else "Ray is starting it"
        return Waiting(f"{reason} (Ray job {job.id})")

    def cancel(self, gently: Sequence[QueuedJob], at_once: Sequence[QueuedJob]) -> Collection[QueuedJob]:
        # A running one looks for the file that asks it to stop: Ray would kill it after three seconds.
        self.discard([job for job in at_once if not job.is_pending])
        # Ray does not stop a pending job. It has not begun, and will end at once because of the file.
        return [job for job in (*gently, *at_once) if job.is_pending]

    def discard(self, jobs: Sequence[QueuedJob]) -> None:
        for job in jobs:
            path = f"jobs/{quote(job.id, safe='')}"
            try:
                self._api.send(*(("POST", f"{path}/stop") if job.is_active else ("DELETE", path)))
            except (
                Unreachable
            ) as error:  # also because it is gone; otherwise, the next listing contains it again
                log.info("a request about Ray job %s failed: %s", job.id, error)


def has_ray(python: str) -> bool:
    """Return whether this ``python`` can import Ray. Blocks while another one than that of this process starts."""
    if python == sys.executable:
        return importlib.util.find_spec("ray") is not None
    program = "import importlib.util, sys; sys.exit(importlib.util.find_spec('ray') is None)"
    return Commands(os.environ).run(python, "-c", program)[0] == 0


def _resources(request: DeviceRequest) -> dict[str, int]:
    """Return what each worker needs, by Ray's names: numbers, and bytes of memory."""
    compute = request.compute
    needed = {
        "CPU": compute.cpus or 1,
        "GPU": request.gpus_per_worker,
        "memory": (compute.memory_mb or 0) * _MIB,
    }
    return {name: amount for name, amount in needed.items() if amount}


def _node(node: dict[str, Any], usage: dict[str, Any]) -> Node:
    """Return a node from the state API, with its ``usage`` from the status of the cluster."""
    total = node.get("resources_total") or {}
    cpus, gpus = (math.ceil((usage.get(name) or (0, 0))[0]) for name in ("CPU", "GPU"))
    state = str(node["state"]).lower()
    return Node(
        name=str(node["node_name"]),
        state=("in use" if cpus or gpus else "idle") if state == "alive" else state,
        cpus=math.floor(total.get("CPU", 0)),
        cpus_used=cpus,
        gpus=math.floor(total.get("GPU", 0)),
        gpus_used=gpus,
        memory_mb=math.floor(total.get("memory", 0)) // _MIB,
        reason=str(node.get("state_message") or ""),
    )
