"""Ray's REST API for jobs and nodes, as plain HTTP: the server needs no package of Ray."""

from __future__ import annotations

import http.client
import json
import math
import socket
import time
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import msgspec
from gevent.monkey import get_original
from msgspec import Struct

from digits.core.schema import JsonObject
from digits.runtime.executors.cluster import Node, Overview
from digits.runtime.executors.queue_executor import Listing, Unreachable

# The keys of a job's metadata whose values identify the run that it was submitted for, and count its submissions: Ray
# takes minutes to end a job, and until then, refuses its id.
COMMENT, ATTEMPT = "digits", "attempt"
_ACTIVE = {"PENDING", "RUNNING"}
_MIB = 1024 * 1024
_TIMEOUT_SECONDS = 20.0

T = TypeVar("T")

# Those of the operating system, also after gevent has replaced them.
_Socket, _getaddrinfo = get_original("socket", ("socket", "getaddrinfo"))


class Refused(OSError):
    """Ray answered a request with an error: its HTTP ``status`` and last line."""

    def __init__(self, status: int, text: str) -> None:
        lines = [line for line in text.splitlines() if line.strip(" .")]
        super().__init__((lines[-1] if lines else f"HTTP status {status}")[:500])
        self.status = status
        self.text = text


class RayJob(Struct, frozen=True):
    """A job as Ray lists it. ``error_type`` is Ray's name of why it failed, if it did."""

    status: str
    submission_id: str | None = None
    message: str | None = None
    error_type: str | None = None
    metadata: dict[str, str] | None = None

    @property
    def id(self) -> str:
        return self.submission_id or ""

    @property
    def comment(self) -> str:
        return (self.metadata or {}).get(COMMENT, "")

    @property
    def attempt(self) -> int:
        number = (self.metadata or {}).get(ATTEMPT, "")
        return int(number) if number.isdecimal() else 0

    @property
    def is_active(self) -> bool:
        return self.status in _ACTIVE

    @property
    def is_pending(self) -> bool:
        return self.status == "PENDING"

    @property
    def is_running(self) -> bool:
        return self.status == "RUNNING"


class RayApi:
    """Sends requests to the dashboard of a Ray cluster at ``address``, for at most ``seconds`` each.

    ``token`` is that of a cluster with ``RAY_AUTH_MODE=token``. The methods block, and use nothing of gevent: call them
    in a native thread. They raise Unreachable while Ray does not answer, or only that it is not ready.
    """

    def __init__(self, address: str, token: str = "") -> None:
        parts = urlsplit(address)
        self._host, self._port = parts.hostname or "", parts.port or 80
        self._path = parts.path.rstrip("/")
        self._headers = {"Content-Type": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"

    def version(self) -> str:
        """Return the version of Ray."""
        return str(self._ask("GET", "/api/version").get("ray_version"))

    def list_jobs(self, mark: str) -> Listing[RayJob]:
        """List the jobs whose comments begin with ``mark``."""
        listing: Listing[RayJob] = Listing(time.monotonic())
        jobs = self._decode(self._send("GET", "/api/jobs/"), list[RayJob])
        for job in sorted(jobs, key=lambda job: job.attempt):
            if job.comment.startswith(mark):
                if older := listing.jobs.get(job.comment):
                    listing.replaced.append(older)
                listing.jobs[job.comment] = job
        return listing

    def job(self, id: str) -> RayJob | None:
        """Return a job, or None if Ray does not know it."""
        try:
            return self._decode(self._send("GET", _job_path(id)), RayJob)
        except Refused as error:
            if error.status == 404:
                return None
            raise

    def submit(self, body: JsonObject) -> None:
        """Submit the job that ``body`` describes, whose id is new; raises Refused."""
        try:
            self._send("POST", "/api/jobs/", body)
        except Refused as error:
            # The head passes requests on to an agent, and reports all of its errors as 500.
            if error.status >= 500 and "status code 400" not in error.text:
                raise Unreachable(str(error)) from error
            raise

    def stop(self, id: str) -> None:
        """Ask a job to stop: its processes get SIGTERM, and SIGKILL after three seconds. Pending ones stay."""
        self._change("POST", f"{_job_path(id)}/stop")

    def delete(self, id: str) -> None:
        """Remove a job that has ended from Ray's list."""
        self._change("DELETE", _job_path(id))

    def overview(self) -> Overview:
        """Return the nodes. Those that were replaced by a newer one with the same name are left out."""
        data = self._ask("GET", "/api/v0/nodes?detail=1&limit=10000")["data"]["result"]
        nodes = sorted(data["result"], key=lambda node: str(node.get("state")) == "ALIVE")
        status = self._ask("GET", "/api/cluster_status")["data"].get("clusterStatus") or {}
        usage = (status.get("loadMetricsReport") or {}).get("usageByNode") or {}
        known = {node["node_name"]: _node(node, usage.get(node["node_id"]) or {}) for node in nodes}
        return Overview(nodes=tuple(known[name] for name in sorted(known)))

    def _change(self, method: str, path: str) -> None:
        try:
            self._send(method, path)
        except Refused as error:
            if error.status != 404:  # it is gone already
                raise

    def _ask(self, method: str, path: str) -> dict[str, Any]:
        return self._decode(self._send(method, path), dict[str, Any])

    def _decode(self, data: bytes, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(data, type=kind)
        except msgspec.MsgspecError as error:
            raise Unreachable(f"{self._host}:{self._port} does not answer as Ray does: {error}") from error

    def _send(self, method: str, path: str, body: JsonObject | None = None) -> bytes:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=_TIMEOUT_SECONDS)
        try:
            connection.sock = self._connect()
            data = None if body is None else json.dumps(body).encode()
            connection.request(method, self._path + path, data, self._headers)
            answer = connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException) as error:
            why = str(error) or type(error).__name__
            raise Unreachable(f"no answer from {self._host}:{self._port} ({why})") from error
        finally:
            connection.close()
        if answer.status in (401, 403):
            raise Unreachable(
                f"it requires a token, or another one than that in DIGITS_RAY_TOKEN ({answer.status})"
            )
        if answer.status >= 400:
            raise Refused(answer.status, text.decode(errors="replace"))
        return text

    def _connect(self) -> Any:
        problem: OSError | None = None
        for family, kind, protocol, _, address in _getaddrinfo(
            self._host, self._port, type=socket.SOCK_STREAM
        ):
            sock = _Socket(family, kind, protocol)
            try:
                sock.settimeout(_TIMEOUT_SECONDS)
                sock.connect(address)
            except OSError as error:
                sock.close()
                problem = error
            else:
                return sock
        raise problem or OSError("its name has no address")


def _job_path(id: str) -> str:
    return f"/api/jobs/{quote(id, safe='')}"


def _node(node: dict[str, Any], usage: dict[str, Any]) -> Node:
    """Return a node from the state API, with its ``usage`` from the status of the cluster."""
    total = node.get("resources_total") or {}

    def count(name: str) -> int:
        return math.floor(total.get(name) or 0)

    def used(name: str) -> int:
        return math.ceil((usage.get(name) or (0, 0))[0])

    is_alive = node.get("state") == "ALIVE"
    state = (
        ("in use" if used("CPU") or used("GPU") else "idle") if is_alive else str(node.get("state")).lower()
    )
    return Node(
        name=str(node["node_name"]),
        state=state,
        cpus=count("CPU"),
        cpus_used=used("CPU"),
        gpus=count("GPU"),
        gpus_used=used("GPU"),
        memory_mb=count("memory") // _MIB,
        reason=str(node.get("state_message") or ""),
    )
