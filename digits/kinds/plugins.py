"""Plugins: installed packages that announce themselves with an entry point."""

from __future__ import annotations

import importlib.metadata
import logging
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol, TypeVar

log = logging.getLogger(__name__)

# Modules of DIGITS 6 that its plugins import.
_OLD_MODULES = re.compile(r"digits\.(extensions|utils|webapp|config|log|dataset|framework|subclass)\b")
_OLD_METHODS = ("get_id", "get_title", "get_default_visibility", "get_dataset_form", "get_view_template")


class _Named(Protocol):
    @property
    def name(self) -> str: ...


Entry = TypeVar("Entry", bound=_Named)


@dataclass(frozen=True)
class Refusal:
    """A plugin that was not loaded: its name and object, the reason, and what to change."""

    plugin: str
    reason: str
    hint: str = ""


def load_plugins(
    group: str, type_: type[Entry], taken: Collection[str] = ()
) -> tuple[list[Entry], list[Refusal]]:
    """Load the objects of ``type_`` from all entry points of ``group``, sorted by name.

    A plugin that cannot be loaded, or whose name is ``taken``, becomes a Refusal, which is logged.
    """
    found: list[Entry] = []
    refusals: list[Refusal] = []
    for point in sorted(importlib.metadata.entry_points(group=group), key=lambda point: point.name):
        loaded = _load(point, type_)
        names = {*taken, *(entry.name for entry in found)}
        if isinstance(loaded, type_) and loaded.name in names:
            loaded = Refusal(_shown(point), f"The name “{loaded.name}” is taken.", "Choose another name.")
        if isinstance(loaded, Refusal):
            log.error("The plugin %s was not loaded. %s %s", loaded.plugin, loaded.reason, loaded.hint)
            refusals.append(loaded)
        else:
            found.append(loaded)
    return found, refusals


def _load(point: importlib.metadata.EntryPoint, type_: type[Entry]) -> Entry | Refusal:
    try:
        loaded = point.load()
    except Exception as error:
        if _OLD_MODULES.search(str(error)):
            return _old_interface(point, type_)
        return Refusal(_shown(point), f"It cannot be imported: {type(error).__name__}: {error}.")
    if isinstance(loaded, type_):
        return loaded
    if any(hasattr(loaded, name) for name in _OLD_METHODS):
        return _old_interface(point, type_)
    return Refusal(
        _shown(point),
        f"It is not a {type_.__name__}.",
        f"Let the entry point name an object of the class digits.kinds.{type_.__name__}.",
    )


def _old_interface(point: importlib.metadata.EntryPoint, type_: type[Entry]) -> Refusal:
    return Refusal(
        _shown(point),
        "It was written for the plugin interface of DIGITS 6, which this version does not have.",
        f"Let its entry point name a digits.kinds.{type_.__name__}; docs/plugins.md shows how to port a plugin.",
    )


def _shown(point: importlib.metadata.EntryPoint) -> str:
    return f"“{point.name}” ({point.value})"
