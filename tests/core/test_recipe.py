"""Recipes of earlier versions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from digits.core import recipe as recipes
from digits.core.files import UnreadableFile
from digits.core.recipe import Train


@pytest.mark.parametrize(("strategy", "weights_on"), [("mirrored", "first_gpu"), ("central", "cpu")])
def test_an_earlier_recipe_names_where_the_weights_are(
    tmp_path: Path, strategy: str, weights_on: str
) -> None:
    (tmp_path / recipes.FILE_NAME).write_text(
        json.dumps({"task": "train", "dataset": "/d", "strategy": strategy})
    )
    recipe = recipes.load(tmp_path, Train)
    assert recipe == Train(dataset="/d", weights_on=weights_on)
    assert recipe.as_json()["weights_on"] == weights_on
    assert "strategy" not in recipe.as_json()


def test_an_unknown_strategy_is_refused(tmp_path: Path) -> None:
    (tmp_path / recipes.FILE_NAME).write_text(
        '{"task": "train", "dataset": "/d", "strategy": "parameter_server"}'
    )
    with pytest.raises(UnreadableFile, match="strategy"):
        recipes.load(tmp_path, Train)
