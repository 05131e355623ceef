"""Which executor runs a task, and how many workers may share it."""

from __future__ import annotations

from pathlib import Path

import pytest

from digits.core.compute import Compute
from digits.core.job import DeviceRequest, Job
from digits.core.status import Status
from digits.runtime.executors.pools import POOLS, Executors, limits
from digits.runtime.scheduler import Scheduler
from digits.runtime.short_tasks import POOL as SHORT
from digits.runtime.task_runner import TaskRunner
from digits.web.app import ACTIVITIES
from tests.runtime.executors.test_another_executor import PROGRAMS
from tests.runtime.executors.thread_executor import ThreadExecutor
from tests.runtime.toy_jobs import Server, ToyJob

ON_CLUSTER = Compute(target="cluster")
DATASET, TRAINING, PREDICTION = (
    DeviceRequest(pool, compute=ON_CLUSTER) for pool in ("dataset", "training", "prediction")
)


def test_every_activity_has_a_pool() -> None:
    pools = {activity.pool for activity in ACTIVITIES}
    assert {*pools, SHORT, "activity", "dataset", "training", "inference"} == set(POOLS) == set(limits())


def test_tasks_run_on_the_target_of_their_job_except_those_that_people_wait_for() -> None:
    local, cluster = ThreadExecutor({}), ThreadExecutor({})
    executors = Executors(local, {"cluster": cluster})
    assert executors.of(TRAINING) is executors.of(DATASET) is cluster
    assert executors.of(PREDICTION) is executors.of(DeviceRequest(SHORT, compute=ON_CLUSTER)) is local
    assert executors.of(DeviceRequest("training")) is local
    with pytest.raises(ValueError, match="no compute target “cluster”, only local"):
        Executors(local).of(TRAINING)


def test_only_trainings_have_several_workers() -> None:
    executors = Executors(ThreadExecutor({}))
    assert executors.of(DeviceRequest("training", compute=Compute(workers=8))) is executors.local
    with pytest.raises(ValueError, match="2 workers cannot share"):
        executors.of(DeviceRequest("dataset", compute=Compute(workers=2)))


@pytest.mark.integration
def test_a_run_stays_with_the_executor_that_started_it(tmp_path: Path) -> None:
    """A server with a cluster is restarted without it, and the other way round."""
    local, cluster = ThreadExecutor(PROGRAMS), ThreadExecutor(PROGRAMS)

    def restart(executors: Executors) -> list[ToyJob]:
        server.scheduler.stop()
        server.runner.close()
        server.store.load()
        server.runner = TaskRunner(executors)
        server.scheduler = Scheduler(server.store, server.runner)
        server.scheduler.start()
        server.runner.serve()
        return sorted(server.store.all(ToyJob), key=lambda job: job.request.pool)

    server = Server(tmp_path, local)
    restart(Executors(local, {"cluster": cluster}))
    dataset = server.submit("waits", request=DeviceRequest("dataset"))
    training = server.submit("waits", request=TRAINING)
    server.wait(lambda: dataset.status is training.status is Status.RUN)
    assert len(local.tasks) == len(cluster.tasks) == 1
    # The handles decide, not the requests.
    for job, request in ((dataset, TRAINING), (training, DeviceRequest("dataset"))):
        job.request = request
        server.store.save(job)
    there, here = restart(Executors(local, {"cluster": cluster}))
    server.wait(lambda: len(local.polls) > 2 and len(cluster.polls) > 2)
    assert here.status is there.status is Status.RUN
    for job in server.store.all(Job):
        server.scheduler.abort(job)
        assert server.wait_for_end(job) is Status.ABORT
    server.stop()
