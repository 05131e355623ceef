"""Recipes of datasets: their classes depend on the kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from digits.core import recipe as recipes
from digits.core import schema
from digits.core.files import UnreadableFile, read_json
from digits.core.recipe import CreateDataset
from digits.kinds import UnknownKind, kind_named


def build_recipe(body: Any) -> CreateDataset:
    """Build the recipe of a dataset of any kind from JSON; raises Malformed, also for an unknown kind."""
    name = schema.build(CreateDataset, body, "recipe").kind
    try:
        recipe_class = kind_named(name).load("recipe").Recipe
    except UnknownKind as error:
        raise schema.Malformed(str(error)) from error
    recipe: CreateDataset = schema.build(recipe_class, body, "recipe")
    return recipe


def load_recipe(folder: Path) -> CreateDataset:
    """The recipe of a dataset in a task's folder; raises UnreadableFile."""
    body = read_json(folder / recipes.FILE_NAME, below=folder.parent)
    try:
        return build_recipe(body)
    except schema.Malformed as error:
        raise UnreadableFile(f"{recipes.FILE_NAME}: {error}") from error
