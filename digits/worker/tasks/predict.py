"""Predict a list of images, appending the results to a file as they are computed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from digits.core import recipe as recipes
from digits.core.events import EventLog
from digits.core.files import UnreadableFile
from digits.data.images.images import Geometry
from digits.data.models import predictions
from digits.data.models.predictions import ListedImage, Row
from digits.kinds.network.targets import as_returned
from digits.worker.failure import UserFault
from digits.worker.input import image_input
from digits.worker.tasks import background
from digits.worker.training.models import trained
from digits.worker.training.models.batches import Batches, large_batch
from digits.worker.training.models.outputs import named
from digits.worker.training.models.trained import Trained

TOP = 5
# The maximum number of probabilities or values to store: images times classes.
MAX_KEPT = 100_000_000

Read = tuple[NDArray[Any], Geometry] | UserFault


def run(recipe: recipes.Predict, task_folder: Path, events: EventLog) -> dict[str, Any]:
    """Predict all images in the list. Rows of images that cannot be read contain the error.

    Raises UserFault if the model cannot be loaded or does not predict from single images.
    """
    background.begin(events)
    target = Path(recipe.target)
    try:
        listed = predictions.load_list(target)
    except UnreadableFile as error:
        raise UserFault(f"The list of images cannot be read: {error}.", "Submit the images again.") from error
    model = trained.load(Path(recipe.model), recipe.snapshot, Path(recipe.trained_on))
    predictor = Predictor(model, keeps_values=recipe.keeps_values, resizes=recipe.resizes)
    with background.reporting_full_disk("the results"):
        read = _predict_all(predictor, listed, target, events, recipe.keeps_values)
    return {"images": len(listed), "read": read}


def _predict_all(
    predictor: Predictor, listed: list[ListedImage], target: Path, events: EventLog, keeps_values: bool
) -> int:
    """Append a row for each image; return the number of images that could be read."""
    progress, read = background.ItemProgress(events, "Predicting", len(listed)), 0
    classes = predictor.classes
    keeps = 0 < classes * len(listed) <= MAX_KEPT
    values = predictor.room_for(len(listed)) if keeps_values else {}
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(open(target / predictions.ROWS_FILE, "wb"))
        probabilities = (
            stack.enter_context(open(target / predictions.PROBABILITIES_FILE, "wb")) if keeps else None
        )
        threads = stack.enter_context(ThreadPoolExecutor(os.cpu_count()))
        if probabilities is not None:
            predictions.write_probabilities_header(probabilities, len(listed), classes)
        for chunk, inputs in read_ahead(threads, predictor, listed):
            usable = [place for place, item in enumerate(inputs) if not isinstance(item, UserFault)]
            outputs = predictor.predict([inputs[place][0] for place in usable]) if usable else {}  # type: ignore[index]
            predicted = outputs.get(predictions.PREDICTION, np.zeros((0, 1), np.float32))
            if probabilities is not None:
                rows = np.full((len(chunk), classes), np.nan, predictions.PROBABILITY_DTYPE)
                if usable:
                    rows[usable] = predictor.probabilities(predicted)
                probabilities.write(rows.tobytes())
                probabilities.flush()
            for name in values if usable else ():
                values[name][progress.done + np.array(usable)] = predictor.as_returned(name, outputs[name])
            by_place = dict(zip(usable, predicted, strict=True))
            file.writelines(
                msgspec.json.encode(predictor.row(image, item, by_place.get(place))) + b"\n"
                for place, (image, item) in enumerate(zip(chunk, inputs, strict=True))
            )
            file.flush()
            read += len(usable)
            progress.advance(len(chunk))
    if values:
        (target / predictions.VALUES_FOLDER).mkdir()
    for name, array in values.items():
        np.save(target / predictions.VALUES_FOLDER / f"{name}.npy", array, allow_pickle=False)
    return read


def read_ahead(
    threads: ThreadPoolExecutor, predictor: Predictor, listed: list[ListedImage]
) -> Iterator[tuple[list[ListedImage], list[Read]]]:
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


class Predictor:
    """Predicts batches of at most ``size`` images, with ``keeps_values`` all outputs.

    Without ``resizes``, images whose size differs from the network's input cannot be used.
    """

    def __init__(self, model: Trained, *, keeps_values: bool, resizes: bool) -> None:
        self._model, self._manifest, self._targets = model, model.manifest, model.targets
        if model.traced.latent:
            raise UserFault(
                "The model generates images from random vectors and does not predict from images.",
                "Use the generator on the page of the model.",
            )
        target = self._targets.target
        example = np.zeros((1, target.outputs), np.float32)
        has_probabilities = self._targets.class_probabilities(example) is not None
        self.classes = target.outputs if has_probabilities else 0
        signature = [tf.TensorSpec((None, *self._manifest.shape), self._manifest.dtype)]
        self._function = tf.function(self._predict, autograph=False, input_signature=signature)
        self._batches = Batches(self._function, model.batch_size)
        self._keeps_values, self._resizes = keeps_values, resizes
        self.size = large_batch(self._manifest.shape)
        self._example = self._run(np.zeros((1, *self._manifest.shape), self._manifest.dtype))
        model.check_predictions(self._example[predictions.PREDICTION].shape[1:])

    def read(self, image: ListedImage) -> Read:
        """Return the input for an image, or the error if it cannot be used."""
        if image.error:
            return UserFault(image.error)
        try:
            if image.path.endswith(predictions.ARRAY_SUFFIX):
                return image_input.read_array(image.path, self._manifest)
            pixels, geometry = image_input.read_stack([Path(path) for path in image.paths], self._manifest)
            if not self._resizes and geometry.size != (geometry.width, geometry.height):
                return UserFault(
                    "The image has {}×{} pixels, but the network’s input has {}×{}.".format(
                        *geometry.size, geometry.width, geometry.height
                    )
                )
            return pixels, geometry
        except UserFault as error:
            return error

    def predict(self, inputs: list[NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Return the predictions for 1 to ``size`` images as ``PREDICTION``, and all outputs if they are kept.

        Raises UserFault if the predictions contain NaN or infinity.
        """
        outputs = self._run(np.stack(inputs))
        if not np.isfinite(outputs[predictions.PREDICTION]).all():
            raise UserFault("The predictions contain NaN or infinity.", "Choose another snapshot or model.")
        return outputs

    def room_for(self, count: int) -> dict[str, NDArray[Any]]:
        """Return arrays of zeros for the outputs of ``count`` images by name, each [count, …].

        Outputs besides the prediction are left out if they are too large. Raises UserFault if the prediction is.
        """
        room, arrays = MAX_KEPT, {}
        for name, values in self._example.items():
            example = self.as_returned(name, values)
            size = count * example[0].size
            if size > room and name == predictions.PREDICTION:
                raise UserFault(
                    f"The predictions for {count:,} images have {size:,} values; the maximum is {MAX_KEPT:,}.",
                    "Set “num_test_images” to a lower number, or predict the images in several requests.",
                )
            if size <= room:
                room -= size
                arrays[name] = np.zeros((count, *example.shape[1:]), example.dtype)
        return arrays

    def as_returned(self, name: str, values: NDArray[Any]) -> NDArray[Any]:
        """Return ``values`` of the output ``name`` in the order of dimensions that the network returns."""
        if name != predictions.PREDICTION:
            return values
        _, outputs = self._function.get_concrete_function().structured_outputs
        return as_returned(values, outputs, self._targets.channels)

    def _run(self, pixels: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Return the predictions for a batch of pixels, [N, …], and all outputs of N items if they are kept."""
        predicted, outputs = self._batches(pixels)
        kept = {
            name: values for name, values in outputs.items() if values.ndim and len(values) == len(pixels)
        }
        return predictions.with_outputs(predicted, kept)

    def probabilities(self, predicted: NDArray[Any]) -> NDArray[Any]:
        probabilities = self._targets.class_probabilities(predicted)
        assert probabilities is not None
        return probabilities

    def row(self, image: ListedImage, read: Read, predicted: NDArray[Any] | None) -> Row:
        """Return the result for one image."""
        if isinstance(read, UserFault) or predicted is None:
            return Row(image.name, image.truth, error=read.message if isinstance(read, UserFault) else "")
        width, height = read[1].size
        described = self._targets.describe(predicted, TOP, read[1])
        return Row(image.name, image.truth, width, height, described)

    def _predict(self, pixels: tf.Tensor) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        outputs = self._model.outputs(pixels)
        return self._targets.predict(outputs), named(outputs) if self._keeps_values else {}
