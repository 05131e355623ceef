"""Create, train and use models over HTTP, with the real worker in real processes."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import zipfile
from html import escape
from typing import Any

import pytest
from PIL import Image

from digits.core import events
from digits.core.job import Job
from digits.core.model_job import ModelJob
from digits.core.recipe import EarlyStopping, Solver, Train
from digits.core.resume_point import ResumePoint, discard
from digits.core.schedules import OneCycle, from_settings
from digits.core.status import Status
from digits.core.task import Failure
from digits.kinds.standard_networks import every_network
from digits.runtime.background_tasks import BackgroundTasks
from digits.web.models.continuing import schedule_note
from tests.site import Site
from tests.web.trained import shared_site

pytestmark = pytest.mark.integration
site = shared_site
NIGHTLY = pytest.mark.nightly

CREATE = "/models/images/classification.json"
PREFLIGHT = "/models/preflight"
CLASSIFY = "/models/images/classification/classify_one.json"
LINEAR = """class UserModel(Tower):
    @model_property
    def inference(self):
        flat = tf.reshape(self.x, [-1, 16 * 16 * 3]) / 255.0
        return slim.fully_connected(flat, self.nclasses, activation_fn=None, scope='out')

    @model_property
    def loss(self):
        loss = digits.classification_loss(self.inference, self.y)
        accuracy = digits.classification_accuracy(self.inference, self.y)
        self.summaries.append(tf.summary.scalar(accuracy.op.name, accuracy))
        return loss
"""


def changed(old: str, new: str) -> str:
    assert old in LINEAR
    return LINEAR.replace(old, new)


# Misbehaving networks that a user might paste, by name.
SYNTAX_ERROR = changed("def inference(self):", "def inference(self)")
NO_USER_MODEL = changed("class UserModel", "class MyModel")
NO_LOSS = LINEAR.split("    @model_property\n    def loss")[0]
WRONG_SHAPE = changed(
    "slim.fully_connected(flat, self.nclasses, activation_fn=None, scope='out')",
    "tf.matmul(flat, tf.get_variable('w', [17, 3]))",
)
UNKNOWN_NAME = changed("/ 255.0", "/ std_of_the_set")
RAISES_LATER = (
    changed("return loss", "return loss * tf.py_func(fail_at(5), [], tf.float32)")
    + """
def fail_at(step):
    calls = []
    def count():
        calls.append(1)
        if len(calls) > step:
            raise ValueError('the sixth call is one too many')
        return np.float32(1.0)
    return count
"""
)
ENDS_THE_PROCESS = changed("return loss", "import os; os._exit(0)")
PRINTS_A_LOT = LINEAR + "\nfor _ in range(30000):\n    print('x' * 400)\n"


def create(site: Site, dataset_id: str, network: str = LINEAR, /, path: str = CREATE, **fields: Any) -> Any:
    wanted = {
        "model_name": "linear",
        "dataset": dataset_id,
        "method": "custom",
        "custom_network": network,
        "train_epochs": 4,
        "batch_size": 6,
        "learning_rate": 0.1,
        "lr_policy": "fixed",
        "random_seed": 1,
        "use_mean": "none",
        "select_gpu": "cpu",
        **fields,
    }
    return site.post(path, **{name: value for name, value in wanted.items() if value is not None})


def visualized(site: Site, **fields: Any) -> Any:
    """Return the response to Visualize as JSON."""
    headers = {"Accept": "application/json"}
    return site.client.post("/models/visualize-network", data=fields, headers=headers)


@pytest.fixture(scope="module")
def trained(site: Site, dataset: str) -> str:
    job_id = str(create(site, dataset).get_json()["id"])
    assert site.wait_for_end(job_id) == "Done"
    return job_id


@pytest.mark.tensorflow
def test_the_best_snapshot_is_reported_to_the_page(site: Site, dataset: str) -> None:
    live = site.services.live.socketio.test_client(site.app, namespace="/jobs", flask_test_client=site.client)
    job_id = str(create(site, dataset, train_epochs=2, best_metric="loss").get_json()["id"])
    live.emit("join", {"room": job_id}, namespace="/jobs")
    assert site.wait_for_end(job_id) == "Done"
    reported = [
        message["args"][0] for message in live.get_received("/jobs") if message["name"] == "task update"
    ]
    best = [message for message in reported if message["update"] == "best"]
    assert best[-1]["epoch"] == site.json(f"/models/{job_id}.json")["best_epoch"] == 2
    assert best[-1]["metric"] == "loss" and best[-1]["value"] < 1.2
    # The best snapshot is listed before it is reported as the best.
    places = {message["update"]: place for place, message in enumerate(reported)}
    assert places["best"] > places["snapshots"]
    live.disconnect("/jobs")


@pytest.mark.tensorflow
def test_a_model_is_trained(site: Site, dataset: str, trained: str) -> None:
    body = site.json(f"/models/{trained}.json")
    assert body["dataset_id"] == dataset
    assert body["snapshots"] == [1, 2, 3, 4]
    assert body["snapshot file"] == "snapshot_4.ckpt"
    assert body["image dimensions"] == [16, 16, 3]
    row = site.json(f"/jobs/{trained}/table_data.json")["job"]
    assert row["last_accuracy"] == 100.0
    assert len(row["sparkline"]) > 2


@pytest.mark.tensorflow
def test_metrics_are_available_as_columns_rows_and_a_file(site: Site, trained: str) -> None:
    curves = site.json(f"/models/{trained}/metrics.json")
    losses = curves["train"]["values"]["loss"]
    assert len(losses) == len(curves["train"]["epoch"]) > 2
    assert losses[-1] < losses[0]
    assert curves["val"]["epoch"][0] == 0
    assert {"loss", "accuracy", "learning_rate", "images_per_second"} <= set(curves["train"]["values"])

    rows = site.json(f"/models/{trained}/metrics.json?after=0")
    assert rows["cursor"] == curves["cursor"]
    assert [row["step"] for row in rows["rows"] if row["stage"] == "train"] == curves["train"]["step"]
    assert site.json(f"/models/{trained}/metrics.json?after={rows['cursor']}")["rows"] == []

    table = list(csv.DictReader(io.StringIO(site.get(f"/models/{trained}/metrics.csv").text)))
    assert [float(row["loss"]) for row in table if row["stage"] == "train"] == losses


def test_rows_read_in_time_slices_are_complete(
    site: Site, dataset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "TURN_SECONDS", 0.0)  # one line per time slice
    model = site.finished_model(dataset, rows=30)
    folder = site.services.store.folder / model / "train"
    for late in ([], [events.Resumed(20, 0.5), events.Measured("train", 21, 0.7, {"loss": math.nan})]):
        with open(folder / "events.jsonl", "ab") as log:
            log.write(b"".join(map(events.encode, late)))
        curves = site.json(f"/models/{model}/metrics.json")
        found = site.json(f"/models/{model}/metrics.json?after=0")
        assert found["cursor"] == curves["cursor"] == (folder / "events.jsonl").stat().st_size
        assert found["resumed"] is bool(late)
        assert [row["step"] for row in found["rows"]] == [*range(1, 31), *([21] if late else [])]
        table = list(csv.DictReader(io.StringIO(site.get(f"/models/{model}/metrics.csv").text)))
        assert (
            [int(row["step"]) for row in table] == curves["train"]["step"] == [*range(1, 22 if late else 31)]
        )
        assert f'"cursor": {curves["cursor"]}' in site.get(f"/models/{model}").text
    assert found["rows"][-1]["values"] == {"loss": None}


@pytest.mark.tensorflow
def test_the_page_of_a_trained_model_is_complete(site: Site, trained: str) -> None:
    page = site.get(f"/models/{trained}").text
    for words in ("Epoch 4", "fully_connected", trained, f"/tensorboard/{trained}/", "Done"):
        assert words in page


@pytest.mark.tensorflow
def test_an_image_is_classified_by_upload_and_by_path(site: Site, trained: str) -> None:
    picture = site.data / "bars" / "middle" / "03.png"

    def upload() -> dict[str, Any]:
        return {"job_id": trained, "image_file": (io.BytesIO(picture.read_bytes()), "my picture.png")}

    answer = site.client.post(CLASSIFY, data=upload()).get_json()
    assert answer["predictions"][0][0] == "middle"
    assert math.isclose(sum(percent for _, percent in answer["predictions"]), 100, abs_tol=0.1)
    assert answer["snapshot"] == "Epoch 4"
    by_path = site.post(CLASSIFY, job_id=trained, image_path=str(picture), snapshot_epoch=1).get_json()
    assert by_path["snapshot"] == "Epoch 1"
    assert by_path["predictions"][0][0] in ("left", "middle", "right")
    page = site.post("/models/images/classification/classify_one", job_id=trained, image_path=str(picture))
    assert "middle" in page.text
    shown = site.get("/models/image", query_string={"path": str(picture)})
    assert Image.open(io.BytesIO(shown.data)).size == (16, 16)
    assert f"/models/image?path={picture}" in page.text
    page = site.client.post(CLASSIFY.removesuffix(".json"), data=upload())
    assert "middle" in page.text
    assert not (site.services.folder / "uploads").exists()


@pytest.mark.tensorflow
def test_a_network_that_cannot_predict_is_shown_with_its_line(site: Site, dataset: str) -> None:
    network = changed("/ 255.0", "/ [255.0][1 if self.is_inference else 0]")
    job_id = create(site, dataset, custom_network=network, train_epochs=1).get_json()["id"]
    assert site.wait_for_end(job_id) == "Done"
    image = str(site.data / "bars" / "middle" / "03.png")
    answer = site.post(CLASSIFY, job_id=job_id, image_path=image)
    error = answer.get_json()["error"]
    assert answer.status_code == 400
    assert error["message"] == "Line 4: IndexError: list index out of range"
    assert error["trace"][0]["own"] and error["trace"][0]["line"] == 4
    page = site.post("/models/images/classification/classify_one", job_id=job_id, image_path=image)
    assert page.status_code == 400 and "255.0" in page.text


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("fields", "status", "words"),
    [
        ({}, 400, "Upload an image"),
        ({"image_path": "/etc/passwd"}, 403, "--data-root"),
        ({"image_path": "http://example.com/a.png"}, 400, "not fetched"),
        ({"image_path": "DATA/text.png"}, 400, ""),
        ({"image_path": "DATA/bars/middle/03.png", "snapshot_epoch": "99"}, 404, "no snapshot"),
        ({"image_path": "DATA/bars/middle/03.png", "snapshot_epoch": "x"}, 400, "not an epoch"),
    ],
)
def test_an_image_that_cannot_be_classified_is_reported(
    site: Site, trained: str, fields: dict[str, str], status: int, words: str
) -> None:
    (site.data / "text.png").write_text("no picture")
    filled = {name: value.replace("DATA", str(site.data)) for name, value in fields.items()}
    answer = site.post(CLASSIFY, job_id=trained, **filled)
    assert answer.status_code == status
    error = answer.get_json()["error"]
    assert words in error["message"] + error.get("hint", "")


@pytest.mark.parametrize(
    ("path", "status"), [("/etc/passwd", 403), ("DATA/text.png", 400), ("DATA/none.png", 400), ("DATA", 400)]
)
def test_only_images_below_the_roots_are_shown(site: Site, path: str, status: int) -> None:
    (site.data / "text.png").write_text("no picture")
    asked = {"path": path.replace("DATA", str(site.data))}
    assert site.get("/models/image", query_string=asked).status_code == status


@pytest.mark.tensorflow
def test_a_model_finds_labels_that_are_likely_wrong(site: Site, dataset: str, trained: str) -> None:
    page = site.get(f"/datasets/{dataset}").text
    assert "Find wrong labels" in page and f'value="{trained}"' in page
    assert site.post(f"/datasets/{dataset}/label-check", model="20200101-000000-aaaaaa").status_code == 404
    assert site.post(f"/datasets/{dataset}/label-check", model=trained).status_code == 202
    health = f"/datasets/{dataset}/health.json"
    site.wait(lambda: site.json(health)["state"] != "running")
    body = site.json(health)
    assert body["error"] is None, body
    labels = body["labels"]
    assert labels["model_id"] == trained and set(labels["accuracy"]) == {"train", "val"}
    assert "Last checked with" in site.get(f"/datasets/{dataset}").text
    explored = site.get(f"/datasets/images/classification/explore?job_id={dataset}&finding=label_errors")
    assert explored.status_code == 200
    assert explored.text.count("data-suggested=") == labels["finding"]["count"]
    version = site.get(f"/datasets/{dataset}/versions/new?clean=label_errors")
    assert version.status_code == 200


def test_a_snapshot_is_downloaded(site: Site, trained: str) -> None:
    answer = site.get(f"/models/{trained}/download.zip?epoch=2")
    bundle = zipfile.ZipFile(io.BytesIO(answer.data))
    assert set(bundle.namelist()) == {
        "info.json",
        "network.py",
        "labels.txt",
        "mean.npy",
        "dataset.json",
        "snapshot_2.ckpt.index",
        "snapshot_2.ckpt.data-00000-of-00001",
    }
    assert json.loads(bundle.read("info.json"))["id"] == trained


@pytest.mark.tensorflow
def test_training_starts_from_a_snapshot(site: Site, dataset: str, trained: str) -> None:
    answer = create(
        site,
        dataset,
        method="previous",
        custom_network=None,
        previous_networks=trained,
        train_epochs=1,
        **{f"{trained}-snapshot": "4"},
    )
    job_id = answer.get_json()["id"]
    assert site.wait_for_end(job_id) == "Done"
    before = site.json(f"/models/{trained}/metrics.json")["val"]["values"]["loss"]
    after = site.json(f"/models/{job_id}/metrics.json")["val"]["values"]["loss"]
    assert math.isclose(after[0], before[-1], rel_tol=1e-4)


@pytest.mark.tensorflow
def test_snapshots_show_their_metrics_and_the_best_is_selected(site: Site, dataset: str) -> None:
    # The learning rate is practically zero at the end, and among equally good snapshots the first one is the best.
    settings = {"train_epochs": 3, "lr_policy": "step", "lr_step_size": 67, "lr_step_gamma": 1e-9}
    settings["best_metric"] = "accuracy"  # without it, so few validation images select none
    job_id = str(create(site, dataset, **settings).get_json()["id"])
    assert site.wait_for_end(job_id) == "Done"
    body = site.json(f"/models/{job_id}.json")
    losses = [item["metrics"]["loss"] for item in body["snapshot_metrics"]]
    best = body["best_epoch"]
    assert best == 1 + losses.index(min(losses)) != 3
    page = site.get(f"/models/{job_id}").text
    assert f'<option value="{best}" selected>Epoch {best} (best) · accuracy 100.0% · loss' in page
    form = site.get("/models/images/classification/new").text
    assert f'<option value="{best}" selected>Epoch {best} (best) · accuracy 100.0% · loss' in form

    picture = str(site.data / "bars" / "middle" / "03.png")
    asked = {"job_id": job_id, "image_path": picture}
    assert site.post(CLASSIFY, **asked, snapshot_epoch=-1).get_json()["snapshot"] == "Epoch 3"
    bundle = zipfile.ZipFile(io.BytesIO(site.get(f"/models/{job_id}/download.zip?epoch={best}").data))
    assert f"snapshot_{best}.ckpt.index" in bundle.namelist()
    assert json.loads(bundle.read("info.json"))["snapshot file"] == f"snapshot_{best}.ckpt"

    data = site.services.store.get(job_id, ModelJob).folder / f"snapshot_{best}.ckpt.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:100])
    second = site.json(f"/models/{job_id}.json")["best_epoch"]
    assert second not in (best, None)
    assert site.post(CLASSIFY, **asked).get_json()["snapshot"] == f"Epoch {second}"
    assert f"Epoch {best} (damaged)" in site.get(f"/models/{job_id}").text
    assert site.post(CLASSIFY, **asked, snapshot_epoch=best).status_code == 400


def test_a_model_gets_the_settings_of_its_network_and_without_one_the_default_network(site: Site) -> None:
    small, gray = site.dataset(folder_val=""), site.dataset(folder_val="", resize_channels=1)
    # The settings depend on the number of images, which is known as soon as the task has counted them.
    for dataset_id in (small, gray):
        site.wait_until_done(dataset_id)
    fields = {"model_name": "fitting", "select_gpu": "cpu"}
    made = {}
    for dataset_id in (small, gray):
        answer = site.post(CREATE, dataset=dataset_id, train_epochs=1, **fields)
        made[dataset_id] = site.services.store.get(answer.get_json()["id"], ModelJob)
    named = site.post(
        CREATE, dataset=gray, standard_networks="resnet32", solver_type="MOMENTUM", momentum=0.5, **fields
    ).get_json()
    made["named"] = site.services.store.get(named["id"], ModelJob)
    for job in made.values():
        site.post(f"/models/{job.id}/abort")
        site.wait_for_end(job.id)
    networks = {item.text: item.id for item in every_network().values()}
    found = {
        key: (networks[job.network_text()], job.recipe.batch_size, job.recipe.solver.learning_rate)
        for key, job in made.items()
    }
    assert found == {
        small: ("resnet32", 32, 0.003),
        gray: ("lenet", 32, 0.001),
        "named": ("resnet32", 32, 0.003),
    }
    # Fields of the request take precedence.
    assert (made["named"].recipe.solver.type, made["named"].recipe.solver.momentum) == ("MOMENTUM", 0.5)
    assert made[small].recipe.epochs == made[gray].recipe.epochs == 1
    assert made[small].recipe.augment.flip == "none"  # the classes are left, middle and right


@pytest.mark.tensorflow
def test_a_dataset_in_use_is_not_deleted(site: Site, dataset: str, trained: str) -> None:
    answer = site.client.delete(f"/datasets/{dataset}", headers={"Accept": "application/json"})
    assert answer.status_code == 403
    assert "linear" in answer.get_json()["error"]["message"]
    assert site.status(dataset) == "Done"


def test_a_refused_delete_has_no_side_effects(
    site: Site, dataset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.finished_model(dataset)
    stopped: list[str] = []
    monkeypatch.setattr(BackgroundTasks, "stop", lambda tasks, job_id, key=None: stopped.append(job_id))
    for address, fields in ((f"/datasets/{dataset}", {}), ("/jobs", {"job_ids[]": dataset})):
        answer = site.client.delete(address, data=fields)
        assert answer.status_code in (400, 403) and stopped == []


@pytest.mark.tensorflow
def test_a_network_is_visualized(site: Site, dataset: str) -> None:
    answer = site.post("/models/visualize-network", dataset=dataset, custom_network=LINEAR)
    body = answer.get_json()
    assert (answer.status_code, body["ok"]) == (200, True)
    assert body["layers"][-1]["shape"] == [None, 3]
    assert body["parameters"] == 16 * 16 * 3 * 3 + 3
    preview = body["tensorboard_url"].split("/tensorboard/")[1].split("/")[0]
    folder = site.services.tensorboard_folder(preview)
    assert folder is not None
    assert list(folder.rglob("*tfevents*"))


def line_of(network: str, words: str) -> int:
    return next(number for number, line in enumerate(network.splitlines(), 1) if words in line)


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("network", "words", "line"),
    [(WRONG_SHAPE, "17", line_of(WRONG_SHAPE, "tf.matmul")), (ENDS_THE_PROCESS, "ended the program", None)],
    ids=["wrong shape", "exits"],
)
def test_an_error_in_a_network_is_shown_with_its_line(
    site: Site, dataset: str, network: str, words: str, line: int | None
) -> None:
    answer = site.post("/models/visualize-network", dataset=dataset, custom_network=network)
    error = answer.get_json()["error"]
    assert answer.status_code == 400
    assert words in error["message"]
    if line:
        assert error["line"] == line
        assert error["trace"][0]["own"]


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("network", "fields", "words"),
    [
        (RAISES_LATER, {}, "one too many"),
        (ENDS_THE_PROCESS, {}, "ended early"),
        pytest.param(UNKNOWN_NAME, {}, "std_of_the_set", marks=NIGHTLY),
        pytest.param(
            changed("return loss", "return loss * 1e30"),
            {"learning_rate": "1e9"},
            "learning rate",
            marks=NIGHTLY,
        ),
    ],
    ids=["raises later", "exits", "unknown name", "diverges"],
)
def test_a_failed_training_shows_the_reason(
    site: Site, dataset: str, network: str, fields: dict[str, str], words: str
) -> None:
    job_id = create(site, dataset, network, **fields).get_json()["id"]
    assert site.wait_for_end(job_id) == "Error"
    job = site.services.store.get(job_id, ModelJob)
    assert job.failure is not None
    assert words in job.failure.message + job.failure.hint
    assert job.failure.message[:20] in site.json(f"/models/{job_id}/status")["error"]
    page = site.get(f"/models/{job_id}")
    assert page.status_code == 200
    assert site.get(f"/models/{job_id}/metrics.json").status_code == 200
    assert b"NaN" not in site.get(f"/models/{job_id}/metrics.json").data


def test_a_training_that_diverged_offers_a_clone_with_a_lower_rate(site: Site, dataset: str) -> None:
    job = site.services.store.get(site.finished_model(dataset), ModelJob)
    job.tasks[0].failure = Failure("The loss became infinite.", remedy={"rate_factor": "0.1"})
    address = f"/models/images/classification/new?clone={job.id}&amp;rate_factor="
    page = site.get(f"/models/{job.id}").text
    assert f'{address}0.1">' in page and "Clone with the rate divided by ten" in page
    # The standard network has a much lower one.
    job.recipe.solver = Solver(learning_rate=1000.0)
    page = site.get(f"/models/{job.id}").text
    assert f'{address}1e-05">' in page and "Clone with the network’s own rate, 0.01" in page


@pytest.mark.parametrize(
    ("remedy", "label", "changes", "field"),
    [
        (
            {"batch_factor": "0.5"},
            "Clone with batch size 3",
            "batch_size=3",
            r'name="batch_size"[^>]*value="3"',
        ),
        (
            {"numerics_checks": "true"},
            "Clone with Detect NaN/Inf",
            "numerics_checks=true",
            r'(?=[^>]*name="numerics_checks")[^>]*checked',
        ),
        ({}, "Edit and try again", "", r'name="batch_size"[^>]*value="6"'),
    ],
)
def test_a_failed_training_leads_back_to_its_form(
    site: Site, dataset: str, remedy: dict[str, str], label: str, changes: str, field: str
) -> None:
    job = site.services.store.get(site.finished_model(dataset), ModelJob)
    job.recipe.batch_size = 6
    job.tasks[0].failure = Failure("It failed.", remedy=remedy)
    address = f"/models/images/classification/new?clone={job.id}"
    page = site.get(f"/models/{job.id}").text
    link = f"{address}&amp;{changes}" if changes else address
    assert re.search(f'href="{re.escape(link)}">.*{label}', page)
    assert re.search(field, site.get(f"{address}&{changes}").text)
    job.recipe.batch_size = 1  # cannot be smaller
    assert "Clone with batch size" not in site.get(f"/models/{job.id}").text


def test_the_form_of_a_failed_training_marks_the_line(site: Site, dataset: str) -> None:
    job_id = create(site, dataset, WRONG_SHAPE).get_json()["id"]
    assert site.wait_for_end(job_id) == "Error"
    failure = site.services.store.get(job_id, ModelJob).failure
    form = site.get(f"/clone/{job_id}", follow_redirects=True).text
    assert failure and f'data-line="{failure.line}"' in form and escape(failure.message) in form


def test_all_pages_of_a_model_whose_network_is_missing_are_shown(site: Site, dataset: str) -> None:
    job = site.services.store.get(site.finished_model(dataset), ModelJob)
    job.tasks[0].failure = Failure("The loss became infinite.", remedy={"rate_factor": "0.1"})
    job.network_path.unlink()
    for path in ("", ".json", "/embeddings", "/export.json", "/evaluation.json", "/metrics.json"):
        answer = site.get(f"/models/{job.id}{path}")
        assert answer.status_code == 200, (path, answer.text)
    assert "The network cannot be shown: " in site.get(f"/models/{job.id}").text
    other = site.finished_model(dataset)
    assert site.get(f"/models/compare?first={other}&second={job.id}").status_code == 200
    for path in (f"/clone/{job.id}", f"/models/images/classification/new?clone={job.id}"):
        refused = site.get(path, follow_redirects=True)
        assert refused.status_code == 404 and "network.py" in refused.text, path
    refused = site.post("/models/customize", network=job.id)
    assert refused.status_code == 404 and "network.py" in refused.text


@pytest.mark.parametrize("device", ["next:abc", "next:", "next:99999", "0,a", "٣", "-1", "x" * 5000])
def test_devices_that_do_not_exist_are_refused_by_the_check(site: Site, dataset: str, device: str) -> None:
    refused = create(site, dataset, path=PREFLIGHT, select_gpu=device)
    assert refused.status_code == 400 and refused.get_json()["error"]["message"]


@pytest.mark.tensorflow
def test_a_network_that_prints_a_lot_still_trains(site: Site, dataset: str) -> None:
    job_id = create(site, dataset, PRINTS_A_LOT, train_epochs=1).get_json()["id"]
    assert site.wait_for_end(job_id) == "Done"
    folder = site.services.store.folder / job_id / "train"
    assert sum(path.stat().st_size for path in folder.glob("output*")) < 10 * 1024 * 1024
    assert site.json(f"/jobs/{job_id}/output?after=0")["next"] > 12_000_000


@pytest.mark.tensorflow
def test_a_sweep_creates_a_job_for_each_pair(site: Site, dataset: str) -> None:
    answer = create(site, dataset, learning_rate="[0.01, 0.02]", batch_size="8,10", train_epochs=1).get_json()
    names = [body["name"] for body in answer["jobs"]]
    assert names == [
        "linear learning_rate:0.01 batch_size:8",
        "linear learning_rate:0.02 batch_size:8",
        "linear learning_rate:0.01 batch_size:10",
        "linear learning_rate:0.02 batch_size:10",
    ]
    for body in answer["jobs"]:
        site.post(f"/models/{body['id']}/abort")
        assert site.wait_for_end(body["id"]) in ("Aborted", "Done")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"learning_rate": "0.1"}, ""),
        ({"learning_rate": "0.1, 0.01"}, "2 models: net learning_rate:0.1, net learning_rate:0.01"),
        ({"batch_size": "8,10"}, "2 models: net batch_size:8, net batch_size:10"),
        ({"learning_rate": "0,01"}, ""),
    ],
)
def test_the_form_lists_the_models_of_a_sweep(
    site: Site, dataset: str, fields: dict[str, str], words: str
) -> None:
    fields = {"dataset": dataset, "model_name": "net", "own": ",".join(["model_name", *fields]), **fields}
    page = site.post("/models/images/classification/form", **fields).text
    shown = re.search(r'id="sweep" role="status">(?:<span[^>]*>)?([^<]*)<', page)
    assert shown and shown[1] == words
    assert ("Train 2 models" in page) is bool(words)


def test_several_selected_gpus_are_stored_and_cloned(site: Site, dataset: str) -> None:
    answer = create(site, dataset, select_gpu="", select_gpus=["0", "2"])
    job = site.services.store.get(answer.get_json()["id"], ModelJob)
    assert job.device == "0,2"
    answer = site.post("/models/images/classification.json", clone=job.id)
    assert answer.status_code == 200, answer.get_json()
    twin = next(
        item for item in site.services.store.all(ModelJob) if item.name == job.name and item is not job
    )
    assert twin.device == "0,2"
    site.post(f"/models/{job.id}/abort")
    site.wait_for_end(job.id)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"model_name": ""}, "model_name"),
        ({"dataset": "20200101-000000-abcdef"}, "dataset"),
        ({"train_epochs": 0}, "train_epochs"),
        ({"train_epochs": "many"}, "train_epochs"),
        ({"snapshot_interval": -1}, "snapshot_interval"),
        ({"batch_size": "8, x"}, "batch_size"),
        ({"batch_size": "0"}, "batch_size"),
        ({"learning_rate": ""}, "learning_rate"),
        ({"learning_rate": "-0.1"}, "learning_rate"),
        ({"lr_policy": "random"}, "lr_policy"),
        ({"lr_policy": "multistep", "lr_multistep_values": "a,b"}, "lr_multistep_values"),
        ({"solver_type": "MAGIC"}, "solver_type"),
        ({"framework": "caffe"}, "framework"),
        ({"custom_network": ""}, "custom_network"),
        ({"custom_network": SYNTAX_ERROR}, "custom_network"),
        ({"custom_network": NO_USER_MODEL}, "custom_network"),
        ({"method": "pretrained"}, "pretrained_networks"),
        ({"method": "standard", "standard_networks": "resnet-9000"}, "standard_networks"),
        ({"method": "previous", "previous_networks": "nothing"}, "previous_networks"),
        ({"aug_flip": "sideways"}, "aug_flip"),
        ({"aug_rot": 181}, "aug_rot"),
        ({"aug_hsv_h": 0.6}, "aug_hsv_h"),
        ({"batch_accumulation": 0}, "batch_accumulation"),
        ({"precision": "float8"}, "precision"),
        ({"snapshots_kept": 0}, "snapshots_kept"),
        ({"custom_network_snapshot": "/etc/passwd"}, "custom_network_snapshot"),
        ({"select_gpus": "0,x"}, "select_gpu"),
        ({"select_gpu": "the fast one"}, "select_gpu"),
        ({"select_gpu": "next:abc"}, "select_gpu"),
        ({"select_gpu": "next:99999"}, "select_gpu"),
        ({"select_gpu": "٣"}, "select_gpu"),
    ],
)
def test_a_form_error_names_its_field(site: Site, dataset: str, fields: dict[str, Any], field: str) -> None:
    before = len(site.services.store.all(Job))
    answer = create(site, dataset, **fields)
    assert answer.status_code == 400
    assert answer.get_json()["errors"][field]
    filled = {
        "model_name": "kept name",
        "dataset": dataset,
        "method": "custom",
        "custom_network": LINEAR,
        **fields,
    }
    page = site.post("/models/images/classification", **filled)
    assert page.status_code == 400
    if "custom_network" not in fields:
        assert "slim.fully_connected(flat" in page.text
    assert len(site.services.store.all(Job)) == before


def test_the_form_becomes_the_recipe(site: Site, dataset: str) -> None:
    answer = create(
        site,
        dataset,
        solver_type="ADAMW",
        weight_decay=0.05,
        batch_accumulation=2,
        lr_policy="onecycle",
        lr_warmup=5,
        aug_flip="fliplr",
        aug_hsv_use="y",
        aug_hsv_h=0.1,
        aug_pad_crop=4,
        balance="class_weights",
        precision="mixed_bfloat16",
        xla="off",
        snapshots_kept=3,
        best_metric="accuracy",
        early_stopping_metric="loss",
        early_stopping_patience=2,
        freeze="model/conv1*, model/conv2*",
        select_gpu="cpu",
    )
    assert answer.status_code == 200, answer.get_json()
    job_id = answer.get_json()["id"]
    recipe = site.services.store.get(job_id, ModelJob).recipe
    assert (recipe.solver.type, recipe.solver.weight_decay) == ("ADAMW", 0.05)
    assert recipe.batch_accumulation == 2
    assert recipe.lr_policy == OneCycle(peak=30, start=0.04, final=0.0001, warmup=5)
    assert (recipe.augment.flip, recipe.augment.hsv_hue, recipe.augment.pad_crop) == (
        "fliplr",
        0.1,
        4,
    )
    assert recipe.augment.hsv_saturation == 0.04
    assert (recipe.balance, recipe.precision, recipe.xla) == ("class_weights", "mixed_bfloat16", False)
    assert (recipe.snapshots_kept, recipe.best_metric) == (3, "accuracy")
    assert recipe.early_stopping == EarlyStopping(metric="loss", patience=2)
    assert recipe.freeze == ["model/conv1*", "model/conv2*"]
    site.post(f"/models/{job_id}/abort")
    site.wait_for_end(job_id)


def test_a_finished_training_cannot_be_resumed(site: Site, trained: str) -> None:
    answer = site.client.post(f"/models/{trained}/resume", headers={"Accept": "application/json"})
    assert answer.status_code == 403
    assert "cannot be resumed" in answer.get_json()["error"]["message"]


def test_a_finished_training_continues_for_more_epochs(site: Site, dataset: str) -> None:
    for fields, total in (({"train_epochs": 4}, 4), ({"more_epochs": 3}, 4)):
        model = finished_after_one_epoch(site, dataset)
        assert "Continue training" in site.get(f"/models/{model}").text
        answer = continued(site, model, **fields)
        assert (answer.status_code, answer.get_json()["status"] != "Done") == (200, True)
        job = site.services.store.get(model, ModelJob)
        assert (job.recipe.epochs, job.recipe.resume) == (total, True)
        assert continued(site, model, more_epochs=1).status_code == 403  # it runs
        site.post(f"/models/{model}/abort")
        site.wait_for_end(model)


def continued(site: Site, model: str, **fields: object) -> Any:
    return site.client.post(f"/models/{model}/resume", data=fields, headers={"Accept": "application/json"})


def finished_after_one_epoch(site: Site, dataset: str, epochs: float = 1) -> str:
    model: str = site.finished_model(dataset)
    job = site.services.store.get(model, ModelJob)
    ResumePoint(snapshot="snapshot_1.ckpt", step=20, epoch=1, seed=1, records=24, step_records=8).save(
        job.folder
    )
    job.recipe.epochs = epochs
    return model


def test_a_training_that_ended_early_continues_without_early_stopping(site: Site, dataset: str) -> None:
    model = finished_after_one_epoch(site, dataset, epochs=9)
    job = site.services.store.get(model, ModelJob)
    job.recipe.early_stopping = EarlyStopping(metric="loss", patience=1)
    assert continued(site, model, more_epochs=2).status_code == 200
    assert (job.recipe.epochs, job.recipe.early_stopping) == (3, None)
    site.post(f"/models/{model}/abort")
    site.wait_for_end(model)


def test_trainings_that_cannot_continue_are_refused(site: Site, dataset: str) -> None:
    without = site.finished_model(dataset)
    assert "Continue training" not in site.get(f"/models/{without}").text
    answer = continued(site, without, more_epochs=1)
    assert (answer.status_code, "no resume point" in answer.get_json()["error"]["message"]) == (403, True)
    model = finished_after_one_epoch(site, dataset)
    refused: list[tuple[dict[str, object], int, str]] = [
        ({}, 403, "Set train_epochs or more_epochs"),
        ({"train_epochs": 1}, 400, "than the 1 that it has done"),
        ({"train_epochs": 0}, 400, "train_epochs"),
        ({"more_epochs": "x"}, 400, "more_epochs"),
        ({"more_epochs": 1_000_000}, 400, "more_epochs"),
        ({"more_epochs": 1, "train_epochs": 2}, 400, "either"),
    ]
    for fields, status, words in refused:
        answer = continued(site, model, **fields)
        assert (answer.status_code, words in str(answer.get_json()["error"])) == (status, True), fields
    assert site.status(model) == "Done"
    failed = site.services.store.get(model, ModelJob)
    failed.tasks[0].history[-1] = (Status.ERROR, failed.tasks[0].history[-1][1])
    failed.history[-1] = (Status.ERROR, failed.history[-1][1])
    answer = continued(site, model, more_epochs=1)
    assert (answer.status_code, "train_epochs" in str(answer.get_json()["error"])) == (400, True)
    discard(failed.folder, ["snapshot_1.ckpt"])
    assert continued(site, model, train_epochs=5).status_code == 403


def test_the_dialog_states_which_learning_rates_apply() -> None:
    fixed, cosine = (from_settings(policy) for policy in ("fixed", "cosine"))
    assert "remains 0.5" in schedule_note(
        Train(dataset="", lr_policy=fixed, solver=Solver(learning_rate=0.5))
    )
    assert "(cosine decay) depends" in schedule_note(Train(dataset="", lr_policy=cosine))
    assert "(warm-up) depends" in schedule_note(
        Train(dataset="", lr_policy=from_settings("fixed", warmup=5.0))
    )


def test_lenet_can_be_customized(site: Site) -> None:
    assert "class UserModel(Tower)" in site.post("/models/customize?network=lenet").get_json()["network"]
    assert site.post("/models/customize?network=nothing").status_code == 404
    assert site.post("/models/customize").status_code == 400


def test_a_learning_rate_schedule_has_a_preview(site: Site) -> None:
    answer = site.post("/models/visualize-lr", lr_policy="step", learning_rate="0.1, 1", lr_step_size=50)
    columns = answer.get_json()["data"]["columns"]
    assert [column[0] for column in columns] == ["Learning Rate 0", "Learning Rate 1"]
    assert len(columns[0]) == 102
    assert (columns[0][1], columns[0][50], columns[0][51]) == (0.1, 0.1, pytest.approx(0.01))
    assert site.post("/models/visualize-lr", lr_policy="nothing", learning_rate=1).status_code == 400
    assert site.post("/models/visualize-lr", lr_policy="poly", learning_rate="x").status_code == 400


def test_the_preview_of_a_fine_tuning_includes_the_head(site: Site) -> None:
    fields = {"fine_tune": "y", "head_epochs": 2, "head_rate": 0.5, "train_epochs": 8}
    answer = site.post("/models/visualize-lr", lr_policy="fixed", learning_rate=0.1, **fields)
    ((_, *rates),) = answer.get_json()["data"]["columns"]
    assert len(rates) == 101
    assert rates[0] == 0.5 and 0 < rates[24] < 0.01 and rates[25:] == 76 * [0.1]
    wrong = site.post(
        "/models/visualize-lr", lr_policy="fixed", learning_rate=0.1, **fields | {"head_rate": -1}
    )
    assert wrong.status_code == 400


@pytest.mark.parametrize(
    ("fields", "words"), [({"custom_network": LINEAR}, "dataset"), ({"custom_network": " "}, "network")]
)
def test_visualize_requires_a_dataset_and_a_network(
    site: Site, dataset: str, fields: dict[str, str], words: str
) -> None:
    chosen = {"dataset": dataset} if words == "network" else {}
    answer = visualized(site, **fields, **chosen)
    assert answer.status_code == 400
    assert words in answer.get_json()["error"]["message"]


def test_a_check_and_a_training_draw_the_same_first_batch(site: Site, dataset: str) -> None:
    checked = create(site, dataset, path=PREFLIGHT, batch_size="2, 6", random_seed=3).get_json()
    assert checked["result"]["batch_size"] == 6, "the largest batches need the most memory"
    assert checked["result"]["chance_loss"] == pytest.approx(math.log(3))
    job_id = create(site, dataset, train_epochs=1, batch_size=6, random_seed=3).get_json()["id"]
    assert site.wait_for_end(job_id) == "Done"
    assert "Images of the first batch" in site.get(f"/models/{job_id}").text
    picture = site.get(f"/models/{job_id}/batch.png")
    assert picture.data == site.get(checked["batch_url"]).data
    assert picture.data.startswith(b"\x89PNG")


@pytest.mark.tensorflow
def test_a_snapshot_is_downloaded_as_a_saved_model(site: Site, trained: str) -> None:
    answer = site.get(f"/models/{trained}/savedmodel.zip?epoch=1")
    assert answer.status_code == 200, answer.text
    assert answer.headers["Content-Disposition"].endswith('_epoch_1_savedmodel.zip"')
    with zipfile.ZipFile(io.BytesIO(answer.data)) as archive:
        assert {"saved_model.pb", "variables/variables.index", "assets.extra/labels.txt"} <= set(
            archive.namelist()
        )
        about = json.loads(archive.read("assets.extra/model.json"))
    assert about["snapshot"] == "snapshot_1.ckpt" and about["outputs"]["output"]["shape"] == [None, 3]
    answer.close()
    assert not list(site.services.folder.glob("previews/*/exported")), "the exported files are removed"
    assert site.get(f"/models/{trained}/savedmodel.zip?epoch=77").status_code == 404
    assert site.get(f"/models/{trained}/savedmodel.rar").status_code == 400
    assert "SavedModel" in site.get(f"/models/{trained}").text


@pytest.mark.tensorflow
def test_an_eager_check_shows_printed_output(site: Site, dataset: str) -> None:
    network = LINEAR.replace(
        "def inference(self):", "def inference(self):\n        print('most', self.x.numpy().max())"
    )
    fields = {"method": "custom", "custom_network": network, "path": PREFLIGHT}
    result = create(site, dataset, eager="1", **fields).get_json()["result"]
    assert result["printed"].startswith("Step 1\nmost ")
    assert len(result["losses"]) == 3
    reported = create(site, dataset, **fields).get_json()["error"]
    assert "numpy" in reported["message"], "not supported in a training"


def test_a_failed_check_queues_no_job(site: Site, dataset: str) -> None:
    before = {job["id"] for job in site.json("/index.json")["models"]}
    answer = create(site, dataset, WRONG_SHAPE, path=PREFLIGHT)
    assert answer.status_code == 400
    assert any(frame["own"] for frame in answer.get_json()["error"]["trace"])
    assert create(site, dataset, path=PREFLIGHT, train_epochs=0).get_json()["errors"].keys() == {
        "train_epochs"
    }
    assert {job["id"] for job in site.json("/index.json")["models"]} == before


def test_a_check_requires_a_finished_dataset(site: Site) -> None:
    unfinished = site.dataset(dataset_name="unfinished")
    answer = create(site, unfinished, path=PREFLIGHT)
    assert answer.status_code == 409
    assert "is not done yet" in answer.text
    assert site.wait_for_end(unfinished) == "Done"


def test_a_network_that_never_finishes_building_is_stopped(
    site: Site, dataset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("digits.runtime.short_tasks.SECONDS_FOR_A_STEP", 2.0)
    endless = changed("flat = tf", "while True: pass\n        flat = tf")
    answer = visualized(site, dataset=dataset, custom_network=endless)
    assert answer.status_code == 400
    assert "endless loop" in answer.get_json()["error"]["hint"]


def test_the_site_works_without_tensorflow_and_reports_it(
    site: Site, dataset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from digits.runtime.tensorflow_support import find_tensorflow

    monkeypatch.setattr(site.services, "tensorflow", find_tensorflow(lambda name: None))
    assert "TensorFlow support is disabled" in site.get("/").text
    answer = visualized(site, dataset=dataset, custom_network=LINEAR)
    assert answer.status_code == 503
    assert "TensorFlow support is disabled" in answer.get_json()["error"]["message"]
