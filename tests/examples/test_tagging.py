"""The example plugin in ``examples/tagging``, installed with pip and used over HTTP."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import numpy as np
import pytest
from PIL import Image

from tests.kinds.installed_plugins import install_view

pytestmark = [pytest.mark.tensorflow, pytest.mark.integration, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
TAGS = ("left", "middle", "right")
PATIENCE_SECONDS = 120


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


class Server:
    """A server process with the plugin; ``data`` is the folder it may read."""

    def __init__(self, folder: Path, plugin: Path, environment: dict[str, str]) -> None:
        self.data = folder / "data"
        self.data.mkdir()
        self.log = folder / "digits.log"
        options = {
            "port": 0,
            "jobs-dir": folder / "jobs",
            "data-root": self.data,
            "state-dir": folder / "state",
            "samples-dir": folder / "samples",
            "log-file": self.log,
        }
        command = [
            sys.executable,
            "-m",
            "digits",
            "serve",
            *(f"--{key}={value}" for key, value in options.items()),
        ]
        self._process = subprocess.Popen(
            command,
            cwd=folder,
            env={**environment, "PYTHONPATH": f"{plugin}:{ROOT}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout
        found = (re.search(r"address\s+(\S+)/", line) for line in self._process.stdout)
        address = next(filter(None, found), None)
        assert address, "the server did not start"
        self.url = address[1]

    def get(self, path: str) -> str:
        with urlopen(f"{self.url}{path}", timeout=30) as answer:
            return str(answer.read().decode())

    def post(self, path: str, **fields: Any) -> Any:
        """Submit a form and return the JSON response, which may be an error."""
        request = Request(f"{self.url}{path}", urlencode(fields).encode(), {"Accept": "application/json"})
        try:
            with urlopen(request, timeout=PATIENCE_SECONDS) as answer:
                return json.load(answer)
        except HTTPError as error:
            with error:
                return json.load(error)

    def wait_for_end(self, job: dict[str, Any]) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            state = json.loads(self.get(f"/jobs/{job['id']}/status"))
            if state["status"] in ("Done", "Aborted", "Error"):
                assert state["status"] == "Done", state
                return dict(state)
            assert time.monotonic() < deadline, state
            time.sleep(0.1)

    def wait_until_warm(self) -> None:
        """Wait for the fork server: until it is ready, each task imports TensorFlow itself."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while "the fork server is ready" not in self.log.read_text():
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.communicate(timeout=30)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, installed: Path) -> Iterator[Server]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DIGITS_")}
    started = Server(tmp_path_factory.mktemp("server"), installed, environment)
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
def dataset(server: Server, table: Path) -> dict[str, Any]:
    job = server.post(
        "/datasets/images/tagging.json",
        dataset_name="bars",
        table=table,
        pct_val=25,
        resize_width=16,
        resize_height=16,
    )
    server.wait_for_end(job)
    return dict(job)


@pytest.fixture(scope="module")
def model(server: Server, dataset: dict[str, Any]) -> dict[str, Any]:
    """The plugin's network, trained on ``dataset``."""
    server.wait_until_warm()
    assert "Tagger" in server.get(f"/models/images/tagging/new?dataset={dataset['id']}")
    job = server.post(
        "/models/images/tagging.json",
        model_name="tagger",
        dataset=dataset["id"],
        method="standard",
        standard_networks="tagger",
        train_epochs=10,
        batch_size=12,
        learning_rate=0.01,
        solver_type="ADAM",
        shuffle="y",
        use_mean="pixel",
    )
    server.wait_for_end(job)
    return dict(job)


def test_the_form_offers_the_kind(server: Server) -> None:
    page = server.get("/datasets/images/tagging/new")
    assert "Predict any number of tags" in page and 'name="table"' in page
    assert "Image tagging" in server.get("/datasets/images/classification/new")


def test_form_errors_name_the_field(server: Server) -> None:
    errors = server.post("/datasets/images/tagging.json", dataset_name="x", table="/etc/passwd")["errors"]
    assert "outside the folders" in errors["table"][0]


def test_the_form_has_no_scan_of_the_source(server: Server) -> None:
    assert "source-summary" not in server.get("/datasets/images/tagging/new")
    assert "not available" in server.post("/datasets/images/tagging/scan", table="x")["error"]["message"]


def test_the_records_have_tags(server: Server, dataset: dict[str, Any]) -> None:
    page = server.get(f"/datasets/{dataset['id']}")
    assert "Images per tag" in page and "3 tags" in page
    with_both = f"/datasets/images/tagging/explore.json?job_id={dataset['id']}&db=all"
    assert json.loads(server.get(f"{with_both}&contain=0"))["total"] == 24
    explored = server.get(f"/datasets/images/tagging/explore?job_id={dataset['id']}&label=2")
    assert "left, middle" in explored and "left, middle, right" not in explored
    assert json.loads(server.get(f"/datasets/{dataset['id']}.json"))["tags"] == list(TAGS)


def test_a_clone_has_the_same_source(server: Server, dataset: dict[str, Any], table: Path) -> None:
    assert str(table) in server.get(f"/clone/{dataset['id']}")


def test_a_table_with_an_image_elsewhere_is_refused(server: Server, table: Path) -> None:
    outside = table.with_name("outside.csv")
    outside.write_text("image,tags\n../../secret.png,left\n")
    job = server.post("/datasets/images/tagging.json", dataset_name="x", table=outside)
    with pytest.raises(AssertionError, match="outside the image folder"):
        server.wait_for_end(job)


def test_the_metrics_are_those_of_the_kind(server: Server, model: dict[str, Any]) -> None:
    values = json.loads(server.get(f"/models/{model['id']}/metrics.json"))["val"]["values"]
    assert set(values) == {"loss", "f1", "precision", "recall"}
    assert values["f1"][-1] > 0.8 > values["f1"][0]
    assert 'id="chart-tags"' in server.get(f"/models/{model['id']}")


def test_predictions_are_tags(server: Server, model: dict[str, Any]) -> None:
    image = draw(server.data / "new.png", {"left", "right"})
    fields = {"job_id": model["id"], "image_path": image}
    answer = server.post("/models/images/tagging/infer_one.json", **fields)
    likely = {tag for tag, percent in answer["predictions"] if percent >= 50}
    assert likely == {"left", "right"} and len(answer["predictions"]) == 3
    page = server.get(f"/models/images/tagging/infer_one?{urlencode(fields)}")
    assert page.count("✓") == 2 and "Predict the tags of an image" in page


def test_another_plugin_shows_the_predictions(server: Server, model: dict[str, Any]) -> None:
    page = server.get(f"/models/{model['id']}")
    assert '<option value="shouting">In capitals</option>' in page
    image = draw(server.data / "middle.png", {"middle"})
    fields = {"job_id": model["id"], "image_path": image}
    shown = server.get(f"/models/images/tagging/infer_one?{urlencode({**fields, 'view': 'shouting'})}")
    assert "MIDDLE!" in shown and "✓" not in shown
    error = server.post("/models/images/tagging/infer_one", **fields, view="whispering")["error"]
    assert error["message"] == "“view”: there is no view “whispering” for image tagging."


def test_no_plugin_is_refused_and_no_error_is_logged(server: Server, model: dict[str, Any]) -> None:
    assert json.loads(server.get("/index.json"))["refused_plugins"] == []
    assert "ERROR" not in server.log.read_text()
