"""The recipe of a dataset for regression."""

from __future__ import annotations

from msgspec import field

from digits.core.recipe import CreateDataset
from digits.core.schema import Percent

KIND = "image-regression"


class CreateRegression(CreateDataset, kw_only=True):
    """Read a table of images and numbers from the CSV file ``table``.

    The paths in the column ``image_column``, by default the first, are relative to ``folder``. The numbers are
    those of ``target_columns``, by default all other columns. Columns of a table without a header are called
    ``column 1``, ``column 2`` and so on. ``val_table`` and ``test_table`` are separate tables with the same columns;
    without them ``pct_val`` and ``pct_test`` percent of the rows of ``table`` are taken.
    """

    kind: str = KIND
    table: str
    folder: str
    image_column: str = ""
    target_columns: list[str] = field(default_factory=list)
    val_table: str | None = None
    test_table: str | None = None
    pct_val: Percent = 25.0
    pct_test: Percent = 0.0


Recipe = CreateRegression
