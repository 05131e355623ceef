"""Trainings with augmentation or class balancing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from digits.core import events
from tests.worker import networks
from tests.worker.conftest import snapshot, write_dataset
from tests.worker.lazily import api, target_tensors, tf

# Measures the input images as metrics.
WATCHED = networks.classifier(
    """
self.summaries.append(tf.summary.scalar('mean', tf.reduce_mean(self.x)))
self.summaries.append(tf.summary.scalar('deviation', tf.math.reduce_std(self.x)))
model = slim.flatten(self.x / 100.0)
return slim.fully_connected(model, self.nclasses, activation_fn=None, scope='fc')
"""
)

OTHER_LOSS = networks.LINEAR.replace(
    "return digits.classification_loss(self.inference, self.y)",
    "return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits("
    "labels=self.y, logits=self.inference))",
)

EVERYTHING = {
    "flip": "fliplr",
    "rotation": 10,
    "scale": 0.1,
    "noise": 0.02,
    "contrast": 0.1,
    "hsv_value": 0.05,
    "pad_crop": 1,
    "cutout": 2,
    "mixup": 0.2,
    "cutmix": 1,
    "randaugment": 0.2,
}


def test_augmentations_are_reproducible_and_do_not_depend_on_the_batches_of_a_step(train: Any) -> None:
    settings = {"augment": EVERYTHING, "balance": "class_weights", "crop_size": 10, "epochs": 1}
    whole = train(networks.LINEAR, name="whole", batch_size=16, **settings)
    again = train(networks.LINEAR, name="again", batch_size=16, **settings)
    parts = train(networks.LINEAR, name="parts", batch_size=4, batch_accumulation=4, **settings)
    weights, same, close = (
        snapshot(outcome.job_folder, "snapshot_1.ckpt") for outcome in (whole, again, parts)
    )
    for name, values in weights.items():
        assert np.array_equal(values, same[name]), name
        assert np.allclose(values, close[name], rtol=1e-3, atol=1e-5), name


@pytest.mark.parametrize(
    "settings",
    [pytest.param({"xla": True}, marks=pytest.mark.nightly), {"precision": "mixed_bfloat16"}],
    ids=["xla", "half"],
)
def test_all_augmentations_work_with_other_device_settings(train: Any, settings: dict[str, Any]) -> None:
    augment = {**EVERYTHING, "whitening": True}
    # Whitened images are not scaled again.
    network = networks.KERAS_LINEAR.replace("0.0, 0.0, 0.01", "0.0, 0.0, 1.0")
    outcome = train(network, augment=augment, balance="class_weights", crop_size=10, **settings)
    assert not outcome.of(events.Warned)
    assert outcome.values("val", "loss")[-1] < outcome.values("val", "loss")[0]


def test_validation_is_never_augmented(train: Any) -> None:
    still = {"solver": {"learning_rate": 0}, "mean": "none"}
    plain = train(WATCHED, name="plain", **still)
    changed = train(WATCHED, name="changed", augment={"noise": 0.5, "contrast": 0.9}, **still)
    assert plain.values("val", "mean")[0] == pytest.approx(120, abs=5)  # no mean image is subtracted
    assert plain.values("val", "deviation") == changed.values("val", "deviation")
    assert changed.values("train", "deviation")[0] > 1.2 * plain.values("train", "deviation")[0]


def test_standardization_applies_to_all_stages(train: Any, in_child: Any) -> None:
    outcome = train(WATCHED, augment={"whitening": True})
    for stage in ("train", "val"):
        assert np.allclose(outcome.values(stage, "mean"), 0, atol=1e-4)
        assert np.allclose(outcome.values(stage, "deviation"), 1, atol=1e-3)
    assert in_child(_seen_by_classifier, outcome.job_folder) == pytest.approx(1, abs=1e-3)


def _seen_by_classifier(job: Path) -> float:
    from digits.worker.training.models import trained

    pixels = np.random.default_rng(1).integers(0, 256, (1, 12, 12, 1), np.uint8)
    return float(tf.math.reduce_std(trained.load(job, "snapshot_2.ckpt").prepare(tf.constant(pixels))))


def test_invalid_augmentations_are_refused(fail: Any) -> None:
    outcome = fail(networks.LINEAR, augment={"blur": 3})
    assert "unknown field `blur` - at `$.augment`" in outcome.failure.message


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"augment": {"mixup": 0.2}}, "MixUp and CutMix require"),
        ({"balance": "class_weights"}, "Class weights require"),
    ],
)
def test_blending_requires_a_suitable_loss(fail: Any, settings: dict[str, Any], words: str) -> None:
    outcome = fail(OTHER_LOSS, **settings)
    assert outcome.failure.message.startswith(words)
    assert "digits.classification_loss" in outcome.failure.hint


def test_an_autoencoder_accepts_blended_images(train: Any) -> None:
    solver = {"type": "ADAM", "learning_rate": 0.001}
    train(networks.AUTO_ENCODER, epochs=1, augment={"mixup": 0.2}, solver=solver)


def test_a_blended_image_counts_for_both_labels(in_child: Any) -> None:
    plain, blended, expected = in_child(_losses)
    assert blended == pytest.approx(expected, rel=1e-5)
    assert blended != pytest.approx(plain, rel=1e-2)


def _losses() -> tuple[float, float, float]:
    logits = tf.constant([[2.0, 0.0], [0.5, 1.0]])
    labels, others = tf.constant([0, 1], tf.int64), tf.constant([1, 0], tf.int64)
    share, weights, other_weights = (
        tf.constant([0.75, 0.25]),
        tf.constant([1.0, 3.0]),
        tf.constant([3.0, 1.0]),
    )
    given = {
        "y": labels,
        "others": others,
        "share": share,
        "weights": weights,
        "other_weights": other_weights,
    }

    @tf.function(autograph=False)
    def losses() -> Any:
        plain = api.classification_loss(logits, labels)
        with target_tensors.use_targets(given) as y:
            blended = api.classification_loss(logits, y)
        return plain, blended

    logs = -tf.nn.log_softmax(logits).numpy()
    first = (0.75 * 1 * logs[0, 0] + 0.25 * 3 * logs[0, 1]) / 2
    second = (0.25 * 3 * logs[1, 1] + 0.75 * 1 * logs[1, 0]) / 2
    plain, blended = losses()
    return float(plain), float(blended), float(first + second)


# Nine to one, with indistinguishable classes: only their frequency matters.
BIAS = networks.classifier(
    """
bias = tf.get_variable('bias', [self.nclasses], initializer=tf.zeros_initializer())
share = tf.nn.softmax(bias)
for number in range(self.nclasses):
    self.summaries.append(tf.summary.scalar('share_%d' % number, share[number]))
return tf.zeros_like(self.x[:, :1, 0, 0]) + bias
"""
)


@pytest.fixture(scope="session")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of 180 records of the class ``right`` and 20 of ``left``."""
    return write_dataset(
        tmp_path_factory.mktemp("uneven"),
        {"train": 200, "val": 20},
        size=4,
        channels=1,
        classes=2,
        labels_of=_nine_to_one,
    )


def _nine_to_one(number: int) -> int:
    return int(number % 10 == 0)


@pytest.mark.parametrize(
    ("balance", "share"),
    [pytest.param("none", 0.1, marks=pytest.mark.nightly), ("class_weights", 0.5), ("sampling", 0.5)],
)
def test_a_rare_class_is_learned_as_well_as_a_common_one(
    train: Any, uneven: Path, balance: str, share: float
) -> None:
    solver = {"type": "MOMENTUM", "learning_rate": 0.05}
    outcome = train(BIAS, dataset=str(uneven), epochs=10, batch_size=20, balance=balance, solver=solver)
    assert outcome.values("val", "share_1")[-1] == pytest.approx(share, abs=0.06)
    # Validation weights all records equally.
    last = outcome.values("val", "share_1")[-1]
    expected = -0.9 * np.log(1 - last) - 0.1 * np.log(last)
    assert outcome.values("val", "loss")[-1] == pytest.approx(expected, rel=1e-3)


def test_a_training_reports_how_its_input_is_prepared(trained: Any) -> None:
    found = trained(networks.LINEAR).of(events.InputPrepared)
    assert [(prepared.split, prepared.how, prepared.records) for prepared in found] == [
        ("train", "resident", 64),
        ("val", "resident", 22),
    ]
