"""The job lists on the home page: search and sorting."""

from __future__ import annotations

import re
from typing import TypeVar

import pytest

from digits.core.job import Job, Summary
from digits.core.model_job import ModelJob
from digits.core.recipe import Train
from digits.core.status import Status
from digits.core.task import Task
from digits.kinds.classification.recipe import CreateClassification, FolderSplit
from digits.kinds.jobs import DatasetJob
from digits.kinds.regression.recipe import CreateRegression
from tests.site import Site

pytestmark = pytest.mark.integration

AnyJob = TypeVar("AnyJob", bound=Job)


def names(site: Site, query: str) -> list[str]:
    """Return the names of jobs on the home page from top to bottom: models, then datasets."""
    page = site.get(f"/?{query}", headers={"X-Fragment": "jobs"}).text
    ids = re.findall(r'<tr id="row-([^"]+)"', page)
    return [site.services.store.get(job_id, Job).name for job_id in ids]


def dataset(site: Site, name: str = "bars", group: str = "") -> DatasetJob:
    """Add an aborted dataset."""
    folder = site.services.store.new_folder()
    recipe = CreateClassification(train=FolderSplit(folder="/data"))
    return add(
        site,
        DatasetJob(id=folder.name, folder=folder, name=name, group=group, recipe=recipe, tasks=[aborted()]),
    )


def model(
    site: Site, parent: DatasetJob, name: str, accuracy: float | None = None, **values: float
) -> ModelJob:
    """Add an aborted model with the latest ``values`` of its metrics."""
    folder = site.services.store.new_folder()
    return add(
        site,
        ModelJob(
            id=folder.name,
            folder=folder,
            name=name,
            recipe=Train(dataset=str(parent.folder)),
            dataset_id=parent.id,
            tasks=[aborted()],
            summary=Summary(last_accuracy=accuracy, last_values=values),
        ),
    )


def aborted() -> Task:
    task = Task(name="task", title="Task")
    task.move(Status.ABORT)
    return task


def add(site: Site, job: AnyJob) -> AnyJob:
    job.update_status()
    site.services.store.add(job)
    return job


def test_a_search_matches_names_datasets_groups_and_status(site: Site) -> None:
    birds = dataset(site, "Birds", "Straße")
    model(site, birds, "lenet")
    model(site, dataset(site, "Fish"), "alexnet")
    assert names(site, "q=bird") == ["lenet", "Birds"]
    assert names(site, "q=lenet+birds") == ["lenet"]
    assert names(site, "q=STRASSE") == ["Birds"]
    assert names(site, "q=aborted+fish") == ["alexnet", "Fish"]


def test_a_search_does_not_match_ids(site: Site) -> None:
    date, _, random = dataset(site, "Birds").id.split("-")
    assert names(site, f"q={date}") == names(site, f"q={random}") == []


def test_the_best_accuracy_is_first_and_missing_ones_are_last(site: Site) -> None:
    parent = dataset(site)
    accuracies = {"middle": 50.0, "none": None, "worst": 0.0, "best": 99.5}
    for name, accuracy in accuracies.items():
        model(site, parent, name, accuracy)
    known = ["best", "middle", "worst"]
    assert names(site, "sort=last_accuracy")[:3] == known
    assert names(site, "sort=last_accuracy&dir=asc")[:3] == known[::-1]
    assert names(site, "sort=nothing")[:4] == list(accuracies)[::-1]


def test_models_of_other_kinds_show_and_are_sorted_by_their_own_metric(site: Site) -> None:
    parent = dataset(site)
    parent.recipe = CreateRegression(table="/data/levels.csv", folder="/data")
    model(site, parent, "middle", loss=0.5, mae=12.5, r2=0.5)
    model(site, parent, "best", loss=0.25, mae=6.0, r2=0.931)
    model(site, parent, "encoder", loss=0.125)
    model(site, parent, "new")
    assert names(site, "sort=last_accuracy")[:4] == ["best", "middle", "encoder", "new"]
    assert names(site, "sort=last_accuracy&dir=asc")[:4] == ["encoder", "middle", "best", "new"]
    page = site.get("/").text
    assert "R² 0.931" in page and "R² 0.5" in page and "loss 0.125" in page


@pytest.mark.parametrize(
    ("key", "first", "second"),
    [("last_accuracy", "desc", "asc"), ("submitted", "desc", "asc"), ("name", "asc", "desc")],
)
def test_a_column_header_sorts_in_its_natural_order_then_reverses(
    site: Site, key: str, first: str, second: str
) -> None:
    model(site, dataset(site), "lenet")
    page = site.get("/?q=e&sort=status").text
    assert f"/?q=e&amp;sort={key}&amp;dir={first}" in page
    page = site.get(f"/?q=e&sort={key}").text
    assert f"/?q=e&amp;sort={key}&amp;dir={second}" in page


def test_a_truncated_list_shows_the_total(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("digits.web.home.PAGE_ROWS", 2)
    for _ in range(3):
        dataset(site)
    assert "first 2 of 3 datasets" in site.get("/").text
