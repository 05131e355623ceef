"""The calls of an inference server, which `digits.core.messages` carry, and their answers.

    {"call": "predict", "image": path, "snapshot": "snapshot_1.ckpt", "top": 5}
    {"call": "predict", "snapshot": …, "attached": [size of an image file]}
    {"call": "predict", "is_array": true, "snapshot": …, "attached": [size of a .npy file]}
    {"call": "generate", "snapshot": …, "grid": {"rows": 5, "columns": 10, "seed": 1, …}}
    {"ok": true, "predictions": …, "milliseconds": 3.2}
    {"ok": false, "message": …, "hint": …, "status": 400, "trace": [frame, …]}

Each class below describes a call, with the arguments as its fields. ``answer`` returns the other fields of the message
that answers it, and the attachments. It raises Refused, UserFault or errors of the network.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from digits.core.splits import Split
from digits.data.images import images
from digits.data.models.predictions import PREDICTION, with_outputs
from digits.worker.failure import UserFault
from digits.worker.input import feeds, image_input
from digits.worker.serving import client_batch
from digits.worker.serving.predictor import TOP, Predictor, Prepared
from digits.worker.serving.protocols import ClientRequest
from digits.worker.serving.refusal import Refused
from digits.worker.training.models.generator import Grid
from digits.worker.training.weights import restore

MAX_CLASSES = 1000
# The limits for the outputs in a response, as arrays and as JSON text.
MAX_OUTPUT_BYTES = 32 * 1024 * 1024
MAX_TEXT_BYTES = 64_000_000

Answer = tuple[dict[str, Any], list[bytes]]


class Call(msgspec.Struct, tag_field="call"):
    """A call about the network with the weights of a ``snapshot``."""

    snapshot: str

    def answer(self, predictor: Predictor, folder: Path, attached: Sequence[bytearray]) -> Answer:
        """Answer with the ``predictor`` of the snapshot, which is in the job's ``folder``."""
        raise NotImplementedError


class OnImage(Call):
    """A call about an image: the file at the path ``image``, or the attached one.

    If the attachment ``is_array``, it is a ``.npy`` file of the network's input, uint8 or float32 [H, W, C].
    """

    image: str | None = None
    is_array: bool = False

    def read(self, predictor: Predictor, attached: Sequence[bytearray], *, resize: bool = True) -> Prepared:
        """Return the input of the network, [H, W, C], and its geometry; raises UserFault."""
        if self.image:
            return predictor.read(self.image, resize=resize)
        if not attached:
            raise Refused("The request lacks an image.")
        if self.is_array:
            return image_input.read_array(io.BytesIO(attached[0]), predictor.manifest)
        return predictor.read(bytes(attached[0]), resize=resize)


class Predict(OnImage, tag="predict"):
    """Return the ``predictions`` as the kind describes them, with the ``top`` classes.

    With ``values``, return the numbers instead, and with ``outputs`` also those of every output. Without ``resize``,
    an image keeps its size.
    """

    top: int = TOP
    resize: bool = True
    values: bool = False
    outputs: bool = False

    def answer(self, predictor: Predictor, folder: Path, attached: Sequence[bytearray]) -> Answer:
        pixels, geometry = self.read(predictor, attached, resize=self.resize)
        predicted = predictor.run(pixels[None])
        if self.values:
            return _values(predictor, predicted, pixels)
        targets = predictor.targets
        predictions = targets.describe(predicted[0], self.top, geometry)
        if not self.outputs:
            return {"predictions": predictions}, []
        may_have_more = isinstance(predictions, list) and len(predictions) == self.top
        every = targets.describe(predicted[0], MAX_CLASSES, geometry) if may_have_more else predictions
        outputs, bodies = _attach(predictor.outputs(pixels))
        return {
            "predictions": predictions,
            "all_predictions": every,
            "outputs": msgspec.to_builtins(outputs),
            "geometry": asdict(geometry),
        }, bodies


class Output(msgspec.Struct):
    """An output of the network for one image.

    Its bytes in C order are attached to the response unless it is too large.
    """

    name: str
    dtype: str
    shape: list[int]
    attached: bool


def _attach(arrays: dict[str, NDArray[Any]]) -> tuple[list[Output], list[bytes]]:
    room, outputs, bodies = MAX_OUTPUT_BYTES, [], []
    for name, array in arrays.items():
        room -= array.nbytes
        outputs.append(Output(name, array.dtype.name, list(array.shape), room >= 0))
        if room >= 0:
            bodies.append(array.tobytes())
    return outputs, bodies


def _values(predictor: Predictor, predicted: NDArray[Any], pixels: NDArray[Any]) -> Answer:
    """Return the numbers of the prediction, [1, …], and those of several outputs.

    Each attachment is the JSON text of nested lists; ``names`` are their names, see `with_outputs`. ``omitted`` are
    those of outputs for which there was no room. Images have the order of dimensions that the network returns.
    """
    outputs = predictor.outputs(pixels) if predictor.has_several_outputs else {}
    room, texts, omitted = MAX_TEXT_BYTES, {}, []
    for name, array in with_outputs(predictor.as_returned(predicted)[0], outputs).items():
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


class Generate(Call, tag="generate"):
    """Return a ``generated`` grid of images."""

    grid: Grid = Grid()

    def answer(self, predictor: Predictor, folder: Path, attached: Sequence[bytearray]) -> Answer:
        return {"generated": predictor.generate(self.grid)}, []


class Layers(Call, tag="layers"):
    """Return the table of ``layers``, those with ``maps`` and the default one for Grad-CAM, and the ``outputs``."""

    def answer(self, predictor: Predictor, folder: Path, attached: Sequence[bytearray]) -> Answer:
        attribution = predictor.attribution
        return {
            "layers": predictor.inspector.table,
            "maps": attribution.layers,
            "default": attribution.default_layer() if attribution.layers else "",
            "outputs": attribution.outputs,
        }, []


class Inspect(OnImage, tag="inspect"):
    """Return the activations and weights of ``layers``, by default all, and the ``image`` as the network receives it.

    See `Inspector.describe`.
    """

    layers: list[str] | None = None

    def answer(self, predictor: Predictor, folder: Path, attached: Sequence[bytearray]) -> Answer:
        pixels, _ = self.read(predictor, attached)
        described = predictor.inspector.describe(pixels, self.layers)
        return {"layers": described, "image": _as_picture(pixels)}, []


class Explain(OnImage, tag="explain"):
    """Return the ``heat_map`` of an ``output``, by default the one with the largest score, and the ``image``.

    Grad-CAM uses the activations of ``layer``; see `Attribution.default_layer`.
    """

    method: Literal["grad_cam", "integrated_gradients"] = "grad_cam"
    output: int | None = None
    layer: str = ""

    def answer(self, predictor: Predictor, folder: Path, attached: Sequence[bytearray]) -> Answer:
        pixels, _ = self.read(predictor, attached)
        if self.method == "grad_cam":
            heat_map = predictor.attribution.grad_cam(pixels, self.output, self.layer)
        else:
            heat_map = predictor.attribution.integrated_gradients(pixels, self.output)
        return {"heat_map": heat_map, "image": _as_picture(pixels)}, []


class Filters(Call, tag="filters"):
    """Return the filters of the first convolution in several ``snapshots``; see `Inspector.filters`."""

    snapshots: list[str] = []

    def answer(self, predictor: Predictor, folder: Path, attached: Sequence[bytearray]) -> Answer:
        return predictor.inspector.filters(folder, self.snapshots), []


class Follow(Call, tag="follow"):
    """Return the predictions of several ``snapshots`` for the records at ``places`` of a split, as ``epochs``.

    Snapshots that cannot be read are left out.
    """

    snapshots: list[str]
    dataset: str
    split: Split
    places: list[int]

    def answer(self, predictor: Predictor, folder: Path, attached: Sequence[bytearray]) -> Answer:
        batches, variables = predictor.batch_predictor, predictor.trained.store.variables
        own = {name: variable.numpy() for name, variable in variables.items()}
        records = feeds.Records(Path(self.dataset), predictor.manifest, self.split, budget_bytes=0)
        epochs = []
        try:
            for snapshot in self.snapshots:
                try:
                    restore.restore(folder / snapshot, variables)
                except (UserFault, tf.errors.OpError):
                    continue  # being removed, or damaged
                predicted = batches.predict_at(records, np.array(self.places))
                described = [predictor.targets.describe(each, 1, batches.geometry) for each in predicted]
                epochs.append({"snapshot": snapshot, "predictions": described})
        finally:
            for name, variable in variables.items():
                variable.assign(own[name])
            records.close()
        return {"epochs": epochs}, []


class Serve(Call, tag="serve"):
    """Return the ``answers`` to ``requests`` of client programs, with the sizes of the ``batches``, and their bodies.

    The attachments of the requests follow one another.
    """

    requests: list[ClientRequest]

    def answer(self, predictor: Predictor, folder: Path, attached: Sequence[bytearray]) -> Answer:
        sizes: list[int] = []
        responses = client_batch.answer(predictor, self.requests, attached, sizes.append)
        answers = [described for described, _ in responses]
        return {"answers": answers, "batches": sizes}, [body for _, body in responses]


_CALLS = Predict | Generate | Layers | Inspect | Explain | Filters | Follow | Serve


def call_of(request: Any) -> Call:
    """Return the call that a message of any content describes; raises Refused."""
    try:
        call: Call = msgspec.convert(request, _CALLS)
    except msgspec.ValidationError as error:
        raise Refused(f"The request is invalid: {error}") from error
    return call


def _as_picture(pixels: NDArray[Any]) -> str:
    """Return the URL of an image with ``pixels`` [H, W, C]; empty for arrays that are not images."""
    if pixels.dtype != np.uint8 or pixels.shape[2] not in (1, 3):
        return ""
    return images.data_uri(images.encode(pixels, "png"))
