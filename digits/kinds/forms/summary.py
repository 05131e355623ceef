"""What the form of a dataset shows of its source: counts, sizes, problems, suggestions and the first records.

`digits.kinds.forms.previews` makes the summary by planning a part of the dataset.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from digits.data.sources.plan import show
from digits.kinds.forms.dataset_recommendation import Advice

MAX_BARS = 20


@dataclass
class Suggestion:
    """Values for form fields, offered with the sentences ``text`` and a button labeled ``action``.

    One that ``stops`` the form must be taken before the dataset is created.
    """

    text: str
    action: str
    fields: dict[str, str | bool]
    stops: bool = False


@dataclass
class OtherKind:
    """A ``kind`` of datasets by name that accepts a source with values of the ``fields`` of its form."""

    kind: str
    title: str
    fields: dict[str, str]


@dataclass
class SourceSummary:
    """The contents of a source, as far as they have been read.

    ``facts`` and ``problems`` are sentences. ``bars`` are the first of ``bars_total`` labels with counts.
    ``table`` holds rows under ``table_title`` with the columns ``table_head``; ``pictures`` are URIs of images, one for
    each row, or empty. ``options`` are the values and the words of fields that offer what the source contains.
    ``sizes`` are those of a sample of the images, which ``are_gray`` if none has colors. ``refused`` is the reason if
    there is no summary, and ``allowed`` are the folders to choose from if the path is outside of them.

    The last summary also has what is known from planning the dataset: the first records as ``previews``, see
    `digits.kinds.forms.previews`, further suggestions as ``remedies``, the number of records as ``total``, those of
    each split as ``splits`` if the source declares them, the recommended values of fields as ``advice``, and the
    ``errors`` of fields with which the dataset cannot be created, and the ``others`` that accept its source.
    """

    facts: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    bars_title: str = ""
    bars: list[tuple[str, int]] = field(default_factory=list)
    bars_total: int = 0
    table_title: str = "First rows"
    table_head: list[str] = field(default_factory=list)
    table: list[list[str]] = field(default_factory=list)
    pictures: list[str] = field(default_factory=list)
    options: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    suggestion: Suggestion | None = None
    remedies: list[Suggestion] = field(default_factory=list)
    sizes: list[tuple[int, int]] = field(default_factory=list)
    are_gray: bool = False
    previews: list[dict[str, Any]] = field(default_factory=list)
    total: int = 0
    splits: dict[str, int] = field(default_factory=dict)
    advice: list[Advice] = field(default_factory=list)
    errors: dict[str, list[str]] = field(default_factory=dict)
    others: list[OtherKind] = field(default_factory=list)
    refused: str = ""
    allowed: list[str] = field(default_factory=list)
    finished: bool = True

    def set_bars(self, title: str, counts: list[tuple[str, int]]) -> None:
        """Show ``counts`` as bars, up to `MAX_BARS`."""
        self.bars_title, self.bars, self.bars_total = title, counts[:MAX_BARS], len(counts)


def shown_place(path: Path, root: str) -> str:
    """Return the path of a file or folder below ``root`` for a message."""
    return show(os.path.relpath(path, root)) + ("/" if path.is_dir() else "")


def joined(names: list[str]) -> str:
    """Return ``a, b and c``."""
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
