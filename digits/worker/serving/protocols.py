"""Prediction requests of client programs and their responses: uploaded files, TensorFlow Serving and KServe V2.

KServe tensors may be binary: their bytes follow the JSON, whose length is in the header
Inference-Header-Content-Length, in the order of the inputs or outputs
(https://docs.nvidia.com/deeplearning/triton-inference-server/user-guide/docs/protocol/extension_binary_data.html).
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal
from urllib.parse import unquote_to_bytes

import msgspec
import numpy as np
from numpy.typing import NDArray

from digits.core.messages import JSON_LENGTH
from digits.worker.failure import UserFault
from digits.worker.serving.value_range import CHECK

MAX_IMAGES = 512
# Approximate limit of numbers and lists in a JSON body; each takes up to 80 bytes of memory.
MAX_JSON_VALUES = 8_000_000
MAX_DIMENSIONS = 5
MAX_INPUTS = 16
OUTPUT = "output"
# The KServe data types of pixel values; binary tensors are little-endian.
DATATYPES = {
    "UINT8": "<u1", "INT8": "<i1", "UINT16": "<u2", "INT16": "<i2", "UINT32": "<u4", "INT32": "<i4", "UINT64": "<u8",
    "INT64": "<i8", "FP16": "<f2", "FP32": "<f4", "FP64": "<f8",
}  # fmt: skip
_SIZE_BYTES = 4
_DOCUMENTED = "See “Serving” in the documentation."

# The contents of a file, or pixels [H, W, C] from 0 to 255.
Source = bytes | bytearray | memoryview | NDArray[Any]
Size = Annotated[int, msgspec.Meta(ge=1, le=2**31)]
Parameters = dict[str, Any]


class ClientRequest(msgspec.Struct):
    """A request of a client with its number of attachments: files, or one body in a ``format``.

    ``json`` is either protocol. ``name`` is the name of the model in the response, ``json_bytes`` the length of the
    JSON in a body with binary tensors, ``seconds`` the time left to answer.
    """

    format: Literal["files", "json", "kserve"]
    name: str
    seconds: float
    attached: int = 1
    json_bytes: int | None = None


class Response(msgspec.Struct):
    """The ``body`` of a response, and its headers."""

    body: bytes
    headers: dict[str, str]


@dataclass(frozen=True)
class Parsed:
    """The images of a request, and a function from the answer for each of them to the response.

    An answer is the prediction as its kind describes it if the request ``is_described``, otherwise an array.
    ``checks_range``: pixels in another range than those of the training are refused.
    """

    images: Sequence[Source]
    respond: Callable[[list[Any]], Response]
    is_described: bool = False
    checks_range: bool = True


class _Tensor(msgspec.Struct):
    """An input. Its ``shape`` is bounded, because it is computed with."""

    name: str
    shape: Annotated[list[Size], msgspec.Meta(min_length=1, max_length=MAX_DIMENSIONS)]
    datatype: str
    data: Any = None
    parameters: Parameters = {}


class _RequestedOutput(msgspec.Struct):
    name: str
    parameters: Parameters = {}


class _InferRequest(msgspec.Struct):
    """The JSON of a KServe V2 inference request."""

    inputs: Annotated[list[_Tensor], msgspec.Meta(max_length=MAX_INPUTS)]
    id: str = ""
    parameters: Parameters = {}
    outputs: Annotated[list[_RequestedOutput], msgspec.Meta(max_length=MAX_INPUTS)] = []

    @property
    def is_binary(self) -> bool:
        """Whether the response should contain a binary tensor."""
        default = self.parameters.get("binary_data_output", False)
        return any(output.parameters.get("binary_data", default) for output in self.outputs) or (
            not self.outputs and bool(default)
        )


def parse(request: ClientRequest, attached: Sequence[bytearray], shape: Sequence[int]) -> Parsed:
    """Return the images of a request to a model for images of ``shape`` [H, W, C].

    Raises UserFault if the request is invalid.
    """
    if request.format == "files":
        _check_count(len(attached))
        return Parsed(attached, lambda answers: _json({"predictions": answers}), is_described=True)
    body = memoryview(attached[0])
    length = len(body) if request.json_bytes is None else request.json_bytes
    if not 0 <= length <= len(body):
        raise UserFault(f"The header {JSON_LENGTH} is larger than the body.", _DOCUMENTED)
    value, binary = _decoded(body[:length]), body[length:]
    if request.format == "kserve" or _is_kserve(value):
        try:
            tensors = msgspec.convert(value, _InferRequest)
        except msgspec.ValidationError as error:
            raise UserFault(f"The request body is invalid: {error}.", _DOCUMENTED) from error
        return _kserve(tensors, binary, request.name, shape)
    return _tensorflow(value, shape)


def _decoded(text: memoryview) -> dict[str, Any]:
    data = bytes(text)
    if sum(map(data.count, (b",", b"[", b"{"))) > MAX_JSON_VALUES:
        raise UserFault(
            f"The JSON has more than {MAX_JSON_VALUES:,} values.",
            "Send files, a binary tensor, or fewer images.",
        )
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except (ValueError, RecursionError) as error:
        raise UserFault(f"The request body is invalid: {error}.", _DOCUMENTED) from error


def _is_kserve(body: dict[str, Any]) -> bool:
    inputs = body.get("inputs")
    return isinstance(inputs, list) and any(isinstance(item, dict) and "datatype" in item for item in inputs)


# TensorFlow Serving


def _tensorflow(body: dict[str, Any], shape: Sequence[int]) -> Parsed:
    """Return the images in ``instances`` or ``inputs``.

    An image is a nested list of numbers, a base64 text of a file, or ``{"b64": …}`` with one, optionally wrapped in an
    object with a single key.
    """
    images = body.get("instances", body.get("inputs"))
    if isinstance(images, dict) and len(images) == 1 and "b64" not in images:
        images = next(iter(images.values()))
    if isinstance(images, dict):
        images = [images]
    if not isinstance(images, list) or not images:
        raise UserFault(
            "The request body has no images in “instances” or “inputs”.",
            'Send {"instances": [{"b64": "…"}]} with base64-encoded files, or nested lists of pixels from 0 to 255.',
        )
    _check_count(len(images))
    key = "predictions" if "instances" in body else "outputs"
    return Parsed(
        [_instance(number, image, shape) for number, image in enumerate(images)],
        lambda answers: _json({key: [answer.tolist() for answer in answers]}),
        checks_range=bool(body.get(CHECK, True)),
    )


def _instance(number: int, item: Any, shape: Sequence[int]) -> Source:
    if isinstance(item, dict) and "b64" not in item and len(item) == 1:
        item = next(iter(item.values()))
    if isinstance(item, str):
        return _file(number, item)
    if isinstance(item, dict):
        text = item.get("b64")
        if not isinstance(text, str):
            raise UserFault(
                f"Image {number}: expected nested lists of pixel values, or an object with the key “b64”."
            )
        return _file(number, text)
    return _pixels(number, _array(item, f"Image {number}"), shape)


# KServe


def _kserve(request: _InferRequest, binary: memoryview, name: str, shape: Sequence[int]) -> Parsed:
    if len(request.inputs) != 1:
        raise UserFault(
            f"The request has {len(request.inputs)} inputs, but the model has one.",
            "Send one input, “images”.",
        )
    for output in request.outputs:
        if output.name != OUTPUT:
            raise UserFault(f"The model has no output “{output.name[:40]}”.", f"Its output is “{OUTPUT}”.")
        if output.parameters.get("classification"):
            raise UserFault("The classification extension is not supported.", "Request the output itself.")
    (tensor,) = request.inputs
    _check_count(tensor.shape[0])
    images = _files_of(tensor, binary) if tensor.datatype == "BYTES" else _images_of(tensor, binary, shape)
    return Parsed(
        images,
        lambda answers: _outputs(answers, name, request.id, is_binary=request.is_binary),
        checks_range=bool(request.parameters.get(CHECK, True)),
    )


def _binary_of(tensor: _Tensor, binary: memoryview) -> memoryview | None:
    """Return the bytes of ``tensor``, the only input, or None if its data is in the JSON."""
    size = tensor.parameters.get("binary_data_size")
    if size is None and not binary:
        return None
    if size != len(binary):
        raise UserFault(
            f"The parameter “binary_data_size” is {size!r:.20}, but {len(binary):,} bytes follow the JSON.",
            f"Check the header {JSON_LENGTH}.",
        )
    return binary


def _files_of(tensor: _Tensor, binary: memoryview) -> list[Source]:
    data = _binary_of(tensor, binary)
    if data is not None:
        files: list[Source] = list(_elements(data))
    elif isinstance(tensor.data, list) and all(isinstance(text, str) for text in tensor.data):
        _check_count(len(tensor.data))
        files = [_file(number, text) for number, text in enumerate(tensor.data)]
    else:
        raise UserFault(
            "The data of an input of type BYTES is invalid.", "Send base64-encoded files, or a binary tensor."
        )
    if len(files) != math.prod(tensor.shape):
        raise UserFault(f"The data has {len(files):,} files, but the shape is {tensor.shape}.")
    return files


def _elements(data: memoryview) -> Iterator[memoryview]:
    """Yield the elements of a binary tensor of type BYTES, each of which follows its size; raises UserFault."""
    place = 0
    while place < len(data):
        end = place + _SIZE_BYTES + int.from_bytes(data[place : place + _SIZE_BYTES], "little")
        if end > len(data):
            raise UserFault(
                "The data of an input of type BYTES is incomplete.",
                "Send the size of each file before its bytes.",
            )
        yield data[place + _SIZE_BYTES : end]
        place = end


def _images_of(tensor: _Tensor, binary: memoryview, shape: Sequence[int]) -> list[Source]:
    if tensor.datatype not in DATATYPES:
        raise UserFault(
            f"The datatype {tensor.datatype[:20]} is not supported.", f"Use {', '.join(DATATYPES)} or BYTES."
        )
    dtype = np.dtype(DATATYPES[tensor.datatype])
    data = _binary_of(tensor, binary)
    if data is None:
        values = _array(tensor.data, "data").ravel()
        size = values.size
    else:
        size = len(data) // dtype.itemsize
        values = np.frombuffer(data, dtype, size)
    expected = math.prod(tensor.shape)
    if size != expected:
        raise UserFault(f"The data has {size:,} values, but the shape {tensor.shape} requires {expected:,}.")
    return [_pixels(number, image, shape) for number, image in enumerate(values.reshape(tensor.shape))]


def _outputs(answers: list[NDArray[Any]], name: str, id_: str, *, is_binary: bool) -> Response:
    values = np.ascontiguousarray(np.stack(answers), "<f4")
    output: dict[str, Any] = {"name": OUTPUT, "shape": list(values.shape), "datatype": "FP32"}
    if is_binary:
        output["parameters"] = {"binary_data_size": values.nbytes}
    else:
        output["data"] = values.ravel().tolist()
    head = _json({"model_name": name, **({"id": id_} if id_ else {}), "outputs": [output]})
    if not is_binary:
        return head
    headers = {"Content-Type": "application/octet-stream", JSON_LENGTH: str(len(head.body))}
    return Response(head.body + values.tobytes(), headers)


# Both


_DATA_URI = re.compile(r"\s*data:([^,]*),", re.IGNORECASE)


def _file(number: int, text: str) -> bytes:
    """Decode base64 of either alphabet, with or without padding and line breaks, or a URL of the scheme data."""
    uri = _DATA_URI.match(text)
    if uri:
        text = text[uri.end() :]
        if not uri[1].lower().rstrip().endswith(";base64"):
            return unquote_to_bytes(text)
        text = unquote_to_bytes(text).decode("latin-1")
    text = "".join(text.splitlines()).strip().replace("-", "+").replace("_", "/").rstrip("=")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError as error:
        raise UserFault(
            f"Image {number}: its base64 text is invalid: {error}.",
            "Send the file’s bytes in base64, or a URL such as “data:image/png;base64,…”.",
        ) from error


def _pixels(number: int, image: NDArray[Any], shape: Sequence[int]) -> NDArray[Any]:
    if image.ndim == 2 and shape[-1] == 1:
        image = image[..., None]
    if list(image.shape) != list(shape):
        raise UserFault(
            f"Image {number} has the shape {list(image.shape)}, but the model requires {list(shape)}.",
            "Resize the image, or send it as a file, which is resized as during training.",
        )
    if not np.isfinite(image).all():
        raise UserFault(
            f"Image {number} contains values that are not finite numbers, such as null or NaN.",
            "Send finite numbers.",
        )
    return image


def _array(value: Any, name: str) -> NDArray[np.float32]:
    try:
        return np.asarray(value, np.float32)
    except (ValueError, TypeError, OverflowError) as error:
        raise UserFault(f"{name}: expected nested lists of numbers with equal lengths.") from error


def _check_count(count: int) -> None:
    if not 1 <= count <= MAX_IMAGES:
        raise UserFault(
            f"The request contains {count:,} images; the maximum is {MAX_IMAGES}.",
            "Split it into several requests.",
        )


def _json(value: Any) -> Response:
    # Unlike the standard library, msgspec writes null for NaN, which JSON does not have.
    return Response(msgspec.json.encode(value), {"Content-Type": "application/json"})
