"""Pages and JSON of pairs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from digits.core.errors import BadRequest
from digits.data.images import images
from digits.data.manifest import Manifest
from digits.data.sources.plan import UnusableSource
from digits.data.tables.text_rows import MAX_UPLOADED_LINES, TextRow, open_upload, parse_rows
from digits.kinds import views
from digits.kinds.pairs.reader import is_header
from digits.kinds.pairs.recipe import CreatePairs
from digits.kinds.views import InputRecord, InputRequest

# The metric of the snapshot that decides; without a validation, half the margin of the contrastive loss.
THRESHOLD = "threshold"
DEFAULT_THRESHOLD = 0.5
INPUTS = {"left": "first", "right": "second"}
# The table of the field `pair_list_file`, and the name of its contents in messages.
PAIRS = "pair_list"


class Views(views.Views[CreatePairs]):
    """Pairs, their distances, and whether two images match."""

    group = "label"
    groups = "labels"
    distribution = "Pairs"
    metrics = (
        views.Metric("auc", "AUC", low=0, perfect=1.0),
        views.Metric("accuracy", "Accuracy", "%", low=0),
        views.Metric("best_accuracy", "Best accuracy", "%", chart=None),
        views.Metric(THRESHOLD, "Distance threshold", best="lowest", low=0, has_tile=False),
    )
    adds_sources = True
    guide = "pairs.md"
    invitation = "Learn whether two images match: two photos of one object. From a CSV file or class folders."
    infer = "Compare"
    infer_title = "Compare two images"
    result = "The distance appears here."
    record = "pair"
    records = "pairs"
    has_input = True
    has_inputs = True
    checks_appearance = False
    takes_image = False
    ranks_classes = False

    def baseline(self, manifest: Manifest, split: str) -> views.Baseline:
        return views.Baseline(0.5, "Guessing reaches an AUC of 0.5.")

    def describe_input(self, manifest: Manifest) -> str:
        return views.describe_images(manifest.width, manifest.height, manifest.channels // len(INPUTS))

    def describe_dataset(self, manifest: Manifest) -> str:
        return "same or different"

    def read_input(self, recipe: CreatePairs, request: InputRequest) -> NDArray[np.uint8]:
        return np.concatenate([_pixels(recipe, request, name) for name in INPUTS], axis=2)

    def read_inputs(self, recipe: CreatePairs, request: InputRequest) -> Iterable[InputRecord] | None:
        file = request.files.get(PAIRS)
        if file is None:
            return None
        base = "" if PAIRS in request.uploads or isinstance(file, bytes) else str(file.parent)
        return _listed(file, request.fields.get("image_folder", "").strip() or base)

    def conclude(self, predictions: Any, metrics: Mapping[str, float]) -> Any:
        threshold = metrics.get(THRESHOLD, DEFAULT_THRESHOLD)
        return {**predictions, "threshold": threshold, "same": predictions["distance"] < threshold}


def _pixels(recipe: CreatePairs, request: InputRequest, name: str) -> images.Pixels:
    source: bytes | Path | None = request.files.get(name)
    if source is None:
        raise BadRequest(
            f"Upload the {INPUTS[name]} image, or specify its path.",
            f"The fields are “{name}_file” and “{name}_path”.",
        )
    try:
        pixels = images.load(source, recipe.channels, bits=request.bits)
    except images.UnusableImage as error:
        raise BadRequest(f"The {INPUTS[name]} image cannot be read: {error.reason}.") from error
    return images.resize(pixels, recipe.width, recipe.height, recipe.resize_mode)


def _listed(file: bytes | Path, folder: str) -> Iterator[InputRecord]:
    """Yield the pairs in a table, whose paths are relative to ``folder``; without one, they are absolute.

    Raises UnusableSource.
    """
    with open_upload(file, f"{PAIRS}_file") as opened:
        rows = parse_rows(opened, f"{PAIRS}_file", max_lines=MAX_UPLOADED_LINES)
        yield from _pairs(rows, folder)


def _pairs(rows: Iterable[TextRow], base: str) -> Iterator[InputRecord]:
    for number, row in enumerate(rows):
        if not number and is_header(row.cells):
            continue
        if len(row.cells) < len(INPUTS):
            raise UnusableSource(
                f"Line {row.line} of the list has only one column.",
                "Each line needs the paths of two images.",
            )
        names = [cell.strip() for cell in row.cells[: len(INPUTS)]]
        if not base and not all(map(os.path.isabs, names)):
            raise UnusableSource(
                f"Line {row.line} of the list has a relative path.",
                "Set “image_folder”, or use absolute paths.",
            )
        yield InputRecord(" | ".join(names), [Path(base, name) for name in names])
