"""The page of the compute targets: this machine and clusters, their state, checks, and jobs."""

from __future__ import annotations

from flask import Blueprint, url_for
from werkzeug.wrappers import Response as AnyResponse

from digits.core.compute import LOCAL
from digits.core.errors import NotFound
from digits.web.compute.machine import machine
from digits.web.jobs import serializers
from digits.web.resources.compute import CheckFinding, Cluster, Target, TargetCheck, Targets
from digits.web.resources.encoding import describe
from digits.web.responses.representation import render_in_turns, respond, twin
from digits.web.services import services
from digits.web.services.clusters import ClusterState

blueprint = Blueprint("compute", __name__)

SHOWN_JOBS = 50


@twin(blueprint, "/compute", Targets, "GET")
def index() -> AnyResponse:
    """List the compute targets, with their nodes, devices and jobs."""
    targets = Targets([_target(name, title) for name, title in services().clusters.titles.items()])
    return respond(targets, page=lambda: render_in_turns("compute.html", targets=targets.targets))


@twin(blueprint, "/compute/<name>/check", Target)
def check(name: str) -> AnyResponse:
    """Check a cluster in the background: its scheduler, the shared folder, TensorFlow and GPUs on a node."""
    if name not in services().clusters.names:
        raise NotFound(f"This server has no cluster “{name[:64]}”.", "GET /compute.json lists its targets.")
    services().clusters.check(name)
    title = services().clusters.titles[name]
    page = url_for("compute.index", _anchor=f"target-{name}")
    return respond(lambda: _target(name, title), created=page)


def _target(name: str, title: str) -> Target:
    state = ClusterState() if name == LOCAL else services().clusters.state(name)
    is_known = name == LOCAL or state.overview is not None
    jobs = [job for job in services().store.running() if job.compute.target == name]
    return Target(
        name=name,
        title=title,
        state="unreachable" if state.problem else "ready" if is_known else "asking",
        problem=state.problem,
        jobs=serializers.rows(jobs[:SHOWN_JOBS]),
        job_count=len(jobs),
        machine=machine() if name == LOCAL else None,
        cluster=None if name == LOCAL else _cluster(state),
    )


def _cluster(state: ClusterState) -> Cluster:
    overview, check = state.overview, state.check
    findings = [describe(CheckFinding, finding) for finding in check.findings] if check else []
    return Cluster(
        nodes=[*overview.nodes] if overview else [],
        partitions=[*overview.partitions] if overview else [],
        at=state.at,
        check=TargetCheck(at=check.at, is_running=check.is_running, findings=findings) if check else None,
        jobs_per_user=services().settings.cluster_jobs,
    )
