"""The standard networks: user code shipped with DIGITS, read as text and never run here."""

from __future__ import annotations

import itertools
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


_LISTED = (("lenet", "LeNet"),)


@cache
def networks() -> dict[str, Network]:
    """All standard networks by id, in the order of the list."""
    return {name: _read(name, title) for name, title in _LISTED}


def network(name: str) -> Network:
    """The standard network of this id; raises NotFound."""
    try:
        return networks()[name]
    except KeyError:
        raise NotFound(f"There is no standard network called “{name}”.") from None


def _read(name: str, title: str) -> Network:
    """The first line of the comment at the top of the file is the summary, the rest the settings."""
    text = (_FOLDER / f"{name}.py").read_text()
    about = [
        line.lstrip("# ")
        for line in itertools.takewhile(lambda line: line.startswith("#"), text.splitlines())
    ]
    return Network(name, title, about[0] if about else title, " ".join(about[1:]), text)
