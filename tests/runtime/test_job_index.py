"""The index of jobs: searches, sort orders and groups, while jobs are added, changed and removed."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from digits.core.job import Job, Summary
from digits.core.model_job import ModelJob
from digits.core.recipe import Train
from digits.core.status import Status
from digits.core.task import Task
from digits.kinds.classification.recipe import CreateClassification, FolderSplit
from digits.kinds.jobs import DatasetJob
from digits.kinds.versions.versions import CreateVersion
from digits.runtime.job_index import COLUMNS, JobIndex

NAMES = st.sampled_from(["", "a", "A b", "Straße", "STRASSE", "b a", "Ünicode", "10", "9"])
ACCURACIES = st.sampled_from([None, 0.0, 50.0, 99.5])
DIRECTIONS = ("asc", "desc")


def task(status: Status, seconds: float = 0.0) -> Task:
    steps = {Status.INIT: [], Status.RUN: [Status.RUN], Status.DONE: [Status.RUN, Status.DONE]}
    made = Task(name="task", title="Task")
    for step in steps.get(status, [status]):
        made.move(step, seconds=seconds)
    return made


def dataset(number: int, name: str, size: int | None = None) -> DatasetJob:
    recipe = CreateClassification(train=FolderSplit(folder="/data"))
    return DatasetJob(
        id=f"20260101-000000-{number:06x}",
        folder=Path(f"/jobs/{number}"),
        name=name,
        recipe=recipe,
        tasks=[task(Status.DONE)],
        history=[(Status.INIT, 1e9 + number % 3)],
        summary=Summary(record_bytes=size),
    )


def model(
    number: int,
    name: str,
    parent: Job,
    *,
    group: str = "",
    accuracy: float | None = None,
    status: Status = Status.DONE,
    seconds: float = 0.0,
) -> ModelJob:
    job = ModelJob(
        id=f"20260101-000000-{number:06x}",
        folder=Path(f"/jobs/{number}"),
        name=name,
        group=group,
        recipe=Train(dataset=str(parent.folder)),
        dataset_id=parent.id,
        tasks=[task(status, seconds)],
        history=[(Status.INIT, 1e9 + number % 3)],
        summary=Summary(last_accuracy=accuracy),
    )
    job.update_status()
    return job


class Index:
    """An index and its jobs in order of creation."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.index = JobIndex(self.refs)

    def refs(self, job: Job) -> int:
        return sum(job.id in other.needs() for other in self.jobs)

    def add(self, job: Job) -> None:
        self.jobs.append(job)
        self.index.add(job)
        self._update_parents(job)

    def remove(self, job: Job) -> None:
        self.jobs.remove(job)
        self.index.remove(job)
        self._update_parents(job)

    def _update_parents(self, job: Job) -> None:
        for other in self.jobs:
            if other.id in job.needs():
                self.index.update(other)

    def in_order(self, sort: str, direction: str) -> list[Job]:
        """Return the models in an order computed from scratch."""
        newest_first = [job for job in reversed(self.jobs) if isinstance(job, ModelJob)]
        if sort not in COLUMNS:
            return newest_first
        datasets = {job.id: job for job in self.jobs}
        known = {
            job.id: COLUMNS[sort].value(job, self.refs(job), datasets.get(job.dataset_id))
            for job in newest_first
        }
        ranked = [job for job in newest_first if known[job.id] is not None]
        ranked.sort(key=lambda job: known[job.id], reverse=direction == "desc")
        return ranked + [job for job in newest_first if known[job.id] is None]


def names(jobs: list[ModelJob]) -> list[str]:
    return [job.name for job in jobs]


class Changes(RuleBasedStateMachine):
    """After any sequence of changes, the index returns the same results as a newly built one."""

    def __init__(self) -> None:
        super().__init__()
        self.index = Index()
        self.count = 0
        self.parents = [self.new_dataset("Birds"), self.new_dataset("fish")]

    def new_dataset(self, name: str) -> DatasetJob:
        job = dataset(self.number(), name)
        self.index.add(job)
        return job

    def number(self) -> int:
        self.count += 1
        return self.count

    def models(self) -> list[ModelJob]:
        return [job for job in self.index.jobs if isinstance(job, ModelJob)]

    @rule(
        name=NAMES,
        group=NAMES,
        accuracy=ACCURACIES,
        status=st.sampled_from([Status.INIT, Status.RUN, Status.DONE, Status.ABORT]),
        seconds=st.sampled_from([0.0, 1.0, 2.0]),
        parent=st.integers(0, 1),
    )
    def add(
        self, name: str, group: str, accuracy: float | None, status: Status, seconds: float, parent: int
    ) -> None:
        self.index.add(
            model(
                self.number(),
                name,
                self.parents[parent],
                group=group,
                accuracy=accuracy,
                status=status,
                seconds=seconds,
            )
        )

    @rule(data=st.data(), name=NAMES, group=NAMES, accuracy=ACCURACIES)
    def change(self, data: st.DataObject, name: str, group: str, accuracy: float | None) -> None:
        if models := self.models():
            job = data.draw(st.sampled_from(models))
            job.name, job.group, job.summary.last_accuracy = name, group, accuracy
            self.index.index.update(job)

    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        if running := [job for job in self.models() if job.status.is_running]:
            job = data.draw(st.sampled_from(running))
            job.tasks[0].move(Status.ABORT)
            job.update_status()
            self.index.index.update(job)

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        if models := self.models():
            self.index.remove(data.draw(st.sampled_from(models)))

    @rule(name=NAMES, parent=st.integers(0, 1))
    def rename_dataset(self, name: str, parent: int) -> None:
        self.parents[parent].name = name
        self.index.index.update(self.parents[parent])

    @invariant()
    def orders_are_right(self) -> None:
        for sort in ("", *(name for name in COLUMNS if name != "elapsed")):
            for direction in DIRECTIONS:
                found = self.index.index.select(ModelJob, sort=sort, direction=direction)
                assert found == self.index.in_order(sort, direction), (sort, direction)

    @invariant()
    def searches_are_right(self) -> None:
        for words in ("a", "strasse", "birds", "running", "A straße"):
            wanted = [
                job
                for job in self.index.in_order("", "asc")
                if all(word in self.texts(job) for word in words.lower().replace("ß", "ss").split())
            ]
            assert self.index.index.select(ModelJob, words) == wanted, words

    def texts(self, job: Job) -> str:
        parent = next(parent for parent in self.parents if parent.id in job.needs())
        shown = "\n".join((job.name, job.group, job.status.label, parent.name))
        return shown.lower().replace("ß", "ss")

    @invariant()
    def jobs_that_run_are_known(self) -> None:
        newest_first = self.index.in_order("", "asc")
        running = [job for job in newest_first if job.status.is_running]
        assert self.index.index.select(ModelJob, running=True) == running
        ended = [job for job in newest_first if not job.status.is_running]
        assert self.index.index.select(ModelJob, running=False) == ended

    @invariant()
    def jobs_are_known_by_kind_and_by_the_time_of_their_last_change(self) -> None:
        datasets = [job for job in reversed(self.index.jobs) if isinstance(job, DatasetJob)]
        assert [*self.index.index.newest(DatasetJob, "image-classification")] == datasets
        assert [*self.index.index.newest(DatasetJob, "image-regression")] == []
        for since in (0.0, 1e9 + 1, 2e9):
            changed = {job.id for job in self.index.jobs if job.history and job.history[-1][1] >= since}
            found = [*self.index.index.changed_since(since)][::-1]
            assert {job.id for job in found} == changed and len(found) == len(changed)
            assert [job.history[-1][1] for job in found] == sorted(job.history[-1][1] for job in found)

    @invariant()
    def groups_are_those_of_jobs(self) -> None:
        groups = self.index.index.groups("", 100)
        assert sorted(groups) == sorted({job.group for job in self.index.jobs} - {""})


TestChanges = Changes.TestCase
TestChanges.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)


@settings(deadline=None)
@given(st.lists(st.floats(0, 10), min_size=1, max_size=20))
def test_the_longest_training_comes_first(seconds: list[float]) -> None:
    index = Index()
    parent = dataset(0, "birds")
    for number, length in enumerate(seconds, 1):
        index.add(model(number, f"{number}", parent, seconds=length))
    found = [job.elapsed for job in index.index.select(ModelJob, sort="elapsed", direction="desc")]
    assert found == sorted(seconds, reverse=True)


def test_datasets_are_sorted_by_their_size_and_the_number_of_their_models() -> None:
    index = Index()
    small, large, unfinished = dataset(1, "small", 10), dataset(2, "large", 10**9), dataset(3, "unfinished")
    for job in (
        small,
        large,
        unfinished,
        model(4, "net", small),
        model(5, "net", small),
        model(6, "net", large),
    ):
        index.add(job)
    assert index.index.select(DatasetJob, sort="bytes", direction="asc") == [small, large, unfinished]
    assert index.index.select(DatasetJob, sort="refs", direction="desc") == [small, large, unfinished]


def test_groups_are_found_by_words_in_any_case() -> None:
    index = Index()
    parent = dataset(0, "birds")
    for number, group in enumerate(["Rainy days", "sunny days", "Rainy nights"], 1):
        index.add(model(number, "net", parent, group=group))
    assert index.index.groups("rainy", 5) == ["Rainy days", "Rainy nights"]
    assert index.index.groups("DAYS s", 5) == ["Rainy days", "sunny days"]
    assert index.index.groups("", 1) == ["Rainy days"]


def test_a_removed_job_is_not_found_even_if_it_changes_later() -> None:
    index = Index()
    job = model(1, "net", dataset(0, "birds"))
    index.add(job)
    index.remove(job)
    index.index.update(job)
    assert index.index.select(ModelJob) == []


def version(number: int, parent: int) -> DatasetJob:
    job = dataset(number, f"version {number}")
    job.recipe = CreateVersion(
        kind=job.recipe.kind, parent=f"/jobs/{parent}", parent_id=dataset(parent, "").id
    )
    return job


def test_a_family_is_a_dataset_with_all_its_versions() -> None:
    index = Index()
    first, others = dataset(0, "birds"), [version(1, 0), version(2, 1), version(3, 0)]
    for job in (first, *others, dataset(4, "fish"), version(5, 4), model(6, "net", first)):
        index.add(job)
    family = {job.id for job in (first, *others)}
    assert all({found.id for found in index.index.family(job)} == family for job in (first, *others))
    # Versions remain without the datasets that they were made from, and still belong together.
    index.remove(first)
    assert {found.id for found in index.index.family(others[2])} == family - {first.id}


def test_versions_of_each_other_are_a_family() -> None:
    index = Index()
    pair = [version(1, 2), version(2, 1)]
    for job in pair:
        index.add(job)
    assert all(len(index.index.family(job)) == 2 for job in pair)
