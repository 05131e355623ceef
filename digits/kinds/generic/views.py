"""Pages and JSON of ready-made records."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from digits.core.errors import BadRequest
from digits.data.loose_json import load
from digits.data.manifest import Manifest
from digits.data.records.features import (
    BYTES,
    ExampleFeatures,
    ImageFeature,
    NumberFeature,
    guess_input,
    values_of,
)
from digits.data.records.index import DamagedRecords
from digits.data.records.records import Record
from digits.data.targets.target import Target
from digits.kinds import views
from digits.kinds.generic.recipe import CreateGeneric
from digits.kinds.views import InputRequest


class Views(views.Views[CreateGeneric]):
    """Images or arrays with numbers, and the numbers that a network returns."""

    distribution = ""
    balancing = ("none",)
    guide = "tfrecords.md"
    invitation = (
        "Train on TFRecord files directly: an image or an array of numbers as input, and numbers of any shape as "
        "target (optional). The network defines the loss."
    )
    infer_title = "Predict"
    result = "The output appears here."
    record = "record"
    records = "records"
    has_input = True

    def predicts_from_image(self, manifest: Manifest) -> bool:
        return manifest.dtype == "uint8"

    def describe_dataset(self, manifest: Manifest) -> str:
        return "arrays" if manifest.dtype == "float32" else "images"

    def describe_record(self, manifest: Manifest, record: Record) -> str:
        spec = manifest.target
        if not has_target(spec):
            return "no target"
        try:
            return replace(spec, names=[], mean=[], std=[]).describe(record.target(spec))
        except DamagedRecords:
            return "no target"

    def tiles(self, manifest: Manifest) -> list[tuple[str, str]]:
        spec = manifest.target
        shape = f" {spec.shape}" if spec.shape else ""
        return [("Target", f"{spec.dtype}{shape}" if has_target(spec) else "None")]

    def dataset_json(self, manifest: Manifest) -> dict[str, Any]:
        spec = manifest.target
        return {
            "input": {"dtype": manifest.dtype, "shape": list(manifest.shape)},
            "target": {"dtype": spec.dtype, "shape": spec.shape} if has_target(spec) else None,
        }

    def read_input(self, recipe: CreateGeneric, request: InputRequest) -> NDArray[Any] | None:
        text = request.fields.get("values", "").strip()
        if not text:
            if recipe.dtype == "float32":
                raise BadRequest("Enter numbers.", "Set “values” to comma-separated numbers or a JSON list.")
            return None
        shape = recipe.shape
        try:
            array = np.array(load(text if text.startswith("[") else f"[{text}]"), np.float32)
        except (ValueError, TypeError, OverflowError):
            raise BadRequest("Enter numbers, separated by commas, or a JSON list of numbers.") from None
        if array.size != math.prod(shape):
            words = "×".join(map(str, shape))
            raise BadRequest(f"Expected {math.prod(shape):,} numbers ({words}), got {array.size:,}.")
        if not np.isfinite(array).all():
            raise BadRequest("The numbers must be finite.")
        if recipe.dtype == "uint8":
            if array.min() < 0 or array.max() > 255:
                raise BadRequest("Pixel values must be between 0 and 255.")
            return np.rint(array).astype(np.uint8).reshape(shape)
        return array.reshape(shape)

    def read_record(self, recipe: CreateGeneric, features: ExampleFeatures) -> bytes | NDArray[Any]:
        name = recipe.input_feature or guess_input(features)
        if name not in features or (recipe.dtype == "float32" and values_of(features, name)[0] == BYTES):
            return super().read_record(recipe, features)
        if recipe.dtype == "float32":
            array = NumberFeature(name, values_of(features, name)[0], tuple(recipe.shape)).read(features)
            return array.astype(np.float32)
        return ImageFeature.of(name, features, tuple(recipe.input_shape)).encoded(features)


def has_target(spec: Target) -> bool:
    """Return whether the records have targets: without, all are a single 0."""
    return bool(spec.names or spec.shape or spec.dtype == "int64")
