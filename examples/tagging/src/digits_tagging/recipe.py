"""The recipe: all settings of the form. DIGITS stores it as JSON."""

from __future__ import annotations

from digits.data.sources.shares import CreateWithShares


class Recipe(CreateWithShares, kw_only=True):
    """Read the images and tags that the CSV file ``table`` lists; ``pct_val`` percent are for validation."""

    kind: str = "image-tagging"
    table: str
