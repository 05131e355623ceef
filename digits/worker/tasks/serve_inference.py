"""Inference server: predictions of a trained network for images, one process per model.

The process listens on a Unix socket. Requests and responses are `digits.core.messages`:

    {"call": "predict", "image": path, "snapshot": "snapshot_1.ckpt", "top": 5}
    {"call": "predict", "pixels": path of a .npy file, uint8 or float32 [height, width, channels], "snapshot": …}
    {"call": "predict", "image": path, "snapshot": …, "values": true}   (the numbers instead of their description, and
                                                        every output of a network with several, see `Predictor.values`)
    {"call": "predict", "image": path, "snapshot": …, "outputs": true}   (also every output, see `PredictedOutput`)
    {"call": "predict", "image": path, "snapshot": …, "resize": false}   (at its original size)
    {"call": "generate", "snapshot": …, "grid": {"rows": 5, "columns": 10, "seed": 1, …}}   (see `Grid`)
    {"call": "layers", "snapshot": …}   (the layers that can be inspected, and the outputs that can be explained)
    {"call": "inspect", "image": path, "snapshot": …, "layers": [name, …]}   (see `Inspector.describe`)
    {"call": "explain", "image": path, "snapshot": …, "method": "grad_cam", "output": 3, "layer": name}
    {"call": "filters", "snapshot": …, "snapshots": [name, …]}   (see `Inspector.filters`)
    {"call": "follow", "snapshot": …, "snapshots": [name, …], "dataset": folder, "split": "val", "places": [0, …]}
    {"call": "serve", "snapshot": …, "requests": [{"format": "kserve", "attached": 1, …}, …], "attached": [size, …]}
                                                        (requests of client programs, see `ClientRequest`)
    {"ok": true, "predictions": …, "milliseconds": 3.2}   (as the kind describes them; or "values", "generated", …)
    {"ok": false, "message": …, "hint": …, "status": 400, "trace": [frame, …]}

It exits after a period without requests.
"""

from __future__ import annotations

import functools
import io
import json
import logging
import os
import selectors
import socket
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from digits.core import messages
from digits.core import recipe as recipes
from digits.core.events import EventLog, Frame
from digits.core.files import UnreadableFile
from digits.core.splits import Split
from digits.data import images
from digits.data.predictions import PREDICTION, with_outputs
from digits.kinds.targets import UnsuitableOutput, as_returned
from digits.worker.exporting import exported
from digits.worker.failure import UserFault, describe, in_a_sentence
from digits.worker.input import feeds, image_input
from digits.worker.inspection.attribution import Attribution
from digits.worker.inspection.inspector import Inspector
from digits.worker.serving import client_batch, protocols
from digits.worker.serving.protocols import ClientRequest
from digits.worker.tasks import background
from digits.worker.training.models import trained
from digits.worker.training.models.batch_prediction import BatchPredictor
from digits.worker.training.models.generator import Generator, Grid
from digits.worker.training.weights import restore

MAX_LOADED_SNAPSHOTS = 4
# Sizes of images besides the usual one for which a network is built.
MAX_SIZES = 8
MAX_CLASSES = 1000
# The number of classes in a description of a prediction.
TOP = 5
# A connection that makes no progress within a message for so long is dropped.
STALLED_SECONDS = 10.0
# The limits for the outputs in a response, as arrays and as JSON text.
MAX_OUTPUT_BYTES = 32 * 1024 * 1024
MAX_TEXT_BYTES = 64_000_000

log = logging.getLogger(__name__)

_Request = TypeVar("_Request")


class Refused(Exception):
    """An error response to a request, with its HTTP ``status``.

    ``trace`` lists the frames of an error in the network, the user's own first.
    """

    def __init__(self, message: str, hint: str = "", status: int = 400, trace: Sequence[Frame] = ()) -> None:
        super().__init__(message)
        self.message, self.hint, self.status, self.trace = message, hint, status, list(trace)

    @classmethod
    def because(cls, error: Exception, before: str = "") -> Refused:
        """The response to ``error``: status 400 for errors of the user's network, 500 for bugs."""
        if isinstance(error, Refused):
            return error
        event = describe(error)
        is_users = event.line is not None or isinstance(error, (UserFault, UnreadableFile))
        return cls(f"{before}{in_a_sentence(event)}", event.hint, 400 if is_users else 500, event.trace)


class Serve(msgspec.Struct):
    """Requests of client programs for predictions; their attachments follow one another."""

    requests: list[ClientRequest]


class PredictedOutput(msgspec.Struct):
    """An output of the network for one image.

    Its bytes in C order are attached to the response unless it is too large.
    """

    name: str
    dtype: str
    shape: list[int]
    attached: bool


class Inspect(msgspec.Struct):
    """A request for the activations and weights of ``layers``, by default all, for an image."""

    image: str | None = None
    pixels: str | None = None
    layers: list[str] | None = None


class Explain(msgspec.Struct):
    """A request for a heat map of an ``output``, by default the one with the largest score, for an image.

    Grad-CAM uses the activations of ``layer``; see `Attribution.default_layer`.
    """

    image: str | None = None
    pixels: str | None = None
    method: Literal["grad_cam", "integrated_gradients"] = "grad_cam"
    output: int | None = None
    layer: str = ""


class Filters(msgspec.Struct):
    """A request for the filters of the first convolution in several ``snapshots``."""

    snapshots: list[str]


class Follow(msgspec.Struct):
    """A request for the predictions of several ``snapshots`` for the records at ``places`` of a split."""

    snapshots: list[str]
    dataset: str
    split: Split
    places: list[int]


class Predictor:
    """A model's network with the weights of one snapshot, warmed up and ready.

    ``model_folder`` is the model's job folder. Raises Refused when the snapshot, the
    network or the dataset cannot be loaded.
    """

    def __init__(self, model_folder: Path, snapshot: str) -> None:
        if Path(snapshot).name != snapshot or not (model_folder / f"{snapshot}.index").is_file():
            raise Refused(f"There is no snapshot {snapshot!r}.", "Choose another snapshot.", 404)
        try:
            self._trained = trained.load(model_folder, snapshot)
            self._manifest = self._trained.manifest
            self._targets = self._trained.targets
            self._function = self._traced()
            self._generator = Generator(self._trained) if self._trained.traced.latent else None
        except Exception as error:
            raise Refused.because(error) from error
        self._repeats = 1
        self.batch_size = client_batch.FIRST_BATCH
        self._sizes: OrderedDict[tuple[int, ...], Any] = OrderedDict()
        if self._generator is not None:
            return
        self._warm_up()
        self._check_output()

    def predict(self, image: str | Path, top: int = 5, resize: bool = True) -> Any:
        """The prediction for one image as its kind describes it, with ``top`` classes; raises Refused.

        Without ``resize``, the image keeps its size.
        """
        pixels, geometry = self._read(image, resize)
        return self._targets.describe(self._run(pixels[None])[0], top, geometry)

    def predict_pixels(self, path: str | Path, top: int = 5) -> Any:
        """The prediction for the array [height, width, channels] in a ``.npy`` file; raises Refused."""
        pixels, geometry = self._load(path)
        return self._targets.describe(self._run(pixels[None])[0], top, geometry)

    def predict_with_outputs(
        self, source: str | Path, top: int = 5, *, is_image: bool, resize: bool = True
    ) -> tuple[dict[str, Any], list[bytes]]:
        """The prediction for an image or for the pixels in a file, and every output of the network; raises Refused.

        Also returns the attachments of the response.
        """
        pixels, geometry = self._read(source, resize) if is_image else self._load(source)
        values = self._run(pixels[None])[0]
        predictions = self._targets.describe(values, top, geometry)
        may_have_more = isinstance(predictions, list) and len(predictions) == top
        room, outputs, bodies = MAX_OUTPUT_BYTES, [], []
        for name, array in self._outputs(pixels[None]).items():
            room -= array.nbytes
            outputs.append(PredictedOutput(name, array.dtype.name, list(array.shape), room >= 0))
            if room >= 0:
                bodies.append(array.tobytes())
        answer = {
            "predictions": predictions,
            "all_predictions": self._targets.describe(values, MAX_CLASSES, geometry)
            if may_have_more
            else predictions,
            "outputs": msgspec.to_builtins(outputs),
            "geometry": asdict(geometry),
        }
        return answer, bodies

    def _outputs(self, pixels: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Every output by name for the first of the ``pixels`` [1, …], in the order of the network."""
        found = {}
        whole = tf.constant(np.repeat(pixels, self._repeats, axis=0))
        is_usual = pixels.shape[1:] == self._manifest.shape
        for name, tensor in (
            self._named_outputs(whole) if is_usual else self._for_size(pixels.shape[1:])(whole)[1]
        ).items():
            values = exported.as_array(tensor)
            found[name] = values[0] if values.ndim and len(values) == self._repeats else values
        return found

    @functools.cached_property
    def _named_outputs(self) -> Any:
        """A function from images, uint8 or float32 [N, H, W, C], to a dict of all outputs [N, …]."""

        def compute(pixels: tf.Tensor) -> dict[str, tf.Tensor]:
            return exported.named(self._trained.outputs(pixels))

        signature = [tf.TensorSpec((None, *self._manifest.shape), self._manifest.dtype)]
        return tf.function(compute, autograph=False, input_signature=signature)

    def _for_size(self, shape: tuple[int, ...]) -> Any:
        """A function from images [N, *shape] to their predictions and a dict of all outputs; raises Refused."""
        if shape in self._sizes:
            self._sizes.move_to_end(shape)
            return self._sizes[shape]

        def compute(pixels: tf.Tensor) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
            outputs = self._trained.outputs_of_size(pixels)
            return self._targets.predict(outputs), exported.named(outputs)

        function = tf.function(
            compute, autograph=False, input_signature=[tf.TensorSpec((None, *shape), self._manifest.dtype)]
        )
        black = tf.zeros((self._repeats, *shape), self._manifest.dtype)
        try:
            accepts = len(function(black)[0]) == self._repeats
        except Exception as error:
            raise self._refuse_size(shape, error) from error
        if not accepts:
            raise self._refuse_size(shape)
        while len(self._sizes) >= MAX_SIZES:
            self._sizes.popitem(last=False)
        self._sizes[shape] = function
        return function

    def _refuse_size(self, shape: tuple[int, ...], error: Exception | None = None) -> Refused:
        height, width, _ = self._manifest.shape
        event = describe(error) if error else None
        return Refused(
            f"The network does not accept images of {shape[1]}×{shape[0]} pixels"
            + (f": {in_a_sentence(event)}" if event else "."),
            f"Leave out “dont_resize” to resize images to {width}×{height} pixels.",
            400,
            event.trace if event else (),
        )

    def values(
        self, source: str | Path, *, is_image: bool, resize: bool = True
    ) -> tuple[dict[str, Any], list[bytes]]:
        """The numbers of the prediction for an image or for the pixels in a file, and those of several outputs.

        Each attachment is the JSON text of nested lists; ``names`` are their names, see `with_outputs`. ``omitted`` are
        those of outputs for which there was no room. Images have the order of dimensions that the network returns.
        Raises Refused.
        """
        pixels, _ = self._read(source, resize) if is_image else self._load(source)
        returned = self._named_outputs.get_concrete_function().structured_outputs
        predicted = as_returned(self._run(pixels[None]), returned, self._targets.channels)
        found = with_outputs(predicted[0], self._outputs(pixels[None]) if len(returned) > 1 else {})
        room, texts, omitted = MAX_TEXT_BYTES, {}, []
        for name, array in found.items():
            text = b""
            if 2 * array.size <= room:  # a digit and a comma
                # Unlike msgspec, the standard library keeps NaN.
                text = json.dumps(array.tolist(), separators=(",", ":")).encode()
            if 0 < len(text) <= room:
                texts[name] = text
                room -= len(text)
            elif name == PREDICTION:
                raise Refused(
                    f"The output has {array.size:,} numbers, which are too many for JSON.",
                    "Predict on the page of the model with the view “all-raw-data”, which has links to NumPy files."
                    if array.nbytes <= MAX_OUTPUT_BYTES
                    else "Reduce the size of the network’s output.",
                )
            else:
                omitted.append(name)
        return {"names": list(texts), "omitted": omitted}, list(texts.values())

    def layers(self) -> dict[str, Any]:
        """Return the table of ``layers``, those with ``maps`` and the default one for Grad-CAM, and the ``outputs``."""
        attribution = self._attribution
        return {
            "layers": self._inspector.table,
            "maps": attribution.layers,
            "default": attribution.default_layer() if attribution.layers else "",
            "outputs": attribution.outputs,
        }

    def inspect(self, asked: Inspect) -> dict[str, Any]:
        """Return the ``layers`` for an image, and the ``image`` as the network receives it.

        Raises UserFault or Refused.
        """
        pixels = self._pixels(asked)
        return {"layers": self._inspector.describe(pixels, asked.layers), "image": _as_picture(pixels)}

    def explain(self, asked: Explain) -> dict[str, Any]:
        """Return a ``heat_map`` for an image, and the ``image`` as the network receives it.

        Raises UserFault or Refused.
        """
        pixels = self._pixels(asked)
        if asked.method == "grad_cam":
            found = self._attribution.grad_cam(pixels, asked.output, asked.layer)
        else:
            found = self._attribution.integrated_gradients(pixels, asked.output)
        return {"heat_map": found, "image": _as_picture(pixels)}

    def filters(self, folder: Path, asked: Filters) -> dict[str, Any]:
        """Return the filters of the first convolution in snapshots in ``folder``; see `Inspector.filters`."""
        return self._inspector.filters(folder, asked.snapshots)

    def follow(self, folder: Path, asked: Follow) -> list[dict[str, Any]]:
        """Return the ``predictions`` of each snapshot in ``folder`` for the same records, as the kind describes them.

        Snapshots that cannot be read are left out. Raises UserFault or Refused.
        """
        if self._generator is not None:
            raise Refused("The network generates images from latent vectors, not from an image.")
        records = feeds.Records(Path(asked.dataset), self._manifest, asked.split, budget_bytes=0)
        predictor, variables = self._batch_predictor, self._trained.store.variables
        own = {name: variable.numpy() for name, variable in variables.items()}
        found = []
        try:
            for snapshot in asked.snapshots:
                try:
                    restore.restore(folder / snapshot, variables)
                except (UserFault, tf.errors.OpError):
                    continue  # being removed, or damaged
                predicted = predictor.predict_at(records, np.array(asked.places))
                described = [self._targets.describe(each, 1, predictor.geometry) for each in predicted]
                found.append({"snapshot": snapshot, "predictions": described})
        finally:
            for name, variable in variables.items():
                variable.assign(own[name])
            records.close()
        return found

    @functools.cached_property
    def _batch_predictor(self) -> BatchPredictor:
        return BatchPredictor(self._trained, self._manifest)

    @functools.cached_property
    def _inspector(self) -> Inspector:
        return Inspector(self._trained, self._repeats)

    @functools.cached_property
    def _attribution(self) -> Attribution:
        return Attribution(self._inspector)

    def _pixels(self, asked: Inspect | Explain) -> NDArray[Any]:
        if asked.image:
            return self._read(asked.image)[0]
        if asked.pixels:
            return self._load(asked.pixels)[0]
        raise Refused("The request lacks an image.")

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the images, [H, W, C]."""
        return self._manifest.shape

    def predict_batch(
        self, sources: Sequence[protocols.Source], is_described: Sequence[bool]
    ) -> list[Any | UserFault]:
        """The predictions for several images, computed together; for an image that cannot be used, the reason.

        A prediction is an array of numbers, or as the kind describes it if it ``is_described``.
        """
        inputs = [self._input_of(source) for source in sources]
        usable = [item for item in inputs if not isinstance(item, UserFault)]
        values = iter(self._run_batch([pixels for pixels, _ in usable]) if usable else ())
        return [
            item
            if isinstance(item, UserFault)
            else self._targets.describe(next(values), TOP, item[1])
            if described
            else next(values)
            for described, item in zip(is_described, inputs, strict=True)
        ]

    def _input_of(self, source: protocols.Source) -> tuple[NDArray[Any], images.Geometry] | UserFault:
        """The input for a file or for pixels and its geometry, or the reason why it cannot be used."""
        if not isinstance(source, np.ndarray):
            try:
                return image_input.read(bytes(source), self._manifest)
            except UserFault as error:
                return error
        pixels = source.astype(np.float32)
        if not np.isfinite(pixels).all():
            return UserFault("The image contains NaN or infinity.")
        height, width, _ = self._manifest.shape
        return pixels, images.Geometry((width, height), width, height, "squash")

    def _run_batch(self, inputs: list[NDArray[Any]]) -> list[NDArray[Any]]:
        """The predictions for images of any dtype; raises Refused."""
        if self._repeats > 1:  # the network requires a fixed batch size
            return [self._run_as_float(pixels[None])[0] for pixels in inputs]
        if all(pixels.dtype == np.uint8 for pixels in inputs):
            return list(self._run(np.stack(inputs)))
        return list(self._run_as_float(np.stack([pixels.astype(np.float32) for pixels in inputs])))

    def _run_as_float(self, pixels: NDArray[Any]) -> NDArray[Any]:
        """The predictions for pixels of 0 to 255, which need not be whole numbers."""
        if self._manifest.dtype == "uint8":
            whole = np.rint(pixels)
            if np.array_equal(whole, pixels) and pixels.min() >= 0 and pixels.max() <= 255:
                return self._run(pixels.astype(np.uint8))
        return self._run(pixels.astype(np.float32), self._float_function)

    @functools.cached_property
    def _float_function(self) -> Any:
        return self._traced("float32")

    def generate(self, grid: Grid) -> dict[str, Any]:
        """Generate a ``grid`` of images; raises Refused."""
        if self._generator is None:
            raise Refused(
                "The network does not generate images from latent vectors.",
                "During inference, the network must reshape self.x to [-1, size] and return images.",
            )
        try:
            return self._generator.generate(grid)
        except Exception as error:
            raise Refused.because(error) from error

    def _traced(self, dtype: str = "") -> Any:
        """A function from images, uint8 or float32 [N, H, W, C], to predictions [N, …]."""

        def predict(pixels: tf.Tensor) -> tf.Tensor:
            return self._targets.predict(self._trained.outputs(pixels))

        signature = [tf.TensorSpec((None, *self._manifest.shape), dtype or self._manifest.dtype)]
        return tf.function(predict, autograph=False, input_signature=signature)

    def _warm_up(self) -> None:
        """Run once, because the first run is slow, and determine the smallest batch the network accepts.

        Networks that call `tf.squeeze(x)` or split the batch reject single images. For these, images are
        repeated, twice or up to the training's batch size. Raises Refused.
        """
        black = np.zeros((1, *self._manifest.shape), self._manifest.dtype)
        sizes = (1, 2, self._trained.batch_size)
        for size in sizes:
            self._repeats = size
            try:
                self._run(black)
                return
            except (tf.errors.OpError, Refused) as error:
                if size == sizes[-1]:
                    raise Refused.because(
                        error, "The network cannot compute its output from an image. "
                    ) from error

    def _check_output(self) -> None:
        """Raise Refused if the kind's targets refuse the output."""
        try:
            loss = self._trained.label_flow(self._columns)
        except Exception as error:
            log.info("The loss could not be built: %s", error)
            loss = None
        try:
            self._targets.check(self._columns, loss)
        except UnsuitableOutput as error:
            raise Refused(error.message, error.hint) from error

    def _run(self, pixels: NDArray[Any], function: Any = None) -> NDArray[Any]:
        if self._generator is not None:
            raise Refused("The network generates images from latent vectors, not from an image.")
        whole = tf.constant(np.repeat(pixels, self._repeats, axis=0))
        shape = pixels.shape[1:]
        is_usual = shape == self._manifest.shape
        predicted = (function or self._function)(whole) if is_usual else self._for_size(shape)(whole)[0]
        values: NDArray[Any] = predicted.numpy()
        if not self._targets.accepts(values.shape[1:]):
            error = self._targets.refuse(values.shape[1:])
            raise Refused(error.message, error.hint) from error
        self._columns = int(values.shape[1]) if values.ndim == 2 else 0
        return values

    def _read(self, image: str | Path, resize: bool = True) -> tuple[NDArray[np.uint8], images.Geometry]:
        """Return the network's input, uint8 [H, W, C], and how the image was resized to it."""
        read = image_input.read if resize else image_input.read_unresized
        try:
            return read(Path(image), self._manifest)
        except UserFault as error:
            raise Refused(error.message, error.hint) from error

    def _load(self, path: str | Path) -> tuple[NDArray[Any], images.Geometry]:
        """Return the array in a ``.npy`` file as the network's input, and the geometry of an unchanged image."""
        try:
            return image_input.read_array(path, self._manifest)
        except UserFault as error:
            raise Refused(error.message, error.hint) from error


class Service:
    """Answers requests for one model; caches the most recently used snapshots."""

    def __init__(self, model_folder: Path) -> None:
        self._folder = model_folder
        self._loaded: OrderedDict[str, Predictor] = OrderedDict()

    def answer(self, request: Any, attached: Sequence[bytearray]) -> tuple[dict[str, Any], list[bytes]]:
        """Answer a request of any content with a message and its attachments. Never raises an Exception."""
        began = time.perf_counter()
        bodies: list[bytes] = []
        try:
            match request.get("call") if isinstance(request, dict) else None:
                case "serve":
                    answer, bodies = self._serve(request, attached)
                case "predict":
                    answer, bodies = self._predict(request)
                case _:
                    answer = self._answer(request)
        except Exception as error:
            refusal = Refused.because(error)
            if refusal.status >= 500:
                log.exception("The request %.200r failed", request)
            return _refusal(refusal), []
        milliseconds = round((time.perf_counter() - began) * 1000, 2)
        return {"ok": True, **answer, "milliseconds": milliseconds}, bodies

    def _serve(
        self, request: dict[str, Any], attached: Sequence[bytearray]
    ) -> tuple[dict[str, Any], list[bytes]]:
        """Return the ``answers`` to the requests of clients, with the sizes of the ``batches``, and their bodies."""
        sizes: list[int] = []
        predictor = self._predictor(str(request.get("snapshot")))
        requests = _convert(request, Serve).requests
        responses = client_batch.answer(predictor, requests, attached, sizes.append)
        return {"answers": [described for described, _ in responses], "batches": sizes}, [
            body for _, body in responses
        ]

    def _answer(self, request: Any) -> dict[str, Any]:
        if not isinstance(request, dict):
            raise Refused("The request is invalid.")
        snapshot = str(request.get("snapshot"))
        match request.get("call"):
            case "generate":
                grid = _convert(request.get("grid"), Grid)
                return {"generated": self._predictor(snapshot).generate(grid)}
            case "layers":
                return self._predictor(snapshot).layers()
            case "inspect":
                return self._predictor(snapshot).inspect(_convert(request, Inspect))
            case "filters":
                return self._predictor(snapshot).filters(self._folder, _convert(request, Filters))
            case "follow":
                asked = _convert(request, Follow)
                return {"epochs": self._predictor(snapshot).follow(self._folder, asked)}
            case "explain":
                return self._predictor(snapshot).explain(_convert(request, Explain))
        raise Refused("The request is invalid.")

    def _predict(self, request: dict[str, Any]) -> tuple[dict[str, Any], list[bytes]]:
        source = request.get("image") or request.get("pixels")
        snapshot, top = request.get("snapshot"), request.get("top", 5)
        if not (isinstance(source, str) and isinstance(snapshot, str) and isinstance(top, int)):
            raise Refused("The request lacks an image, a snapshot or a number of labels.")
        predictor, is_image = self._predictor(snapshot), "image" in request
        resize = bool(request.get("resize", True))
        if request.get("values"):
            return predictor.values(source, is_image=is_image, resize=resize)
        if request.get("outputs"):
            return predictor.predict_with_outputs(source, top, is_image=is_image, resize=resize)
        if is_image:
            return {"predictions": predictor.predict(source, top, resize)}, []
        return {"predictions": predictor.predict_pixels(source, top)}, []

    def _predictor(self, snapshot: str) -> Predictor:
        if snapshot not in self._loaded:
            predictor = Predictor(self._folder, snapshot)
            while len(self._loaded) >= MAX_LOADED_SNAPSHOTS:
                self._loaded.popitem(last=False)
            self._loaded[snapshot] = predictor
        self._loaded.move_to_end(snapshot)
        return self._loaded[snapshot]


def _convert(value: Any, type_: type[_Request]) -> _Request:
    """Convert a part of a request; raises Refused."""
    try:
        return msgspec.convert(value, type_)
    except msgspec.ValidationError as error:
        raise Refused(f"The request is invalid: {error}") from error


def _as_picture(pixels: NDArray[Any]) -> str:
    """Return the URL of an image with ``pixels`` [H, W, C]; empty for arrays that are not images."""
    if pixels.dtype != np.uint8 or pixels.shape[2] not in (1, 3):
        return ""
    return images.data_uri(images.encode(pixels, "png"))


def _refusal(refusal: Refused) -> dict[str, Any]:
    return {
        "ok": False,
        "message": refusal.message,
        "hint": refusal.hint,
        "status": refusal.status,
        "trace": refusal.trace,
    }


def predict(model_folder: Path, image: Path, snapshot: str, top: int = 5) -> Any:
    """Load a snapshot and predict one image; raises Refused."""
    return Predictor(model_folder, snapshot).predict(image, top)


def run(recipe: recipes.ServeInference, task_folder: Path, events: EventLog) -> None:
    """Run the inference server of ``recipe``; requests are not logged as events."""
    serve(Path(recipe.model), recipe.socket, recipe.idle_seconds)


def serve(model_folder: Path, socket_path: str, idle_seconds: float) -> None:
    """Answer requests at ``socket_path`` until there are none for ``idle_seconds``."""
    background.hide_gpus()  # a single image is fast on any device
    Path(socket_path).unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        before = os.umask(0o177)
        try:
            listener.bind(socket_path)
        finally:
            os.umask(before)
        listener.listen()
        _Listener(listener, Service(model_folder), idle_seconds).run()
    Path(socket_path).unlink(missing_ok=True)


class _Listener:
    """Answers the messages of any number of connections, one at a time."""

    def __init__(self, listener: socket.socket, service: Service, idle_seconds: float) -> None:
        self._service, self._idle_seconds = service, idle_seconds
        self._selector = selectors.DefaultSelector()
        self._listener = listener
        self._connections: set[socket.socket] = set()
        self._selector.register(listener, selectors.EVENT_READ)

    def run(self) -> None:
        while ready := self._selector.select(self._idle_seconds):
            for key, _ in ready:
                if key.fileobj is self._listener:
                    self._accept()
                else:
                    self._read(key.fileobj)
        for connection in list(self._connections):
            self._drop(connection)
        self._selector.close()

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        connection.settimeout(STALLED_SECONDS)
        self._connections.add(connection)
        self._selector.register(connection, selectors.EVENT_READ)

    def _read(self, connection: Any) -> None:
        bodies: list[bytes] = []
        try:
            received = messages.receive(connection)
            if received is None:
                self._drop(connection)
                return
            answer, bodies = self._service.answer(*received)
        except ValueError:
            answer = _refusal(Refused("The request is not valid JSON."))
        except OSError:
            self._drop(connection)
            return
        try:
            messages.send(connection, answer, [io.BytesIO(body) for body in bodies])
        except OSError:
            self._drop(connection)

    def _drop(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        self._connections.remove(connection)
        connection.close()
