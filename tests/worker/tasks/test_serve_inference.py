"""The inference server of a trained network."""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from digits.core import recipe
from digits.worker.failure import UserFault
from tests.worker import networks
from tests.worker.conftest import gradient
from tests.worker.lazily import calls, predictor, serve_inference

SNAPSHOT = "snapshot_4.ckpt"


@pytest.fixture
def job(trained: Any) -> Path:
    outcome = trained(networks.LINEAR, epochs=4, crop_size=10, snapshot_interval=2)
    assert outcome.values("val", "accuracy")[-1] == 1.0
    return outcome.job_folder


@pytest.fixture
def gradient_image(tmp_path: Path) -> Path:
    """Return a gradient toward the left, larger than the dataset's images and in color."""
    pixels = gradient(1, 30, 3, np.random.default_rng(1))
    Image.fromarray(pixels).save(tmp_path / "left.png")
    return tmp_path / "left.png"


class Client:
    def __init__(self, path: Path) -> None:
        deadline = time.monotonic() + 60
        while True:
            self.socket = socket.socket(socket.AF_UNIX)
            try:
                self.socket.connect(str(path))
                break
            except OSError:
                self.socket.close()
                assert time.monotonic() < deadline
                time.sleep(0.02)
        self.lines = self.socket.makefile("rwb")

    def ask(self, request: Any, attached: Path | None = None) -> Any:
        body = attached.read_bytes() if attached else b""
        if attached:
            request = {**request, "attached": [len(body)]}
        self.lines.write(json.dumps(request).encode() + b"\n" + body)
        self.lines.flush()
        return json.loads(self.lines.readline())

    def close(self) -> None:
        self.lines.close()
        self.socket.close()


@pytest.fixture
def client(job: Path, start: Any) -> Any:
    """A connection to an inference server of the trained network."""
    task = job / "inference"
    task.mkdir()
    path = f"/tmp/digits-test-{os.getpid()}.sock"
    recipe.ServeInference(model=str(job), socket=path, idle_seconds=600).save(task)
    worker = start(task)
    client = Client(Path(path))
    yield client
    client.close()
    worker.stop()
    assert worker.wait().code == 143
    Path(path).unlink(missing_ok=True)


def request(image: Path, snapshot: str = SNAPSHOT, **more: Any) -> dict[str, Any]:
    return {"call": "predict", "image": str(image), "snapshot": snapshot, **more}


def test_predictions_are_correct_and_bad_requests_do_not_end_the_server(
    client: Client, gradient_image: Path, tmp_path: Path
) -> None:
    answer = client.ask(request(gradient_image, top=2))
    assert answer["ok"] and answer["milliseconds"] > 0
    assert answer["predictions"][0][0] == "left"
    assert len(answer["predictions"]) == 2
    everything = client.ask(request(gradient_image, "snapshot_2.ckpt", top=10))["predictions"]
    assert sum(percent for _, percent in everything) == pytest.approx(100, abs=1e-3)
    assert len(everything) == 4

    text = tmp_path / "text.png"
    text.write_text("not an image")
    small, pickled = tmp_path / "small.npy", tmp_path / "pickled.npy"
    np.save(small, np.zeros((3, 3, 3), np.uint8))
    np.save(pickled, np.array([{}]), allow_pickle=True)
    upload = {"call": "predict", "snapshot": SNAPSHOT}
    assert client.ask(upload | {"top": 2}, gradient_image)["predictions"] == answer["predictions"]
    array = upload | {"is_array": True}
    for wrong, attached, status, words in [
        (request(text), None, 400, "image cannot be read"),
        (upload, text, 400, "image cannot be read"),
        (upload, small, 400, "image cannot be read"),
        (upload, None, 400, "lacks an image"),
        (request(tmp_path / "nothing.png"), None, 400, "No such file"),
        (request(gradient_image, "snapshot_9.ckpt"), None, 404, "no snapshot 'snapshot_9.ckpt'"),
        (request(gradient_image, "../model/snapshot_4.ckpt"), None, 404, "no snapshot"),
        (request(gradient_image, top="many"), None, 400, "is invalid"),
        (array, small, 400, "got uint8 [3, 3, 3]"),
        (array, pickled, 400, "pixels cannot be read"),
        (array, text, 400, "pixels cannot be read"),
        (array, None, 400, "lacks an image"),
        ({"call": "sing"}, None, 400, "is invalid"),
        ([1, 2], None, 400, "is invalid"),
    ]:
        answer = client.ask(wrong, attached)
        assert (answer["ok"], answer["status"]) == (False, status), answer
        assert words in answer["message"]
    client.lines.write(b"{not json\n")
    client.lines.flush()
    assert json.loads(client.lines.readline())["status"] == 400
    assert client.ask(request(gradient_image))["predictions"][0][0] == "left"


def test_an_idle_server_ends(job: Path, start: Any, tmp_path: Path) -> None:
    task = job / "inference"
    task.mkdir()
    path = f"/tmp/digits-idle-{os.getpid()}.sock"
    recipe.ServeInference(model=str(job), socket=path, idle_seconds=0.2).save(task)
    assert start(task).wait().code == 0
    assert not Path(path).exists()


@pytest.mark.parametrize(("flops", "threads"), [(10_000_000, 1), (10_000_000_000, 0), (None, 0)])
def test_a_small_network_is_computed_by_one_thread(
    flops: int | None, threads: int, tmp_path: Path, in_own_child: Any
) -> None:
    assert in_own_child(_threads, tmp_path, flops) == threads


def _threads(folder: Path, flops: int | None) -> Any:
    import tensorflow as tf

    path = f"/tmp/digits-threads-{os.getpid()}.sock"
    serve_inference.run(recipe.ServeInference(str(folder), path, idle_seconds=0, flops=flops), folder, None)
    return tf.config.threading.get_intra_op_parallelism_threads()


def test_inference_preprocesses_images_like_training(job: Path, in_child: Any) -> None:
    """Subtract the mean and crop manually, and apply the weights of the snapshot."""
    pixels = gradient(2, 12, 1, np.random.default_rng(3))
    file = job / "down.png"
    Image.fromarray(pixels[:, :, 0]).save(file)
    label, percent = in_child(_classify, job, file)[0]
    expected = in_child(_by_hand, job, pixels)
    assert label == "down"
    assert percent == pytest.approx(expected, rel=1e-4)


def _classify(model: Path, image: Path) -> Any:
    return predictor.Predictor(model, SNAPSHOT).predict(image)


def _by_hand(model: Path, pixels: np.ndarray) -> float:
    from tests.worker.conftest import snapshot

    dataset = Path(recipe.load(model / "train", recipe.Train).dataset)
    weights = snapshot(model, SNAPSHOT)
    x = (pixels - np.load(dataset / "mean.npy"))[1:11, 1:11].reshape(-1) / 100
    logits = x @ weights["model/fc/weights"] + weights["model/fc/biases"]
    return float(100 * np.exp(logits)[2] / np.exp(logits).sum())


def test_an_autoencoder_returns_images(trained: Any, gradient_image: Path, in_child: Any) -> None:
    model = trained(networks.AUTO_ENCODER, **networks.AUTO_ENCODER_SETTINGS).job_folder
    refusal = in_child(_refusal, model, gradient_image, "snapshot_6.ckpt")
    assert "not one value for each of the 4 classes" in refusal


def test_a_changed_network_is_refused(job: Path, gradient_image: Path, in_child: Any) -> None:
    (job / "network.py").write_text(networks.LINEAR.replace("'fc'", "'other'"))
    assert "does not fit the network" in in_child(_refusal, job, gradient_image, SNAPSHOT)


def _refusal(model: Path, image: Path, snapshot: str) -> str:
    try:
        predictor.Predictor(model, snapshot).predict(image)
    except UserFault as refusal:
        return refusal.message
    return ""


def test_a_network_that_rejects_single_images_gets_repeated_ones(
    train: Any, gradient_image: Path, in_child: Any
) -> None:
    """The network squeezes the batch axis of a single image, so the image is repeated."""
    turned = "tf.reshape(tf.transpose(tf.squeeze(self.x), [0, 1, 2]), [-1, 144])"
    outcome = train(networks.LINEAR.replace("self.x", turned), epochs=4)
    predictions = in_child(_classified, outcome.job_folder, gradient_image)
    assert predictions[0][0] == "left" and len(predictions) == 4


def test_a_network_that_squeezes_its_output_keeps_the_batch_axis(
    train: Any, gradient_image: Path, in_child: Any
) -> None:
    """A single image keeps its batch axis, and so does the last record of 22 in batches of seven."""
    network = networks.LINEAR.replace(
        "return slim.fully_connected(", "return tf.squeeze(slim.fully_connected("
    )
    outcome = train(network.replace("scope='fc')", "scope='fc'))"), epochs=4, batch_size=7)
    predictions = in_child(_classified, outcome.job_folder, gradient_image)
    assert predictions[0][0] == "left" and len(predictions) == 4


def _classified(job_folder: Path, gradient_image: Path) -> list[tuple[str, float]]:
    return predictor.Predictor(job_folder, SNAPSHOT).predict(gradient_image)


def test_a_network_that_accepts_no_image_is_refused(train: Any, gradient_image: Path, in_child: Any) -> None:
    numbers = "(tf.reshape(self.x, [-1, 5]) if self.is_inference else self.x)"
    outcome = train(
        networks.LINEAR.replace("slim.flatten(self.x / 100.0)", f"slim.flatten({numbers})[:, :5]")
    )
    refusal = in_child(_refusal, outcome.job_folder, gradient_image, "snapshot_2.ckpt")
    assert refusal.startswith("The network cannot compute its output")


ENCODER = """class UserModel(Tower):
    @model_property
    def inference(self):
        return slim.fully_connected(slim.flatten(self.x / 100.0), {columns})

    @model_property
    def loss(self):
        return digits.mse_loss(slim.fully_connected(self.inference, 144, scope='decode'), slim.flatten(self.x / 100.0))
"""


# Four columns are as many as there are classes.
@pytest.mark.parametrize("columns", [4, pytest.param(50, marks=pytest.mark.nightly)])
def test_an_output_that_is_not_a_classification_has_no_classes(
    train: Any, gradient_image: Path, in_child: Any, columns: int
) -> None:
    """This holds for any number of columns, because the loss does not use labels."""
    still = {"type": "SGD", "learning_rate": 0.0}
    outcome = train(ENCODER.format(columns=columns), epochs=1, solver=still)
    refusal = in_child(_refusal, outcome.job_folder, gradient_image, "snapshot_1.ckpt")
    assert refusal.startswith(f"The network's output has shape [N, {columns}], not one value for each")


def test_a_network_may_have_more_outputs_than_classes(
    train: Any, gradient_image: Path, in_child: Any
) -> None:
    outcome = train(networks.LINEAR.replace("self.nclasses", "self.nclasses + 6"), epochs=4)
    assert in_child(_classified, outcome.job_folder, gradient_image)[0][0] == "left"


def test_a_network_that_requires_its_training_batch_size_gets_it(
    train: Any, gradient_image: Path, in_child: Any
) -> None:
    fixed = networks.LINEAR.replace("self.x /", "tf.reshape(self.x, [8, 12, 12, 1]) /")
    outcome = train(fixed, epochs=4, val_interval=0)
    assert in_child(_classified, outcome.job_folder, gradient_image)[0][0] == "left"


def test_an_error_in_the_network_is_shown_with_its_line(
    train: Any, gradient_image: Path, in_child: Any
) -> None:
    for mistake, words in (
        ("model = self.nothing if self.is_inference else slim.flatten", "Line 5: AttributeError"),
        (
            "self.x = tf.concat(tf.split(self.x, 3 if self.is_inference else 1), 0); model = slim.flatten",
            "cannot compute its output from an image. Line 5: ",
        ),
    ):
        text = networks.LINEAR.replace("model = slim.flatten", mistake)
        outcome = train(text, name=words[:6], epochs=1)
        answer = in_child(_answer, outcome.job_folder, request(gradient_image, "snapshot_1.ckpt"))
        assert (answer["ok"], answer["status"]) == (False, 400)
        assert words in answer["message"]
        assert answer["trace"][0]["own"] and answer["trace"][0]["line"] == 5


def _answer(model: Path, asked: dict[str, Any]) -> dict[str, Any]:
    return serve_inference.Service(model).answer(asked, [])[0]


def test_outputs_are_attached_up_to_a_size(job: Path, gradient_image: Path, in_own_child: Any) -> None:
    (answer, texts), (refused, none), (described, omitted) = in_own_child(_bounded, job, gradient_image)
    assert answer["names"] == ["output"] and answer["omitted"] == []
    assert len(json.loads(texts[0])) == 4
    assert refused["status"] == 400 and "4 numbers, which are too many for JSON" in refused["message"]
    assert "NumPy" in refused["hint"] and none == []
    assert [output["attached"] for output in described["outputs"]] == [False] and omitted == []


def _bounded(model: Path, image: Path) -> list[Any]:
    service = serve_inference.Service(model)
    whole = service.answer(request(image, values=True), [])
    calls.MAX_TEXT_BYTES = 20
    refused = service.answer(request(image, values=True), [])
    calls.MAX_OUTPUT_BYTES = 15
    return [whole, refused, service.answer(request(image, outputs=True), [])]
