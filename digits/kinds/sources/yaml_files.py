"""YAML files and darknet's settings, which describe data sets. They are untrusted."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import yaml

from digits.data.sources.plan import UnusableSource, naming_unreadable, read_bounded, show

YAML_ENDINGS = (".yaml", ".yml")
MAX_BYTES = 1 << 20
_MAX_DEPTH = 20


def read_yaml(path: Path) -> Any:
    """Return the contents of a YAML file, in which all scalars are texts; raises UnusableSource."""
    text = read_text(path)
    try:
        _need_plain(text)
        return next(yaml.load_all(text, yaml.BaseLoader), None)
    except (yaml.YAMLError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f", line {mark.line + 1}," if mark else ""
        reason = getattr(error, "problem", None) or str(error).partition("\n")[0]
        raise UnusableSource(
            f"{show(path.name)}{place} cannot be read: {show(reason)}.",
            "Correct it, or enter a text file with one name per line as “Class names”.",
        ) from error


def read_settings(path: Path) -> dict[str, str]:
    """Return the values in darknet's ``obj.data`` by name; raises UnusableSource."""
    pairs = (line.partition("=") for line in read_text(path).splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def _need_plain(text: str) -> None:
    """Raise ValueError for YAML whose contents are large or deep though it is short; raises yaml.YAMLError."""
    depth = 0
    for event in yaml.parse(text, yaml.BaseLoader):
        if isinstance(event, yaml.AliasEvent):
            raise ValueError("aliases are not supported")
        if isinstance(event, yaml.ScalarEvent) and not event.value.isprintable() and _has_half(event.value):
            raise ValueError("it contains half of a character, such as \\ud83d")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _MAX_DEPTH:
            raise ValueError(f"more than {_MAX_DEPTH} nested values")


def _has_half(text: str) -> bool:
    """Return whether a text contains half of a surrogate pair, which no file can contain."""
    return any("\ud800" <= letter <= "\udfff" for letter in text)


def values_of(config: dict[str, Any], name: str) -> list[str]:
    """Return the texts in the setting ``name`` of a YAML file, which may be a list."""
    values = config.get(name) or []
    return list(filter(is_text, values if isinstance(values, list) else [values]))


def meant_paths(config: dict[str, Any], folder: Path, value: str) -> list[Path]:
    """Return what a path in a YAML file in ``folder`` may mean.

    It is relative to the setting ``path``, or to the folder; Roboflow writes ``../train/images`` for a folder beside
    the file.
    """
    inner = value.replace("\\", "/")
    bases = [*(folder / base for base in values_of(config, "path")), folder]
    paths = [*(base / inner for base in bases), folder / inner.removeprefix("./").removeprefix("../")]
    return [Path(os.path.normpath(path)) for path in paths]


def is_text(value: Any) -> bool:
    return isinstance(value, str)


def read_text(path: Path, max_bytes: int = MAX_BYTES) -> str:
    with naming_unreadable(path):
        data = read_bounded(path, max_bytes)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnusableSource(f"{show(path.name)} is not UTF-8 text.", "Save it as UTF-8.") from error
