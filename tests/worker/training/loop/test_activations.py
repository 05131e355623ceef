"""Histograms of activations, next to those of weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.worker import networks
from tests.worker.conftest import snapshot, write_dataset
from tests.worker.lazily import tensorboard_log

WITH_HISTOGRAMS = {"epochs": 8, "solver": {"type": "ADAM", "learning_rate": 0.01}, "histograms": True}


def histograms(folder: Path) -> dict[str, list[tuple[int, Any]]]:
    """Return steps and histograms by tag."""
    from tensorflow.compat.v1.train import summary_iterator

    found: dict[str, list[tuple[int, Any]]] = {}
    for file in sorted(folder.glob("*tfevents*")):
        for event in summary_iterator(str(file)):
            for value in event.summary.value:
                if value.HasField("histo"):
                    histo = value.histo
                    kept = (
                        histo.min,
                        histo.max,
                        histo.num,
                        histo.sum,
                        list(histo.bucket),
                        list(histo.bucket_limit),
                    )
                    found.setdefault(value.tag, []).append((event.step, kept))
    return found


@pytest.mark.parametrize(
    ("network", "names", "positive"),
    [
        (networks.BATCH_NORM.replace("{arguments}", ""), ["conv", "conv/BatchNorm", "fc", "bn", "out"], "fc"),
        (
            networks.KERAS_LENET,
            ["conv2d", "batch_normalization", "max_pooling2d", "dense", "dense_1"],
            "dense",
        ),
        pytest.param(networks.TF_LAYERS, ["first", "norm", "last"], "first", marks=pytest.mark.nightly),
        (networks.RAW, ["conv", "MaxPool", "MatMul"], "conv"),
    ],
    ids=["slim", "keras", "tf.layers", "raw"],
)
def test_every_layer_has_a_histogram_of_its_activations(
    trained: Any, network: str, names: list[str], positive: str
) -> None:
    outcome = trained(network, **WITH_HISTOGRAMS)
    shown = histograms(outcome.job_folder / "tb" / "val")
    tags = {f"activations/{name}" for name in names}
    assert tags <= set(shown), sorted(shown)
    for tag, of_tag in shown.items():
        assert [step for step, _ in of_tag] == list(range(8, 65, 8)), tag
        for _, (least, largest, count, total, bins, limits) in of_tag:
            assert count > 0 and least <= total / count <= largest
            assert sum(bins) == count and limits[-1] == pytest.approx(largest) and len(bins) == len(limits)
    assert min(least for _, (least, *_) in shown[f"activations/{positive}"]) == 0  # a ReLU
    assert min(least for _, (least, *_) in shown[f"activations/{names[-1]}"]) < 0  # logits


def test_without_validation_the_first_training_images_are_used(train: Any, tmp_path: Path) -> None:
    write_dataset(tmp_path, {"train": 16}, size=12, channels=1)
    outcome = train(networks.LINEAR, dataset=str(tmp_path), epochs=1, histograms=True)
    shown = histograms(outcome.job_folder / "tb" / "train")
    ((step, (_, _, count, *_)),) = shown["activations/fc"]
    assert (step, count) == (2, 8 * 4)


@pytest.mark.usefixtures("own_process")  # TensorFlow has one generator for a whole process
def test_histograms_do_not_affect_the_training(train: Any) -> None:
    """Network state and random numbers of TensorFlow and NumPy are unchanged."""
    network = networks.classifier(
        """
x = slim.flatten(self.x / 100.0)
x += 0.1 * tf.random.get_global_generator().normal([144])
x *= tf.reshape(tf.py_func(lambda: np.float32(np.random.uniform(0.9, 1.1)), [], tf.float32), [])
calls = tf.get_variable('calls', [], tf.int64, initializer=tf.zeros_initializer(), trainable=False)
calls.assign_add(1)
return slim.fully_connected(slim.dropout(x, 0.8, is_training=True), self.nclasses, activation_fn=None)
"""
    )
    looked, without = (
        snapshot(train(network, name=str(wanted), histograms=wanted).job_folder, "snapshot_2.ckpt")
        for wanted in (True, False)
    )
    assert set(looked) == set(without)
    for name, value in looked.items():
        assert np.array_equal(value, without[name]), name


def test_a_histogram_counts_every_finite_number_once(in_child: Any) -> None:
    values = np.array([1.0, 2.0, 2.0, 5.0, np.nan, np.inf], np.float32)
    least, largest, count, total, squares, *bins = in_child(_spread, values)
    assert (least, largest, count, total, squares) == (1, 5, 4, 10, 34)
    assert sum(bins) == 4 and bins[0] == 1 and bins[-1] == 1
    assert in_child(_spread, np.full([3, 2], 7.0, np.float16))[:5] == [7, 7, 6, 42, 294]
    assert in_child(_spread, np.zeros([0], np.float32))[2] == 0


def _spread(values: np.ndarray) -> list[float]:
    return tensorboard_log.spread(values).numpy().tolist()


def test_a_network_that_needs_labels_for_inference_has_histograms(train: Any) -> None:
    network = networks.LINEAR.replace(
        "self.x / 100.0", "self.x / 100.0 + 0.0 * tf.cast(self.y, tf.float32)[0]"
    )
    outcome = train(network, epochs=1, histograms=True)
    assert "activations/fc" in histograms(outcome.job_folder / "tb" / "val")
