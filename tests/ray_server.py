"""A stand-in for the dashboard of a Ray cluster, which answers as Ray 2.60 was recorded to answer.

Jobs really run, as processes of this machine, while the cluster has a free place.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

VERSION = {
    "version": "4",
    "ray_version": "2.60.0",
    "ray_commit": "b7f4259",
    "session_name": "session_2026-11-26",
}
PENDING = (
    "Job has not started yet. It may be waiting for resources (CPUs, GPUs, memory, custom resources) to become "
    "available."
)
MESSAGES = {
    "PENDING": PENDING,
    "RUNNING": "Job is currently running.",
    "SUCCEEDED": "Job finished successfully.",
    "STOPPED": "Job was intentionally stopped.",
}
START_TIMEOUT = {
    "status": "FAILED",
    "error_type": "JOB_SUPERVISOR_ACTOR_START_TIMEOUT",
    "message": "Job supervisor actor failed to start within 900.0 seconds. This timeout can be configured by setting the "
    "environment variable RAY_JOB_START_TIMEOUT_SECONDS.",
}
ACTOR_DIED = {
    "status": "FAILED",
    "error_type": "JOB_SUPERVISOR_ACTOR_DIED",
    "message": "Job supervisor actor died: The actor died unexpectedly before finishing this task.",
}


@dataclass
class Job:
    """A job; ``forced`` replaces fields of its description."""

    body: dict[str, Any]
    process: subprocess.Popen[bytes] | None = None
    is_stopped: bool = False
    forced: dict[str, Any] | None = None
    reports_end_at: float = 0.0

    @property
    def status(self) -> str:
        if self.forced:
            return str(self.forced["status"])
        if self.process is not None and time.monotonic() < self.reports_end_at:
            return "RUNNING"
        if self.process is None:
            return "PENDING"
        code = self.process.poll()
        if code is None:
            return "RUNNING"
        return "STOPPED" if self.is_stopped else "FAILED" if code else "SUCCEEDED"

    @property
    def has_ended(self) -> bool:
        return self.status not in ("PENDING", "RUNNING")

    def details(self) -> dict[str, Any]:
        status = self.status
        code = self.process.returncode if self.process else None
        failed = f"Job entrypoint command failed with exit code {code}, last available logs (truncated to 20,000 chars):\n"
        return {
            "type": "SUBMISSION",
            "job_id": None,
            "submission_id": self.body["submission_id"],
            "driver_info": None,
            "status": status,
            "entrypoint": self.body["entrypoint"],
            "message": MESSAGES.get(status, failed),
            "error_type": "JOB_ENTRYPOINT_COMMAND_ERROR" if status == "FAILED" else None,
            "metadata": self.body.get("metadata"),
            "driver_exit_code": code,
            **(self.forced or {}),
        }


class RayServer:
    """The dashboard, on loopback. At most ``places`` jobs run at the same time. As a context, all end with it."""

    def __init__(self, token: str = "", port: int = 0) -> None:
        self.jobs: dict[str, Job] = {}
        self.places = 2
        self.delay = 0.0  # of the report of an end, in seconds from the start
        self.requests: list[str] = []
        self.bodies: list[dict[str, Any]] = []
        self.token = token
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", port), self._handler())
        self.port = self._server.server_port
        self.address = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
        for job in self.jobs.values():
            if job.process is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(job.process.pid, signal.SIGKILL)
                job.process.wait()

    def close(self) -> None:
        """Stop answering. Jobs keep running."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def kill(self, id: str, **forced: Any) -> None:
        """End a job as its node's death does."""
        job = self.jobs[id]
        if job.process is not None:
            os.killpg(job.process.pid, signal.SIGKILL)
            job.process.wait()
        job.forced = forced

    def answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        """Return the HTTP status, and a text or JSON."""
        with self._lock:
            return self._answer(method, path, body)

    def _answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        self.requests.append(f"{method} {path}")
        self._start_pending()
        if path == "/api/version":
            return 200, VERSION
        if path == "/api/jobs/" and method == "GET":
            return 200, [job.details() for job in self.jobs.values()]
        if path == "/api/jobs/":
            return self._submit(body)
        if match := re.fullmatch(r"/api/jobs/([^/]+)(/stop)?", path):
            return self._one(method + (match[2] or ""), match[1])
        if path.startswith("/api/v0/nodes"):
            return 200, self._nodes()
        if path == "/api/cluster_status":
            return 200, self._usage()
        return 404, "404: Not Found"

    def _submit(self, body: dict[str, Any]) -> tuple[int, Any]:
        self.bodies.append(body)
        id = body["submission_id"]
        if id in self.jobs:
            return 500, (
                "Traceback (most recent call last):\nRuntimeError: Request failed with status code 400: Traceback (most "
                f"recent call last):\nValueError: Job with submission_id {id} already exists. Please use a different "
                "submission_id.\n.\n"
            )
        self.jobs[id] = Job(body)
        self._start_pending()
        return 200, {"job_id": id, "submission_id": id}

    def _one(self, action: str, id: str) -> tuple[int, Any]:
        job = self.jobs.get(id)
        if job is None:
            return 404, f"Job {id} does not exist"
        if action == "GET":
            return 200, job.details()
        if action == "DELETE":
            if not job.has_ended:
                problem = f"RuntimeError: Attempted to delete job '{id}', but it is in a non-terminal state {job.status}."
                return 500, f"Traceback (most recent call last):\n{problem}\n"
            del self.jobs[id]
            return 200, {"deleted": True}
        if job.status == "RUNNING" and job.process:
            job.is_stopped = True
            os.killpg(job.process.pid, signal.SIGTERM)
            threading.Thread(target=_kill_later, args=(job.process,)).start()
        return 200, {"stopped": not job.has_ended}  # also for a pending one, which stays

    def _start_pending(self) -> None:
        running = sum(job.status == "RUNNING" for job in self.jobs.values())
        for job in self.jobs.values():
            if running < self.places and job.status == "PENDING":
                variables = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
                job.process = subprocess.Popen(
                    job.body["entrypoint"], shell=True, start_new_session=True, env=variables
                )
                job.reports_end_at = time.monotonic() + self.delay
                running += 1

    def _nodes(self) -> dict[str, Any]:
        head = {"CPU": 4.0, "memory": 21084262144.0, "node:__internal_head__": 1.0}
        other = {"CPU": 8.0, "GPU": 2.0, "memory": 20792319744.0}
        nodes = [
            _node("9def", "127.0.0.2", other),
            _node("f6e9", "127.0.0.1", head),
            {**_node("dead", "127.0.0.2", {}), "state": "DEAD", "state_message": "Unexpected termination"},
            {**_node("gone", "127.0.0.3", {}), "state": "DEAD", "state_message": "Unexpected termination"},
        ]
        return {"result": True, "msg": "", "data": {"result": {"total": len(nodes), "result": nodes}}}

    def _usage(self) -> dict[str, Any]:
        usage = {"9def": {"CPU": [0.5, 8.0], "GPU": [1.0, 2.0]}, "f6e9": {"CPU": [0.0, 4.0]}}
        status = {"loadMetricsReport": {"usageByNode": usage}}
        return {"result": True, "msg": "Got cluster status.", "data": {"clusterStatus": status}}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def _reply(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length) or b"{}")
                if server.token and self.headers.get("Authorization") != f"Bearer {server.token}":
                    status, answer = 401, "Unauthorized: Missing authentication token"
                else:
                    status, answer = server.answer(self.command, self.path, body)
                data = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_DELETE = _reply

            def log_message(self, *arguments: object) -> None: ...

        return Handler


def _node(id: str, name: str, resources: dict[str, float]) -> dict[str, Any]:
    return {
        "node_id": id,
        "node_ip": name,
        "is_head_node": "node:__internal_head__" in resources,
        "state": "ALIVE",
        "state_message": None,
        "node_name": name,
        "resources_total": resources,
    }


def _kill_later(process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 3
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
