"""The example plugin in ``examples/tagging``, installed with pip and used over HTTP."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import urlopen

import numpy as np
import pytest
from PIL import Image

from tests.kinds.installed_plugins import install_view
from tests.real_server import RealServer

pytestmark = [pytest.mark.tensorflow, pytest.mark.integration, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
TAGS = ("left", "middle", "right")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the plugin as pip installs it, and with a second plugin that shows its predictions."""
    # The build leaves files in its source folder.
    folder = tmp_path_factory.mktemp("plugin")
    shutil.copytree(ROOT / "examples" / "tagging", folder / "source")
    options = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--target", folder / "site"]
    command = [sys.executable, "-m", "pip", "install", *map(str, options), str(folder / "source")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    install_view(
        folder / "site",
        "shouting",
        ("image-tagging",),
        "{% for tag, _ in predictions %}{{ tag|upper }}!{% endfor %}",
    )
    return folder / "site"


class Server(RealServer):
    """A server process with the plugin; ``data`` is the folder it may read."""

    def __init__(self, folder: Path, plugin: Path) -> None:
        self.data = folder / "data"
        self.data.mkdir()
        environment = {name: value for name, value in os.environ.items() if not name.startswith("DIGITS_")}
        super().__init__(folder, environment=environment | {"PYTHONPATH": f"{plugin}:{ROOT}"})

    def page(self, path: str) -> str:
        with urlopen(f"{self.address}{path}", timeout=30) as answer:
            return str(answer.read().decode())

    def post(self, path: str, **fields: Any) -> Any:
        """Submit a form and return the JSON response, which may be an error."""
        try:
            return self.ask(path, **fields)
        except HTTPError as error:
            with error:
                return json.load(error)

    def create(self, kind: str, **fields: Any) -> str:
        """Create a job of the plugin, and return its id when it is done."""
        job = str(self.post(f"/{kind}/images/tagging.json", **fields)["id"])
        self.wait(lambda: self.ask(f"/jobs/{job}/status")["status"] in ("Done", "Aborted", "Error"))
        state = self.ask(f"/jobs/{job}/status")
        assert state["status"] == "Done", state
        return job


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, installed: Path) -> Iterator[Server]:
    started = Server(tmp_path_factory.mktemp("server"), installed)
    started.wait_until_warm()  # tasks that are forked import nothing
    yield started
    started.stop()


def draw(path: Path, tags: set[str]) -> Path:
    """Draw a dark image with a bright bar for each tag."""
    pixels = np.random.default_rng(list(path.name.encode())).integers(0, 40, (16, 16, 3), np.uint8)
    for number, tag in enumerate(TAGS):
        if tag in tags:
            pixels[:, 5 * number : 5 * number + 5] += 200
    Image.fromarray(pixels).save(path)
    return path


@pytest.fixture(scope="module")
def table(server: Server) -> Path:
    """Six images for every combination of tags, and a table of them."""
    with open(server.data / "tags.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["image", "tags"])
        for number in range(48):
            tags = {tag for place, tag in enumerate(TAGS) if number >> place & 1}
            draw(server.data / f"{number:02}.png", tags)
            writer.writerow([f"{number:02}.png", " ".join(sorted(tags))])
    return server.data / "tags.csv"


@pytest.fixture(scope="module")
def dataset(server: Server, table: Path) -> str:
    size = {"resize_width": 16, "resize_height": 16}
    return server.create("datasets", dataset_name="bars", table=table, pct_val=25, **size)


@pytest.fixture(scope="module")
def model(server: Server, dataset: str) -> str:
    """The plugin's network, trained on ``dataset``."""
    assert "Tagger" in server.page(f"/models/images/tagging/new?dataset={dataset}")
    network: dict[str, Any] = {"method": "standard", "standard_networks": "tagger", "use_mean": "pixel"}
    settings = {
        "train_epochs": 10,
        "batch_size": 12,
        "learning_rate": 0.01,
        "solver_type": "ADAM",
        "shuffle": "y",
    }
    return server.create("models", model_name="tagger", dataset=dataset, **network, **settings)


def test_the_form_offers_the_kind_without_a_scan_and_names_wrong_fields(server: Server) -> None:
    page = server.page("/datasets/images/tagging/new")
    assert "Predict any number of tags" in page and 'name="table"' in page and "source-summary" not in page
    assert "Image tagging" in server.page("/datasets/images/classification/new")
    errors = server.post("/datasets/images/tagging.json", dataset_name="x", table="/etc/passwd")["errors"]
    assert "outside the folders" in errors["table"][0]
    assert "not available" in server.post("/datasets/images/tagging/scan", table="x")["error"]["message"]


def test_the_records_have_tags_and_a_clone_the_same_source(server: Server, dataset: str, table: Path) -> None:
    page = server.page(f"/datasets/{dataset}")
    assert "Images per tag" in page
    assert "3 tags" in server.page(f"/models/images/tagging/new?dataset={dataset}")
    with_both = f"/datasets/images/tagging/explore.json?job_id={dataset}&db=all"
    assert server.ask(f"{with_both}&contain=0")["total"] == 24
    explored = server.page(f"/datasets/images/tagging/explore?job_id={dataset}&label=2")
    assert "left, middle" in explored and "left, middle, right" not in explored
    assert server.ask(f"/datasets/{dataset}.json")["tags"] == list(TAGS)
    assert str(table) in server.page(f"/clone/{dataset}")


def test_a_table_with_an_image_elsewhere_is_refused(server: Server, table: Path) -> None:
    outside = table.with_name("outside.csv")
    outside.write_text("image,tags\n../../secret.png,left\n")
    with pytest.raises(AssertionError, match="outside the image folder"):
        server.create("datasets", dataset_name="x", table=outside)


def test_the_metrics_are_those_of_the_kind(server: Server, model: str) -> None:
    values = server.ask(f"/models/{model}/metrics.json")["val"]["values"]
    assert set(values) == {"loss", "f1", "precision", "recall"}
    assert values["f1"][-1] > 0.8 > values["f1"][0]
    assert 'id="chart-tags"' in server.page(f"/models/{model}")


def test_predictions_are_tags(server: Server, model: str) -> None:
    image = draw(server.data / "new.png", {"left", "right"})
    fields = {"job_id": model, "image_path": image}
    answer = server.post("/models/images/tagging/infer_one.json", **fields)
    likely = {tag for tag, percent in answer["predictions"] if percent >= 50}
    assert likely == {"left", "right"} and len(answer["predictions"]) == 3
    page = server.page(f"/models/images/tagging/infer_one?{urlencode(fields)}")
    assert page.count("✓") == 2 and "Predict the tags of an image" in page


def test_another_plugin_shows_the_predictions(server: Server, model: str) -> None:
    page = server.page(f"/models/{model}")
    assert '<option value="shouting">In capitals</option>' in page
    image = draw(server.data / "middle.png", {"middle"})
    fields = {"job_id": model, "image_path": image}
    shown = server.page(f"/models/images/tagging/infer_one?{urlencode({**fields, 'view': 'shouting'})}")
    assert "MIDDLE!" in shown and "✓" not in shown
    error = server.post("/models/images/tagging/infer_one", **fields, view="whispering")["error"]
    assert error["message"] == "“view”: there is no view “whispering” for image tagging."


def test_no_plugin_is_refused_and_no_error_is_logged(server: Server, model: str) -> None:
    assert server.ask("/index.json")["refused_plugins"] == []
    assert "ERROR" not in (server.folder / "digits.log").read_text()
