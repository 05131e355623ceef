"""Exports of models: one snapshot as a file of another format, verified in that format's runtime.

Each is a folder below `FOLDER` in the folder of its model, which appears complete, by one rename. It contains the file
of the format, `CARD_FILE`, `EXAMPLE_FILE`, `LABELS_FILE` if there are labels, `CONVERSION_FILE` if the example reads an
image, and `FILE_NAME`: a `ModelExport`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta, Struct, field

import digits
from digits.core.files import UnreadableFile, read_bytes, read_json, write_json
from digits.core.recipe import ExportFormat, FileName
from digits.core.schema import Count, JsonObject

FOLDER = "exports"
FILE_NAME = "export.json"
CARD_FILE = "MODEL_CARD.md"
EXAMPLE_FILE = "example.py"
CONVERSION_FILE = "image_conversion.py"
LABELS_FILE = "labels.txt"
SERVING_FILE = "models.config"
# In the folder of a model: the formats that its network does not support.
REFUSALS_FILE = "export-refusals.json"
# In the archive of a SavedModel, these are beside its folder.
BESIDE = (FILE_NAME, CARD_FILE, EXAMPLE_FILE, CONVERSION_FILE, LABELS_FILE, SERVING_FILE)
# The folder in a SavedModel with the source code of the network and the labels.
SAVED_MODEL_EXTRA_FOLDER = "assets.extra"
# The signature of a SavedModel that returns the predictions as DIGITS serves them, such as class probabilities.
PREDICTIONS_SIGNATURE = "predictions"
# The folder with the versions of a SavedModel in an archive, as TensorFlow Serving requires it.
SERVED_FOLDER = "model"
_SNAPSHOT_ENDING = ".ckpt"
_MAX_INDEX_BYTES = 64 * 1024 * 1024


class Format(NamedTuple):
    """A format of exports: its ``title``, its ``file`` in the folder of the export, and a sentence about its use."""

    title: str
    file: str
    use: str


FORMATS: dict[ExportFormat, Format] = {
    "savedmodel": Format("SavedModel", "saved_model.pb", "For TensorFlow and TensorFlow Serving"),
    "keras": Format("Keras", "model.keras", "For Keras with any backend"),
    "litert": Format("LiteRT float32", "model.tflite", "For phones and small computers"),
    "litert-float16": Format("LiteRT float16", "model.tflite", "Half the size, for GPUs of phones"),
    "litert-int8": Format(
        "LiteRT int8", "model.tflite", "A quarter of the size, calibrated with training images"
    ),
    "onnx": Format("ONNX", "model.onnx", "For ONNX Runtime and most other runtimes"),
}


class Refusal(Struct, frozen=True, kw_only=True):
    """The reason why a network cannot be exported in a format; ``line`` is the one of the network that causes it."""

    message: str
    hint: str = ""
    line: int | None = None


class _Refusals(Struct, frozen=True, kw_only=True):
    """The refusals by format; another ``version`` of DIGITS may support the formats."""

    version: str
    formats: dict[str, Refusal]


IMPORTED_IN_INT8 = Refusal(
    message="The int8 export cannot be calibrated: an imported model has no training images.",
    hint="Export it as LiteRT float16, or train from it: create a dataset of your images, choose the model as the "
    "previous network, and export the new model.",
)


class ModelExport(Struct, frozen=True, kw_only=True):
    """An export and the result of its verification.

    ``difference`` is the greatest absolute difference between its outputs and the network's, relative to the largest
    value of the output; None if the network draws random numbers. It was computed for ``images`` inputs from
    ``source``: ``val``, ``train`` or ``random``. ``agreement`` is the fraction of equal predictions, such as the same
    best class; None if the kind does not define it. ``batch`` is the number of images of a call, and ``milliseconds``
    the median time per image on ``machine``; ``any_batch``: calls with other numbers of images also work. ``sha256``
    is that of the format's file, and ``weights_hash`` identifies the weights of the snapshot. ``signatures`` are
    those of a SavedModel.
    """

    format: ExportFormat
    snapshot: FileName
    epoch: Annotated[float, Meta(ge=0)]
    step: Count
    dataset_id: str
    content_hash: str
    weights_hash: str
    file: FileName
    bytes: Count
    sha256: str
    difference: float | None
    agreement: float | None
    images: Count
    source: str
    batch: Count
    any_batch: bool
    milliseconds: float
    runtime: str
    machine: str
    seconds: float
    input: JsonObject
    outputs: JsonObject
    signatures: list[str] = field(default_factory=list)


def name_of(snapshot: str, format_: str) -> str:
    """Return the name of the folder with the export of ``snapshot``."""
    return f"{snapshot.removesuffix(_SNAPSHOT_ENDING)}-{format_}"


def folder_of(model_folder: Path, snapshot: str, format_: ExportFormat) -> Path:
    """Return the folder of an export."""
    return model_folder / FOLDER / name_of(snapshot, format_)


def weights_hash(model_folder: Path, snapshot: str) -> str:
    """Return the hash of a snapshot's index, which contains the checksum of each variable; raises UnreadableFile."""
    index = model_folder / f"{snapshot}.index"
    return hashlib.sha256(read_bytes(index, _MAX_INDEX_BYTES, below=model_folder)).hexdigest()


def find(model_folder: Path, snapshot: str, format_: ExportFormat) -> ModelExport | None:
    """Return the export of ``snapshot``; None if there is none, or the snapshot has been replaced since."""
    path = folder_of(model_folder, snapshot, format_) / FILE_NAME
    try:
        export = read_json(path, ModelExport, below=model_folder)
        is_current = export.weights_hash == weights_hash(model_folder, snapshot)
    except UnreadableFile:
        return None
    return export if is_current else None


def refusals(model_folder: Path) -> dict[str, Refusal]:
    """Return the formats that exports of the model have refused because of its network."""
    try:
        saved = read_json(model_folder / REFUSALS_FILE, _Refusals, below=model_folder)
    except UnreadableFile:
        return {}
    return saved.formats if saved.version == digits.__version__ else {}


def refuse(model_folder: Path, format_: ExportFormat, refusal: Refusal) -> None:
    """Record that the network of a model cannot be exported in a format."""
    record = _Refusals(version=digits.__version__, formats={**refusals(model_folder), format_: refusal})
    write_json(model_folder / REFUSALS_FILE, msgspec.to_builtins(record), type(record))


def find_all(model_folder: Path, snapshots: Iterator[str]) -> list[ModelExport]:
    """Return the exports of ``snapshots``, in their order and that of `FORMATS`."""
    if not (model_folder / FOLDER).is_dir():
        return []
    exports = (find(model_folder, snapshot, format_) for snapshot in snapshots for format_ in FORMATS)
    return [item for item in exports if item is not None]
