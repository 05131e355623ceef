"""What a page costs does not depend on the number of jobs that it does not show."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import digits
from digits.core.model_job import ModelJob
from digits.runtime import offload
from tests.finished_jobs import write_jobs
from tests.site import Site, open_idle_site, site_settings

pytestmark = pytest.mark.integration

MODELS = (
    "/models/{model}",
    "/models/{model}.json",
    "/models/images/classification/new",
)
DATASETS = ("/datasets/{dataset}", "/datasets/{dataset}.json", "/projects/{dataset}")
PROGRAM = str(Path(digits.__file__).parent)
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
    """Return the number of functions of the program that a request calls again.

    On a busy machine, it waits for more turns, which do not count, and renders rows again whose age has changed: the
    least of three requests counts.
    """
    newest = site.services.store.index.select(ModelJob)[0]
    address = path.format(model=newest.id, dataset=newest.dataset_id)
    assert site.get(address).status_code == 200
    counts: list[int] = []

    def profile(frame: Any, event: str, argument: Any) -> None:
        name = frame.f_code.co_filename
        counts[-1] += event == "call" and name.startswith(PROGRAM) and name != offload.__file__

    for _ in range(3):
        counts.append(0)
        sys.setprofile(profile)
        try:
            site.get(address)
        finally:
            sys.setprofile(None)
    return min(counts)


@pytest.mark.parametrize("path", MODELS + DATASETS + LISTS)
def test_pages_do_not_examine_all_jobs(sites: list[Site], path: str) -> None:
    few, many = (calls(site, path) for site in sites)
    assert many < few + 200, (few, many)
