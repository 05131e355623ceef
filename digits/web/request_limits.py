"""The integers of requests that are not in a form: views read them with `limited`, and pages render their limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flask import request

from digits.core import schema
from digits.core.recipe import MAX_EPOCHS, MapEmbeddings
from digits.data.models.predictions import MAX_IMAGES
from digits.kinds.forms.request_fields import whole

# The default, the smallest and the largest value. The macro ``integer`` renders a field of a page.
LIMITS: Mapping[str, tuple[Any, ...]] = {
    "num_test_images": (None, 1, MAX_IMAGES),
    "top_n": (9, 1, 100),
    "rows": (5, 1, 50),
    "columns": (10, 1, 50),
    "seed": (None, 0, schema.LARGEST_SEED),
    "train_epochs": (None, 1, MAX_EPOCHS),
    "more_epochs": (None, 1, MAX_EPOCHS),
    "records": schema.limits(MapEmbeddings, "records")[:3],
}


def limited(name: str) -> Any:
    """Return the integer ``name`` of this request, or its default. Raises BadRequest outside of its `LIMITS`."""
    return whole(request.values, name, *LIMITS[name])
