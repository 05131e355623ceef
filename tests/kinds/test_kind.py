"""The table of kinds."""

from __future__ import annotations

import pytest

from digits.kinds import BUILT_IN, Kind, UnknownKind, all_kinds, default_kind, kind_named


def test_built_in_kinds_come_first():
    assert list(all_kinds().values())[: len(BUILT_IN)] == list(BUILT_IN)
    assert default_kind() is BUILT_IN[0]


@pytest.mark.parametrize("kind", BUILT_IN, ids=lambda kind: kind.name)
def test_built_in_kinds_are_complete(kind):
    assert kind.missing_files() == []
    assert kind_named(kind.name) is kind
    assert kind.load("recipe").Recipe.__struct_fields__


def test_names_and_routes_of_built_in_kinds_are_unique():
    for attribute in ("name", "route", "package"):
        assert len({getattr(kind, attribute) for kind in BUILT_IN}) == len(BUILT_IN)


def test_a_kind_uses_the_modules_of_the_one_that_it_is_like():
    regression, gradients = kind_named("image-regression"), kind_named("image-gradients")
    assert gradients.load("export") is regression.load_optional("export")
    assert gradients.load("reader") is not regression.load("reader")
    assert kind_named("image-gan").load("network.evaluation").__name__ == "digits.kinds.network.evaluation"


def test_an_unknown_kind_names_the_plugin_as_the_cause():
    with pytest.raises(UnknownKind, match="'image-poetry': the plugin that provides it is not installed"):
        kind_named("image-poetry")


@pytest.mark.parametrize("name", ["", "Image", "image tagging", "image/tagging", "-a", "a--b", "../a"])
def test_names_consist_of_words_and_hyphens(name):
    with pytest.raises(ValueError, match="lowercase"):
        Kind(name, "Title", "images/a", "package")


@pytest.mark.parametrize(
    "route", ["", "images", "images/", "images/a/b", "/images", "images/{}", "images/<a>"]
)
def test_routes_consist_of_two_names(route):
    with pytest.raises(ValueError, match=r"two names|lowercase"):
        Kind("image-a", "Title", route, "package")
