"""The standard networks: user code shipped with DIGITS, read as text and never run here."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from digits.errors import NotFound

_FOLDER = Path(__file__).resolve().parents[1] / "networks"


@dataclass(frozen=True)
class Network:
    """A standard network. ``summary`` says what it is and ``settings`` what it likes to be trained with."""

    id: str
    title: str
    summary: str
    settings: str
    text: str


# Identifier, title, and the settings that the network is usually trained with.
_LISTED = (("lenet", "LeNet", "Made for 28×28 grayscale images."),)


@cache
def networks() -> dict[str, Network]:
    """All standard networks by id, in the order of the list."""
    return {name: _read(name, title, settings) for name, title, settings in _LISTED}


def network(name: str) -> Network:
    """The standard network of this id; raises NotFound."""
    try:
        return networks()[name]
    except KeyError:
        raise NotFound(f"There is no standard network called “{name}”.") from None


def _read(name: str, title: str, settings: str) -> Network:
    text = (_FOLDER / f"{name}.py").read_text()
    summary = (ast.get_docstring(ast.parse(text)) or title).split("\n\n")[0].replace("\n", " ")
    return Network(name, title, summary, settings, text)
