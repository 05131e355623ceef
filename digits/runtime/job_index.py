"""An in-memory index of the searchable texts and sort keys of jobs.

The store updates the index whenever a job changes, so searching or showing a page of a list reads no files and computes
nothing for jobs that are not shown.
"""

from __future__ import annotations

import bisect
import heapq
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, cast

from digits.core.job import Job
from digits.kinds.jobs import DatasetJob, metric_rank

AnyJob = TypeVar("AnyJob", bound=Job)
Direction = Literal["asc", "desc"]

# Longer searches are truncated to bound their running time.
MAX_SEARCH_CHARACTERS = 200


@dataclass(frozen=True)
class Column:
    """A sortable column of job lists.

    ``value`` computes the sort key from the job, the number of jobs that depend on it, and the job it depends on.
    Jobs without a value (None) come last in both directions. ``first`` is the direction after the first click: best
    or latest first, or alphabetical.
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
    """Normalize ``text`` for comparisons: fold case and normalize Unicode."""
    return text.lower() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()


@dataclass(slots=True, eq=False)
class _Entry:
    """A job with its normalized texts, its sort keys by column, and the id of the job it depends on."""

    job: Job
    text: str = ""
    values: dict[str, Any] = field(default_factory=dict)
    parent: str = ""


@dataclass(slots=True)
class _Table:
    """The jobs of one type, oldest first, the ids of unfinished ones, and cached sort orders.

    An order contains all jobs (None), the unfinished ones (True), or those that have ended (False).
    """

    entries: dict[str, _Entry] = field(default_factory=dict)
    running: set[str] = field(default_factory=set)
    orders: dict[tuple[str, Direction, bool | None], list[_Entry]] = field(default_factory=dict)

    def order(self, sort: str, direction: Direction, running: bool | None = None) -> Sequence[_Entry]:
        """Return entries sorted by a column; by default and among equal values, newest first."""
        known = self.orders.get((sort, direction, running))
        if known is None:
            if running is None:
                known = self._sorted(sort, direction)
            else:
                known = [
                    entry
                    for entry in self.order(sort, direction)
                    if (entry.job.id in self.running) is running
                ]
            self.orders[sort, direction, running] = known
        return known

    def _sorted(self, sort: str, direction: Direction) -> list[_Entry]:
        known = list(reversed(self.entries.values()))
        if sort not in COLUMNS:
            return known
        ranked = [entry for entry in known if entry.values[sort] is not None]
        ranked.sort(key=lambda entry: entry.values[sort], reverse=direction == "desc")
        return ranked + [entry for entry in known if entry.values[sort] is None]

    def forget_orders(self, changed: set[str]) -> None:
        self.orders = {key: order for key, order in self.orders.items() if key[0] not in changed}

    def set_running(self, job_id: str, is_running: bool) -> None:
        if (job_id in self.running) is is_running:
            return
        (self.running.add if is_running else self.running.discard)(job_id)
        self.orders = {key: order for key, order in self.orders.items() if key[2] is None}


class JobIndex:
    """The jobs of a store. ``count_children`` returns the number of jobs that depend on a job."""

    def __init__(self, count_children: Callable[[Job], int]) -> None:
        self._count_children = count_children
        self._tables: defaultdict[str, _Table] = defaultdict(_Table)
        # Jobs that others depend on: searching for the name of a dataset also finds its models.
        self._needed: dict[str, _Entry] = {}
        # The jobs of each type and kind of data, oldest first, and the times of the last changes of status.
        self._of_kind: defaultdict[tuple[str, str], dict[str, Job]] = defaultdict(dict)
        # The versions of each dataset, which may have been deleted.
        self._versions: defaultdict[str, dict[str, DatasetJob]] = defaultdict(dict)
        self._changed_at: dict[str, float] = {}
        self._by_change: list[tuple[float, str]] = []
        self._groups: Counter[str] = Counter()
        self._group_of: dict[str, str] = {}

    def add(self, job: Job) -> None:
        """Add the newest job."""
        table = self._tables[job.type]
        table.entries[job.id] = _Entry(job)
        table.orders.clear()
        self._of_kind[_kind_of(job)][job.id] = job
        if isinstance(job, DatasetJob) and job.parent_id:
            self._versions[job.parent_id][job.id] = job
        self.update(job)

    def update(self, job: Job) -> None:
        """Update the entry of a job that may have changed, ignoring jobs that are not in the index."""
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
        table.set_running(job.id, job.status.is_running)
        if refs:
            self._needed[job.id] = entry
        else:
            self._needed.pop(job.id, None)
        self._count_group(job.id, job.group)
        self._note_change(job.id, job.history[-1][1] if job.history else None)

    def remove(self, job: Job) -> None:
        table = self._tables[job.type]
        if table.entries.pop(job.id, None) is not None:
            table.orders.clear()
            table.running.discard(job.id)
            self._needed.pop(job.id, None)
            self._count_group(job.id, "")
            self._of_kind[_kind_of(job)].pop(job.id, None)
            if isinstance(job, DatasetJob) and job.parent_id:
                self._versions[job.parent_id].pop(job.id, None)
            self._note_change(job.id, None)

    def select(
        self,
        job_type: type[AnyJob],
        words: str = "",
        sort: str = "",
        direction: Direction = "asc",
        running: bool | None = None,
    ) -> list[AnyJob]:
        """Return the jobs of a type whose texts contain all ``words``, sorted by a column of `COLUMNS`.

        By default and among equal values, the newest come first. The texts are name, group, owner, status, and the
        name of the dataset. ``running`` selects only unfinished (True) or ended (False) jobs.
        """
        entries = self._tables[job_type.type].order(sort, direction, running)
        for word in _split(words):
            parents = {job_id for job_id, entry in self._needed.items() if word in entry.values["name"]}
            entries = [entry for entry in entries if word in entry.text or entry.parent in parents]
        return cast(list[AnyJob], [entry.job for entry in entries])

    def newest(self, job_type: type[AnyJob], kind: str) -> Iterator[AnyJob]:
        """Return the jobs of a type with data of the kind named ``kind``, the newest first."""
        return cast(Iterator[AnyJob], reversed([*self._of_kind[job_type.type, kind].values()]))

    def family(self, dataset: DatasetJob) -> list[DatasetJob]:
        """Return the datasets of which ``dataset`` is a version, and all their versions, the newest first."""
        found: dict[str, Job | None] = {}
        pending = [dataset.id]
        while pending:
            if (job_id := pending.pop()) in found:
                continue
            job = found[job_id] = self._find(job_id)
            pending += self._versions.get(job_id, ())
            if isinstance(job, DatasetJob) and job.parent_id:
                pending.append(job.parent_id)
        family = [job for job in found.values() if isinstance(job, DatasetJob)]
        return sorted(family, key=lambda job: job.submitted, reverse=True)

    def changed_since(self, at: float) -> Iterator[Job]:
        """Return the jobs whose status has changed since the Unix time ``at``, those that changed last first."""
        start = bisect.bisect_left(self._by_change, (at, ""))
        recent = reversed(self._by_change[start:])
        return (job for _, job_id in recent if (job := self._find(job_id)) is not None)

    def groups(self, words: str, count: int) -> list[str]:
        """Return the alphabetically first ``count`` groups whose names contain all ``words``."""
        wanted = _split(words)
        groups = (group for group in self._groups if all(word in plain(group) for word in wanted))
        return heapq.nsmallest(count, groups, key=lambda group: (plain(group), group))

    def _find(self, job_id: str) -> Job | None:
        tables = (table.entries for table in self._tables.values())
        return next((entries[job_id].job for entries in tables if job_id in entries), None)

    def _note_change(self, job_id: str, at: float | None) -> None:
        before = self._changed_at.get(job_id)
        if before == at:
            return
        if before is not None:
            del self._by_change[bisect.bisect_left(self._by_change, (before, job_id))]
            del self._changed_at[job_id]
        if at is not None:
            self._changed_at[job_id] = at
            bisect.insort(self._by_change, (at, job_id))

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


def _kind_of(job: Job) -> tuple[str, str]:
    return job.type, job.data_kind.name if isinstance(job, DatasetJob) else ""


def _split(words: str) -> list[str]:
    return [*dict.fromkeys(plain(words[:MAX_SEARCH_CHARACTERS]).split())]
