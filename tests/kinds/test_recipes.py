"""Recipes that earlier releases stored are read: datasets are cloned and recreated from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from digits.kinds.recipes import build_recipe

STORED: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("stored_recipes.json").read_text())


@pytest.mark.parametrize("source", STORED)
def test_a_stored_recipe_keeps_its_settings(source: str) -> None:
    read = msgspec.json.decode(msgspec.json.encode(build_recipe(STORED[source])))
    assert {name: read[name] for name in STORED[source]} == STORED[source]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("class folders", "csv"),
        ("multi-label", "records of labels"),
        ("regression", "records of numbers"),
        ("kitti", "records of boxes"),
        ("masks", "records of masks"),
        ("auto-encoder", "table of targets"),
    ],
)
def test_a_recipe_without_a_source_or_with_two_is_refused(one: str, other: str) -> None:
    with pytest.raises(ValueError, match="needs"):
        build_recipe({name: STORED[one][name] for name in ("task", "kind")})
    with pytest.raises(ValueError, match="needs"):
        build_recipe({name: value or STORED[other][name] for name, value in STORED[one].items()})
