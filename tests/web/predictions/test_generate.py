"""Images generated from latent vectors over HTTP, by networks as in published GANs."""

from __future__ import annotations

import base64
import io
from typing import Any

import pytest
from PIL import Image

from digits.kinds.jobs import DatasetJob
from tests.site import Site

# One loss and no discriminator. The vectors of inference are [N, 6 + classes].
CONDITIONAL = """
class UserModel(Tower):
    def __init__(self, *args, **kwargs):
        super(UserModel, self).__init__(*args, **kwargs)
        self.batch_size = tf.shape(self.x)[0]
        if self.is_inference:
            self.x = tf.reshape(self.x, shape=[self.batch_size, 6 + self.nclasses])
            z, y = self.x[:, :6], self.x[:, 6:]
        else:
            z, y = tf.random_normal([self.batch_size, 6]), tf.one_hot(self.y, self.nclasses)
        with tf.variable_scope('generator'):
            w = tf.get_variable('g_w', [6 + self.nclasses, 256], initializer=tf.random_normal_initializer(stddev=0.3))
        self.G = tf.nn.sigmoid(tf.reshape(tf.matmul(tf.concat(1, [z, y]), w), [self.batch_size, 16, 16, 1]))

    @model_property
    def inference(self):
        return tf.to_int32(self.G * 255)

    @model_property
    def loss(self):
        variables = [v for v in tf.trainable_variables() if 'g_' in v.name]
        return [{'loss': digits.mse_loss(self.G, self.x / 255.0), 'vars': variables}]
"""
# Two images for each vector; the loss does not use the labels.
TWO_IMAGES = """
class UserModel(Tower):
    @model_property
    def inference(self):
        z = tf.reshape(self.x, [-1, 5]) if self.is_inference else tf.random_normal([tf.shape(self.x)[0], 5])
        layer = tf.layers.dense(z, 256)
        self.picture = tf.reshape(layer, [-1, 16, 16, 1])
        return [self.picture, 255 - self.picture]

    @model_property
    def loss(self):
        return digits.mse_loss(self.inference[0], self.x)
"""


def train(site: Site, dataset: str, network: str, kind: str = "classification") -> str:
    answer = site.post(
        f"/models/images/{kind}.json",
        model_name="generator",
        dataset=dataset,
        method="custom",
        custom_network=network,
        train_epochs=1,
        random_seed=1,
        batch_size=8,
        histograms="y",
    )
    assert answer.status_code == 200, answer.get_json()
    model = str(answer.get_json()["id"])
    assert site.wait_for_end(model) == "Done"
    return model


def generate(site: Site, **fields: object) -> Any:
    return site.post("/models/images/classification/generate.json", **fields)


def opened(uri: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2])))


@pytest.mark.tensorflow
def test_models_generate_images_from_latent_vectors(site: Site) -> None:
    dataset = site.wait_until_done(site.dataset(resize_width=16, resize_height=16, resize_channels=1, seed=1))
    model = train(site, dataset, CONDITIONAL)
    page = site.get(f"/models/{model}").text
    assert 'id="generate-panel"' in page
    assert "Epoch 1" in page and "(best)" not in page

    found = generate(site, job_id=model, rows=2, columns=4, seed=3).get_json()
    classes = len(found["classes"])
    assert classes > 1 and found["seed"] == 3
    assert (found["width"], found["height"]) == (16, 16)
    assert opened(found["grid"]).size == (4 * 18 - 2, 2 * 18 - 2)
    assert [len(vector) for vector in found["vectors"]] == [6 + classes] * 8
    assert opened(found["images"][5][0]).size == (16, 16)
    again = generate(site, job_id=model, rows=2, columns=4, seed=3).get_json()
    assert again["grid"] == found["grid"]

    # The vectors of an image generate it again.
    lines = "\n".join(str(vector) for vector in found["vectors"][4:6])
    own = generate(site, job_id=model, rows=1, columns=2, seed=9, vectors=lines).get_json()
    assert own["images"] == found["images"][4:6]
    line = generate(site, job_id=model, rows=1, columns=3, vectors=lines, interpolate="y", label=0).get_json()
    assert line["vectors"][0] == pytest.approx(found["vectors"][4], abs=1e-5)

    animated = generate(
        site, job_id=model, rows=2, columns=3, view_extension_id="image-gan", gan_view_task_id="animation"
    ).get_json()
    assert (opened(animated["animation"]).format, len(animated["images"])) == ("GIF", 6)
    assert animated["vectors"][2] == animated["vectors"][3]

    part = site.client.post(
        "/models/images/classification/generate",
        data={"job_id": model, "rows": 1, "columns": 2, "seed": 3},
        headers={"X-Fragment": "prediction"},
    ).text
    assert 'download="generated-3.png"' in part and "Latent vectors" in part
    outputs = site.post("/models/images/generic/infer_extension.json", job_id=model, rows=1, columns=2)
    values = outputs.get_json()["outputs"]
    assert set(values) == {"0", "1"} and len(values["1"]["output"]) == 16

    for fields, message in (
        ({"rows": 0}, "“rows” must be an integer from 1 to 50"),
        ({"vectors": "1 2 x"}, "“1 2 x” is not a vector"),
        ({"vectors": "1 2"}, f"A vector has 2 numbers; the network requires 6 or {6 + classes}"),
        ({"label": classes}, f"The network has no class {classes}"),
    ):
        refused = generate(site, job_id=model, **fields)
        assert refused.status_code == 400 and message in refused.get_json()["error"]["message"]
    picture = next(site.data.rglob("*.png"))
    refused = site.post(
        "/models/images/classification/classify_one.json", job_id=model, image_path=str(picture)
    )
    assert "not from an image" in refused.get_json()["error"]["message"]

    # The records of a dataset are also a source of ready-made records.
    records = site.services.store.get(dataset, DatasetJob).folder
    copy = site.post("/datasets/images/generic.json", dataset_name="copy", record_train=str(records))
    copy_id = copy.get_json()["id"]
    assert site.wait_for_end(copy_id) == "Done"
    model = train(site, copy_id, CONDITIONAL, "generic")
    found = site.post(
        "/models/images/generic/generate.json", job_id=model, rows=1, columns=3, label=1
    ).get_json()
    assert found["classes"] == [str(number) for number in range(classes)]
    assert all(vector[6:] == [0, 1] + [0] * (classes - 2) for vector in found["vectors"])

    two = train(site, dataset, TWO_IMAGES)
    found = generate(site, job_id=two, rows=1, columns=2, seed=1).get_json()
    assert found["classes"] == [] and [len(several) for several in found["images"]] == [2, 2]
    assert opened(found["grid"]).size == (2 * 34 - 2, 16)
