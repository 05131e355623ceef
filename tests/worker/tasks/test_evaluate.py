"""Evaluations of trained models: complete and partial results, and the refusal of other records."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from digits.core import recipe
from digits.core.events import Progressed
from digits.data import manifest
from digits.data.models import evaluation
from digits.data.targets.class_index import ClassIndex
from digits.worker.failure import UserFault
from tests.worker import networks
from tests.worker.conftest import Outcome, write_dataset
from tests.worker.lazily import batches

RECORDS = 40
SLOW_SECONDS = 10_000.0
NAME = "snapshot_8-val"


@pytest.fixture
def evaluate(tmp_path: Path, trained: Any, perform: Any) -> Callable[..., tuple[Outcome, Path]]:
    """Return a function that evaluates a model on the validation split of a dataset.

    It returns the outcome of the task, and the folder of the model.
    """
    model = trained(networks.LINEAR, epochs=8, solver={"learning_rate": 0.1}).job_folder

    def evaluate(dataset: Path | None = None, snapshot: str = "snapshot_8.ckpt") -> tuple[Outcome, Path]:
        if dataset is None:
            dataset = tmp_path / "records"
            if not dataset.exists():
                dataset.mkdir()
                write_dataset(dataset, {"train": 12, "val": RECORDS}, size=12, channels=1)
        task = model / "evaluate"
        task.mkdir(exist_ok=True)
        (task / "events.jsonl").unlink(missing_ok=True)
        recipe.Evaluate(
            model=str(model),
            snapshot=snapshot,
            epoch=8,
            trained_on=recipe.load(model / "train", recipe.Train).dataset,
            dataset=str(dataset),
            split="val",
            name=NAME,
        ).save(task)
        return perform(task), model

    return evaluate


def fail_after(records: int) -> Callable[..., None]:
    from digits.worker.tasks.evaluate import Collected

    add = Collected.add

    def failing(self: Collected, batch: Any) -> None:
        if self.count >= records:
            raise UserFault("The model predicts NaN or infinity.")
        add(self, batch)

    return failing


def make_tracing_slow(patch: pytest.MonkeyPatch) -> None:
    """Let the clock of the task advance by `SLOW_SECONDS` when the network is traced."""
    from digits.worker.tasks import evaluate as task
    from digits.worker.training.models.trained import Trained

    spent, outputs = [0.0], Trained.outputs

    def traced(self: Trained, values: Any) -> object:
        spent[0] += SLOW_SECONDS
        return outputs(self, values)

    patch.setattr(Trained, "outputs", traced)
    patch.setattr(task, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + spent[0]))


def test_an_evaluation_that_fails_keeps_the_results_so_far(
    evaluate: Callable[..., tuple[Outcome, Path]], monkeypatch: pytest.MonkeyPatch, tensorflow: None
) -> None:
    from digits.worker.tasks import evaluate as task

    monkeypatch.setattr(batches, "LARGE_BATCH", 10)
    with monkeypatch.context() as patch:
        patch.setattr(task.Collected, "add", fail_after(20))
        outcome, model = evaluate()
    assert outcome.code == 1 and "NaN" in outcome.failure.message
    partial = evaluation.load(model, NAME)
    assert (partial.records, partial.total, partial.is_partial) == (20, RECORDS, True)
    predicted, targets, errors = (
        evaluation.load_array(model, NAME, name)
        for name in (evaluation.PREDICTIONS_FILE, evaluation.TARGETS_FILE, evaluation.ERRORS_FILE)
    )
    assert len(predicted) == len(targets) == len(errors) == 20
    assert partial.metrics["accuracy"] == pytest.approx(np.mean(predicted.argmax(axis=1) == targets))

    # Partial results are also saved in between, and the complete one replaces them.
    monkeypatch.setattr(task, "PARTIAL_SECONDS", 0.0)
    monkeypatch.setattr(task, "PARTIAL_SHARE", 1.0)
    with monkeypatch.context() as patch:
        make_tracing_slow(patch)
        outcome, _ = evaluate()
    assert outcome.code == 0, outcome.output
    complete = evaluation.load(model, NAME)
    assert complete.predicting_seconds < SLOW_SECONDS <= complete.seconds
    assert 0 < complete.seconds_per_record <= complete.predicting_seconds / RECORDS + 0.001
    assert complete.milliseconds == 1000 * complete.seconds_per_record
    assert complete.records == complete.total == RECORDS and not complete.is_partial
    assert outcome.of(Progressed)[-1].fraction >= 0.95
    assert np.array_equal(evaluation.load_array(model, NAME, evaluation.ERRORS_FILE)[:20], errors)

    # A later failure does not replace it.
    with monkeypatch.context() as patch:
        patch.setattr(task.Collected, "add", fail_after(20))
        assert evaluate()[0].code == 1
    assert evaluation.load(model, NAME) == complete
    assert [item.name for item in evaluation.load_all(model)] == [NAME]


def test_an_evaluation_that_is_stopped_keeps_the_results_so_far(
    evaluate: Callable[..., tuple[Outcome, Path]], monkeypatch: pytest.MonkeyPatch, tensorflow: None
) -> None:
    from digits.worker.tasks import evaluate as task

    add = task.Collected.add

    def stop_after_first(self: Any, batch: Any) -> None:
        add(self, batch)
        if self.count == 10:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(batches, "LARGE_BATCH", 10)
    monkeypatch.setattr(task.Collected, "add", stop_after_first)
    outcome, model = evaluate()
    assert outcome.code == 128 + signal.SIGTERM
    found = evaluation.load(model, NAME)
    assert (found.records, found.total) == (10, RECORDS)


@pytest.fixture
def other(tmp_path: Path) -> Callable[[list[str]], Path]:
    """Return a function that writes larger color images of gradients to the right, left and down, as classes with any
    names.
    """

    def other(names: list[str]) -> Path:
        folder = write_dataset(tmp_path / "other", {"train": 3, "val": 30}, size=20, channels=3, classes=3)
        found = manifest.load(folder)
        found.groups, found.target = names, ClassIndex.of(names)
        found.save(folder)
        return folder

    return other


@pytest.mark.parametrize(("names", "accuracy"), [(["right", "left"], 1.0), (["left", "right"], 0.0)])
def test_records_of_another_dataset_are_matched_by_class_and_resized(
    evaluate: Callable[..., tuple[Outcome, Path]],
    other: Callable[[list[str]], Path],
    names: list[str],
    accuracy: float,
) -> None:
    outcome, model = evaluate(other([*names, "sideways"]))
    assert outcome.code == 0, outcome.output
    found = evaluation.load(model, NAME)
    assert (found.records, found.excluded, found.lacking) == (30, 10, ["sideways"])
    assert found.classes == ["right", "left", "down", "up"]
    assert found.metrics["accuracy"] == pytest.approx(accuracy, abs=0.1)
    assert [item["support"] for item in found.details["classes"]] == [10, 10, 0, 0]
    targets, errors = (
        evaluation.load_array(model, NAME, name) for name in (evaluation.TARGETS_FILE, evaluation.ERRORS_FILE)
    )
    assert targets[:3].tolist() == [found.classes.index(names[0]), found.classes.index(names[1]), -1]
    assert np.isnan(errors).tolist() == [False, False, True] * 10


def test_records_that_do_not_fit_are_refused(
    evaluate: Callable[..., tuple[Outcome, Path]], other: Callable[[list[str]], Path]
) -> None:
    outcome, model = evaluate(other(["a", "b", "c"]))
    assert outcome.code == 1
    message = "The dataset does not fit the model: it has none of the model's classes (right, left, down and 1 more)."
    assert outcome.failure.message == message
    assert evaluation.load_all(model) == []


def test_a_deleted_snapshot_or_dataset_is_named(
    evaluate: Callable[..., tuple[Outcome, Path]], tmp_path: Path
) -> None:
    outcome, _ = evaluate(snapshot="snapshot_9.ckpt")
    assert outcome.code == 1 and "snapshot_9" in outcome.failure.message
    shard = max((tmp_path / "records").glob("val-*.tfrecord"))
    shard.write_bytes(shard.read_bytes()[:-2] + b"!!")
    outcome, _ = evaluate()
    assert outcome.code == 1 and f"“records” are damaged: {shard.name}" in outcome.failure.message
    assert outcome.failure.trace == []
    (tmp_path / "records" / manifest.FILE_NAME).unlink()
    outcome, model = evaluate()
    assert outcome.code == 1 and outcome.failure.message
    assert not (model / evaluation.FOLDER).exists()
