"""Preflight: run one training step and one validation batch before the training starts.

Only the required batches are decoded, and no snapshot is saved. The result is that of the task; errors are reported
as in a training. The first batch is saved in the job's folder as the network sees it, as a picture and a
description.
"""

from __future__ import annotations

import contextlib
import math
import resource
import secrets
import sys
import time
from pathlib import Path
from typing import Any

import humanize
import keras
import msgspec
import numpy as np
import tensorflow as tf

from digits.core import recipe as recipes
from digits.core.events import EventLog, InputPrepared, Progressed, Warned, for_browser
from digits.core.results.preflight_result import PICTURE_FILE
from digits.worker.input import memory
from digits.worker.input.preparation import Chunk
from digits.worker.training.loop import assessment, network_checks, setup
from digits.worker.training.loop.resources import Resources
from digits.worker.training.loop.setup import Steps
from digits.worker.training.loop.tensorboard_log import TensorBoardLog
from digits.worker.training.step import device_config, eager, numerics
from digits.worker.training.step.training_step import CROSS_ENTROPY, Traced, TrainingStep

# Time to repeat steps for measuring their duration, in seconds.
MEASURED_SECONDS = 0.5
MAX_MEASURED_STEPS = 6
BATCHES_READ = 3

# Steps of an eager run, each on a different batch.
EAGER_STEPS = 3
# Longer printed text is only in the log.
MAX_CHARACTERS = 20_000


def run(recipe: recipes.Preflight, task_folder: Path, events: EventLog) -> dict[str, Any]:
    """Check the training that ``recipe`` describes; write the picture and the graph to the job's folder.

    Raises UserFault, or whatever the user's network raises.
    """
    events.append(Progressed(0.0, doing="Reading the dataset"))
    if recipe.eager:  # what casts and measures the network works on a graph
        recipe = msgspec.structs.replace(recipe, precision="float32", xla=False, gradient_metrics=False)
    config, gpus = device_config.configure(recipe, events)
    device_config.check_division(config.batch_size, recipe.workers)
    seed = secrets.randbelow(2**31) if recipe.seed is None else recipe.seed
    keras.utils.set_random_seed(seed % 2**32)
    resources = Resources(recipe, task_folder.parent, events, config, seed)
    resources.data.end_claims()  # only the required batches are decoded
    preflight = _Preflight(recipe, resources, bool(gpus))
    if recipe.eager:
        return preflight.result_eagerly()
    events.append(Progressed(0.0, doing="Building the network"))
    with TensorBoardLog(task_folder.parent / "tb") as board:
        steps = setup.build(resources, board, measures_labels=True)
        resources.load_weights(steps.training.traced)
    events.append(Progressed(0.5, doing="Running one step"))
    return preflight.result(steps)


class _Preflight:
    """Runs and measures the first steps of a training with ``resources``."""

    def __init__(self, recipe: recipes.Preflight, resources: Resources, on_gpu: bool) -> None:
        self._resources, self._on_gpu = resources, on_gpu
        self._data, self._recipe = resources.data, recipe

    def result(self, steps: Steps) -> dict[str, Any]:
        """Run a training step and a validation batch; return the result of the task."""
        training = steps.training
        (chunk,) = self._read(1)
        began = time.perf_counter()
        self._read(BATCHES_READ)
        seconds_reading = (time.perf_counter() - began) / BATCHES_READ
        validation, seconds_validating = self._validate(steps)
        notes = assessment.write_picture(
            self._resources, training.step, chunk, is_compiled=training.is_compiled
        )
        first, first_seconds = _take_step(steps, chunk, 0)
        seconds = _measure(steps, chunk)
        if steps.writes_pictures or self._resources.measures_updates:
            # Never compiled, so it may need more memory than the others.
            training.extended_step(chunk, steps.learning_rate.at(0), 0)
        curves = {name: value for name, value in first.items() if name != CROSS_ENTROPY}
        durations = self._durations(
            seconds,
            seconds_reading,
            first_seconds,
            seconds_validating,
            setup.saved_steps(self._resources, steps),
        )
        result = {
            **self._assess(training.traced, first, durations["seconds_total"]),
            "metrics": {"train": curves, "val": validation},
            **durations,
            **self._memory(),
            **self._facts(training.step),
            "xla": training.is_compiled,
            "batch": notes,
        }
        found = network_checks.findings(self._resources, steps, chunk)
        self._resources.events.append(*map(Warned, found))
        return for_browser(result)

    def result_eagerly(self) -> dict[str, Any]:
        """Run a few steps eagerly; return the result of the task."""
        resources = self._resources
        step, rate = setup.eager_step(resources), setup.learning_rate(resources)
        chunks = self._read(min(EAGER_STEPS, resources.timeline.total_steps))
        notes = assessment.write_picture(resources, step, chunks[0], is_compiled=False)
        if self._recipe.weights:  # they are loaded into the variables that the network creates
            resources.load_weights(eager.run(step, chunks[0], 0.0, 0, changes_weights=False).traced)
        losses, printed = [], ""
        for number, chunk in enumerate(chunks):
            # A terminal is the user's debugger.
            text = sys.stdout if sys.stdout.isatty() else eager.Printed()
            with contextlib.redirect_stdout(text):
                row = eager.run(step, chunk, rate.at(number), number).row.numpy()
            losses.append(float(row[0]))
            numerics.check_losses(row[:1], number, [rate.at(number)], has_snapshots=False)
            if isinstance(text, eager.Printed) and text.getvalue():
                printed += f"Step {number + 1}\n{text.getvalue()}"
        if len(printed) > MAX_CHARACTERS:
            printed = f"{printed[:MAX_CHARACTERS]}\n… The rest is in the log.\n"
        setup.warn_of_freeze_patterns(resources)
        result = {
            "loss": losses[0],
            "losses": losses,
            "printed": printed,
            "verdict": f"The loss of each step is {', '.join(f'{loss:.4g}' for loss in losses)}.",
            "verdict_level": "unknown",
            **self._memory(),
            **self._facts(step),
            "xla": False,
            "batch": notes,
        }
        return for_browser(result)

    def _assess(self, traced: Traced, first: dict[str, float], seconds_total: float) -> dict[str, Any]:
        """The loss of the ``first`` training step, and its assessment."""
        start = assessment.start_of(self._resources, traced, first)
        cost = assessment.cost_of(self._resources, traced, seconds_total)
        judged = assessment.verdict(start, cost)
        return {
            "loss": start.loss,
            "cross_entropy": start.cross_entropy,
            "chance_loss": start.chance,
            "parameters_per_image": cost.parameters_per_image,
            "verdict": judged.message,
            "verdict_level": judged.level,
            "advice": judged.advice,
        }

    def _durations(
        self, computing: float, reading: float, first: float, validating: float | None, saved: float
    ) -> dict[str, Any]:
        timeline, interval = self._resources.timeline, self._recipe.val_interval
        # Reading and computing overlap; images cached in memory are not read again.
        step = computing if self._data.train.is_resident else max(computing, reading)
        in_all, epoch = first + (timeline.total_steps - saved) * step, timeline.steps_per_epoch * step
        if validating is not None:
            in_all += validating * (1 + math.ceil(timeline.epochs / interval))
            epoch += validating / interval
        return {
            "seconds_per_step": step,
            "seconds_computing": computing,
            "seconds_reading": reading,
            "seconds_first_step": first,
            "seconds_per_validation": validating,
            "seconds_per_epoch": epoch,
            "seconds_total": in_all,
            "images_per_second": self._data.step_records / max(step, 1e-9),
            "steps_per_epoch": timeline.steps_per_epoch,
            "steps": timeline.total_steps,
        }

    def _memory(self) -> dict[str, Any]:
        train, val = self._data.train, self._data.val
        return {
            "memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "memory_free_bytes": memory.free_bytes(),
            "gpu_memory_bytes": self._gpu_memory(),
            # The memory for decoded images, in addition.
            "resident_bytes": sum(
                records.bytes for records in (train, val) if records and records.is_resident
            ),
            "input": _input(train.input_prepared),
            "validation_input": _input(val.input_prepared) if val else None,
        }

    def _facts(self, step: TrainingStep) -> dict[str, Any]:
        config, data = step.options.config, self._data
        return {
            "parameters": self._resources.store.parameters,
            "image_shape": list(data.preparation.image_shape),
            "shape": list(data.preparation.shape),
            "classes": len(data.manifest.target.labels),
            "batch_size": data.batch_size,
            "batches_per_step": config.batches,
            "devices": list(config.devices),
            "precision": config.precision,
            "seed": self._resources.seed,
            "picture": PICTURE_FILE,
        }

    # Steps

    def _read(self, batches: int) -> list[Chunk]:
        return assessment.read(self._data, self._resources.seed, batches)

    def _validate(self, steps: Steps) -> tuple[dict[str, float] | None, float | None]:
        """The metrics of the first validation batch, and the seconds that a whole validation would take."""
        records, evaluation = self._data.val, steps.evaluation
        if records is None or evaluation is None:
            return None, None
        count = min(self._data.batch_size, len(records))
        began = time.perf_counter()
        chunk = self._data.read_first(records)
        reading = time.perf_counter() - began
        began = time.perf_counter()
        with numerics.explained(1, steps.learning_rate.at(0)):
            row, values = evaluation(chunk)
            seconds = time.perf_counter() - began
            if seconds < MEASURED_SECONDS:  # most of that was preparation
                began = time.perf_counter()
                evaluation(chunk)
                seconds = time.perf_counter() - began
            if last := len(records) % count:  # some networks reject a smaller batch
                evaluation(chunk._replace(positions=chunk.positions[:, :last]))
        if not records.is_resident:
            seconds = max(seconds, reading)
        return evaluation.summarize(row[0].tolist(), values), seconds * len(records) / count

    # Memory

    def _gpu_memory(self) -> int | None:
        """The peak of the memory that TensorFlow has used on a GPU so far, in bytes."""
        if not self._on_gpu:
            return None
        devices = tf.config.list_logical_devices("GPU")
        return max(tf.config.experimental.get_memory_info(device.name)["peak"] for device in devices)


def _take_step(steps: Steps, chunk: Chunk, step: int) -> tuple[dict[str, float], float]:
    """Run the training step after ``step`` steps; return its metrics and its duration in seconds."""
    began = time.perf_counter()
    rate = steps.learning_rate.at(step)
    with numerics.explained(step + 1, rate):
        row = steps.training.steps(chunk, [rate], step)
    seconds = time.perf_counter() - began
    return steps.training.summarize(row[0].tolist()), seconds


def _measure(steps: Steps, chunk: Chunk) -> float:
    """Return the median duration of a few steps, in seconds."""
    taken: list[float] = []
    while len(taken) < MAX_MEASURED_STEPS and sum(taken) < MEASURED_SECONDS:
        taken.append(_take_step(steps, chunk, len(taken) + 1)[1])
    return float(np.median(taken))


def _input(prepared: InputPrepared) -> dict[str, Any]:
    """Return how records reach the network, and the reason in words."""
    budget, free = humanize.naturalsize(prepared.budget_bytes), humanize.naturalsize(prepared.free_bytes)
    reason = f"limit {budget} of {free} free {prepared.place}"
    return {"how": prepared.how, "records": prepared.records, "bytes": prepared.bytes, "reason": reason}
