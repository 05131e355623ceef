"""Find jobs among thousands: an index in memory of their texts and of the values by which lists sort them.

The store updates the index whenever a job changes, so a search or a page of a list reads no files and computes nothing
for jobs that it does not show.
"""

from __future__ import annotations

import heapq
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, cast

from digits.core.job import Job
from digits.kinds.jobs import metric_rank

AnyJob = TypeVar("AnyJob", bound=Job)
Direction = Literal["asc", "desc"]

# Longer searches are cut. So the time of a search has a limit.
MAX_SEARCH_CHARACTERS = 200


@dataclass(frozen=True)
class Column:
    """A column by which lists of jobs can be sorted.

    ``value`` computes the value of a job from the number of jobs that need it and the job that it needs. It returns
    None for jobs without a value, which come last in either direction. ``first`` is the direction after the first
    click: the best or latest first, or alphabetical.
    """

    value: Callable[[Job, int, Job | None], Any]
    first: Direction = "asc"


COLUMNS: Mapping[str, Column] = {
    "name": Column(lambda job, refs, needed: plain(job.name)),
    "status": Column(lambda job, refs, needed: job.status.label),
    "submitted": Column(lambda job, refs, needed: job.submitted, first="desc"),
    "elapsed": Column(lambda job, refs, needed: job.elapsed or None, first="desc"),
    "last_accuracy": Column(lambda job, refs, needed: metric_rank(job, needed), first="desc"),
    "refs": Column(lambda job, refs, needed: refs, first="desc"),
    "bytes": Column(lambda job, refs, needed: job.summary.record_bytes, first="desc"),
}


def plain(text: str) -> str:
    """``text`` normalized for comparisons: case folded and Unicode normalized."""
    return text.lower() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()


@dataclass(slots=True, eq=False)
class _Entry:
    """A job with its normalized texts, its values by column, and the id of the job that it needs."""

    job: Job
    text: str = ""
    values: dict[str, Any] = field(default_factory=dict)
    parent: str = ""


@dataclass(slots=True)
class _Table:
    """The jobs of one type, the oldest first, those that have not ended, and the orders that were asked for."""

    entries: dict[str, _Entry] = field(default_factory=dict)
    running: set[str] = field(default_factory=set)
    orders: dict[tuple[str, Direction], list[_Entry]] = field(default_factory=dict)

    def order(self, sort: str, direction: Direction) -> Sequence[_Entry]:
        """All entries in the order of a column; without one, and among equal values, the newest first."""
        known = self.orders.get((sort, direction))
        if known is None:
            known = list(reversed(self.entries.values()))
            if sort in COLUMNS:
                ranked = [entry for entry in known if entry.values[sort] is not None]
                ranked.sort(key=lambda entry: entry.values[sort], reverse=direction == "desc")
                known = ranked + [entry for entry in known if entry.values[sort] is None]
            self.orders[sort, direction] = known
        return known

    def forget_orders(self, changed: set[str]) -> None:
        self.orders = {key: order for key, order in self.orders.items() if key[0] not in changed}


class JobIndex:
    """All jobs of a store. ``count_children`` returns the number of jobs that need a job."""

    def __init__(self, count_children: Callable[[Job], int]) -> None:
        self._count_children = count_children
        self._tables: defaultdict[str, _Table] = defaultdict(_Table)
        # The jobs that others need: a search for the name of a dataset finds its models, too.
        self._needed: dict[str, _Entry] = {}
        self._groups: Counter[str] = Counter()
        self._group_of: dict[str, str] = {}

    def add(self, job: Job) -> None:
        """Add a job, which is the newest one."""
        table = self._tables[job.type]
        table.entries[job.id] = _Entry(job)
        table.orders.clear()
        self.update(job)

    def update(self, job: Job) -> None:
        """Update the entry of a job that may have changed; jobs that are not in the index are ignored."""
        table = self._tables[job.type]
        entry = table.entries.get(job.id)
        if entry is None:
            return
        refs = self._count_children(job)
        entry.parent = next(iter(job.needs()), "")
        needed = self._find(entry.parent)
        values = {name: column.value(job, refs, needed) for name, column in COLUMNS.items()}
        changed = {name for name, value in values.items() if value != entry.values.get(name)}
        if changed:
            entry.values = values
            table.forget_orders(changed)
        entry.text = plain("\n".join((job.name, job.group, job.owner or "", job.status.label)))
        if job.status.is_running:
            table.running.add(job.id)
        else:
            table.running.discard(job.id)
        if refs:
            self._needed[job.id] = entry
        else:
            self._needed.pop(job.id, None)
        self._count_group(job.id, job.group)

    def remove(self, job: Job) -> None:
        table = self._tables[job.type]
        if table.entries.pop(job.id, None) is not None:
            table.orders.clear()
            table.running.discard(job.id)
            self._needed.pop(job.id, None)
            self._count_group(job.id, "")

    def select(
        self,
        job_type: type[AnyJob],
        words: str = "",
        sort: str = "",
        direction: Direction = "asc",
        running: bool | None = None,
    ) -> list[AnyJob]:
        """The jobs of a type whose texts contain all words, in the order of a column of `COLUMNS`.

        Without a column, and among equal values, the newest come first. The texts are the name, the group, the owner,
        the status, and the name of the dataset. With ``running``, only jobs that have not ended, or that have.
        """
        table = self._tables[job_type.type]
        found = table.order(sort, direction) if table.running or not running else []
        if running is not None:
            found = [entry for entry in found if (entry.job.id in table.running) is running]
        for word in _split(words):
            parents = {job_id for job_id, entry in self._needed.items() if word in entry.values["name"]}
            found = [entry for entry in found if word in entry.text or entry.parent in parents]
        return cast(list[AnyJob], [entry.job for entry in found])

    def groups(self, words: str, count: int) -> list[str]:
        """The first ``count`` groups in alphabetical order whose names contain all words."""
        wanted = _split(words)
        found = (group for group in self._groups if all(word in plain(group) for word in wanted))
        return heapq.nsmallest(count, found, key=lambda group: (plain(group), group))

    def _find(self, job_id: str) -> Job | None:
        tables = (table.entries for table in self._tables.values())
        return next((entries[job_id].job for entries in tables if job_id in entries), None)

    def _count_group(self, job_id: str, group: str) -> None:
        before = self._group_of.get(job_id, "")
        if before == group:
            return
        if before:
            self._groups[before] -= 1
            if not self._groups[before]:
                del self._groups[before]
            del self._group_of[job_id]
        if group:
            self._groups[group] += 1
            self._group_of[job_id] = group


def _split(words: str) -> list[str]:
    return [*dict.fromkeys(plain(words[:MAX_SEARCH_CHARACTERS]).split())]
