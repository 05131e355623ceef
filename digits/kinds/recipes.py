"""Recipes of datasets: their classes depend on the kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar, cast

from digits.core import recipe as recipes
from digits.core import schema
from digits.core.files import UnreadableFile, read_json
from digits.core.recipe import CreateDataset
from digits.data.sources.plan import Plan, Progress
from digits.kinds import UnknownKind, kind_named
from digits.kinds.versions import versions
from digits.kinds.versions.versions import CreateVersion

AnyRecipe = TypeVar("AnyRecipe", bound=CreateDataset)


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
    return cast(Plan, kind_named(recipe.kind).load("reader").read(recipe, progress))


def load_recipe(folder: Path) -> CreateDataset:
    """The recipe of a dataset in a task's folder; raises UnreadableFile."""
    body = read_json(folder / recipes.FILE_NAME, dict[str, Any], below=folder.parent)
    try:
        return build_recipe(body)
    except ValueError as error:
        raise UnreadableFile(f"{recipes.FILE_NAME}: {error}") from error
