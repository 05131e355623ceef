"""Trains a network: recipe, data, network, optimizer, loop."""

from __future__ import annotations

import contextlib
import logging
import math
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import keras
import numpy as np

from digits import recipe as recipes
from digits.events import Built, EventLog, Measured, Progressed, Saved, Warned
from digits.model.lr_policy import LearningRate
from digits.worker import execution as executions
from digits.worker import inference, input, network, snapshots, usage
from digits.worker.execution import Execution
from digits.worker.failure import UserFault
from digits.worker.optimizers import Optimizer, Settings
from digits.worker.randomness import Randomness
from digits.worker.steps import Evaluation, Rows, Training
from digits.worker.tensorboard_log import TensorBoardLog, readable_graph
from digits.worker.variables import VariableStore

# A call of the training function takes about this long, so that a stop and the
# next row of metrics do not have to wait for longer.
CALL_SECONDS = 0.15
MAX_STEPS_PER_CALL = 100

# Seconds between two rows of metrics; later in a long training they come more seldom.
ROW_SECONDS = 0.3
ROWS_PER_DOUBLING = 2000

PROGRESS_SECONDS = 0.5

# Smallest difference between two epochs that counts.
_EPSILON = 1e-9

log = logging.getLogger(__name__)


def run(recipe: recipes.Train, task_folder: Path, events: EventLog) -> dict[str, Any]:
    """Do the training that ``recipe`` asks for; products go to the job's folder.

    Raises UserFault, or whatever the user's network raises.
    """
    events.append(Progressed(0.0, doing="Reading the dataset"))
    execution, gpus = executions.prepare(recipe, events)
    seed = secrets.randbelow(2**31) if recipe.seed is None else recipe.seed
    keras.utils.set_random_seed(seed % 2**32)
    with usage.reported(events, "GPU" if gpus else "CPU", gpus):
        return _Trainer(recipe, task_folder.parent, events, seed, execution).run()


@dataclass(frozen=True)
class Moment:
    """Something to be done after ``step`` steps, when ``epoch`` epochs are over."""

    step: int
    epoch: float


def moments(interval: float, epochs: float, steps_per_epoch: float) -> list[Moment]:
    """When a thing is due that happens every ``interval`` epochs, and at the end; only then for 0."""
    last = Moment(math.ceil(epochs * steps_per_epoch - _EPSILON), epochs)
    due: dict[int, Moment] = {}
    for number in range(1, math.ceil(epochs / interval) if interval > 0 else 0):
        epoch = number * interval
        step = math.ceil(epoch * steps_per_epoch - _EPSILON)
        due[step] = Moment(step, epoch)  # of several due after the same step, the last
    return [*(moment for moment in due.values() if moment.step < last.step), last]


@dataclass
class Pace:
    """How many steps to take in a call, so that calls last about `CALL_SECONDS`."""

    steps: int = 1
    limit: int = MAX_STEPS_PER_CALL

    def took(self, steps: int, seconds: float) -> None:
        fitting = int(CALL_SECONDS * steps / max(seconds, 1e-6))
        # A first call is slow for reasons that pass: approach, do not jump.
        self.steps = max(1, min(fitting, 8 * self.steps, self.limit))


@dataclass
class Average:
    """The mean of the metrics over the steps since the last row."""

    total: Any = 0.0
    steps: int = 0
    since: float = field(default_factory=time.monotonic)

    def add(self, rows: Rows) -> None:
        self.total = self.total + rows.sum(axis=0, dtype=np.float64)
        self.steps += len(rows)

    def take(self, names: list[str]) -> tuple[dict[str, float], float]:
        """The means by name and the seconds they cover; begins anew."""
        now = time.monotonic()
        means = dict(zip(names, (self.total / self.steps).tolist(), strict=True))
        seconds = now - self.since
        self.total, self.steps, self.since = 0.0, 0, now
        return means, seconds


class _Trainer:
    def __init__(
        self, recipe: recipes.Train, job_folder: Path, events: EventLog, seed: int, execution: Execution
    ) -> None:
        self.recipe, self.job_folder, self.events, self.seed = recipe, job_folder, events, seed
        self.execution = execution
        self.manifest = input.load_manifest(Path(recipe.dataset))
        self.batch = execution.batch_size
        self.step_records = self.batch * execution.batches
        self.train_records = self._records("train")
        self.val_records = self._records("val")
        count = len(self.train_records) if self.train_records else 0
        if not count:
            raise UserFault("The dataset has no records to train with.")
        self.steps_per_epoch = count / self.step_records
        self.total_steps = math.ceil(recipe.epochs * self.steps_per_epoch - _EPSILON)
        self.rate = self._learning_rate()
        self.prepare = input.preparation(self.manifest, Path(recipe.dataset), recipe.mean, recipe.crop_size)
        weights = Path(recipe.weights) if recipe.weights else None
        self.store = VariableStore(
            frozen=snapshots.frozen_names(weights) if weights else (),
            device=execution.weights_device,
            compute_type=execution.compute_type,
        )
        self.optimizer = self._optimizer()
        self.randomness = Randomness(self.seed)
        self.step = 0
        self.pace, self.val_pace = self._pace(), self._pace()
        self.average = Average()
        self.started = self.progressed = time.monotonic()
        self.wants_pictures = False

    def run(self) -> dict[str, Any]:
        with contextlib.ExitStack() as stack:
            self.board = stack.enter_context(TensorBoardLog(self.job_folder / "tb" / "train"))
            self.val_board = self.board
            if self.val_records:
                self.val_board = stack.enter_context(TensorBoardLog(self.job_folder / "tb" / "val"))
            self._build()
            self._load_weights()
            self._validate(0.0)  # before the training images are decoded: the first point comes early
            self.feed = self._feed()
            stack.callback(self.feed.close)
            self._loop()
        return {"seed": self.seed, "steps": self.step, "parameters": self.store.parameters}

    # Preparing

    def _records(self, split: str) -> input.Records | None:
        wanted = split in self.manifest.splits and self.manifest.splits[split].count > 0
        if split == "val":
            wanted = wanted and self.recipe.val_interval > 0
        return input.Records(Path(self.recipe.dataset), self.manifest, split) if wanted else None

    def _learning_rate(self) -> LearningRate:
        base = float(self.recipe.solver.get("learning_rate", recipes.Solver.learning_rate))
        try:
            return LearningRate.of(self.recipe.lr_policy, base, self.recipe.epochs * self.steps_per_epoch)
        except ValueError as error:
            raise UserFault(str(error)) from error

    def _optimizer(self) -> Optimizer:
        solver = self.recipe.solver
        return Optimizer(str(solver.get("type", "SGD")), Settings.of(solver))

    def _pace(self) -> Pace:
        resident = self.train_records.is_resident and (not self.val_records or self.val_records.is_resident)
        # Streamed images of a call lie in memory together.
        image_bytes = int(np.prod(self.manifest.shape)) * self.step_records
        return Pace(limit=MAX_STEPS_PER_CALL if resident else max(1, min(100, 2**26 // image_bytes)))

    def _build(self) -> None:
        self._progress("Building the network", now=True)
        net = network.load(
            self.job_folder / self.recipe.network, self.prepare.shape, len(self.manifest.labels)
        )
        shown = inference.trace(net, self.store)
        self.execution = self.execution.wanted_by(shown.built.tower)
        self.training = Training(
            net, self.store, self.prepare, self.optimizer, self.seed, self.randomness, self.execution
        )
        self.training.trace()
        if self.training.remark:
            self.events.append(Warned(self.training.remark))
        self.store.lock("in validation but not in training")
        if self.val_records:
            self.evaluation = Evaluation(net, self.store, self.prepare, Randomness(self.seed), self.execution)
            self.evaluation.trace()
        self.events.append(Built(layers=shown.layers, parameters=self.store.parameters))
        self.board.graph(readable_graph(shown.function))

    def _load_weights(self) -> None:
        if not self.recipe.weights:
            return
        restored = snapshots.restore(Path(self.recipe.weights), self.store.variables)
        log.info("Weights taken from %s: %d variables", self.recipe.weights, len(restored.taken))
        if restored.remark:
            self.events.append(Warned(restored.remark))

    def _feed(self) -> input.Feed:
        self._progress("Decoding images", now=True)
        order = input.training_order(
            len(self.train_records), self.step_records, self.seed, self.recipe.shuffle
        )
        return self.train_records.feed(order)

    # The loop

    def _loop(self) -> None:
        recipe = self.recipe
        validations = moments(recipe.val_interval, recipe.epochs, self.steps_per_epoch)
        savings = moments(recipe.snapshot_interval, recipe.epochs, self.steps_per_epoch)
        self.started = time.monotonic()
        self.average = Average()
        while self.step < self.total_steps:
            self._train_until(min(validations[0].step, savings[0].step))
            if self.step == validations[0].step:
                self._report_training()
                self._validate(validations.pop(0).epoch)
                self.average.since = time.monotonic()
            if self.step == savings[0].step:
                self._save(savings.pop(0).epoch)
        self._progress("", now=True)

    def _train_until(self, step: int) -> None:
        while self.step < step:
            count = min(self.pace.steps, step - self.step)
            began = time.monotonic()
            rows = self._pictured_step() if self.wants_pictures else self._steps(count)
            self.step += len(rows)
            self.pace.took(len(rows), time.monotonic() - began)
            self.average.add(rows)
            if self.step == 1 or self._row_is_due():
                self._report_training()
            self._progress("Training")

    def _steps(self, count: int) -> Rows:
        rates = [self.rate.at(step) for step in range(self.step, self.step + count)]
        rows = self.training.steps(self.feed.take(count), rates, self.step)
        self._check_losses(rows, rates)
        return rows

    def _pictured_step(self) -> Rows:
        self.wants_pictures = False
        rate = self.rate.at(self.step)
        row, values = self.training.step_with_pictures(self.feed.take(1), rate, self.step)
        self._check_losses(row, [rate])
        self.board.pictures(self.step + 1, self.training.pictures, values)
        return row

    def _check_losses(self, rows: Rows, rates: list[float]) -> None:
        bad = np.flatnonzero(~np.isfinite(rows[:, 0]))
        if bad.size:
            place = int(bad[0])
            raise _diverged(float(rows[place, 0]), self.step + place + 1, rates[place])

    def _row_is_due(self) -> bool:
        elapsed = time.monotonic() - self.started
        return time.monotonic() - self.average.since >= max(ROW_SECONDS, elapsed / ROWS_PER_DOUBLING)

    def _report_training(self) -> None:
        if not self.average.steps:
            return
        images = self.average.steps * self.step_records
        values, seconds = self.average.take(self.training.names)
        values["learning_rate"] = self.rate.at(self.step - 1)
        if self.step > 1:  # the first step also pays for preparing the graph
            values["images_per_second"] = images / max(seconds, 1e-6)
        self._report("train", self._epoch(), values)

    def _report(self, stage: str, epoch: float, values: Mapping[str, float]) -> None:
        self.events.append(Measured(stage, self.step, round(epoch, 6), dict(values)))
        (self.board if stage == "train" else self.val_board).scalars(self.step, values)
        title = "Training" if stage == "train" else "Validation"
        numbers = ", ".join(f"{name} = {value:.6g}" for name, value in values.items())
        log.info("%s (epoch %.6g): %s", title, epoch, numbers)

    def _epoch(self) -> float:
        return min(self.step / self.steps_per_epoch, float(self.recipe.epochs))

    def _validate(self, epoch: float) -> None:
        """One pass over the validation records; every record counts once and alike."""
        if not self.val_records:
            return
        self._progress("Validating", now=True)
        total: Any = 0.0
        count = len(self.val_records)
        self.evaluation.begin()
        feed = self.val_records.feed(input.evaluation_order(count, self.batch))
        try:
            full, rest = divmod(count, self.batch)
            while full:
                batches = min(full, self.val_pace.steps)
                began = time.monotonic()
                rows = self.evaluation(feed.take(batches))
                self.val_pace.took(batches, time.monotonic() - began)
                total = total + rows.sum(axis=0, dtype=np.float64) * self.batch
                full -= batches
                self._progress("Validating")
            if rest:
                total = total + self.evaluation(feed.take(1))[0].astype(np.float64) * rest
        finally:
            feed.close()
        values = dict(zip(self.evaluation.names, (total / count).tolist(), strict=True))
        self._report("val", epoch, values)
        if self.step and not math.isfinite(values["loss"]):
            raise _diverged(values["loss"], self.step, self.rate.at(self.step - 1), "validation loss")
        self.wants_pictures = bool(self.training.pictures)

    def _save(self, epoch: float) -> None:
        self._progress("Saving a snapshot", now=True)
        target = snapshots.prefix(self.job_folder, epoch)
        snapshots.save(target, {**self.store.variables, **self.optimizer.state}, self.step)
        self.events.append(Saved(epoch, self.step, target.name))
        log.info("Snapshot saved: %s", target.name)

    def _progress(self, doing: str, now: bool = False) -> None:
        moment = time.monotonic()
        if not now and moment - self.progressed < PROGRESS_SECONDS:
            return
        self.progressed = moment
        fraction = self.step / self.total_steps
        left = (moment - self.started) * (1 / fraction - 1) if fraction > 0 else None
        self.events.append(Progressed(round(fraction, 6), left, doing))


def _diverged(loss: float, step: int, rate: float, what: str = "loss") -> UserFault:
    value = "not a number (NaN)" if math.isnan(loss) else "infinite"
    return UserFault(
        f"The {what} became {value} at step {step}, at the learning rate {rate:g}.",
        "Lower the learning rate. The last snapshot is still good.",
    )
