"""The job lists on the home page: search and sorting."""

from __future__ import annotations

import html
import re
from typing import TypeVar

import pytest

from digits.core.job import DeviceRequest, Job, Summary
from digits.core.model_job import ModelJob
from digits.core.recipe import Train
from digits.core.status import Status
from digits.core.task import Task
from digits.kinds.classification.recipe import CreateClassification, FolderSplit
from digits.kinds.classification.views import Views as ClassificationViews
from digits.kinds.jobs import DatasetJob
from digits.kinds.regression.recipe import CreateRegression
from digits.kinds.regression.views import Views as RegressionViews
from digits.kinds.views import Metric
from digits.runtime.executors.executor import Placement
from tests.site import Site
from tests.web.trained import Finished

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
        DatasetJob(
            id=folder.name, folder=folder, name=name, group=group, recipe=recipe, tasks=[ended(Status.ABORT)]
        ),
    )


def model(
    site: Site, parent: DatasetJob, name: str, accuracy: float | None = None, **values: float
) -> ModelJob:
    """Add a finished model with the latest ``values`` of its metrics."""
    folder = site.services.store.new_folder()
    return add(
        site,
        ModelJob(
            id=folder.name,
            folder=folder,
            name=name,
            recipe=Train(dataset=str(parent.folder)),
            dataset_id=parent.id,
            tasks=[ended(Status.DONE)],
            summary=Summary(last_accuracy=accuracy, last_values=values),
        ),
    )


def ended(status: Status) -> Task:
    task = Task(name="task", title="Task")
    task.move(Status.RUN)
    task.move(status)
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
    assert names(site, "q=aborted+fish") == ["Fish"] and names(site, "q=done+fish") == ["alexnet"]


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


def test_a_row_names_its_metric_and_its_dataset_once(site: Site) -> None:
    parent = dataset(site)
    model(site, parent, "LeNet on bars", 93.25)
    for end in (Status.ERROR, Status.ABORT):
        unfinished = model(site, parent, f"{end.title} on bars", 13.9)
        unfinished.tasks = [ended(end)]
        unfinished.update_status()
    assert "on <bdi>bars</bdi>" not in (page := site.get("/").text)
    assert "Accuracy 93.2%" in page and "13.9" not in page
    model(site, parent, "crowbars")
    assert site.get("/").text.count("on <bdi>bars</bdi>") == 1


def test_a_dataset_and_its_models_show_its_picture_and_their_task(
    site: Site, finished: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = site.services.store.get(finished.dataset(site), DatasetJob)
    model(site, parent, "lenet")
    page = site.get("/").text
    first, second = re.findall(r'<img src="([^"]*)"', page)
    assert first == second and site.get(first).mimetype == "image/jpeg"
    assert page.count("Image classification</span>") == 2
    monkeypatch.setattr(ClassificationViews, "shows_images", False)
    assert "<img" not in site.get("/").text


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
    assert "R² 0.931" in page and "R² 0.5" in page and "Loss 0.125" in page


def test_a_metric_that_is_declared_to_be_better_lower_is_sorted_that_way(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RegressionViews, "metrics", (Metric("r2", "R²", best="lowest"),))
    parent = dataset(site)
    parent.recipe = CreateRegression(table="/data/levels.csv", folder="/data")
    model(site, parent, "high", r2=0.9)
    model(site, parent, "low", r2=0.1)
    assert names(site, "sort=last_accuracy")[:2] == ["low", "high"]
    assert names(site, "sort=last_accuracy&dir=asc")[:2] == ["high", "low"]


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


def names_of_models(page: str) -> list[str]:
    """Return the names in the table of models."""
    table = re.search(r'id="models-table".*?</table>', page, re.DOTALL)
    return re.findall(r'class="job-link".*?<bdi[^>]*>([^<]*)</bdi>', table[0], re.DOTALL) if table else []


def link(page: str, element: str) -> str | None:
    """Return the URL of the link with this id."""
    found = re.search(rf'id="{element}" href="([^"]*)"', page)
    return html.unescape(found[1]) if found else None


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("digits.web.pages.home.PAGE_ROWS", 3)


@pytest.mark.usefixtures("small_pages")
def test_the_links_to_next_pages_lead_through_all_jobs_in_order(site: Site) -> None:
    parent = dataset(site)
    for number in range(10):
        # Some accuracies are equal, so that they do not determine the order alone.
        model(site, parent, f"net {number}", float(number // 4))
    model(site, parent, "other")
    found: list[str] = []
    ranges = []
    address: str | None = "/?q=net&sort=last_accuracy&dir=desc"
    while address:
        page = site.get(address).text
        found += names_of_models(page)
        ranges += re.findall(r'id="models-range">([^<]*)<', page)
        address = link(page, "models-page-next")
    assert found == [f"net {number}" for number in (9, 8, 7, 6, 5, 4, 3, 2, 1, 0)]
    assert ranges == ["1–3 of 10", "4–6 of 10", "7–9 of 10", "10–10 of 10"]


@pytest.mark.usefixtures("small_pages")
def test_a_refresh_keeps_the_page(site: Site) -> None:
    parent = dataset(site)
    for number in range(7):
        model(site, parent, f"net {number}")
    address = link(site.get("/").text, "models-page-2")
    assert address is not None
    refreshed = site.get(address, headers={"X-Fragment": "jobs"}).text
    assert "<html" not in refreshed
    assert names_of_models(refreshed) == ["net 3", "net 2", "net 1"]
    assert 'id="models-page-2"' in refreshed and 'aria-current="page"' in refreshed


@pytest.mark.usefixtures("small_pages")
def test_models_and_datasets_are_paginated_separately(site: Site) -> None:
    parents = [dataset(site, f"birds {number}") for number in range(4)]
    for number in range(4):
        model(site, parents[0], f"net {number}")
    first = site.get("/").text
    second = site.get(link(first, "models-page-next") or "").text
    assert names_of_models(second) == ["net 0"]
    assert "birds 3" in second and "1–3 of 4" in second
    both = site.get(link(second, "datasets-page-next") or "").text
    assert names_of_models(both) == ["net 0"]
    assert link(both, f"datasets-page-{2}") == link(second, "datasets-page-next")
    assert "birds 3" not in both


@pytest.mark.usefixtures("small_pages")
def test_a_page_that_no_longer_exists_shows_the_last_one(site: Site) -> None:
    parent = dataset(site)
    jobs = [model(site, parent, f"net {number}") for number in range(4)]
    assert names_of_models(site.get("/?models_page=2").text) == ["net 0"]
    site.client.delete(f"/models/{jobs[0].id}")
    assert names_of_models(site.get("/?models_page=2").text) == ["net 3", "net 2", "net 1"]
    assert names_of_models(site.get("/?models_page=0").text) == ["net 3", "net 2", "net 1"]


def test_a_short_list_has_no_pages(site: Site) -> None:
    model(site, dataset(site), "net")
    page = site.get("/").text
    assert "models-range" not in page and "pager" not in page


def test_a_renamed_job_is_found_by_its_new_name_and_group_only(site: Site) -> None:
    parent = dataset(site, "Birds")
    job = model(site, parent, "first")
    site.client.put(f"/jobs/{job.id}", data={"job_name": "second", "group_name": "rainy"})
    site.client.put(f"/jobs/{parent.id}", data={"job_name": "Fish"})
    assert names(site, "q=first") == names(site, "q=birds") == []
    assert names(site, "q=second") == names(site, "q=rainy") == ["second"]
    assert names(site, "q=fish") == ["second", "Fish"]


def test_a_finished_dataset_is_found_by_its_status_and_sorted_by_its_size(site: Site) -> None:
    small = site.dataset(dataset_name="small", encoding="png")
    large = site.dataset(dataset_name="large", encoding="none", resize_width=64, resize_height=64)
    assert {site.wait_for_end(job_id) for job_id in (small, large)} == {"Done"}
    dataset(site, "never finished")
    assert names(site, "sort=bytes") == ["large", "small", "never finished"]
    assert names(site, "sort=bytes&dir=asc") == ["small", "large", "never finished"]
    assert names(site, "q=done") == ["large", "small"]


@pytest.mark.usefixtures("small_pages")
def test_waiting_jobs_are_listed_once_in_the_order_in_which_they_start(site: Site) -> None:
    # All of them wait while another dataset uses the only slot; then they run.
    ledger, other = site.services.executor.ledger, Placement(DeviceRequest("dataset"), ("cpu",))
    ledger.reserve(other)
    jobs = [site.dataset(dataset_name=f"birds {number}") for number in range(4)]
    page = site.get("/?sort=name&dir=desc").text
    assert re.findall(r'<li id="queue-([^"]+)"', page) == jobs[:3]
    assert 'id="running"' not in page and "No finished datasets yet" in page
    assert all(page.count(f'data-job="{job_id}"') == 1 for job_id in jobs[:3])
    assert f'data-url="/datasets/{jobs[0]}/abort"' in page
    rest = site.get(link(page, "queue-page-next") or "").text
    assert re.findall(r'<li id="queue-([^"]+)"', rest) == jobs[3:]
    # A search keeps the positions.
    assert 'aria-label="Position 3"' in (found := site.get("/?q=birds+2").text)
    assert re.findall(r'<li id="queue-([^"]+)"', found) == [jobs[2]]
    ledger.release(other)
    site.services.runner.wake()
    for job_id in jobs:
        site.wait_for_end(job_id)
    page = site.get("/").text
    assert 'id="running"' not in page and 'id="queue"' not in page
