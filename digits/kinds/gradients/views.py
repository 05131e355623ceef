"""Pages and JSON of gradients."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from digits.core.errors import BadRequest
from digits.data.manifest import Manifest
from digits.data.models.predictions import MAX_IMAGES
from digits.data.numbers import parse_number
from digits.data.records.records import Record
from digits.kinds.forms.request_fields import whole
from digits.kinds.gradients.ramps import LARGEST_SLOPE, draw_ramp
from digits.kinds.gradients.reader import NAMES, draw_slopes
from digits.kinds.regression.views import Views as RegressionViews
from digits.kinds.views import InputRecord, InputRequest


class Views(RegressionViews):
    """The slopes of an image as an arrow, and images generated from slopes."""

    group = "direction"
    groups = "directions"
    distribution = "Brighter toward"
    guide = "gradients.md"
    invitation = "Learn the direction in which a generated image gets brighter: a test that requires no data."
    infer_title = "Predict the gradient of an image"
    result = "The gradient appears here."
    draws_on_image = True
    # Other transformations change the slopes.
    transformations = ("mean", "noise", "cutout")
    has_input = True
    checks_appearance = False
    checks_counts = False

    def describe_dataset(self, manifest: Manifest) -> str:
        return "gradients"

    def describe_record(self, manifest: Manifest, record: Record) -> str:
        return ", ".join(f"{float(slope):.2f}" for slope in record.features.get(manifest.target.feature, []))

    def draw_record(self, recipe: Any, record: Record) -> dict[str, Any]:
        slopes = [float(slope) for slope in record.features.get("target/numbers", [])]
        return {"arrow": slopes} if len(slopes) == len(NAMES) else {}

    def read_input(self, recipe: Any, request: InputRequest) -> NDArray[np.uint8] | None:
        texts = [request.fields.get(name, "").strip() for name in NAMES]
        if not any(texts):
            return None
        slopes = [_slope(name, text) for name, text in zip(NAMES, texts, strict=True)]
        return draw_ramp(slopes[0], slopes[1], recipe.width, recipe.height)

    def read_inputs(self, recipe: Any, request: InputRequest) -> Iterable[InputRecord] | None:
        count = whole(request.fields, "test_image_count", None, 1, MAX_IMAGES)
        if count is None:
            return None
        slopes = draw_slopes(recipe.seed, "test", count).tolist()
        return (
            InputRecord(f"{x:.2f}, {y:.2f}", draw_ramp(x, y, recipe.width, recipe.height)) for x, y in slopes
        )


def _slope(name: str, text: str) -> float:
    try:
        slope = parse_number(text)
    except ValueError:
        slope = math.nan
    if not abs(slope) <= LARGEST_SLOPE:
        raise BadRequest(
            f"“{name}” must be a number from {-LARGEST_SLOPE} to {LARGEST_SLOPE}.",
            "Enter both gradients, or choose an image.",
        )
    return slope
