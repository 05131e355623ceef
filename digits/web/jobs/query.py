"""The search, sort order and page of a job list as URL arguments."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar

from digits.core.job import Job
from digits.kinds.forms.request_fields import nearest
from digits.runtime.job_index import COLUMNS, MAX_SEARCH_CHARACTERS, Direction, JobIndex

T = TypeVar("T")
AnyJob = TypeVar("AnyJob", bound=Job)

PER_PAGE = 100
MAX_PER_PAGE = 200
MAX_PAGE = 1_000_000
# Number of pages to link to on either side of the current one.
_NEAR_PAGES = 2


@dataclass(frozen=True, kw_only=True)
class JobQuery:
    """The search words, and the sort column if there is one."""

    words: str = ""
    sort: str = ""
    direction: Direction = "asc"

    @classmethod
    def parse(cls, arguments: Mapping[str, str]) -> Self:
        """Parse ``q``, ``sort`` and ``dir`` of a request; unknown columns are ignored."""
        words, sort, given = (arguments.get(name, "").strip() for name in ("q", "sort", "dir"))
        words = words[:MAX_SEARCH_CHARACTERS]
        if sort not in COLUMNS:
            return cls(words=words)
        direction = COLUMNS[sort].first
        if given == "asc":
            direction = "asc"
        elif given == "desc":
            direction = "desc"
        return cls(words=words, sort=sort, direction=direction)

    def toggled(self, key: str) -> Self:
        """Return the query after a click on the header of the column ``key``."""
        opposite: Direction = "asc" if self.direction == "desc" else "desc"
        direction = opposite if key == self.sort else COLUMNS[key].first
        return type(self)(words=self.words, sort=key, direction=direction)

    def arguments(self) -> dict[str, Any]:
        """Return the URL arguments of this query."""
        given = {"q": self.words, "sort": self.sort, "dir": self.direction if self.sort else ""}
        return {name: value for name, value in given.items() if value}

    def select(self, index: JobIndex, job_type: type[AnyJob], running: bool | None = None) -> list[AnyJob]:
        """Return the matching jobs of a type, in order; ``running`` selects only unfinished or ended ones."""
        return index.select(job_type, self.words, self.sort, self.direction, running)


@dataclass(frozen=True)
class Page(Generic[T]):
    """One page of ``items`` from a list of ``total`` items. Pages have ``size`` items and are counted from 1."""

    items: Sequence[T]
    number: int
    size: int
    total: int

    @classmethod
    def of(cls, items: Sequence[T], number: int, size: int) -> Self:
        """Return page ``number`` of ``items``, or the last one if there are fewer pages."""
        number = min(number, max(1, math.ceil(len(items) / size)))
        return cls(items[(number - 1) * size : number * size], number, size, len(items))

    @property
    def count(self) -> int:
        """The number of pages, at least 1."""
        return max(1, math.ceil(self.total / self.size))

    @property
    def first(self) -> int:
        """The position of the first item in the list, counted from 1; 0 in an empty list."""
        return min(self.total, (self.number - 1) * self.size + 1)

    @property
    def last(self) -> int:
        """The position of the last item."""
        return min(self.total, self.number * self.size)

    @property
    def links(self) -> list[int | None]:
        """The pages to link to: the first, the last, and those near this one. None marks omitted pages."""
        low, high = max(1, self.number - _NEAR_PAGES), min(self.count, self.number + _NEAR_PAGES)
        links: list[int | None] = [*range(low, high + 1)]
        if low > 1:
            links[:0] = [1] if low == 2 else [1, 2] if low == 3 else [1, None]
        if high < self.count:
            gap = self.count - high
            links += [self.count] if gap == 1 else [high + 1, self.count] if gap == 2 else [None, self.count]
        return links


def page_of(arguments: Mapping[str, str], name: str = "page") -> int:
    """Return the page number in the argument ``name`` of a request, counted from 1."""
    return nearest(arguments, name, 1, 1, MAX_PAGE)


def per_page_of(arguments: Mapping[str, str]) -> int:
    """Return the argument ``per_page`` of a request, at most `MAX_PER_PAGE`."""
    return nearest(arguments, "per_page", PER_PAGE, 1, MAX_PER_PAGE)
