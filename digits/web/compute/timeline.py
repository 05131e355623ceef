"""Which jobs used the devices of this machine in the last day."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

from digits.core.compute import LOCAL
from digits.core.job import Job
from digits.core.status import Status
from digits.core.task import Task
from digits.web.jobs import serializers
from digits.web.resources.compute import DeviceUse
from digits.web.services import services

SECONDS = 24 * 3600.0
# More bars than this would blur together.
MAX_USES = 500


def latest_uses() -> list[DeviceUse]:
    """Return the uses of devices that were not over a day ago, the earliest first, at most the last `MAX_USES`."""
    since, store = time.time() - SECONDS, services().store
    ended = (job for job in store.index.changed_since(since) if not job.status.is_running)
    uses = (
        use
        for job in itertools.chain(store.running(), ended)
        if job.compute.target == LOCAL
        for task in job.tasks
        for use in _uses(job, task)
        if use.ended is None or use.ended > since
    )
    latest = list(itertools.islice(uses, MAX_USES))
    return _with_lanes(sorted(latest, key=lambda use: use.began))


def _uses(job: Job, task: Task) -> Iterator[DeviceUse]:
    """Yield a use for each device of the latest run of ``task``; those of earlier runs are not recorded."""
    runs = [index for index, (status, _) in enumerate(task.history) if status is Status.RUN]
    if not runs:
        return
    (_, began), *later = task.history[runs[-1] :]
    for device in task.devices:
        yield DeviceUse(
            device=device,
            job=job.name,
            url=serializers.job_url(job),
            status_label=job.status.title,
            status_css=job.status.css,
            began=began,
            ended=later[0][1] if later else None,
            lane=0,
        )


def _with_lanes(uses: list[DeviceUse]) -> list[DeviceUse]:
    """Put uses of the same device that overlap into different lanes, each into the first free one."""
    busy_until: dict[str, list[float]] = {}
    for use in uses:
        lanes = busy_until.setdefault(use.device, [])
        use.lane = next((lane for lane, until in enumerate(lanes) if until <= use.began), len(lanes))
        lanes[use.lane : use.lane + 1] = [float("inf") if use.ended is None else use.ended]
    return uses
