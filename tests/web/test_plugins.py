"""Refused plugins and prediction views on pages, each in a site that runs in a fresh interpreter."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.kinds.installed_plugins import (
    OLD_DATA_PLUGIN,
    OLD_VIEW_PLUGIN,
    install,
    install_kind,
)
from tests.site import open_site

pytestmark = pytest.mark.integration

# Request pages of a site that is not started, and print status codes and texts.
PROGRAM = """
from digits.cli.main import patch_standard_library; patch_standard_library()
import json, sys
from pathlib import Path
from digits.web.app import create_app
from tests.site import site_settings

client = create_app(site_settings(Path(sys.argv[1])), start=False).test_client()
answers = {path: client.get(path) for path in sys.argv[2:]}
print(json.dumps({path: [answer.status_code, answer.text] for path, answer in answers.items()}))
"""


@pytest.fixture
def pages(run_clean: Callable[..., Any], tmp_path: Path) -> Callable[..., dict[str, tuple[int, str]]]:
    """Return a function that requests pages of a site with the packages in ``tmp_path / "installed"``."""

    def get(*paths: str) -> dict[str, tuple[int, str]]:
        done = run_clean("-c", PROGRAM, str(tmp_path), *paths, PYTHONPATH=f"{tmp_path / 'installed'}:{ROOT}")
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout.splitlines()[-1]), log=(0, done.stderr))

    return get


def test_refused_plugins_are_shown_and_logged(pages, tmp_path):
    folder = tmp_path / "installed"
    install(folder, "old_text", OLD_DATA_PLUGIN, target="DataIngestion")
    install(folder, "old_boxes", OLD_VIEW_PLUGIN, "digits.plugins.view", "Visualization")
    answers = pages("/", "/index.json")
    for name in ("old_text (old_text:DataIngestion)", "old_boxes (old_boxes:Visualization)"):
        assert name in answers["/"][1]
        assert f"The plugin {name} was not loaded. It was written for" in answers["log"][1]
    listed = json.loads(answers["/index.json"][1])["refused_plugins"]
    assert [set(item) for item in listed] == [{"plugin", "reason", "hint"}] * 2


@pytest.mark.parametrize(
    "module",
    [
        "recipe",
        "form",
        *(pytest.param(name, marks=pytest.mark.nightly) for name in ("__init__", "reader", "views")),
    ],
)
def test_a_kind_that_loads_tensorflow_into_the_server_is_refused(pages, tmp_path, module):
    package = install_kind(tmp_path / "installed", "heavy", "image-heavy", "images/heavy")
    with open(package / f"{module}.py", "a") as file:
        file.write("\nfrom tensorflow import keras\n")
    notice = "cannot be imported: ImportError: tensorflow: the server does not load it"
    assert notice in pages("/")["/"][1]


def test_a_kind_with_a_broken_module_does_not_break_the_pages(pages, tmp_path):
    package = install_kind(tmp_path / "installed", "broken", "image-broken", "images/broken")
    (package / "views.py").write_text("import not_installed_here")
    paths = ("/", "/datasets/images/classification/new", "/models/images/classification/new")
    answers = pages(*paths, "/datasets/images/broken/new")
    assert [answers[path][0] for path in paths] == [200] * 3
    assert "not_installed_here" in answers["/"][1]
    assert answers["/datasets/images/broken/new"][0] == 404


def test_a_dataset_of_an_uninstalled_plugin_shows_the_reason(settings):
    site = open_site(settings)
    dataset_id = site.dataset()
    site.wait_for_end(dataset_id)
    model_id = site.finished_model(dataset_id)
    site.close()
    path = settings.jobs_dir / dataset_id / "job.json"
    path.write_text(path.read_text().replace('"image-classification"', '"image-poetry"'))
    site = open_site(settings)
    try:
        assert (
            "the plugin that provides it is not installed"
            in site.get(f"/jobs/{dataset_id}", follow_redirects=True).text
        )
        for page in ("/", "/index.json", f"/models/{model_id}", "/models/images/classification/new"):
            assert site.get(page).status_code == 200, page
        assert "image-poetry" in path.read_text()
    finally:
        site.close()
