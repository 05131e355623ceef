"""Lists of jobs as JSON: each response contains one page, and all pages together contain all jobs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from digits.core.job import Summary
from digits.core.model_job import ModelJob
from digits.core.recipe import Train
from digits.core.settings import Settings
from digits.core.status import Status
from digits.core.task import Task
from digits.kinds.classification.recipe import CreateClassification, FolderSplit
from digits.kinds.jobs import DatasetJob
from tests.shared_executor import SharedExecutor
from tests.site import Site, open_site

MODELS = 7
DATASETS = 3


def ended(*statuses: Status) -> list[Task]:
    task = Task(name="task", title="Task")
    for status in statuses:
        task.move(status)
    return [task]


@pytest.fixture
def site(settings: Settings, executor: SharedExecutor) -> Iterator[Site]:
    """A site of its own, because these tests count all jobs."""
    opened = open_site(settings, executor)
    yield opened
    opened.close()


@pytest.fixture
def full(site: Site) -> Site:
    """A site with aborted datasets, trained models, a damaged job, and a running dataset."""
    store = site.services.store
    recipe = CreateClassification(train=FolderSplit(folder="/data"))
    jobs: list[Any] = []
    for number in range(DATASETS):
        folder = store.new_folder()
        name = f"birds {number}"
        jobs.append(
            DatasetJob(id=folder.name, folder=folder, name=name, recipe=recipe, tasks=ended(Status.ABORT))
        )
    for number in range(MODELS):
        folder = store.new_folder()
        jobs.append(
            ModelJob(
                id=folder.name,
                folder=folder,
                name=f"net {number}",
                group="rainy" if number % 2 else "",
                recipe=Train(dataset=str(jobs[0].folder)),
                dataset_id=jobs[0].id,
                tasks=ended(Status.RUN, Status.DONE),
                summary=Summary(last_accuracy=float(number % 3)),
            )
        )
    for job in jobs:
        job.update_status()
        store.add(job)
    return site


def pages(site: Site, path: str) -> list[dict[str, Any]]:
    """Return the response and all responses reached by following ``next``."""
    found = [site.json(path)]
    while found[-1]["next"]:
        found.append(site.json(found[-1]["next"]))
    return found


def names(found: list[dict[str, Any]], key: str) -> list[str]:
    return [job["name"] for page in found for job in page[key]]


@pytest.mark.parametrize("path", ["/index.json", "/completed_jobs.json", "/models.json", "/datasets.json"])
def test_all_pages_together_are_the_sorted_list(full: Site, path: str) -> None:
    for query in ("", "&q=rainy", "&sort=last_accuracy&dir=asc", "&sort=name"):
        (whole,) = pages(full, f"{path}?per_page=200{query}")
        for size in (1, 2, 3, 7, 100):
            found = pages(full, f"{path}?per_page={size}{query}")
            for key, total in whole["totals"].items():
                assert names(found, key) == names([whole], key)
                assert len(whole[key]) == total
                assert all(len(page[key]) <= size for page in found)
                assert all(page["totals"] == whole["totals"] for page in found)
            assert [page["page"] for page in found] == list(range(1, len(found) + 1))


def test_search_and_sort_order_apply_to_all_jobs(full: Site) -> None:
    found = full.json("/models.json?q=rainy&sort=last_accuracy&per_page=2")
    # Among equal values, the newest comes first.
    assert names([found], "models") == ["net 5", "net 1"]
    assert found["totals"] == {"models": 3}
    assert names([full.json("/datasets.json?q=2")], "datasets") == ["birds 2"]


def test_unfinished_jobs_are_listed_separately(full: Site) -> None:
    job_id = full.dataset(dataset_name="new")
    found = full.json("/completed_jobs.json")
    assert names([found], "running") == ["new"]
    lists = {
        "running": 1,
        "datasets": DATASETS,
        "models": MODELS,
        "labels": 0,
        "damaged": 0,
        "pretrained_models": 0,
    }
    assert found["totals"] == lists
    full.wait_for_end(job_id)
    found = full.json("/completed_jobs.json")
    assert found["running"] == [] and names([found], "datasets")[0] == "new"


def test_a_page_after_the_last_one_is_empty(full: Site) -> None:
    found = full.json("/index.json?page=1000&per_page=5")
    assert (found["models"], found["datasets"], found["next"]) == ([], [], None)
    assert found["totals"]["models"] == MODELS


def test_a_response_without_arguments_has_limited_lists(full: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("digits.web.jobs.query.PER_PAGE", 2)
    monkeypatch.setattr("digits.web.jobs.query.MAX_PER_PAGE", 4)
    assert len(full.json("/index.json")["models"]) == 2
    found = full.json("/completed_jobs.json?per_page=1000")
    assert (len(found["models"]), found["per_page"]) == (4, 4)


def test_groups_are_suggested(full: Site) -> None:
    assert full.json("/autocomplete/group?query=RAI")["suggestions"] == ["rainy"]
    assert full.json("/autocomplete/group?query=sunny")["suggestions"] == []
