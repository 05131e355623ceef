"""The table of the kinds of datasets and models. To add a kind, write its package and one line here.

Plugins add theirs through the entry points ``digits.plugins.data``.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from digits.kinds.kind import Kind, UnknownKind
from digits.kinds.plugins import Refusal, load_plugins

DATA_PLUGINS = "digits.plugins.data"

BUILT_IN = (
    Kind(
        "image-classification", "Image classification", "images/classification", "digits.kinds.classification"
    ),
    Kind("image-regression", "Image regression", "images/regression", "digits.kinds.regression"),
)


def all_kinds() -> Mapping[str, Kind]:
    """All kinds by name: the built-in ones, then those of plugins."""
    return _loaded()[0]


def default_kind() -> Kind:
    """The first kind of the table."""
    return BUILT_IN[0]


def refused_plugins() -> list[Refusal]:
    """The installed plugins that could not be loaded, with the reasons."""
    return _loaded()[1]


def kind_named(name: str) -> Kind:
    """The kind called ``name``; raises UnknownKind."""
    try:
        return all_kinds()[name]
    except KeyError:
        raise UnknownKind(name) from None


@functools.cache
def _loaded() -> tuple[Mapping[str, Kind], list[Refusal]]:
    plugins, refusals = load_plugins(DATA_PLUGINS, Kind, taken=[kind.name for kind in BUILT_IN])
    return {kind.name: kind for kind in (*BUILT_IN, *plugins)}, refusals


__all__ = [
    "BUILT_IN",
    "DATA_PLUGINS",
    "Kind",
    "Refusal",
    "UnknownKind",
    "all_kinds",
    "default_kind",
    "kind_named",
    "refused_plugins",
]
