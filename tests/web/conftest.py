"""Finished jobs in a site that all tests of a module share, and a site with a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from digits.core.settings import Settings
from tests.fake_cluster import FakeCluster
from tests.shared_executor import SharedExecutor
from tests.site import Site, open_site
from tests.web.trained import Finished


@pytest.fixture(scope="session")
def finished(run_folder: Path, executor: SharedExecutor) -> Finished:
    """Finished datasets and models, each made once per test run."""
    return Finished(run_folder, executor)


@pytest.fixture(scope="module")
def dataset(site: Site, finished: Finished) -> str:
    """A dataset of bars with 18 images for training and 6 for validation."""
    return finished.dataset(site)


@pytest.fixture(scope="module")
def model(site: Site, dataset: str, finished: Finished) -> str:
    """A linear classifier that has learned `dataset` in four epochs."""
    return finished.model(site, dataset, train_epochs=4)


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def cluster_site(settings: Settings, executor: SharedExecutor, cluster: FakeCluster) -> Iterator[Site]:
    """A complete site that offers ``cluster`` as Slurm."""
    opened = open_site(settings, executor, {"slurm": cluster})
    yield opened
    opened.close()
