"""A trained network with the weights of one snapshot, ready to predict."""

from __future__ import annotations

import functools
import logging
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from digits.data.images import images
from digits.kinds.network.targets import UnsuitableOutput, as_returned
from digits.worker.failure import UserFault, describe, in_a_sentence
from digits.worker.input import image_input
from digits.worker.inspection.attribution import Attribution
from digits.worker.inspection.inspector import Inspector
from digits.worker.serving import client_batch, protocols, value_range
from digits.worker.serving.refusal import Refused
from digits.worker.training.models import trained
from digits.worker.training.models.batch_prediction import BatchPredictor
from digits.worker.training.models.batches import Batches
from digits.worker.training.models.generator import Generator, Grid
from digits.worker.training.models.outputs import named

# Functions that are traced for a size and type of images; most images have the usual one.
MAX_FUNCTIONS = 10
# The number of classes in a description of a prediction.
TOP = 5

log = logging.getLogger(__name__)

Prepared = tuple[NDArray[Any], images.Geometry]


class Predictor:
    """The network of a model with the weights of one snapshot, warmed up and ready.

    ``model_folder`` is the model's job folder. Raises Refused, UserFault, or what the network raises when the
    snapshot, the network or the dataset cannot be loaded.
    """

    def __init__(self, model_folder: Path, snapshot: str) -> None:
        if Path(snapshot).name != snapshot or not (model_folder / f"{snapshot}.index").is_file():
            raise Refused(f"There is no snapshot {snapshot!r}.", "Choose another snapshot.", 404)
        self.trained = trained.load(model_folder, snapshot)
        self._generator = Generator(self.trained) if self.trained.traced.latent else None
        self.manifest, self.targets = self.trained.manifest, self.trained.targets
        self.batch_size = client_batch.FIRST_BATCH
        self._functions: OrderedDict[tuple[Any, ...], Batches] = OrderedDict()
        if self._generator is None:
            self._warm_up()

    def _warm_up(self) -> None:
        """Run once, because the first run is slow, and check the output. Raises Refused."""
        try:
            values = self.run(np.zeros((1, *self.shape), self.manifest.dtype))
        except tf.errors.OpError as error:
            raise Refused.because(error, "The network cannot compute its output from an image. ") from error
        columns = int(values.shape[1]) if values.ndim == 2 else 0
        try:
            loss = self.trained.label_flow(columns)
        except Exception as error:
            log.info("The loss could not be built: %s", error)
            loss = None
        try:
            self.targets.check(columns, loss)
        except UnsuitableOutput as error:
            raise Refused(error.message, error.hint) from error

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the images, [H, W, C]."""
        return self.manifest.shape

    # Inputs

    def read(self, image: images.Source, *, resize: bool = True) -> Prepared:
        """Return the input for an image file, [H, W, C], and its geometry; raises UserFault.

        Without ``resize``, it keeps its size.
        """
        return (image_input.read if resize else image_input.read_unresized)(image, self.manifest)

    def _input_of(self, source: protocols.Source) -> Prepared | UserFault:
        """The input for a client's file or pixels and its geometry, or the reason why it cannot be used."""
        if not isinstance(source, np.ndarray):
            try:
                return image_input.read(bytes(source), self.manifest)
            except UserFault as error:
                return error
        pixels = source.astype(np.float32)
        if not np.isfinite(pixels).all():
            return UserFault("The image contains NaN or infinity.")
        height, width, _ = self.shape
        return pixels, images.Geometry((width, height), width, height, "squash")

    def check(self, pixels: NDArray[Any]) -> None:
        """Raise UserFault if ``pixels`` [H, W, C] are not in the range of the images of the training."""
        value_range.check(pixels, self.manifest)

    # Predictions

    def predict(self, image: str | Path, top: int = TOP) -> Any:
        """The prediction for an image file as its kind describes it, with ``top`` classes; raises UserFault."""
        pixels, geometry = self.read(image)
        return self.targets.describe(self.run(pixels[None])[0], top, geometry)

    def predict_batch(
        self, sources: Sequence[protocols.Source], is_described: Sequence[bool]
    ) -> list[Any | UserFault]:
        """The predictions for several images, computed together; for an image that cannot be used, the reason.

        A prediction is an array of numbers, or as the kind describes it if it ``is_described``.
        """
        inputs = [self._input_of(source) for source in sources]
        usable = [item[0] for item in inputs if not isinstance(item, UserFault)]
        values = iter(self._run_any(usable) if usable else ())
        return [
            item
            if isinstance(item, UserFault)
            else self.targets.describe(next(values), TOP, item[1])
            if described
            else next(values)
            for described, item in zip(is_described, inputs, strict=True)
        ]

    def _run_any(self, inputs: list[NDArray[Any]]) -> NDArray[Any]:
        """The predictions for pixels of 0 to 255, which need not be whole numbers; raises Refused."""
        if all(pixels.dtype == np.uint8 for pixels in inputs):
            return self.run(np.stack(inputs))
        pixels = np.stack([pixels.astype(np.float32) for pixels in inputs])
        if self.manifest.dtype == "uint8":
            whole = np.rint(pixels)
            if np.array_equal(whole, pixels) and pixels.min() >= 0 and pixels.max() <= 255:
                return self.run(pixels.astype(np.uint8))
        return self.run(pixels)

    def run(self, pixels: NDArray[Any]) -> NDArray[Any]:
        """Return the predictions, [N, …], for images of any size and type, [N, H, W, C]; raises Refused."""
        values: NDArray[Any] = self._function(pixels)(pixels)
        if not self.targets.accepts(values.shape[1:]):
            error = self.targets.refuse(values.shape[1:])
            raise Refused(error.message, error.hint) from error
        return values

    def outputs(self, pixels: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Return every output by name for an image of any size, [H, W, C], in the order of the network."""
        outputs = self._function(pixels[None], with_outputs=True)(pixels[None])[1]
        return {
            name: values[0] if values.ndim and len(values) == 1 else values
            for name, values in outputs.items()
        }

    def as_returned(self, predicted: NDArray[Any]) -> NDArray[Any]:
        """Return predictions with images in the order of dimensions that the network returns."""
        return as_returned(predicted, self._returned, self.targets.channels)

    @property
    def has_several_outputs(self) -> bool:
        return len(self._returned) > 1

    @functools.cached_property
    def _returned(self) -> dict[str, tf.Tensor]:
        """The outputs by name, tensors of the graph."""
        return named(self.trained.traced.function.structured_outputs)

    def _function(self, pixels: NDArray[Any], *, with_outputs: bool = False) -> Batches:
        """Return a function from images like the ``pixels`` [N, H, W, C] to their predictions.

        If ``with_outputs``, it returns a pair, the second part of which are the outputs by name.

        Raises Refused for a network that does not predict from images of this size.
        """
        if self._generator is not None:
            raise Refused("The network generates images from latent vectors, not from an image.")
        shape = pixels.shape[1:]
        key = (shape, pixels.dtype.name, with_outputs)
        if key in self._functions:
            self._functions.move_to_end(key)
            return self._functions[key]
        is_usual = shape == self.shape

        def compute(values: tf.Tensor) -> Any:
            outputs = self.trained.outputs(values) if is_usual else self.trained.outputs_of_size(values)
            predictions = self.targets.predict(outputs)
            return (predictions, named(outputs)) if with_outputs else predictions

        signature = [tf.TensorSpec((None, *shape), pixels.dtype)]
        function = tf.function(compute, autograph=False, input_signature=signature)
        # Calling a concrete function avoids the dispatch of tf.function, half the time of a call.
        traced = functools.cache(function.get_concrete_function)
        batches = Batches(lambda images: traced()(images), self.trained.batch_size)
        if not is_usual:
            self._check_size(batches, np.zeros((1, *shape), pixels.dtype))
        while len(self._functions) >= MAX_FUNCTIONS:
            self._functions.popitem(last=False)
        self._functions[key] = batches
        return batches

    def _check_size(self, function: Batches, black: NDArray[Any]) -> None:
        """Raise Refused unless the network accepts images of the size of ``black``, [1, H, W, C]."""
        event = None
        try:
            results = function(black)
            if len(results[0] if isinstance(results, tuple) else results) == 1:
                return
        except Exception as error:
            event = describe(error)
        height, width, _ = self.shape
        raise Refused(
            f"The network does not accept images of {black.shape[2]}×{black.shape[1]} pixels"
            + (f": {in_a_sentence(event)}" if event else "."),
            f"Leave out “dont_resize” to resize images to {width}×{height} pixels.",
            400,
            event.trace if event else (),
        )

    # Parts of the network

    @functools.cached_property
    def inspector(self) -> Inspector:
        """Raises UserFault for a network that generates images."""
        black = np.zeros((1, *self.shape), self.manifest.dtype)
        return Inspector(self.trained, 1 if self._generator else self._function(black).smallest)

    @functools.cached_property
    def attribution(self) -> Attribution:
        return Attribution(self.inspector)

    @functools.cached_property
    def batch_predictor(self) -> BatchPredictor:
        """Predicts records of the dataset of the training; raises UserFault."""
        return BatchPredictor(self.trained, self.manifest)

    def generate(self, grid: Grid) -> dict[str, Any]:
        """Generate a ``grid`` of images; raises Refused, UserFault, or what the network raises."""
        if self._generator is None:
            raise Refused(
                "The network does not generate images from latent vectors.",
                "During inference, the network must reshape self.x to [-1, size] and return images.",
            )
        return self._generator.generate(grid)
