"""Recipes of datasets, whose classes depend on the kind, and their sources."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Protocol, Self, TypeGuard, TypeVar, cast, runtime_checkable

from digits.core import recipe as recipes
from digits.core import schema
from digits.core.files import UnreadableFile, read_json
from digits.core.recipe import CreateDataset
from digits.data.databases.convert import Converted, Labels, OldDataset, convert
from digits.data.sources.plan import Plan, Progress
from digits.kinds import UnknownKind, kind_named
from digits.kinds.versions import additions, versions
from digits.kinds.versions.additions import CreateAddition
from digits.kinds.versions.versions import CreateVersion

AnyRecipe = TypeVar("AnyRecipe", bound=CreateDataset)


@runtime_checkable
class FromDatabases(Protocol):
    """A recipe that has a ``database`` as one of its sources."""

    database: OldDataset | None
    # What the labels of records must be.
    database_labels: ClassVar[Labels]

    def with_records(self, paths: dict[str, Any]) -> Self:
        """Return the recipe with the TFRecord files of a converted ``database``, by split, as its source."""


def build_recipe(body: Any) -> CreateDataset:
    """Build the recipe of a dataset of any kind from JSON; raises ValueError, also for an unknown kind."""
    name = schema.convert(body, CreateDataset).kind
    try:
        kind = kind_named(name)
        recipe_class: type[CreateDataset] = CreateVersion if "parent" in body else kind.load("recipe").Recipe
    except UnknownKind as error:
        raise ValueError(str(error)) from error
    return schema.convert(body, recipe_class)


def read_source(recipe: CreateDataset, progress: Progress) -> Plan:
    """Plan the dataset that ``recipe`` describes; raises UnusableSource and OSError."""
    if isinstance(recipe, CreateVersion):
        return versions.read(recipe, progress)
    if isinstance(recipe, CreateAddition):
        return additions.read(recipe, progress)
    return cast(Plan, kind_named(recipe.kind).load("reader").read(recipe, progress))


def has_databases(recipe: CreateDataset) -> TypeGuard[FromDatabases]:
    """Return whether the source of ``recipe`` is a dataset of DIGITS 4 to 6."""
    return isinstance(recipe, FromDatabases) and recipe.database is not None


def convert_source(
    recipe: FromDatabases, folder: Path, progress: Progress, limit: int | None = None
) -> tuple[Any, Converted]:
    """Convert the databases of ``recipe`` to TFRecord files in ``folder``; return the recipe that reads the result.

    Of each database, at most ``limit`` records are read. Raises UnusableSource.
    """
    assert recipe.database is not None
    classes = getattr(recipe, "database_classes", ())
    converted = convert(
        recipe.database, recipe.database_labels, folder, progress, classes=classes, limit=limit
    )
    paths = {name: str(split.path) for name, split in converted.splits.items()}
    return recipe.with_records(paths), converted


def load_recipe(folder: Path) -> CreateDataset:
    """The recipe of a dataset in a task's folder; raises UnreadableFile."""
    body = read_json(folder / recipes.FILE_NAME, dict[str, Any], below=folder.parent)
    try:
        return build_recipe(body)
    except ValueError as error:
        raise UnreadableFile(f"{recipes.FILE_NAME}: {error}") from error
