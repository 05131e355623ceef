"""What a script for DIGITS 6 sends and receives: a site, and a dataset and a model that such a script created."""

from __future__ import annotations

import pytest

from tests.site import Site
from tests.web.digits6.script import Script, class_folders
from tests.web.trained import shared_site

site = shared_site


@pytest.fixture(scope="module")
def script(site: Site) -> Script:
    class_folders(site.data / "colors")
    return Script(site)


@pytest.fixture(scope="module")
def dataset(script: Script) -> str:
    """A finished dataset for classification with validation images."""
    return script.finish(script.dataset())


@pytest.fixture(scope="module")
def model(script: Script, dataset: str) -> str:
    """A linear classifier trained for one epoch on `dataset`."""
    return script.finish(script.model(dataset))
