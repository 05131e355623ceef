"""Networks in the style of the examples of DIGITS 6, on ready-made records: embeddings of pairs, and of words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.site import Site
from tests.tfrecord_files import example, write_records

SIAMESE = """
from model import Tower
from utils import model_property
import tensorflow as tf
import tensorflow.contrib.slim as slim
import utils as digits

class UserModel(Tower):
    @model_property
    def inference(self):
        _, left, right = tf.split(self.x / 255.0, 3, 3, name='channels')
        with slim.arg_scope([slim.fully_connected], weights_regularizer=slim.l2_regularizer(0.0005)):
            with tf.variable_scope('twins') as scope:
                def embed(net):
                    return slim.fully_connected(slim.flatten(net), 2, activation_fn=None, scope='fc')

                left = embed(left)
                scope.reuse_variables()
                return [left, embed(right)]

    @model_property
    def loss(self):
        y = tf.to_float(tf.reshape(self.y, shape=[-1]))
        return digits.constrastive_loss(self.inference[0], self.inference[1], y)
"""
# The words of a story and of a question; row 0 of the embeddings stays zero.
MEMORY = """
class UserModel(Tower):
    @model_property
    def inference(self):
        x = tf.to_int32(tf.reshape(self.x, shape=[-1] + self.input_shape))
        stories, questions = tf.unpack(x, axis=3)
        words = tf.get_variable('words', [8, 6], initializer=tf.random_normal_initializer(stddev=0.3))
        self._words = words.name
        asked = tf.reduce_sum(tf.nn.embedding_lookup(words, questions[:, 0, :]), 1)
        for _ in xrange(2):
            told = tf.reduce_sum(tf.nn.embedding_lookup(words, stories), 2)
            fit = tf.nn.softmax(tf.reduce_sum(told * tf.expand_dims(asked, 1), 2))
            asked = asked + tf.reduce_sum(told * tf.expand_dims(fit, 2), 1)
        return tf.matmul(asked, tf.get_variable('answers', [6, 8]))

    @model_property
    def loss(self):
        y = tf.to_int64(self.y[:, 0, 0, 0], name='y_int')
        self.summaries.append(tf.scalar_summary('right', digits.classification_accuracy(self.inference, y)))
        return digits.classification_loss(self.inference, y)

    def gradientUpdate(self, grads_and_vars):
        def keep_first(g):
            g = tf.convert_to_tensor(g)
            return tf.concat(0, [tf.zeros(tf.pack([1, tf.shape(g)[1]])), tf.slice(g, [1, 0], [-1, -1])])

        clipped = [(tf.clip_by_norm(g, 40.0), v) for g, v in grads_and_vars]
        return [(keep_first(g) if v.name == self._words else g, v) for g, v in clipped]
"""


def pairs(count: int = 40) -> list[bytes]:
    """Images of 4×4 pixels: noise of one of two kinds in each of the channels green and blue."""
    chance = np.random.default_rng(0)
    made = []
    for _ in range(count):
        first, second = chance.integers(0, 2, 2)
        pixels = np.zeros((4, 4, 3), np.uint8)
        for channel, kind in ((1, first), (2, second)):
            pixels[2 * kind : 2 * kind + 2, :, channel] = chance.integers(150, 255, (2, 4))
        made.append(example(image=pixels.tobytes(), same=float(first == second)))
    return made


def stories(count: int = 200) -> list[bytes]:
    """Two sentences of a name (1 to 3) and a place (4 to 6), a name as the question, and its place as the answer."""
    chance = np.random.default_rng(0)
    made = []
    for _ in range(count):
        words = np.zeros((2, 2, 2), int)
        names = chance.choice(np.arange(1, 4), 2, replace=False)
        words[:, 0, 0], words[:, 1, 0] = names, chance.integers(4, 7, 2)
        asked = int(chance.integers(2))
        words[0, 0, 1] = names[asked]
        made.append(example(story=words.ravel().tolist(), answer=int(words[asked, 1, 0])))
    return made


def train(
    site: Site, payloads: list[bytes], network: str, epochs: int, **fields: Any
) -> tuple[str, dict[str, Any]]:
    """Train on records; return the model and its validation metrics."""
    path = write_records(site.data / "a.tfrecord", payloads)
    dataset = site.create("images/generic", record_train=path, **fields)
    settings = {"train_epochs": epochs, "val_interval": epochs, "snapshot_interval": epochs}
    settings |= {"batch_size": 10, "learning_rate": 0.02}
    model = site.train("images/generic", dataset, method="custom", custom_network=network, **settings)
    return model, site.json(f"/models/{model}/metrics.json")["val"]["values"]


@pytest.mark.tensorflow
def test_pairs_of_images_are_embedded(site: Site) -> None:
    model, metrics = train(site, pairs(), SIAMESE, 20)
    assert metrics["loss"][-1] < metrics["loss"][0] / 2
    fields = {"job_id": model, "db_path": str(site.data / "a.tfrecord"), "num_test_images": 3}
    found = site.post("/models/images/generic/infer_db.json", **fields).get_json()["outputs"]
    assert {np.shape(item["output"]) for item in found.values()} == {(2, 2)}


@pytest.mark.tensorflow
def test_questions_about_stories_are_answered(site: Site) -> None:
    shapes = {"input_feature": "story", "input_shape": "2×2×2", "target_feature": "answer"}
    _, metrics = train(site, stories(), MEMORY, 12, target_shape="1×1×1", **shapes)
    assert metrics["loss"][-1] < metrics["loss"][0]
    assert metrics["right"][-1] > 0.6
