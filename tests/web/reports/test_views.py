"""Reports of models over HTTP: the page, the file and the JSON, also of models with missing parts."""

from __future__ import annotations

import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from digits.core.model_job import ModelJob
from digits.kinds.jobs import DatasetJob
from tests import leftovers
from tests.real_server import RealServer
from tests.site import Site
from tests.web.trained import shared_site, train

pytestmark = [pytest.mark.integration, pytest.mark.tensorflow]
site = shared_site

LINEAR = """class UserModel(Tower):
    @model_property
    def inference(self):
        flat = tf.reshape(self.x, [-1, 16 * 16 * 3]) / 255.0
        return slim.fully_connected(flat, self.nclasses, activation_fn=None, scope='out')  # <&> “quoted”

    @model_property
    def loss(self):
        return digits.classification_loss(self.inference, self.y)
"""
NAME = "Bars & <b>stripes</b> “日本”"


@pytest.fixture(scope="module")
def model(site: Site, dataset: str) -> str:
    """A trained and evaluated model."""
    job_id = train(site, dataset, LINEAR, model_name=NAME, train_epochs=2, random_seed=7, aug_flip="fliplr")
    site.evaluate(job_id)
    return job_id


class References(HTMLParser):
    """Collects what a page loads or links to."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.found += [value or "" for name, value in attributes if name in ("src", "href", "action")]


def text_of(page: str) -> str:
    return re.sub(r"<[^>]*>", " ", page)


def test_the_report_shows_settings_curves_evaluation_and_environment(
    site: Site, dataset: str, model: str
) -> None:
    page = site.report(model)
    manifest = site.services.store.get(dataset, DatasetJob).manifest()
    assert manifest
    report = site.json(f"/models/{model}/report.json")
    assert report["name"] == NAME and report["environment"]["Dataset hash"] == manifest.content_hash
    assert report["settings"]["Batch size"] == "6" and report["settings"]["Augmentation"] == "horizontal flip"
    assert report["environment"]["Seed"] == "7" and report["environment"]["Device"] == "CPU"
    assert report["environment"]["TensorFlow"].startswith("2.")
    (found,) = site.json(f"/models/{model}/evaluation.json")["evaluations"]
    assert report["evaluation"]["metrics"] == found["metrics"]
    wrong = found["records"] - sum(row[place] for place, row in enumerate(found["confusion_matrix"]))
    assert len(report["worst"]) == page.count("data:image/jpeg;base64,") == wrong
    accuracy = f"Accuracy {100 * found['metrics']['accuracy']:.2f}% on {found['records']} validation images (95% interval"
    assert accuracy in page[: page.index("Confusion matrix")]
    for words in (
        "Bars &amp; &lt;b&gt;stripes",
        "Confusion matrix",
        "Loss",
        "Accuracy",
        manifest.content_hash,
    ):
        assert words in page
    # As on the page of the model, validation is dashed.
    legend = dict(re.findall(r"<path ([^>]*)/></svg>(loss \(\w+\))", page))
    assert {name: "dasharray" in style for style, name in legend.items()} == {
        "loss (training)": False,
        "loss (validation)": True,
    }
    assert "# &lt;&amp;&gt;" in page
    rows = re.findall(r'<tr><th scope="row"><bdi>(left|middle|right)</bdi></th>(.*?)</tr>', page)
    matrix = [re.findall(r"<bdi>(\d*)</bdi>", cells) for _, cells in rows[:3]]
    assert [[int(cell or 0) for cell in row[:3]] for row in matrix] == found["confusion_matrix"]


def test_the_downloaded_page_needs_no_other_file(site: Site, model: str) -> None:
    response = site.get(f"/models/{model}/report?download=1")
    assert re.fullmatch(
        r'attachment; filename="[A-Za-z0-9._-]+-report\.html"', response.headers["Content-Disposition"]
    )
    parser = References()
    parser.feed(response.text)
    assert all(address.startswith("data:image/") for address in parser.found)
    assert not parser.tags & {"script", "link", "iframe", "object"}
    assert "url(" not in response.text and "@import" not in response.text


def test_the_pages_of_the_model_and_of_the_evaluation_link_to_the_report(site: Site, model: str) -> None:
    assert f'href="/models/{model}/report"' in site.get(f"/models/{model}").text
    assert f'href="/models/{model}/report?name=' in site.get(f"/models/{model}/evaluation").text


def every_form(site: Site, model: str) -> tuple[str, Any]:
    """Return the words of the page of a report, and its JSON."""
    return text_of(site.report(model)), site.json(f"/models/{model}/report.json")


def test_a_model_without_an_evaluation(site: Site, dataset: str) -> None:
    page, report = every_form(site, site.finished_model(dataset))
    assert "The model has not been evaluated." in page and "Learning rate" in page
    assert report["evaluation"] is None and report["worst"] == []


def test_a_model_that_has_not_been_trained(site: Site, dataset: str) -> None:
    model = site.finished_model(dataset, rows=0)
    folder = site.services.store.get(model, ModelJob).folder
    for path in [*folder.glob("snapshot_*"), folder / "network.py"]:
        path.unlink()
    page, report = every_form(site, model)
    assert "The network cannot be shown" in page and "Dataset hash" in report["environment"]


def test_a_deleted_dataset(site: Site, model: str) -> None:
    job = site.services.store.get(model, ModelJob)
    original = job.dataset_id
    job.dataset_id = "20200101-000000-dead"
    try:
        page, report = every_form(site, model)
    finally:
        job.dataset_id = original
    assert report["facts"]["Dataset"] == "Deleted (20200101-000000-dead)"
    assert "Evaluation" in page and "Settings" in page


def test_an_evaluation_of_a_dataset_that_changed(
    site: Site, dataset: str, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DatasetJob, "manifest", lambda job: None)
    page, report = every_form(site, model)
    assert "was deleted or changed" in page and "Confusion matrix" not in page
    assert report["worst"] == [] and report["evaluation"]["metrics"]["accuracy"] is not None


@pytest.mark.parametrize("ending", ["", ".json"])
def test_an_unknown_evaluation_or_model(site: Site, model: str, ending: str) -> None:
    for path in (f"/models/{model}/report{ending}?name=other", f"/models/none/report{ending}"):
        assert site.get(path).status_code == 404


def test_reports_and_pages_leave_no_descriptors_in_the_server(site: Site, model: str, tmp_path: Path) -> None:
    shutil.copytree(site.services.store.folder, tmp_path / "jobs")
    (tmp_path / "data").mkdir()
    server = RealServer(tmp_path, "--no-standby")
    try:
        paths = [f"/models/{model}{path}" for path in ("/report", "", "/evaluation")]
        for path in paths:
            server.read(path)
        before = leftovers.open_files(process=server.process.pid)
        for path in paths * 10:
            server.read(path)
        after = leftovers.open_files(process=server.process.pid)
    finally:
        server.stop()
    assert len(after) <= len(before) + 2, (before, after)
