"""Several workers that share a training."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from digits.core import events, recipe, resume_point
from digits.core.compute import Compute
from digits.core.events import Failed, Finished, Measured, Resumed, Saved, Warned
from digits.core.job import DeviceRequest
from digits.core.task import EXIT_PARTNER_LOST, RANK_VARIABLE, RUN_VARIABLE, WORKERS_VARIABLE
from digits.runtime.executors.executor import Exit, Placement
from digits.runtime.executors.local import LocalExecutor
from digits.runtime.executors.processes import processes_in
from tests.waiting import wait_until
from tests.worker import networks
from tests.worker.conftest import Outcome, Running, snapshot
from tests.worker.lazily import rendezvous, snapshots

# A convolution, regularization, batch normalization only where it does not depend on the batch, and no dropout.
NETWORK = networks.classifier(
    """
x = slim.conv2d(self.x / 100.0, 4, [3, 3], weights_regularizer=slim.l2_regularizer(0.001))
x = slim.flatten(slim.max_pool2d(x, [2, 2]))
return slim.fully_connected(x, self.nclasses, activation_fn=None, scope='fc')
"""
)
NORMALIZED = networks.classifier(
    """
x = slim.batch_norm(slim.flatten(self.x / 100.0), is_training=self.is_training)
x = slim.dropout(x, 0.8, is_training=self.is_training)
x = tf.keras.layers.Dropout(0.2)(x)
self.summaries.append(tf.summary.scalar('counted', tf.metrics.mean(x)[1]))
return slim.fully_connected(x, self.nclasses, activation_fn=None, scope='fc')
"""
)
# The fused operations of slim and of tf.layers, moments without them, and averages that are updated at once.
SYNCHRONIZED_SLIM = networks.classifier(
    """
normalize = dict(is_training=self.is_training, decay=0.8)
x = slim.conv2d(self.x / 100.0, 4, [3, 3], normalizer_fn=slim.batch_norm, normalizer_params=normalize)
x = slim.batch_norm(x, updates_collections=None, fused=False, **normalize)
x = slim.fully_connected(slim.flatten(slim.max_pool2d(x, [2, 2])), 6, activation_fn=None)
x = slim.batch_norm(x, updates_collections=None, activation_fn=tf.nn.relu, **normalize)
return slim.fully_connected(slim.layer_norm(x), self.nclasses, activation_fn=None, scope='fc')
"""
)
SYNCHRONIZED_KERAS = networks.classifier(
    """
layers = tf.keras.layers
x = layers.Conv2D(4, 3, padding='same')(self.x / 100.0)
x = layers.BatchNormalization(momentum=0.8)(x, training=self.is_training)
x = layers.Dense(6)(layers.Flatten()(layers.MaxPooling2D()(layers.ReLU()(x))))
x = layers.BatchNormalization(momentum=0.8)(x, training=self.is_training)
return layers.Dense(self.nclasses, name='fc')(layers.ReLU()(x))
"""
)
# Everything that draws random numbers for single images. Blended images need the record before the share.
AUGMENT: dict[str, Any] = {
    "flip": "fliplrud",
    "pad_crop": 1,
    "noise": 0.02,
    "mixup": 0.4,
    "cutmix": 1.0,
    "contrast": 0.2,
}
SETTINGS: dict[str, Any] = {
    "epochs": 4,
    "batch_size": 12,
    "batch_accumulation": 2,
    "augment": AUGMENT,
    "solver": {"type": "MOMENTUM", "learning_rate": 0.02},
    "snapshot_interval": 1,
}
OF_SPEED = ("images_per_second", "waiting_share")
UNACCUMULATED = SETTINGS | {"batch_accumulation": 1, "solver": {"type": "SGD", "learning_rate": 0.002}}


@pytest.fixture
def gang(start: Any) -> Iterator[Callable[..., list[Running]]]:
    """Return a function that starts the ``workers`` of a task in forked processes, as run number ``run``, or only some ``ranks``."""

    def start_all(
        task_folder: Path, workers: int, run: int = 1, ranks: Sequence[int] | None = None
    ) -> list[Running]:
        started = []
        for rank in range(workers) if ranks is None else ranks:
            os.environ[RANK_VARIABLE], os.environ[WORKERS_VARIABLE] = str(rank), str(workers)
            os.environ[RUN_VARIABLE] = str(run)
            try:
                started.append(start(task_folder))
            finally:
                del os.environ[RANK_VARIABLE], os.environ[WORKERS_VARIABLE], os.environ[RUN_VARIABLE]
        return started

    return start_all


@pytest.fixture
def train_together(model: Any, gang: Any) -> Callable[..., Outcome]:
    """Return a function that trains with several ``workers`` to the end, and returns the outcome of the first."""

    def train(network: str, workers: int, name: str, **settings: Any) -> Outcome:
        outcomes = [task.wait() for task in gang(model(network, name, **settings), workers)]
        assert [outcome.code for outcome in outcomes] == [0] * workers, outcomes[0].output
        return outcomes[0]

    return train


def rows(outcome: Outcome) -> list[tuple[Any, ...]]:
    """Return the rows of the curves, without what depends on the speed and the rows of an abandoned run."""
    found: list[Measured] = []
    for event in outcome.events:
        if isinstance(event, Resumed):
            found = [row for row in found if row.step <= event.step]
        elif isinstance(event, Measured):
            found.append(event)
    return [
        (row.stage, row.step, {name: item for name, item in row.values.items() if name not in OF_SPEED})
        for row in found
    ]


def check_close(one: Outcome, other: Outcome, values: Callable[..., dict[str, np.ndarray]]) -> None:
    """Check the rows and the last weights of two trainings."""
    assert [row[:2] for row in rows(one)] == [row[:2] for row in rows(other)]
    for (_, _, mine), (_, _, theirs) in zip(rows(one), rows(other), strict=True):
        assert mine == pytest.approx(theirs, abs=1e-4)
    weights = [values(snapshot, outcome.job_folder, "snapshot_4.ckpt") for outcome in (one, other)]
    assert weights[0].keys() == weights[1].keys()
    for name, value in weights[0].items():
        np.testing.assert_allclose(value, weights[1][name], atol=1e-5, err_msg=name)


def test_two_workers_train_as_one_does(
    trained: Any, train_together: Any, in_child: Any, tmp_path: Path
) -> None:
    alone = trained(NETWORK, "alone", **SETTINGS)
    together = train_together(NETWORK, 2, "together", **SETTINGS)
    check_close(alone, together, in_child)
    assert together.of(Finished)[0].result["workers"] == 2
    assert not (together.job_folder / "train" / "rendezvous").exists()


def test_the_share_of_waiting_is_that_of_the_worker_that_waits_most(train_together: Any) -> None:
    slow = f"x = tf.py_func(lambda x: (time.sleep(0.1 * (os.environ['{RANK_VARIABLE}'] == '0')), x)[1], [self.x], tf.float32)"
    network = "import os, time\n" + networks.classifier(
        f"{slow}\nx.set_shape(self.x.shape)\nreturn slim.fully_connected(slim.flatten(x), self.nclasses, scope='fc')"
    )
    rows = train_together(network, 2, "slow", epochs=3, batch_size=12).of(Measured)
    shares = [row.values["waiting_share"] for row in rows if "waiting_share" in row.values]
    assert shares and 0.5 < shares[-1] < 1


@pytest.mark.parametrize(
    "network",
    [
        pytest.param(SYNCHRONIZED_SLIM, id="slim"),
        pytest.param(SYNCHRONIZED_KERAS, id="keras", marks=pytest.mark.nightly),
    ],
)
def test_workers_normalize_by_the_records_of_all_if_they_are_synchronized(
    trained: Any, train_together: Any, in_child: Any, network: str
) -> None:
    alone = trained(network, "alone", **UNACCUMULATED)
    together = train_together(network, 2, "together", synchronized_batch_norm=True, **UNACCUMULATED)
    check_close(alone, together, in_child)


@pytest.mark.nightly
@pytest.mark.parametrize("network", [SYNCHRONIZED_SLIM, SYNCHRONIZED_KERAS], ids=["slim", "keras"])
def test_workers_normalize_by_their_own_records_if_they_are_not_synchronized(
    trained: Any, train_together: Any, network: str
) -> None:
    alone = trained(network, "alone", **UNACCUMULATED)
    separate = train_together(network, 2, "separate", **UNACCUMULATED)
    loss = (
        abs(one - other)
        for one, other in zip(*(item.values("train", "loss") for item in (alone, separate)), strict=True)
    )
    assert max(loss) > 1e-3


@pytest.mark.nightly
def test_four_workers_train_as_one_does(trained: Any, train_together: Any, in_child: Any) -> None:
    alone, together = (
        trained(NETWORK, "alone", **SETTINGS),
        train_together(NETWORK, 4, "together", **SETTINGS),
    )
    check_close(alone, together, in_child)


def test_workers_draw_numbers_of_their_own(train_together: Any) -> None:
    outcome = train_together(networks.NOISES, 2, "noises", epochs=1, batch_size=8)
    weights = snapshot(outcome.job_folder, "snapshot_1.ckpt")
    assert networks.equal_noises(weights) == []


def test_all_workers_keep_the_same_state_and_resume_exactly(model: Any, gang: Any) -> None:
    """Batch normalization sees other images on each worker, and each draws its own dropout."""
    settings = SETTINGS | {"epochs": 12, "batch_accumulation": 1, "augment": {}, "val_interval": 0.5}
    undisturbed = [task.wait() for task in gang(model(NORMALIZED, "undisturbed", **settings), 2)]
    assert [outcome.code for outcome in undisturbed] == [0, 0], undisturbed[0].output

    folder = model(NORMALIZED, "disturbed", **settings)
    lead, other = gang(folder, 2)
    lead.wait_for(Saved)
    os.kill(other.pid, signal.SIGKILL)
    assert other.wait().code == -signal.SIGKILL
    killed = lead.wait()
    assert killed.code == EXIT_PARTNER_LOST
    assert killed.failure.message.startswith("One of the 2 workers ended unexpectedly")

    resume_at(folder)
    resumed = [task.wait() for task in gang(folder, 2, run=2)]
    assert [outcome.code for outcome in resumed] == [0, 0], resumed[0].output
    assert rows(resumed[0]) == rows(undisturbed[0])
    assert not resumed[0].of(Warned)


def test_another_number_of_workers_resumes(model: Any, gang: Any, trained: Any, in_child: Any) -> None:
    alone = trained(NETWORK, "alone", **SETTINGS)
    folder = model(NETWORK, "changed", **SETTINGS)
    first = gang(folder, 2)
    first[0].wait_for(Saved)
    for task in first:
        task.stop()
    for task in first:
        task.wait()
    resume_at(folder)
    resumed = gang(folder, 1, run=2)[0].wait()
    check_close(alone, resumed, in_child)
    remark = "The training continues with 1 worker after 2 workers"
    assert [item.message for item in resumed.of(Warned) if item.is_remark and remark in item.message]


def test_all_workers_resume_at_the_point_that_the_lead_takes_long_to_choose(
    model: Any, gang: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a network file system, the other worker does not see the resume points yet."""
    folder = model(NETWORK, "slow", **SETTINGS)
    tasks = gang(folder, 2)
    tasks[0].wait_for(Saved)
    for task in tasks:
        task.stop()
        task.wait()
    resume_at(folder)
    fault, points = snapshots.fault, resume_point.resume_points

    def slow_fault(source: Path) -> str:
        time.sleep(3)
        return fault(source)

    def visible_points(job_folder: Path) -> Any:
        return points(job_folder) if os.environ[RANK_VARIABLE] == "0" else ([], {})

    monkeypatch.setattr(rendezvous, "DEADLINE_SECONDS", 2.0)
    monkeypatch.setattr(snapshots, "fault", slow_fault)
    monkeypatch.setattr(resume_point, "resume_points", visible_points)
    resumed = [task.wait() for task in gang(folder, 2, run=2)]
    assert [outcome.code for outcome in resumed] == [0, 0], resumed[0].output
    [resumption] = resumed[0].of(Resumed)
    assert resumption.step > 0


def test_workers_that_average_weights_resume_exactly(model: Any, gang: Any) -> None:
    settings = SETTINGS | {"epochs": 6, "batch_accumulation": 1, "averaging_interval": 3, "augment": {}}
    undisturbed = [task.wait() for task in gang(model(NETWORK, "undisturbed", **settings), 2)]
    assert [outcome.code for outcome in undisturbed] == [0, 0], undisturbed[0].output
    folder = model(NETWORK, "stopped", **settings)
    tasks = gang(folder, 2)
    tasks[0].wait_for(Saved)
    tasks[1].stop()  # whoever is asked to stop: all stop after the same step
    assert [task.wait().code for task in tasks] == [143, 143]
    resume_at(folder)
    resumed = [task.wait() for task in gang(folder, 2, run=2)]
    assert rows(resumed[0]) == rows(undisturbed[0])
    accuracy = undisturbed[0].values("val", "accuracy")
    assert accuracy[-1] > 0.9 > accuracy[0]


@pytest.mark.nightly
def test_compiled_steps_are_shared_too(train: Any, train_together: Any, in_child: Any) -> None:
    settings = SETTINGS | {"augment": {}, "xla": True, "gradient_metrics": True}
    alone, together = train(NETWORK, name="alone", **settings), train_together(NETWORK, 2, "two", **settings)
    assert not together.of(Warned)
    check_close(alone, together, in_child)


def test_a_failure_of_one_worker_is_reported(model: Any, gang: Any) -> None:
    network = f"import os\nif os.environ['{RANK_VARIABLE}'] == '1': raise ValueError('a bad day')\n{NETWORK}"
    tasks = gang(model(network, **SETTINGS), 2)
    outcome, other = (task.wait() for task in tasks)
    assert (outcome.code, other.code) == (EXIT_PARTNER_LOST, 1)
    assert "a bad day" in outcome.failure.message and outcome.failure.line == 2


def test_a_worker_that_never_comes_is_reported(
    model: Any, gang: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rendezvous, "DEADLINE_SECONDS", 1.0)
    alone = gang(model(NETWORK, **SETTINGS), 3, ranks=[0])[0].wait()
    assert alone.code == EXIT_PARTNER_LOST
    assert alone.failure.message.startswith("Only 1 of 3 workers started within 1 seconds. Missing: 1, 2.")


def test_a_small_batch_has_no_share_for_everyone(model: Any, gang: Any) -> None:
    outcome = gang(model(NETWORK, **SETTINGS | {"batch_size": 1}), 2)[0].wait()
    assert outcome.failure.message == "A batch of 1 record cannot be divided among 2 workers."


@pytest.mark.nightly
def test_processes_of_the_executor_resume_after_one_is_killed(
    model: Any, train_together: Any, tmp_path: Path
) -> None:
    undisturbed = train_together(NETWORK, 2, "undisturbed", **SETTINGS)
    folder = model(NETWORK, "killed", **SETTINGS)
    executor = LocalExecutor(standby=False)
    placement = Placement(DeviceRequest("training", compute=Compute(workers=2)), ("cpu",))
    handle = executor.start(folder, placement)
    try:
        log = folder / "events.jsonl"
        wait_until(lambda: any(isinstance(event, Saved) for event in events.read(log)[0]), 120)
        victim = next(pid for pid in processes_in(folder) if is_rank(pid, 1))
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: executor.poll(folder, handle) is not None)
        ended = executor.poll(folder, handle)
        assert ended and (ended.signal, ended.rank) == (signal.SIGKILL, 1)
        failure = next(event for event in events.read(log)[0] if isinstance(event, Failed))
        assert failure.message.startswith("One of the 2 workers ended unexpectedly")
        resume_at(folder)
        handle = executor.start(folder, placement, run=2)
        wait_until(lambda: executor.poll(folder, handle) is not None, 120)
        assert executor.poll(folder, handle) == Exit(code=0)
    finally:
        executor.stop(handle)
        wait_until(lambda: executor.poll(folder, handle) is not None)
    resumed = Outcome(0, events.read(log)[0], "", folder.parent)
    assert rows(resumed) == rows(undisturbed)
    assert not list(processes_in(folder))


def is_rank(pid: int, rank: int) -> bool:
    return f"{RANK_VARIABLE}={rank}" in Path(f"/proc/{pid}/environ").read_text().split("\0")


def resume_at(task_folder: Path) -> None:
    training = recipe.load(task_folder, recipe.Train)
    training.resume = True
    training.save(task_folder)
