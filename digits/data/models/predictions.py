"""Batch predictions: the results of a snapshot for a list of images supplied by the user.

Each batch prediction is a subfolder of `FOLDER` in the folder of its model, which contains:

- `FILE_NAME`: a `BatchPrediction`;
- `LIST_FILE`: the images, one `ListedImage` per line;
- `ROWS_FILE`: the results, one `Row` per line in list order, appended while the task runs;
- `PROBABILITIES_FILE`: class probabilities of classifiers, float32 [images, classes], NaN for images that cannot be
  read; its header states the shape for all images, and rows are appended while the task runs;
- `VALUES_FOLDER`: a ``.npy`` file for each output of the network, [images, …], 0 for images that cannot be read;
  written at the end if requested. `PREDICTION` is the output from which the kind derives its predictions;
- `IMAGES_FOLDER`: uploaded images and those of records, or arrays in files that end with `ARRAY_SUFFIX`.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, BinaryIO, TypeVar

import msgspec
import numpy as np
from msgspec import Meta, Struct, field
from numpy.typing import NDArray

from digits.core import schema
from digits.core.files import UnreadableFile, read_bytes, write_json
from digits.core.recipe import FileName
from digits.core.schema import Count
from digits.data.arrays import read_blocks, read_rows
from digits.data.models.result_folders import ResultFolders

Line = TypeVar("Line")

FOLDER = "predictions"
FILE_NAME = "predictions.json"
LIST_FILE = "images.jsonl"
ROWS_FILE = "rows.jsonl"
PROBABILITIES_FILE = "probabilities.npy"
VALUES_FOLDER = "values"
PREDICTION = "output"
PROBABILITY_DTYPE = "<f4"
IMAGES_FOLDER = "images"
ARRAY_SUFFIX = ".npy"
MAX_IMAGES = 100_000
# Of a list of images: its lines, empty ones included, and the characters of a line.
MAX_LINES = 1_000_000
MAX_LINE = 10_000
MAX_FILE_BYTES = 1 << 30
# The maximum number of list problems that are stored; further ones are only counted.
MAX_PROBLEMS = 100
_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{6}\Z", re.ASCII)


class ListedImage(Struct, frozen=True):
    """An image at ``path``, displayed as ``name``. ``truth`` is the index of its true class, if known.

    ``error`` is the reason why it cannot be used, if that is known in advance. ``more`` are the paths of further images
    stacked with it along the channels, such as the second image of a pair.
    """

    path: str
    name: str
    truth: Count | None = None
    error: str = ""
    more: list[str] = field(default_factory=list)

    @property
    def paths(self) -> list[str]:
        return [self.path, *self.more]


class Row(Struct, frozen=True):
    """The result for one image: ``predictions`` in the format of the model's kind, or an ``error``.

    ``width`` and ``height`` are those of the original image, in pixels.
    """

    name: str
    truth: Count | None = None
    width: Count = 0
    height: Count = 0
    predictions: Any = None
    error: str = ""


class Problem(Struct, frozen=True):
    """A problem with a line of the list: it is skipped, or used without its class number."""

    line: Count
    message: str


class BatchPrediction(Struct, frozen=True, kw_only=True):
    """Metadata of a batch prediction: ``total`` images from the source ``title``, started at the Unix time ``at``.

    ``problems`` has the first `MAX_PROBLEMS` problems in the list; ``problem_count`` counts all of them.
    """

    id: str
    title: str
    snapshot: FileName
    epoch: Annotated[float, Meta(ge=0)]
    at: Annotated[float, Meta(ge=0)]
    total: Count
    problems: list[Problem] = field(default_factory=list)
    problem_count: Count = 0


def with_outputs(prediction: Any, outputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``prediction`` as `PREDICTION`, and the ``outputs`` of a network with several under their names."""
    several = outputs if len(outputs) > 1 else {}
    return {PREDICTION: prediction} | {name: each for name, each in several.items() if name != PREDICTION}


def new_id() -> str:
    """Return a new batch prediction ID: local time and 24 random bits."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"


RUNS = ResultFolders(
    FOLDER,
    FILE_NAME,
    BatchPrediction,
    "batch prediction",
    key=lambda item: item.id,
    reverse=True,  # the newest first
    pattern=_ID,
)
folder_of, load, load_all = RUNS.folder_of, RUNS.load, RUNS.load_all


def write(folder: Path, about: BatchPrediction, images: Iterable[ListedImage]) -> None:
    """Write the image list and metadata of a batch prediction to its ``folder``. Raises OSError."""
    with open(folder / LIST_FILE, "wb") as file:
        file.writelines(msgspec.json.encode(image) + b"\n" for image in images)
    write_json(folder / FILE_NAME, about)


def load_list(folder: Path) -> list[ListedImage]:
    """Load the image list of a batch prediction. Raises UnreadableFile."""
    return list(_lines(folder / LIST_FILE, ListedImage, folder))


def write_probabilities_header(file: BinaryIO, count: int, classes: int) -> None:
    """Begin a file of class probabilities, to which rows of float32 [classes] are appended. Raises OSError."""
    header = {"descr": PROBABILITY_DTYPE, "fortran_order": False, "shape": (count, classes)}
    np.lib.format.write_array_header_1_0(file, header)


def read_probabilities(folder: Path) -> Iterator[NDArray[np.float32]]:
    """Yield the class probabilities so far in blocks, float32 [images, classes]; none if they are not available."""
    with contextlib.suppress(UnreadableFile):
        yield from read_blocks(folder / PROBABILITIES_FILE, below=folder, dtype=np.dtype(PROBABILITY_DTYPE))


def read_values(folder: Path) -> dict[str, Iterator[NDArray[Any]]]:
    """Return the outputs of the network for each image, by name; empty if they are not available.

    Iterating raises UnreadableFile.
    """
    try:
        paths = sorted((folder / VALUES_FOLDER).iterdir())
    except OSError:
        return {}
    return {path.stem: read_rows(path, below=folder) for path in paths}


def parse_list(
    lines: Iterable[str], class_count: int, limit: int = MAX_IMAGES
) -> tuple[list[tuple[str, int | None]], list[Problem]]:
    """Parse the first ``limit`` lines of a list; return pairs of path and class index, and the problems found.

    Each line is a path, optionally followed by a space and a class index from 0 to ``class_count`` - 1. Empty lines are
    ignored, as are those after the first `MAX_LINES`. An index out of range is reported as a problem, and the image is
    kept without it.
    """
    entries: list[tuple[str, int | None]] = []
    problems: list[Problem] = []
    numbered = (
        (number, line.removeprefix("\ufeff" if number == 1 else "").strip())
        for number, line in enumerate(lines, 1)
    )
    for number, line in islice((item for item in numbered if item[1]), limit):
        if "\0" in line or len(line) > MAX_LINE:
            problems.append(Problem(number, "The line is too long or contains a null character."))
            continue
        path, _, last = line.rpartition(" ")
        truth = None
        if path.strip() and re.fullmatch(r"-?\d{1,9}", last, re.ASCII):
            line = path.strip()
            if class_count and not 0 <= int(last) < class_count:
                problems.append(Problem(number, f"The class {last} is not between 0 and {class_count - 1}."))
            elif class_count:
                truth = int(last)
        entries.append((line, truth))
    return entries, problems


def _lines(path: Path, type_: type[Line], below: Path) -> Iterator[Line]:
    data = read_bytes(path, MAX_FILE_BYTES, below=below)
    for line in data[: data.rfind(b"\n") + 1].splitlines():
        yield decode_line(line, type_, path.name)


def decode_line(line: bytes, type_: type[Line], name: str) -> Line:
    """Return the value in a line of the file ``name``; raises UnreadableFile."""
    try:
        return schema.decode(line, type_)
    except (ValueError, RecursionError) as error:
        raise UnreadableFile(f"{name} is damaged: {error}") from error
