"""The search for wrong labels with a trained model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from digits.core import recipe
from digits.core.events import Finished, Progressed
from digits.data import manifest
from digits.data.health import label_check
from digits.data.models.pretrained_catalog import FEATURES
from digits.data.records.records import SplitReader
from tests.worker import networks
from tests.worker.conftest import write_dataset
from tests.worker.lazily import applications, tf

TRAIN, VAL = 100, 60


def test_wrong_labels_are_found_with_the_right_ones(tmp_path: Path, trained: Any, perform: Any) -> None:
    """The labels of every tenth record are wrong."""
    model = trained(networks.LINEAR, epochs=8, solver={"learning_rate": 0.1})
    dataset = write_dataset(
        tmp_path / "flawed", {"train": TRAIN, "val": VAL}, size=12, channels=1, wrong_every=10
    )
    task = dataset / "check"
    task.mkdir()
    (snapshot,) = (path.with_suffix("").name for path in model.job_folder.glob("snapshot_8.ckpt.index"))
    recipe.CheckLabels(
        dataset=str(dataset), model=str(model.job_folder), snapshot=snapshot, model_name="linear"
    ).save(task)
    outcome = perform(task)
    assert outcome.code == 0, outcome.output
    assert outcome.of(Progressed) and outcome.of(Finished)
    made = manifest.load(dataset)
    check, found = label_check.load(dataset, made), label_check.load_errors(dataset, made)
    assert check.finding.count == len(found) and "linear" in check.finding.explanation
    wrong = {(0, number) for number in range(0, TRAIN, 10)} | {(1, number) for number in range(0, VAL, 10)}
    suspects = {(int(row["split"]), int(row["number"])) for row in found}
    # A tenth of the labels is wrong, so that a guess would be right in one of ten cases. The thresholds are means, so
    # that about half of the records of a class reach them.
    assert len(suspects & wrong) >= 0.4 * len(wrong)
    assert len(suspects & wrong) >= 0.8 * len(suspects)
    first = found[0]
    assert first["confidence"] > first["given_confidence"]
    with SplitReader(dataset, made.splits[("train", "val")[first["split"]]]) as reader:
        record = reader.read(int(first["number"]))
    assert record.features["image/class/label"] == [first["given"]]
    assert np.all(found["suggested"] != found["given"])


def _write_weights(path: Path) -> None:
    tf.keras.utils.set_random_seed(1)
    applications.build(FEATURES, (64, 64, 3), include_top=False).save_weights(path)


def test_wrong_training_labels_are_found_that_the_model_has_learned(
    tmp_path: Path, trained: Any, perform: Any, in_child: Any
) -> None:
    dataset = write_dataset(tmp_path / "flawed", {"train": TRAIN}, size=12, channels=1, wrong_every=10)
    solver = {"type": "ADAM", "learning_rate": 0.02}
    model = trained(networks.LINEAR, dataset=str(dataset), epochs=100, snapshot_interval=100, solver=solver)
    weights = tmp_path / "efficientnetlite.weights.h5"
    in_child(_write_weights, weights)
    found = {}
    for name in ("", str(weights)):
        task = dataset / f"check{len(found)}"
        task.mkdir()
        recipe.CheckLabels(
            dataset=str(dataset), model=str(model.job_folder), snapshot="snapshot_100.ckpt", weights=name
        ).save(task)
        outcome = perform(task)
        assert outcome.code == 0, outcome.output
        made = manifest.load(dataset)
        found[name] = label_check.load_errors(dataset, made)
        explanation = label_check.load(dataset, made).finding.explanation
        assert ("compared with the other ones" in explanation) == bool(name)
    alone, compared = found.values()
    assert len(alone) == 0 and len(compared) >= 4
    assert all(number % 10 == 0 for number in compared["number"])


def test_a_model_without_probabilities_is_refused(tmp_path: Path, trained: Any, perform: Any) -> None:
    model = trained(networks.LINEAR, epochs=8, solver={"learning_rate": 0.1})
    dataset = write_dataset(tmp_path / "flawed", {"train": 12}, size=12, channels=1, classes=3)
    task = dataset / "check"
    task.mkdir()
    recipe.CheckLabels(dataset=str(dataset), model=str(model.job_folder), snapshot="snapshot_8.ckpt").save(
        task
    )
    outcome = perform(task)
    assert outcome.code == 1 and outcome.failure.message
