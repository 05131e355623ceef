"""The recipe: all settings of the form. DIGITS stores it as JSON."""

from __future__ import annotations

from digits.core.recipe import CreateDataset
from digits.core.schema import Percent


# The tag tells the worker which task the recipe is for. It is the same for all kinds of datasets.
class Recipe(CreateDataset, kw_only=True):
    """Read the images and tags that the CSV file ``table`` lists. ``pct_val`` percent are for validation."""

    kind: str = "image-tagging"
    table: str
    pct_val: Percent = 25.0
