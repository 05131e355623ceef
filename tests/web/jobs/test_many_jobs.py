"""What a page costs does not depend on the number of jobs that it does not show."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from digits.core.model_job import ModelJob
from tests.finished_jobs import write_jobs
from tests.site import Site, open_idle_site, site_settings

pytestmark = pytest.mark.integration

MODELS = (
    "/models/{model}",
    "/models/{model}.json",
    "/models/images/classification/new",
)
DATASETS = ("/datasets/{dataset}", "/datasets/{dataset}.json", "/projects/{dataset}")
LISTS = ("/", "/index.json", "/models.json", "/compute", "/compute.json")


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Site]]:
    """A site with more jobs than pages show, and one with many more."""
    opened = [open_with(tmp_path_factory.mktemp("site"), count) for count in (600, 1500)]
    yield opened
    for site in opened:
        site.services.stop()


def open_with(folder: Path, count: int) -> Site:
    settings = site_settings(folder)
    settings.data_roots[0].mkdir()
    settings.jobs_dir.mkdir(mode=0o700)
    write_jobs(settings.jobs_dir, datasets=count, models=count)
    site = open_idle_site(settings)
    site.services.store.load()
    return site


def calls(site: Site, path: str) -> int:
    """Return the number of functions that a request calls, the second time."""
    newest = site.services.store.index.select(ModelJob)[0]
    address = path.format(model=newest.id, dataset=newest.dataset_id)
    assert site.get(address).status_code == 200
    count = 0

    def profile(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(profile)
    try:
        site.get(address)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("path", MODELS + DATASETS + LISTS)
def test_pages_do_not_examine_all_jobs(sites: list[Site], path: str) -> None:
    few, many = (calls(site, path) for site in sites)
    assert many < few + 200, (few, many)
