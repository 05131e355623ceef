"""Run tasks as jobs of a Ray cluster, through the REST API of its dashboard.

On the nodes, `digits.runtime.executors.ray.job` runs a task under the same supervisor as locally.
"""

from __future__ import annotations

import http.client
import json
import logging
import math
import os
import re
import shlex
import socket
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import msgspec
from gevent.monkey import get_original

from digits.core.job import DeviceRequest
from digits.core.schema import JsonObject
from digits.core.task import Failure
from digits.runtime.executors.cluster import Node, Overview, Unreachable
from digits.runtime.executors.cluster_queue import QueuedJob, Refused, Status, Submission
from digits.runtime.executors.commands import Commands
from digits.runtime.executors.executor import Waiting
from digits.runtime.executors.queue_executor import QueueExecutor
from digits.runtime.executors.ray import job as ray_job

log = logging.getLogger(__name__)

MINUTE_SECONDS = 60.0
_TIMEOUT_SECONDS = 20.0  # of each request
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

T = TypeVar("T")

# Those of the operating system, also after gevent has replaced them.
_Socket, _getaddrinfo = get_original("socket", ("socket", "getaddrinfo"))


class RayError(Unreachable):
    """Ray answered a request with an error: its HTTP ``status``, and all text. The message is its last line."""

    def __init__(self, status: int, text: str) -> None:
        lines = [line for line in text.splitlines() if line.strip(" .")]
        super().__init__((lines[-1] if lines else f"HTTP status {status}")[:500])
        self.status, self.text = status, text


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
        parts = urlsplit(address)
        self._host, self._port = parts.hostname or "", parts.port or 80
        self._base = f"{parts.path.rstrip('/')}/api/"
        self._headers = {"Content-Type": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._python = python

    def overview(self) -> Overview:
        """Return the nodes. Those that were replaced by a newer one with the same name are left out."""
        version = self._ask("version", dict[str, Any])["ray_version"]
        data = self._ask("v0/nodes?detail=1&limit=10000", dict[str, Any])["data"]["result"]
        nodes = sorted(data["result"], key=lambda node: node["state"] == "ALIVE")
        status = self._ask("cluster_status", dict[str, Any])["data"].get("clusterStatus") or {}
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
            self._send("POST", "jobs/", body)
        except RayError as error:
            # The head passes requests on to an agent, and reports all of its errors as 500.
            if error.status < 500 or "status code 400" in error.text:
                hint = "The check of the compute target may show why."
                raise Refused(f"Ray refused the job: {error}", hint) from error
            raise

    def list_jobs(self) -> dict[str, QueuedJob]:
        found = {}
        for job in self._ask("jobs/", list[dict[str, Any]]):
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
        for job in at_once:
            path = f"jobs/{quote(job.id, safe='')}"
            try:
                if job.status == "running":
                    self._send("POST", f"{path}/stop")
                elif not job.is_active:
                    self._send("DELETE", path)
            except Unreachable as error:
                # Also because it is gone; otherwise, the next listing contains it again.
                log.info("a request about Ray job %s failed: %s", job.id, error)
        # Ray does not stop a pending job. It has not begun, and will end at once because of the file.
        return [job for job in (*gently, *at_once) if job.is_pending]

    # Requests: plain HTTP, without anything of gevent, because they are made in native threads

    def _ask(self, path: str, kind: type[T]) -> T:
        """Return the answer to a request; raises Unreachable or RayError."""
        try:
            return msgspec.json.decode(self._send("GET", path), type=kind)
        except msgspec.MsgspecError as error:
            raise Unreachable(f"{self._host}:{self._port} does not answer as Ray does: {error}") from error

    def _send(self, method: str, path: str, body: JsonObject | None = None) -> bytes:
        """Return the text of the answer to a request; raises Unreachable or RayError."""
        connection = http.client.HTTPConnection(self._host, self._port, timeout=_TIMEOUT_SECONDS)
        try:
            connection.sock = self._connect()
            data = None if body is None else json.dumps(body).encode()
            connection.request(method, f"{self._base}{path}", data, self._headers)
            answer = connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException) as error:
            why = str(error) or type(error).__name__
            raise Unreachable(f"no answer from {self._host}:{self._port} ({why})") from error
        finally:
            connection.close()
        if answer.status in (401, 403):
            problem = "it requires a token, or another one than that in DIGITS_RAY_TOKEN"
            raise Unreachable(f"{problem} ({answer.status})")
        if answer.status >= 400:
            raise RayError(answer.status, text.decode(errors="replace"))
        return text

    def _connect(self) -> Any:
        problem = OSError("its name has no address")
        addresses = _getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        for family, kind, protocol, _, address in addresses:
            sock = _Socket(family, kind, protocol)
            sock.settimeout(_TIMEOUT_SECONDS)
            try:
                sock.connect(address)
                return sock
            except OSError as error:
                sock.close()
                problem = error
        raise problem


def has_ray(python: str) -> bool:
    """Return whether this ``python`` can import Ray. Blocks while it starts."""
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
