"""What a script for DIGITS 6 sends and receives: a site, and a dataset and a model that such a script created."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.shared_executor import SharedExecutor
from tests.site import Site, open_site, site_settings
from tests.web.digits6.script import Script, class_folders


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, executor: SharedExecutor) -> Iterator[Site]:
    opened = open_site(site_settings(tmp_path_factory.mktemp("digits6")), executor)
    class_folders(opened.data / "colors")
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def script(site: Site) -> Script:
    return Script(site)


@pytest.fixture(scope="module")
def dataset(script: Script) -> str:
    """A finished dataset for classification with validation images."""
    return script.finish(script.dataset())


@pytest.fixture(scope="module")
def model(script: Script, dataset: str) -> str:
    """A linear classifier trained for one epoch on `dataset`."""
    return script.finish(script.model(dataset))
