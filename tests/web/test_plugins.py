"""Refused plugins on pages, in a site that runs in a fresh interpreter."""

from __future__ import annotations

import html
import json
import os
import subprocess
import sys

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


PAGES = ("/", "/index.json", "/datasets/images/classification/new", "/models/images/classification/new")
# Modules of a kind that load TensorFlow into the server.
HEAVY = ("__init__", "form", "reader", "recipe", "views")


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str]]:
    """The responses of a site with a package for each reason to refuse one, and its log."""
    folder = tmp_path_factory.mktemp("plugins")
    installed = folder / "installed"
    install(installed, "old_text", OLD_DATA_PLUGIN, target="DataIngestion")
    install(installed, "old_boxes", OLD_VIEW_PLUGIN, "digits.plugins.view", "Visualization")
    for module in HEAVY:
        short = module.strip("_")
        package = install_kind(installed, f"heavy_{short}", f"image-{short}", f"images/{short}")
        with open(package / f"{module}.py", "a") as file:
            file.write("\nfrom tensorflow import keras\n")
    package = install_kind(installed, "broken", "image-broken", "images/broken")
    (package / "views.py").write_text("import not_installed_here")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DIGITS_")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder), *PAGES, "/datasets/images/broken/new"],
        env=environment | {"PYTHONPATH": f"{installed}:{ROOT}"},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]), log=(0, done.stderr))


def refused(answers: dict[str, tuple[int, str]]) -> list[dict[str, str]]:
    listed: list[dict[str, str]] = json.loads(answers["/index.json"][1])["refused_plugins"]
    return listed


def test_refused_plugins_are_shown_and_logged(answers):
    for name in ("old_text (old_text:DataIngestion)", "old_boxes (old_boxes:Visualization)"):
        assert name in answers["/"][1]
        assert f"The plugin {name} was not loaded. It was written for" in answers["log"][1]
    assert all(set(item) == {"plugin", "reason", "hint"} for item in refused(answers))


@pytest.mark.parametrize("module", HEAVY)
def test_a_kind_that_loads_tensorflow_into_the_server_is_refused(answers, module):
    package = f"heavy_{module.strip('_')}"
    (reason,) = (item["reason"] for item in refused(answers) if package in item["plugin"])
    assert "cannot be imported: ImportError: tensorflow: the server does not load it" in reason
    assert reason in html.unescape(answers["/"][1])


def test_a_kind_with_a_broken_module_does_not_break_the_pages(answers):
    assert [answers[path][0] for path in PAGES] == [200] * len(PAGES)
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
