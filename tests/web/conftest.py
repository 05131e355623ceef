"""Finished jobs in a site that all tests of a module share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.shared_executor import SharedExecutor
from tests.site import Site
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
