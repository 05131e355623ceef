"""Parse prediction requests of client programs: TensorFlow Serving, KServe and multipart uploads."""

from __future__ import annotations

import base64
import functools
import math
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import msgspec
import numpy as np
from flask import request
from numpy.typing import NDArray

from digits.core.errors import BadRequest
from digits.core.model_job import ModelJob
from digits.data.manifest import Manifest
from digits.runtime.request_batches import Item
from digits.web import serializers
from digits.web.bounded_request import pieces_of_body
from digits.web.offload import in_thread
from digits.web.services import services

MAX_IMAGES = 512
MAX_DIMENSIONS = 5
# Larger bodies are parsed in a thread.
QUICK_BYTES = 64_000
# KServe data types for pixel values.
DATATYPES = {
    "UINT8": np.uint8, "INT8": np.int8, "UINT16": np.uint16, "INT16": np.int16, "INT32": np.int32,
    "INT64": np.int64, "FP16": np.float16, "FP32": np.float32, "FP64": np.float64,
}  # fmt: skip


Size = Annotated[int, msgspec.Meta(ge=1, le=2**31)]


class _Tensor(msgspec.Struct):
    """An input tensor of a KServe request. Its ``shape`` is bounded, because it is computed with."""

    name: str
    shape: Annotated[list[Size], msgspec.Meta(min_length=1, max_length=MAX_DIMENSIONS)]
    datatype: str
    data: Any


class InferRequest(msgspec.Struct):
    """The body of a KServe V2 inference request."""

    inputs: list[_Tensor]
    id: str = ""


def manifest_of(job: ModelJob) -> Manifest:
    """Return the manifest of the model's dataset.

    Raises BadRequest if the dataset was deleted or the model does not take single images.
    """
    data = serializers.data_of(job)
    manifest = data.manifest() if data else None
    if manifest is None:
        raise BadRequest(f"The dataset of “{job.name}” was deleted.", "Import the model from its archive.")
    if manifest.channels not in (1, 3) and manifest.dtype == "uint8":
        raise BadRequest(f"“{job.name}” does not predict from single images.", "Choose another model.")
    return manifest


def body_as(type_: Any) -> Any:
    """Decode the JSON body of this request as ``type_``. Raises BadRequest if it is invalid."""
    data = b"".join(pieces_of_body())
    decode = functools.partial(msgspec.json.decode, type=type_)
    try:
        return decode(data) if len(data) <= QUICK_BYTES else in_thread(decode, data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _invalid(error) from error


def converted(body: dict[str, Any]) -> InferRequest:
    """Convert decoded JSON to a KServe request. Raises BadRequest if it is none."""
    try:
        return msgspec.convert(body, InferRequest)
    except msgspec.ValidationError as error:
        raise _invalid(error) from error


def _invalid(error: Exception) -> BadRequest:
    return BadRequest(f"The request body is invalid: {error}.", "See “Serving” in the documentation.")


def in_turn(read: Callable[[Any, Sequence[int]], list[Item]], body: Any, shape: Sequence[int]) -> list[Item]:
    """Call ``read`` with ``body`` and ``shape``, in a thread if the body is large."""
    is_quick = (request.content_length or 0) <= QUICK_BYTES
    return read(body, shape) if is_quick else in_thread(read, body, shape)


def instances_of(body: dict[str, Any], shape: Sequence[int]) -> list[Item]:
    """Return the images in the ``instances`` or ``inputs`` of a TensorFlow Serving request.

    An image is a nested list of numbers or ``{"b64": …}`` with an encoded file, optionally wrapped in an object with a
    single key. Raises BadRequest if the body contains no valid images.
    """
    found = body.get("instances", body.get("inputs"))
    if isinstance(found, dict) and len(found) == 1 and "b64" not in found:
        found = next(iter(found.values()))
    if isinstance(found, dict):
        found = [found]
    if not isinstance(found, list) or not found:
        raise BadRequest(
            "The request body has no images in “instances” or “inputs”.",
            'Send {"instances": [{"b64": "…"}]} with base64-encoded files, or nested lists of pixels from 0 to 255.',
        )
    _check_count(len(found))
    return [_instance(number, item, shape) for number, item in enumerate(found)]


def tensors_of(body: InferRequest, shape: Sequence[int]) -> list[Item]:
    """Return the images in the tensor of a KServe request: pixel values or base64-encoded files.

    Raises BadRequest if the tensor is invalid.
    """
    if len(body.inputs) != 1:
        raise BadRequest(
            f"The request has {len(body.inputs)} inputs, but the model has one.", "Send one input, “images”."
        )
    tensor = body.inputs[0]
    if tensor.datatype == "BYTES":
        files = tensor.data if isinstance(tensor.data, list) else []
        if not files or not all(isinstance(file, str) for file in files):
            raise BadRequest(
                "The data of an input of type BYTES is invalid.", "Send a list of base64-encoded files."
            )
        _check_count(len(files))
        return [{"image": file} for file in files]
    if tensor.datatype not in DATATYPES:
        raise BadRequest(
            f"The datatype {tensor.datatype[:20]} is not supported.", f"Use {', '.join(DATATYPES)} or BYTES."
        )
    _check_count(tensor.shape[0])
    values = _array(tensor.data, "data").ravel()
    if values.size != math.prod(tensor.shape):
        raise BadRequest(
            f"The data has {values.size:,} values, but the shape {tensor.shape} requires {math.prod(tensor.shape):,}."
        )
    images = values.reshape(tensor.shape)
    return [_pixels(number, image, shape) for number, image in enumerate(images)]


def uploads() -> list[Item]:
    """Return the uploaded images of this request. Raises BadRequest if there are none."""
    files = [file for field in request.files for file in request.files.getlist(field) if file.filename]
    if not files:
        raise BadRequest(
            "The request contains no images.",
            "Upload image files, or send JSON.",
        )
    _check_count(len(files))
    return [{"image": base64.b64encode(file.read()).decode(), "is_described": True} for file in files]


def predict(job: ModelJob, snapshot: str, items: Sequence[Item]) -> list[dict[str, Any]]:
    """Return the model's answer for each image. Raises BadRequest with the index of an image that cannot be used."""
    answers = services().batches.predict(job.folder, snapshot, items)
    for number, answer in enumerate(answers):
        if "error" in answer:
            raise BadRequest(f"Image {number}: {answer['error']}")
    return answers


def _instance(number: int, item: Any, shape: Sequence[int]) -> Item:
    if isinstance(item, dict) and "b64" not in item and len(item) == 1:
        item = next(iter(item.values()))
    if isinstance(item, dict):
        text = item.get("b64")
        if not isinstance(text, str):
            raise BadRequest(
                f"Image {number}: expected nested lists of pixel values, or an object with the key “b64”."
            )
        return {"image": text}
    return _pixels(number, _array(item, f"Image {number}"), shape)


def _pixels(number: int, image: NDArray[Any], shape: Sequence[int]) -> Item:
    if image.ndim == 2 and shape[-1] == 1:
        image = image[..., None]
    if list(image.shape) != list(shape):
        raise BadRequest(
            f"Image {number} has the shape {list(image.shape)}, but the model requires {list(shape)}.",
            "Resize the image, or send it as a file, which is resized as during training.",
        )
    values = np.ascontiguousarray(image, np.float32)
    return {"pixels": base64.b64encode(values.tobytes()).decode(), "shape": list(shape)}


def _array(value: Any, name: str) -> NDArray[np.float32]:
    try:
        found = np.asarray(value, np.float32)
    except (ValueError, TypeError, OverflowError) as error:
        raise BadRequest(f"{name}: expected nested lists of numbers with equal lengths.") from error
    return found


def _check_count(count: int) -> None:
    if count > MAX_IMAGES:
        raise BadRequest(
            f"The request contains {count:,} images; the maximum is {MAX_IMAGES}.",
            "Split it into several requests.",
        )
