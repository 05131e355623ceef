"""Datasets of DIGITS 4 to 6 as sources: they are converted to TFRecord files, which the reader of the kind reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

from digits.core.recipe import CreateDataset
from digits.data.databases.convert import Converted, Labels, OldDataset, convert
from digits.data.sources.plan import Progress


@runtime_checkable
class FromDatabases(Protocol):
    """A recipe that has a ``database`` as one of its sources."""

    database: OldDataset | None
    # What the labels of records must be.
    database_labels: ClassVar[Labels]

    def with_records(self, paths: dict[str, Any]) -> Self:
        """Return the recipe with the TFRecord files of a converted ``database``, by split, as its source."""


def has_databases(recipe: CreateDataset) -> bool:
    """Return whether the source of ``recipe`` is a dataset of DIGITS 4 to 6."""
    return isinstance(recipe, FromDatabases) and recipe.database is not None


def convert_source(
    recipe: CreateDataset, folder: Path, progress: Progress, limit: int | None = None
) -> tuple[CreateDataset, Converted]:
    """Convert the databases of ``recipe`` in ``folder``; return the recipe that reads the result.

    Of each database, at most ``limit`` records are read. A recipe with another source is returned unchanged. Raises
    UnusableSource.
    """
    if not isinstance(recipe, FromDatabases) or recipe.database is None:
        return recipe, Converted()
    classes = getattr(recipe, "database_classes", ())
    converted = convert(
        recipe.database, recipe.database_labels, folder, progress, classes=classes, limit=limit
    )
    paths = {name: str(split.path) for name, split in converted.splits.items()}
    return recipe.with_records(paths), converted
