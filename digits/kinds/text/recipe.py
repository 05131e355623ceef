"""The recipe of a dataset for text classification."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from digits.core.recipe import Pixels
from digits.kinds.sources.tables import CreateFromLines
from digits.kinds.text.characters import DEFAULT_ALPHABET


class CreateText(CreateFromLines, kw_only=True):
    """Read texts and their classes from the CSV file ``table``. A record is an image: one row of ``width`` characters.

    ``alphabet`` lists the characters that are distinguished. ``labels_file`` names the classes, one per line, in the
    order of their numbers; without it, the classes are those in ``table``. ``val_table`` and ``test_table`` are
    separate tables.
    """

    kind: str = "text-classification"
    table: str
    width: Pixels = 1024
    height: Pixels = 1
    channels: Literal[1, 3] = 1
    alphabet: Annotated[str, Meta(min_length=1, max_length=255)] = DEFAULT_ALPHABET
    labels_file: str | None = None
    val_table: str | None = None
    test_table: str | None = None


Recipe = CreateText
