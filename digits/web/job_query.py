"""Search and sort lists of jobs."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeVar

from digits.core.job import Job

AnyJob = TypeVar("AnyJob", bound=Job)
Direction = Literal["asc", "desc"]


@dataclass(frozen=True)
class Column:
    """A column by which a list of jobs can be sorted.

    ``value`` returns None for jobs without a value, which come last in either
    direction. ``first`` is the direction after the first click: the best or latest
    first, or alphabetical.
    """

    value: Callable[[Job], Any]
    first: Direction = "asc"


@dataclass(frozen=True, kw_only=True)
class JobQuery:
    """The search words, and the sort column if there is one."""

    words: str = ""
    sort: str = ""
    direction: Direction = "asc"

    @classmethod
    def parse(cls, arguments: Mapping[str, str], columns: Mapping[str, Column]) -> Self:
        """Parse ``q``, ``sort`` and ``dir`` of a request; unknown columns are ignored."""
        words, sort, given = (arguments.get(name, "").strip() for name in ("q", "sort", "dir"))
        if sort not in columns:
            return cls(words=words)
        direction = columns[sort].first
        if given == "asc":
            direction = "asc"
        elif given == "desc":
            direction = "desc"
        return cls(words=words, sort=sort, direction=direction)

    def toggled(self, key: str, column: Column) -> Self:
        """The query after a click on the header of ``column``."""
        opposite: Direction = "asc" if self.direction == "desc" else "desc"
        direction = opposite if key == self.sort else column.first
        return type(self)(words=self.words, sort=key, direction=direction)

    def arguments(self) -> dict[str, Any]:
        """The URL arguments of this query."""
        given = {"q": self.words, "sort": self.sort, "dir": self.direction if self.sort else ""}
        return {name: value for name, value in given.items() if value}

    def select(
        self,
        jobs: Iterable[AnyJob],
        columns: Mapping[str, Column],
        texts: Callable[[Job], Iterable[str | None]],
    ) -> list[AnyJob]:
        """The jobs whose ``texts`` contain all words, sorted by the column.

        The sort is stable.
        """
        words = plain(self.words).split()
        found = [job for job in jobs if not words or _contains(texts(job), words)]
        if self.sort not in columns:
            return found
        value = columns[self.sort].value
        known = [(value(job), job) for job in found]
        ranked = [pair for pair in known if pair[0] is not None]
        ranked.sort(key=lambda pair: pair[0], reverse=self.direction == "desc")
        return [job for _, job in ranked] + [job for value, job in known if value is None]


def plain(text: str) -> str:
    """``text`` normalized for comparisons: case folded and Unicode normalized."""
    return unicodedata.normalize("NFKC", text).casefold()


def _contains(texts: Iterable[str | None], words: list[str]) -> bool:
    searched = plain("\n".join(text for text in texts if text))
    return all(word in searched for word in words)
