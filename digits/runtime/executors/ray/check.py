"""Check that tasks can run as Ray jobs."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

from digits.runtime.executors.cluster import Finding, Overview
from digits.runtime.executors.probe import Probe
from digits.runtime.executors.queue_executor import Unreachable
from digits.runtime.executors.ray.api import RayApi, Refused


def check(api: RayApi, folder: Path, environment: Mapping[str, str]) -> Iterator[Finding]:
    """Check the cluster with a job that uses a new folder in ``folder``; blocks, for minutes if the cluster is busy."""
    try:
        version, cluster = api.version(), api.overview()
    except (Unreachable, Refused) as error:
        hint = "Start the cluster (ray start --head), and check the address and the token of the server."
        yield Finding(title="Ray answers", is_ok=False, detail=str(error), remedy=hint)
        return
    detail = f"version {version}, {len(cluster.nodes)} nodes"
    yield Finding(title="Ray answers", is_ok=True, detail=detail)
    yield from _RayProbe(api, folder, cluster, environment).findings()


class _RayProbe(Probe):
    """A probe that is a Ray job."""

    def __init__(self, api: RayApi, folder: Path, cluster: Overview, environment: Mapping[str, str]) -> None:
        super().__init__(folder, cluster, environment)
        self._api = api
        self._id = f"digits-{self._folder.name}"

    def submit(self, script: Path, log: Path, has_gpu: bool) -> Finding | None:
        # Some resource is requested so that any node may run it, not only the head.
        amounts = {"entrypoint_num_cpus": 1, "entrypoint_num_gpus": int(has_gpu)}
        entrypoint = f"exec /bin/sh {shlex.quote(str(script))}"
        try:
            self._api.submit({"entrypoint": entrypoint, "submission_id": self._id, **amounts})
        except (Unreachable, Refused) as error:
            return Finding(
                title="Ray accepts a job",
                is_ok=False,
                detail=str(error),
                remedy="Install ray[default] on all nodes, which includes the agent that starts jobs.",
            )
        return None

    def state(self) -> str:
        try:
            job = self._api.job(self._id)
        except (Unreachable, Refused):
            return ""
        return f"{job.status} ({job.message})"[:1000] if job else "gone"

    def is_active(self, state: str) -> bool:
        return state.startswith(("PENDING", "RUNNING"))

    def cancel(self) -> None:
        try:
            job = self._api.job(self._id)
            if job is not None:
                (self._api.stop if job.is_active else self._api.delete)(self._id)
        except (Unreachable, Refused):
            pass
