"""Plugins: installed packages that announce themselves with an entry point."""

from __future__ import annotations

import importlib.metadata
import importlib.resources
import linecache
import re
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.metadata import EntryPoint
from typing import Protocol, TypeVar

# Modules of DIGITS 6 that its plugins import, and methods that they define.
_OLD_MODULES = "config dataset device_query extensions frameworks inference log model task utils webapp"
_OLD_IMPORT = re.compile(
    rf"^\s*(?:from|import)\s+digits(?:\.|\s+import\s+)(?:{_OLD_MODULES.replace(' ', '|')})\b", re.MULTILINE
)
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*", re.ASCII)
_OLD_METHODS = ("encode_entry", "get_dataset_form", "get_id", "get_view_template", "itemize_entries")


class PluginEntry(Protocol):
    """An entry of a table that plugins extend."""

    @property
    def identifiers(self) -> Mapping[str, str]:
        """The attributes that no two entries share, such as the name."""

    def missing_files(self) -> list[str]:
        """The files that the entry's package lacks; raises whatever importing the package raises."""


Entry = TypeVar("Entry", bound=PluginEntry)


@dataclass(frozen=True)
class Refusal:
    """A plugin that was not loaded: its distribution and object, the reason, and what to change."""

    plugin: str
    reason: str
    hint: str = ""


def load_plugins(
    group: str, type_: type[Entry], existing: Iterable[Entry] = ()
) -> tuple[list[Entry], list[Refusal]]:
    """Load the objects of ``type_`` from all entry points of ``group``, sorted by name.

    A plugin that cannot be loaded, or has a name of the ``existing`` entries, becomes a Refusal.
    """
    entries = list(existing)
    plugins: list[Entry] = []
    refusals: list[Refusal] = []
    for point in sorted(
        importlib.metadata.entry_points(group=group), key=lambda point: (point.name, point.value)
    ):
        loaded = _load(point, type_, [*entries, *plugins])
        if isinstance(loaded, Refusal):
            refusals.append(loaded)
        else:
            plugins.append(loaded)
    return plugins, refusals


def check_name(name: str) -> None:
    """Raise ValueError unless ``name`` consists of lowercase words with hyphens, such as ``image-tagging``."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"the name {name!r} must consist of lowercase letters, digits and single hyphens")


def missing_templates(package: str, names: Iterable[str]) -> list[str]:
    """The templates among ``names`` that ``package`` lacks; raises whatever importing it raises."""
    folder = importlib.resources.files(package) / "templates"
    return [f"templates/{name}" for name in names if not (folder / name).is_file()]


def cannot_import(plugin: str, error: BaseException) -> Refusal:
    """The refusal of a ``plugin`` that raised ``error`` while it was imported."""
    hint = "Install a version for this version of DIGITS, or uninstall the plugin."
    if isinstance(error, ModuleNotFoundError) and error.name == "digits.data.target":
        hint = (
            "Import the class of its target from digits.data.targets; see the documentation page “Plugins”."
        )
    return Refusal(plugin, f"It cannot be imported: {type(error).__name__}: {error}.", hint)


@contextmanager
def forbid_imports(packages: Sequence[str], reason: str) -> Iterator[None]:
    """Raise ImportError with ``reason`` for any first import of one of the ``packages`` in the block."""
    finder = _ForbiddenFinder(packages, reason)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _ForbiddenFinder(MetaPathFinder):
    def __init__(self, packages: Sequence[str], reason: str) -> None:
        self._packages = packages
        self._reason = reason

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        if fullname.partition(".")[0] in self._packages:
            raise ImportError(f"{fullname}: {self._reason}")


def _load(point: EntryPoint, type_: type[Entry], others: list[Entry]) -> Entry | Refusal:
    try:
        loaded = point.load()
        is_entry = isinstance(loaded, type_)
        missing = loaded.missing_files() if is_entry else []
    except (Exception, SystemExit) as error:
        return (
            _old_interface(point, type_) if _is_for_digits_6(error) else cannot_import(_shown(point), error)
        )
    if not is_entry:
        if any(hasattr(loaded, name) for name in _OLD_METHODS):
            return _old_interface(point, type_)
        return Refusal(
            _shown(point),
            f"Its entry point is not a {type_.__name__}.",
            f"Let the entry point name an object of the class digits.kinds.{type_.__name__}.",
        )
    if missing:
        return Refusal(_shown(point), f"Its package has no {', '.join(missing)}.", _hint(missing))
    for other in others:
        for attribute, value in loaded.identifiers.items():
            if other.identifiers[attribute] == value:
                return Refusal(
                    _shown(point),
                    f"The {attribute} “{value}” is taken.",
                    f"Choose another {attribute}, or uninstall one of the two plugins.",
                )
    return loaded  # type: ignore[no-any-return]


def _hint(missing: Iterable[str]) -> str:
    if any(name.startswith("network/") for name in missing):
        return (
            "Move targets.py, metrics.py and evaluation.py of the package into its folder “network”, and import "
            "their base classes from digits.kinds.network."
        )
    return "Add what is missing."


def _is_for_digits_6(error: BaseException) -> bool:
    """Whether a file that was being imported when ``error`` was raised imports modules of DIGITS 6."""
    files = {frame.filename for frame in traceback.extract_tb(error.__traceback__)}
    if isinstance(error, SyntaxError):
        files.add(error.filename or "")
    return any(_OLD_IMPORT.search("".join(linecache.getlines(name))) for name in files)


def _old_interface(point: EntryPoint, type_: type[Entry]) -> Refusal:
    return Refusal(
        _shown(point),
        "It was written for the plugin interface of DIGITS 6, which this version does not have.",
        f"Uninstall it, or port it: its entry point must name a digits.kinds.{type_.__name__}. "
        "The documentation page “Plugins” shows how.",
    )


def _shown(point: EntryPoint) -> str:
    # All plugins of DIGITS 6 call their entry point “class”.
    name = point.dist.name if point.dist else point.name
    return f"{name} ({point.value})"
