"""Predict a list of images, appending the results to a file as they are computed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from digits.core import recipe as recipes
from digits.core.events import EventLog, Progressed, ReportInterval
from digits.core.files import UnreadableFile, is_disk_full
from digits.data import predictions
from digits.data.images import Geometry
from digits.data.predictions import ListedImage, Row
from digits.kinds.targets import UnsuitableOutput
from digits.worker.failure import UserFault
from digits.worker.input import image_input
from digits.worker.training import trained
from digits.worker.training.batch_prediction import LARGE_BATCH, MAX_BATCH_BYTES
from digits.worker.training.trained import Trained

PROGRESS_SECONDS = 0.25
LOWEST_PRIORITY = 19
TOP = 5
# The maximum number of probabilities or values to store: images times classes.
MAX_KEPT = 100_000_000

_Read = tuple[NDArray[Any], Geometry] | UserFault


def run(recipe: recipes.Predict, task_folder: Path, events: EventLog) -> dict[str, Any]:
    """Predict all images in the list. Rows of images that cannot be read contain the error.

    Raises UserFault if the model cannot be loaded or does not predict from single images.
    """
    os.setpriority(os.PRIO_PROCESS, 0, LOWEST_PRIORITY)
    tf.config.set_visible_devices([], "GPU")  # only used in training
    events.append(Progressed(0.0, doing="Loading the model"))
    target = Path(recipe.target)
    try:
        listed = predictions.load_list(target)
    except UnreadableFile as error:
        raise UserFault(f"The list of images cannot be read: {error}.", "Submit the images again.") from error
    model = trained.load(Path(recipe.model), recipe.snapshot, Path(recipe.trained_on))
    predictor = _Predictor(model)
    try:
        read = _predict_all(predictor, listed, target, events, recipe.keeps_values)
    except OSError as error:
        if is_disk_full(error):
            raise UserFault(
                "The disk is full: the results could not be saved.", "Free some space."
            ) from error
        raise
    return {"images": len(listed), "read": read}


def _predict_all(
    predictor: _Predictor, listed: list[ListedImage], target: Path, events: EventLog, keeps_values: bool
) -> int:
    """Append a row for each image; return the number of images that could be read."""
    interval, began, done, read = ReportInterval(PROGRESS_SECONDS), time.monotonic(), 0, 0
    classes = predictor.classes
    keeps = 0 < classes * len(listed) <= MAX_KEPT
    kept = np.full((len(listed), classes), np.nan, np.float32) if keeps else None
    values = predictor.room_for(len(listed)) if keeps_values else None
    with open(target / predictions.ROWS_FILE, "wb") as file, ThreadPoolExecutor(os.cpu_count()) as threads:
        for chunk, inputs in _read_ahead(threads, predictor, listed):
            usable = [place for place, item in enumerate(inputs) if not isinstance(item, UserFault)]
            found = predictor.predict([inputs[place][0] for place in usable])  # type: ignore[index]
            if kept is not None and usable:
                kept[done + np.array(usable)] = predictor.probabilities(found)
            if values is not None and usable:
                values[done + np.array(usable)] = found
            by_place = dict(zip(usable, found, strict=True))
            file.writelines(
                msgspec.json.encode(predictor.row(image, item, by_place.get(place))) + b"\n"
                for place, (image, item) in enumerate(zip(chunk, inputs, strict=True))
            )
            file.flush()
            done += len(chunk)
            read += len(usable)
            if interval.is_due():
                left = (len(listed) - done) * (time.monotonic() - began) / done
                events.append(
                    Progressed(done / len(listed), left, f"Predicting: {done:,} of {len(listed):,}")
                )
    for array, name in ((kept, predictions.PROBABILITIES_FILE), (values, predictions.VALUES_FILE)):
        if array is not None:
            np.save(target / name, array, allow_pickle=False)
    return read


def _read_ahead(
    threads: ThreadPoolExecutor, predictor: _Predictor, listed: list[ListedImage]
) -> Iterator[tuple[list[ListedImage], list[_Read]]]:
    """Yield chunks of the list with their inputs, reading the next chunk in the background."""

    def start(chunk: list[ListedImage]) -> tuple[list[ListedImage], list[Any]]:
        return chunk, [threads.submit(predictor.read, image) for image in chunk]

    following = None
    for first in range(0, len(listed), predictor.size):
        current, following = following, start(listed[first : first + predictor.size])
        if current:
            yield current[0], [reading.result() for reading in current[1]]
    if following:
        yield following[0], [reading.result() for reading in following[1]]


class _Predictor:
    """Predicts batches of at most ``size`` images. ``classes`` is 0 for models that are not classifiers."""

    def __init__(self, model: Trained) -> None:
        self._model, self._manifest, self._targets = model, model.manifest, model.targets
        if model.traced.latent:
            raise UserFault(
                "The model generates images from random vectors and does not predict from images.",
                "Use the generator on the page of the model.",
            )
        target = self._targets.target
        example = np.zeros((1, target.outputs), np.float32)
        has_probabilities = target.classes and self._targets.class_probabilities(example) is not None
        self.classes = target.outputs if has_probabilities else 0
        signature = [tf.TensorSpec((None, *self._manifest.shape), self._manifest.dtype)]
        self._function = tf.function(self._predict, autograph=False, input_signature=signature)
        self.size = self._usable_size()

    def read(self, image: ListedImage) -> _Read:
        """Return the input for an image, or the error if it cannot be used."""
        if image.error:
            return UserFault(image.error)
        try:
            if image.path.endswith(predictions.ARRAY_SUFFIX):
                return image_input.read_array(image.path, self._manifest)
            return image_input.read(Path(image.path), self._manifest)
        except UserFault as error:
            return error

    def predict(self, inputs: list[NDArray[Any]]) -> NDArray[Any]:
        """Return the predictions for at most ``size`` images. Raises UserFault if they contain NaN or infinity."""
        if not inputs:
            return np.zeros((0, 1), np.float32)
        pixels = np.stack(inputs)
        # Some networks require a fixed batch size.
        whole = pixels if self._any_size else np.resize(pixels, (self.size, *pixels.shape[1:]))
        found: NDArray[Any] = self._function(tf.constant(whole)).numpy()[: len(inputs)]
        if not np.isfinite(found).all():
            raise UserFault("The predictions contain NaN or infinity.", "Choose another snapshot or model.")
        return found

    def room_for(self, count: int) -> NDArray[Any]:
        """Return an array of zeros for the values of ``count`` predictions, [count, …]. Raises UserFault."""
        example = self._function(tf.zeros((self.size, *self._manifest.shape), self._manifest.dtype)).numpy()
        if count * example[0].size > MAX_KEPT:
            raise UserFault(
                f"The predictions for {count:,} images have {count * example[0].size:,} values; the maximum is "
                f"{MAX_KEPT:,}.",
                "Set “num_test_images” to a lower number, or predict the images in several requests.",
            )
        return np.zeros((count, *example.shape[1:]), example.dtype)

    def probabilities(self, predicted: NDArray[Any]) -> NDArray[Any]:
        found = self._targets.class_probabilities(predicted)
        assert found is not None
        return found

    def row(self, image: ListedImage, read: _Read, predicted: NDArray[Any] | None) -> Row:
        """Return the result for one image."""
        if isinstance(read, UserFault) or predicted is None:
            return Row(image.name, image.truth, error=read.message if isinstance(read, UserFault) else "")
        width, height = read[1].size
        described = self._targets.describe(predicted, TOP, read[1])
        return Row(image.name, image.truth, width, height, described)

    def _predict(self, pixels: tf.Tensor) -> tf.Tensor:
        return self._targets.predict(self._model.outputs(pixels))

    def _usable_size(self) -> int:
        """Return a batch size that the network accepts. Raises UserFault if its output is unsuitable."""
        record_bytes = int(np.prod(self._manifest.shape)) * 4
        large = max(1, min(LARGE_BATCH, MAX_BATCH_BYTES // record_bytes))
        self._any_size = True
        try:
            for size in (1, large):
                self._check(self._function(tf.zeros((size, *self._manifest.shape), self._manifest.dtype)))
            return large
        except tf.errors.OpError:
            self._any_size = False
        size = self._model.batch_size
        self._check(self._function(tf.zeros((size, *self._manifest.shape), self._manifest.dtype)))
        return size

    def _check(self, output: tf.Tensor) -> None:
        shape = output.shape[1:].as_list()
        try:
            if not self._targets.accepts(shape):
                raise self._targets.refuse(shape)
            columns = shape[0] if len(shape) == 1 else 0
            self._targets.check(columns, self._model.label_flow(columns))
        except UnsuitableOutput as error:
            raise UserFault(error.message, error.hint) from error
