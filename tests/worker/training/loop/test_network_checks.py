"""What the check before a training says about networks whose numbers would mislead."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from digits.core import events
from digits.data.targets.class_index import ClassIndex
from tests.worker import networks
from tests.worker.lazily import label_flow, network_loader, tf, tower, variables

CHANCE, BATCH, SLOW, PROBABILITIES, LOGITS, ACTIVATION, TWICE = (
    "something else for the same image each time",
    "depends on the other images of its batch",
    "moving averages such as",
    "the loss takes the logarithm of probabilities",
    "already, so the network learns slowly",
    "the results of an activation",
    "scaled twice",
)
FLAT = "x = slim.flatten(self.x / 100.0)"
CONVOLUTION = "x = tf.keras.layers.Conv2D(4, 3)(self.x / 100.0)"
OUT = "return tf.keras.layers.Dense(self.nclasses)(tf.keras.layers.Flatten()(x))"
LOSS = "digits.classification_loss(self.inference, self.y)"


def network(*lines: str, loss: str = LOSS, head: str = "") -> str:
    return networks.classifier("\n".join(lines), head=head).replace(LOSS, loss)


# The text, the line that the warning names, counted in the body of inference or None for one in the loss.
PREDICTIONS = {
    "keras dropout": (CHANCE, [FLAT, "x = tf.keras.layers.Dropout(0.5)(x, training=True)", OUT], 2),
    "weak dropout": (CHANCE, [FLAT, "x = tf.keras.layers.Dropout(0.02)(x, training=True)", OUT], 2),
    "slim dropout": (CHANCE, [FLAT, "x = slim.dropout(x, 0.8)", OUT], 2),
    "tf dropout": (CHANCE, [FLAT, "x = tf.nn.dropout(x, 0.5)", OUT], 2),
    "noise": (CHANCE, [FLAT, "x += tf.random_normal(tf.shape(x), stddev=0.1)", OUT], 2),
    "augmentation": (CHANCE, ["x = tf.keras.layers.RandomFlip()(self.x, training=True)", OUT], 1),
    "keras normalization": (
        BATCH, [CONVOLUTION, "x = tf.keras.layers.BatchNormalization()(x, training=True)", OUT], 2
    ),
    "slim normalization": (BATCH, [CONVOLUTION, "x = slim.batch_norm(x)", OUT], 2),
    "tf.layers": (
        BATCH, [CONVOLUTION, "x = tf.layers.batch_normalization(x, training=True)", OUT], 2
    ),
    "moments": (
        BATCH,
        [FLAT, "mean, variance = tf.nn.moments(x, [0])", "x = (x - mean) / tf.sqrt(variance + 1e-3)", OUT],
        2,
    ),
    "mean of the batch": (BATCH, [FLAT, "x = x - tf.reduce_mean(x, 0)", OUT], 2),
    "largest of the batch": (BATCH, [FLAT, "x = x / tf.reduce_max(x)", OUT], 2),
    "attention between images": (BATCH, [FLAT, "x = tf.matmul(tf.nn.softmax(tf.matmul(x, x, transpose_b=True) / 100.), x)", OUT], 2),
}  # fmt: skip

HARMLESS = {
    "dropout": [FLAT, "x = tf.keras.layers.Dropout(0.5)(x)", "x = slim.dropout(x, is_training=self.is_training)", OUT],
    "normalization": [CONVOLUTION, "x = tf.keras.layers.BatchNormalization(momentum=0.8)(x)", OUT],
    "slim normalization": [CONVOLUTION, "x = slim.batch_norm(x, is_training=self.is_training, decay=0.8)", OUT],
    "layer normalization": [CONVOLUTION, "x = tf.keras.layers.LayerNormalization()(x)", OUT],
    "moments of an image": [
        CONVOLUTION, "mean, variance = tf.nn.moments(x, [1, 2], keep_dims=True)", "x = (x - mean) / tf.sqrt(variance + 1e-3)", OUT,
    ],
    "zero initial weights": [FLAT, "return tf.keras.layers.Dense(self.nclasses, kernel_initializer='zeros')(x)"],
    "temperature": [FLAT, "return tf.keras.layers.Dense(self.nclasses)(x) / 100.0 + 1.0"],
    "leaky relu": [FLAT, "return tf.nn.leaky_relu(tf.keras.layers.Dense(self.nclasses)(x))"],
    "soft cap": [FLAT, "return 30.0 * tf.tanh(tf.keras.layers.Dense(self.nclasses)(x) / 30.0)"],
    "relu before pooling": [CONVOLUTION, "x = slim.conv2d(x, self.nclasses, [1, 1])", "return tf.reduce_mean(x, [1, 2])"],
    "rescaling": ["x = tf.keras.layers.Rescaling(1 / 255)(self.x)", "x = tf.keras.layers.Conv2D(4, 3)(x)", OUT],
    "standardized": ["x = tf.image.per_image_standardization(self.x)", "x = tf.keras.layers.Conv2D(4, 3)(x)", OUT],
    "twice but normalized": [
        "x = self.x / 255.0 / 255.0", "x = tf.keras.layers.BatchNormalization(momentum=0.5, epsilon=1e-12)(x)", "x = tf.keras.layers.Conv2D(4, 3)(x)", OUT,
    ],
}  # fmt: skip


def warnings_of(outcome: Any) -> list[str]:
    assert outcome.code == 0, outcome.output
    return [event.message for event in outcome.of(events.Warned)]


def line_of(message: str, text: str, line: str) -> bool:
    found = re.match(r"Line (\d+): ", message)
    return bool(found) and line in text.split("\n")[int(found[1]) - 1]


def some(table: dict[str, Any], *names: str) -> list[Any]:
    """Return the names in ``table``, all but some ``names`` for the nightly tests."""
    return [name if name in names else pytest.param(name, marks=pytest.mark.nightly) for name in table]


@pytest.mark.parametrize(
    "name", some(PREDICTIONS, "keras dropout", "slim normalization", "largest of the batch")
)
def test_predictions_that_depend_on_chance_or_the_batch_are_named_with_their_line(
    preflight: Any, name: str
) -> None:
    words, lines, line = PREDICTIONS[name]
    text = network(*lines)
    (message,) = warnings_of(preflight(text, epochs=400))
    assert words in message and line_of(message, text, lines[line - 1]), message


@pytest.mark.parametrize("name", some(HARMLESS, "slim normalization", "zero initial weights"))
def test_usual_networks_cause_no_warnings(preflight: Any, name: str) -> None:
    assert warnings_of(preflight(network(*HARMLESS[name]), epochs=20)) == []


KERAS_NORM = "x = tf.keras.layers.BatchNormalization(momentum={})(x)"
SLIM_NORM = "x = slim.batch_norm(x, is_training=self.is_training, decay={})"


@pytest.mark.parametrize(
    ("line", "momentum", "epochs", "is_slow"),
    [
        (KERAS_NORM, 0.999, 10, True),
        (KERAS_NORM, 0.9, 3, False),
        *(
            pytest.param(*each, marks=pytest.mark.nightly)
            for each in (
                (KERAS_NORM, 0.99, 1, True),
                (KERAS_NORM, 0.99, 40, False),
                (SLIM_NORM, 0.999, 10, True),
                (SLIM_NORM, 0.9, 3, False),
                (
                    "x = tf.layers.batch_normalization(x, training=self.is_training, momentum={})",
                    0.999,
                    10,
                    True,
                ),
            )
        ),
    ],
)
def test_slow_moving_averages_are_measured(
    preflight: Any, line: str, momentum: float, epochs: int, is_slow: bool
) -> None:
    lines = [CONVOLUTION, line.format(momentum), OUT]
    text = network(*lines)
    found = warnings_of(preflight(text, epochs=epochs, solver={"type": "MOMENTUM", "learning_rate": 0.01}))
    assert len(found) == is_slow
    for message in found:
        assert SLOW in message and f"keep {momentum:g} of" in message and line_of(message, text, lines[1]), (
            message
        )


DENSE = "return tf.keras.layers.Dense(self.nclasses{})(x)"
KERAS_LOSS = "tf.reduce_mean(tf.keras.losses.{}(self.y, self.inference))"
ONE_HOT = "tf.one_hot(self.y, self.nclasses)"
LOSSES = {
    "sparse logits": (PROBABILITIES, DENSE.format(""), "tf.keras.losses.SparseCategoricalCrossentropy()(self.y, self.inference)"),
    "sparse function": (PROBABILITIES, DENSE.format(""), KERAS_LOSS.format("sparse_categorical_crossentropy")),
    "categorical logits": (PROBABILITIES, DENSE.format(""), f"tf.keras.losses.CategoricalCrossentropy()({ONE_HOT}, self.inference)"),
    "binary logits": (PROBABILITIES, DENSE.format(""), f"tf.keras.losses.BinaryCrossentropy()({ONE_HOT}, self.inference)"),
    "by hand": (PROBABILITIES, DENSE.format(""), f"-tf.reduce_mean({ONE_HOT} * tf.log(tf.clip_by_value(self.inference, 1e-9, 1.0)))"),
    "softmax twice": (LOGITS, DENSE.format(", activation='softmax'"), LOSS),
    "softmax by hand": (
        LOGITS, "x = tf.exp(tf.keras.layers.Dense(self.nclasses)(x))\nreturn x / tf.reduce_sum(x, 1, keepdims=True)", LOSS,
    ),
    "sigmoid twice": (
        LOGITS, DENSE.format(", activation='sigmoid'"),
        f"tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels={ONE_HOT}, logits=self.inference))",
    ),
    "keras logits of probabilities": (
        "predictions apply softmax", DENSE.format(", activation='softmax'"),
        "tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)(self.y, self.inference)",
    ),
    "slim relu": (ACTIVATION, "return slim.fully_connected(x, self.nclasses)", LOSS),
    **{
        name: (ACTIVATION, DENSE.format(f", activation='{name}'"), LOSS)
        for name in ("relu", "relu6", "tanh", "softplus", "softsign", "elu", "silu", "gelu", "hard_sigmoid")
    },
    "clipped": (ACTIVATION, "return tf.clip_by_value(tf.keras.layers.Dense(self.nclasses)(x), -1.0, 1.0)", LOSS),
    "squared": (ACTIVATION, "return tf.square(tf.keras.layers.Dense(self.nclasses)(x))", LOSS),
    "relu in a loss of sigmoid": (
        ACTIVATION, DENSE.format(", activation='relu'"),
        f"tf.keras.losses.BinaryCrossentropy(from_logits=True)({ONE_HOT}, self.inference)",
    ),
}  # fmt: skip
RIGHT_LOSSES = {
    "sparse": (DENSE.format(", activation='softmax'"), "tf.keras.losses.SparseCategoricalCrossentropy()(self.y, self.inference)"),
    "categorical": (DENSE.format(", activation='softmax'"), f"tf.keras.losses.CategoricalCrossentropy()({ONE_HOT}, self.inference)"),
    "binary": (DENSE.format(", activation='sigmoid'"), f"tf.keras.losses.BinaryCrossentropy()({ONE_HOT}, self.inference)"),
    "from logits": (DENSE.format(""), "tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)(self.y, self.inference)"),
    "log softmax": (DENSE.format(""), f"-tf.reduce_mean({ONE_HOT} * tf.nn.log_softmax(self.inference))"),
    "log of softmax": (DENSE.format(""), f"-tf.reduce_mean({ONE_HOT} * tf.log(tf.nn.softmax(self.inference) + 1e-9))"),
    "sigmoid": (DENSE.format(""), f"tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels={ONE_HOT}, logits=self.inference))"),
    "log of a scale": (DENSE.format(""), f"{LOSS} + tf.reduce_mean(tf.log(1.0 + tf.square(self.inference)))"),
}  # fmt: skip


def test_losses_of_other_values_are_named(in_child: Any, tmp_path: Path) -> None:
    for name, (words, output, loss) in LOSSES.items():
        found = in_child(_loss_warnings, tmp_path, network(FLAT, output, loss=loss))
        assert [message for message in found if words in message and message.startswith("Line ")], (
            name,
            found,
        )


def test_usual_losses_cause_no_warnings(in_child: Any, tmp_path: Path) -> None:
    words = (PROBABILITIES, LOGITS, ACTIVATION)
    for name, (output, loss) in RIGHT_LOSSES.items():
        found = in_child(_loss_warnings, tmp_path, network(FLAT, output, loss=loss))
        assert [message for message in found if any(each in message for each in words)] == [], name


def _loss_warnings(folder: Path, text: str) -> list[str]:
    """Return the warnings about the loss of a network for four classes. Call it with `in_child`."""
    path = folder / "network.py"
    path.write_text(text)
    net, store = (
        network_loader.load(path, (12, 12, 1), ClassIndex.of(list("abcd"))),
        variables.VariableStore(),
    )
    known: list[Any] = []

    def build(x: Any, y: Any) -> list[Any]:
        built = net.build(store, tower.VALIDATION, x, y)
        losses = [item.loss for item in built.objectives]
        known[:] = [label_flow.follow(x, y, losses, (), 4, [built.output]), label_flow.suspects(x, y, losses)]
        return [item.tensor for item in known[1]]

    signature = [tf.TensorSpec([None, 12, 12, 1], tf.float32), tf.TensorSpec([None], tf.int64)]
    function = tf.function(build, autograph=False, input_signature=signature)
    pixels = np.random.default_rng(1).integers(0, 256, (8, 12, 12, 1)).astype(np.float32)
    values = [item.numpy() for item in function(pixels, np.arange(8) % 4)]
    judged = [each.judge(value) for each, value in zip(known[1], values, strict=True)]
    return [*known[0].warnings, *filter(None, judged)]


SCALED = {
    "rescaling": [
        "x = tf.keras.layers.Rescaling(1 / 255)(self.x / 255.0)",
        "x = tf.keras.layers.Conv2D(4, 3)(x)",
    ],
    "in lines": ["x = slim.flatten(self.x / 255.0) / 255.0"],
    "to -1 to 1": ["x = (self.x / 255.0) / 127.5 - 1.0", "x = slim.conv2d(x, 4, [3, 3])"],
    "means of channels": [
        "x = (self.x / 255.0 - [124.0, 117.0, 104.0]) / [58.0, 57.0, 57.0]",
        "x = tf.keras.layers.Conv2D(4, 3)(x)",
    ],
    "in a model": [
        "x = tf.keras.Sequential([tf.keras.layers.Rescaling(1 / 255), tf.keras.layers.Conv2D(4, 3)])(self.x / 255.0)"
    ],
}


@pytest.mark.parametrize("name", some(SCALED, "in a model"))
def test_images_that_are_scaled_twice_are_named(preflight: Any, name: str) -> None:
    found = warnings_of(preflight(network(*SCALED[name], OUT), epochs=20))
    assert len(found) == 1 and TWICE in found[0], found


def test_a_training_reports_its_own_images_as_it_predicts_them(trained: Any, train: Any) -> None:
    lines = [
        "x = tf.keras.layers.Conv2D(4, 3)(self.x + 200.0)",
        KERAS_NORM.format(0.999),
        "x = tf.nn.tanh(x)",
    ]
    outcome = train(network(*lines, OUT), epochs=6, solver={"type": "ADAM", "learning_rate": 0.01})
    recalled = outcome.of(events.Finished)[0].result["recalled"]
    assert outcome.values("train", "accuracy")[-1] - recalled["accuracy"] > 0.2
    usual = trained(networks.LINEAR, name="usual").of(events.Finished)[0].result["recalled"]
    assert usual.keys() >= {"loss", "accuracy"}
