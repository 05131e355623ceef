"""The recipe of a dataset for regression."""

from __future__ import annotations

from msgspec import field

from digits.kinds.table_source import CreateFromTable

KIND = "image-regression"


class CreateRegression(CreateFromTable, kw_only=True):
    """Read a table of images and numbers: those of ``target_columns``, by default all other columns.

    ``table`` can also be the folder of a generic dataset of DIGITS 4 to 6; see `digits.kinds.regression.databases`.
    """

    kind: str = KIND
    target_columns: list[str] = field(default_factory=list)


Recipe = CreateRegression
