"""The recipe of a dataset for multi-label classification."""

from __future__ import annotations

from typing import Literal

from msgspec import field

from digits.kinds.table_source import CreateFromTable

KIND = "image-multilabel"

Layout = Literal["auto", "list", "columns"]
Separator = Literal["auto", "space", "comma", "semicolon", "bar"]


class CreateMultilabel(CreateFromTable, kw_only=True):
    """Read a table of images and their labels, from ``label_columns``, by default all other columns.

    With the ``layout`` ``list``, one column lists the labels of an image, with a ``separator`` between them; with
    ``columns``, there is a column of zeros and ones for each label. Both are detected by default.
    """

    kind: str = KIND
    label_columns: list[str] = field(default_factory=list)
    layout: Layout = "auto"
    separator: Separator = "auto"


Recipe = CreateMultilabel
