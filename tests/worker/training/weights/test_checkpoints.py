"""Snapshot retention, the best snapshot, and early stopping."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from digits.core import snapshot_list
from digits.core.events import BestSnapshotChanged, EventLog, Finished, Measured, Removed, Saved
from digits.core.recipe import EarlyStopping
from digits.core.task import EVENTS_FILE
from digits.data.models import production
from digits.data.models.production import Production, ProductionModels
from digits.kinds.classification.views import Views as ClassificationViews
from digits.kinds.views import Metric
from tests.worker import networks
from tests.worker.conftest import Outcome
from tests.worker.lazily import checkpoints

# The score of each validation, read from a script by its epoch.
SCRIPTED = networks.classifier(
    "return slim.fully_connected(slim.flatten(self.x / 100.0), self.nclasses)"
).replace(
    "accuracy = ",
    """
        def score_after(step):
            return np.float32(float(open('../script').read().split()[step // 8]))
        step = tf.train.get_or_create_global_step()
        score = tf.zeros([]) if self.is_training else tf.reshape(tf.py_func(score_after, [step], tf.float32), [])
        self.summaries.append(tf.summary.scalar('score', score))
        accuracy = """.strip(),
)


@pytest.fixture
def scripted(model: Any, perform: Any) -> Any:
    """Return a function that trains with given validation scores; the first one precedes the training."""

    def train(scores: str, **settings: Any) -> Outcome:
        task_folder = model(SCRIPTED, epochs=len(scores.split()) - 1, **settings)
        (task_folder.parent / "script").write_text(scores)
        return perform(task_folder)

    return train


def kept(job_folder: Path) -> list[str]:
    return sorted(path.name.removesuffix(".ckpt.index") for path in job_folder.glob("snapshot_*.index"))


def test_the_newest_and_the_best_snapshots_are_kept(scripted: Any) -> None:
    outcome = scripted("9 0.1 0.8 0.3 0.3 0.4 0.3", snapshots_kept=2, best_metric="score")
    assert outcome.code == 0, outcome.output
    assert kept(outcome.job_folder) == ["snapshot_2", "snapshot_5", "snapshot_6"]
    assert [(event.epoch, event.path) for event in outcome.of(Removed)] == [
        (1, "snapshot_1.ckpt"),
        (3, "snapshot_3.ckpt"),
        (4, "snapshot_4.ckpt"),
    ]
    saved = snapshot_list.read(outcome.job_folder)
    assert (saved.metric, [snapshot.epoch for snapshot in saved]) == ("score", [6, 5, 2])
    assert saved.best and saved.best.name == "snapshot_2.ckpt"
    assert saved.best.metrics["score"] == pytest.approx(0.8)
    assert [(event.epoch, event.metric) for event in outcome.of(BestSnapshotChanged)] == [
        (1, "score"),
        (2, "score"),
    ]
    assert not list(outcome.job_folder.glob("snapshot_1.ckpt*"))


def test_the_best_snapshot_is_kept_even_between_intervals(scripted: Any) -> None:
    outcome = scripted("9 0.1 0.8 0.3 0.3", snapshots_kept=1, snapshot_interval=3, best_metric="score")
    assert [event.epoch for event in outcome.of(Saved)] == [1, 2, 3, 4]
    assert kept(outcome.job_folder) == ["snapshot_2", "snapshot_4"]


@pytest.mark.parametrize(("best", "epoch"), [("lowest", 1), ("highest", 2)])
def test_a_kind_declares_the_direction_of_a_metric(
    scripted: Any, monkeypatch: pytest.MonkeyPatch, best: str, epoch: int
) -> None:
    monkeypatch.setattr(ClassificationViews, "metrics", (Metric("score", "Score", best=best),))
    outcome = scripted(
        "9 0.1 0.8 0.3",
        snapshots_kept=1,
        best_metric="score",
        early_stopping=EarlyStopping(metric="score", patience=1),
    )
    # The second epoch is no improvement if lower is better, and the third one if higher is.
    assert [event.epoch for event in outcome.of(Saved)] == list(range(1, epoch + 2))
    saved = snapshot_list.read(outcome.job_folder)
    assert saved.best and saved.best.epoch == epoch
    assert kept(outcome.job_folder) == [f"snapshot_{epoch}", f"snapshot_{epoch + 1}"]


def test_snapshots_in_production_are_kept(tmp_path: Path, tensorflow: None) -> None:
    folder = tmp_path / "20260101-000000-abcdef"
    (folder / "train").mkdir(parents=True)
    for epoch, suffix in itertools.product(range(1, 5), snapshot_list.SUFFIXES):
        (folder / f"snapshot_{epoch}.ckpt{suffix}").touch()
    models = ProductionModels(tmp_path)
    for number, model in enumerate((folder.name, "20260101-000001-abcdef"), start=1):
        models.promote(f"name{number}", Production(model, f"snapshot_{number}.ckpt", number, 1e9))
    events = EventLog(folder / "train" / EVENTS_FILE)
    retention = checkpoints.SnapshotRetention(folder, 1, events)
    assert [path.name for path in retention.superseded({"snapshot_4.ckpt"})] == [
        "snapshot_3.ckpt",
        "snapshot_2.ckpt",
    ]
    # Without the list of production models, nothing is removed.
    (tmp_path / production.FILE_NAME).write_text("{")
    assert retention.superseded({"snapshot_4.ckpt"}) == []
    events.close()


def test_all_snapshots_are_kept_by_default(trained: Any) -> None:
    outcome = trained(networks.LINEAR, epochs=3)
    assert kept(outcome.job_folder) == ["snapshot_1", "snapshot_2", "snapshot_3"]


def test_the_accuracy_decides_without_a_metric_and_snapshots_have_their_own(train: Any) -> None:
    outcome = train(networks.LINEAR, epochs=3, val_interval=0.5)
    saved = snapshot_list.read(outcome.job_folder)
    assert saved.metric == "accuracy"
    rows = {row.epoch: row.values for row in outcome.of(Measured) if row.stage == "val"}
    assert [snapshot.metrics for snapshot in saved] == [rows[3], rows[2], rows[1]]
    best = saved.best
    assert best and best.metrics["accuracy"] == max(rows[epoch]["accuracy"] for epoch in (1, 2, 3))
    assert outcome.of(BestSnapshotChanged)[-1].epoch == best.epoch


def test_only_due_snapshots_are_compared_without_a_metric(train: Any) -> None:
    outcome = train(networks.LINEAR, epochs=4, snapshot_interval=0)
    assert [event.epoch for event in outcome.of(Saved)] == [4]
    without = train(networks.LINEAR, name="without", epochs=1, val_interval=0)
    saved = snapshot_list.read(without.job_folder)
    assert saved.best is None and saved.default and not saved.default.metrics
    assert not without.of(BestSnapshotChanged)


def test_a_training_stops_early(scripted: Any) -> None:
    settings = {"early_stopping": {"metric": "score", "patience": 2}, "snapshot_interval": 0}
    outcome = scripted("9 0.1 0.8 0.3 0.8 0.9 1.0", **settings)
    assert outcome.code == 0, outcome.output
    assert [row.epoch for row in outcome.of(Measured) if row.stage == "val"] == [0, 1, 2, 3, 4]
    assert kept(outcome.job_folder) == ["snapshot_4"]
    reason = outcome.of(Finished)[0].result["ended_early"]
    assert reason == (
        "Stopped early after 4 epochs: the validation's score has not been better than 0.8 since epoch 2."
    )
    assert reason in outcome.output


def test_a_training_continues_while_it_improves(scripted: Any) -> None:
    outcome = scripted("9 0.1 0.2 0.1 0.3", early_stopping={"metric": "score", "patience": 2})
    assert outcome.values("val", "score")[-1] == pytest.approx(0.3)
    assert "ended_early" not in outcome.of(Finished)[0].result


@pytest.mark.parametrize(
    "settings", [{"best_metric": "score"}, {"early_stopping": {"metric": "score", "patience": 1}}]
)
def test_an_unmeasured_metric_is_reported(fail: Any, settings: dict[str, Any]) -> None:
    outcome = fail(networks.LINEAR, **settings)
    assert "does not report the metric 'score'" in outcome.failure.message
    assert "loss, accuracy" in outcome.failure.hint
    without = fail(networks.LINEAR, name="without", val_interval=0, **settings)
    assert "Validate" in without.failure.hint
