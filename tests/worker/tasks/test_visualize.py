"""Networks built without training: their layers, graph and errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from digits.core.events import Built, Failed, Finished
from tests.worker import networks
from tests.worker.lazily import tf


def rows(outcome: Any) -> list[tuple[str, str, list[int | None], int]]:
    assert outcome.code == 0, outcome.output
    return [
        (layer["name"], layer["type"], layer["shape"], layer["parameters"])
        for layer in outcome.of(Built)[0].layers
    ]


def test_slim_layers(visualize: Any) -> None:
    outcome = visualize(networks.LENET.replace("[5, 5]", "[3, 3]"))
    assert rows(outcome) == [
        ("conv1", "Conv2D", [None, 10, 10, 20], 200),
        ("pool1", "MaxPooling2D", [None, 5, 5, 20], 0),
        ("conv2", "Conv2D", [None, 3, 3, 50], 9050),
        ("pool2", "MaxPooling2D", [None, 1, 1, 50], 0),
        ("Flatten/flatten", "Flatten", [None, 50], 0),
        ("fc1", "Dense", [None, 500], 25500),
        ("do1", "Dropout", [None, 500], 0),
        ("fc2", "Dense", [None, 4], 2004),
    ]
    assert outcome.of(Built)[0].parameters == 200 + 9050 + 25500 + 2004
    assert isinstance(outcome.events[-1], Finished)


def test_keras_layers(visualize: Any) -> None:
    assert rows(visualize(networks.KERAS_LENET)) == [
        ("conv2d", "Conv2D", [None, 10, 10, 8], 80),
        ("batch_normalization", "BatchNormalization", [None, 10, 10, 8], 32),
        ("max_pooling2d", "MaxPooling2D", [None, 5, 5, 8], 0),
        ("conv2d_1", "Conv2D", [None, 3, 3, 16], 1168),
        ("flatten", "Flatten", [None, 144], 0),
        ("dense", "Dense", [None, 32], 4640),
        ("dropout", "Dropout", [None, 32], 0),
        ("dense_1", "Dense", [None, 4], 132),
    ]


def test_layers_with_weights_computed_by_a_getter(visualize: Any) -> None:
    """The norm of the weights is a separate variable."""
    network = networks.classifier(
        """
def normed(getter, name, shape=None, *args, **kwargs):
    found = getter(name, shape, *args, **kwargs)
    if not name.endswith('kernel'):
        return found
    return tf.nn.l2_normalize(found, 0) * getter(name + '_g', shape[-1:])
with tf.variable_scope('normed', custom_getter=normed):
    return tf.layers.dense(slim.flatten(self.x), self.nclasses, name='fc')
"""
    )
    outcome = visualize(network)
    assert ("normed/fc", "Dense", [None, 4]) in [row[:3] for row in rows(outcome)]
    assert outcome.of(Built)[0].parameters == 144 * 4 + 4 + 4


def test_layers_normalized_manually(visualize: Any, train: Any) -> None:
    """Weight decay, moving averages and gradients computed by the network are not layers."""
    network = networks.classifier(
        """
x = tf.reshape(self.x, [-1, 12, 12, 1]) / 100.0
with tf.variable_scope('conv'):
    w = tf.get_variable('w', [3, 3, 1, 4])
    x = tf.nn.bias_add(tf.nn.conv2d(x, w, [1, 1, 1, 1], 'SAME'), tf.get_variable('b', [4]))
with tf.variable_scope('norm'):
    beta, gamma = tf.get_variable('beta', [4]), tf.get_variable('gamma', [4])
    mean, var = (tf.get_variable(n, [4], trainable=False, initializer=tf.ones_initializer()) for n in 'mv')
    if self.is_training:
        now, spread = tf.nn.moments(x, [0, 1, 2])
        mean, var = mean.assign(0.9 * mean + 0.1 * now), var.assign(0.9 * var + 0.1 * spread)
    x = tf.nn.relu(tf.nn.batch_normalization(x, mean, var, beta, gamma, 0.001))
decay = tf.add_n([tf.nn.l2_loss(v) for v in tf.trainable_variables()]) + tf.reduce_sum(w * 0.1)
self.slope = tf.gradients(tf.reduce_sum(x), self.x)[0]
with tf.variable_scope('out'):
    w = tf.get_variable('w', [576, self.nclasses]) + 0.0 * decay
    return tf.matmul(tf.reshape(x, [-1, 576]), w)
"""
    )
    expected = [
        ("conv", "Conv2D", [None, 12, 12, 4], 40),
        ("norm", "Mul", [None, 12, 12, 4], 16),
        ("out", "Dense", [None, 4], 2304),
    ]
    assert rows(visualize(network)) == expected
    assert rows(train(network, epochs=1)) == expected


def test_layers_of_a_nested_keras_model(visualize: Any) -> None:
    network = networks.classifier(
        """
model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(3), keras.layers.Dense(self.nclasses)])
return model(self.x)
"""
    )
    assert [row[1:] for row in rows(visualize(network))] == [
        ("Flatten", [None, 144], 0),
        ("Dense", [None, 3], 435),
        ("Dense", [None, 4], 16),
    ]


def test_layers_of_keras_blocks(visualize: Any) -> None:
    assert [row[1:] for row in rows(visualize(networks.KERAS_BLOCKS))] == [
        ("Conv2D", [None, 12, 12, 4], 40),
        ("BatchNormalization", [None, 12, 12, 4], 16),
        ("Mul", [None, 12, 12, 4], 1),
        ("Conv2D", [None, 12, 12, 8], 296),
        ("BatchNormalization", [None, 12, 12, 8], 32),
        ("Mul", [None, 12, 12, 8], 1),
        ("Dense", [None, 4], 36),
    ]


def test_layers_of_tf_layers(visualize: Any) -> None:
    assert [row for row in rows(visualize(networks.TF_LAYERS)) if row[3]] == [
        ("first", "Conv2D", [None, 10, 10, 4], 40),
        ("norm", "BatchNormalization", [None, 10, 10, 4], 16),
        ("last", "Dense", [None, 4], 404),
    ]


def test_layers_of_raw_variables(visualize: Any) -> None:
    assert rows(visualize(networks.RAW)) == [
        ("conv", "Conv2D", [None, 12, 12, 4], 40),
        ("MaxPool", "MaxPooling2D", [None, 6, 6, 4], 0),
        ("MatMul", "Dense", [None, 4], 580),
    ]


def test_a_shared_layer_has_one_row(visualize: Any) -> None:
    network = networks.classifier(
        """
dense = keras.layers.Dense(self.nclasses)
flat = slim.flatten(self.x)
return dense(flat) + dense(-flat)
"""
    )
    assert [row[1:] for row in rows(visualize(network))][1:] == [("Dense", [None, 4], 580)]


def test_the_crop_size_is_the_input_size(visualize: Any) -> None:
    assert rows(visualize(networks.LINEAR, crop_size=5))[-1] == ("fc", "Dense", [None, 4], 104)


def test_graph_shows_layers_and_variables_by_name(visualize: Any) -> None:
    outcome = visualize(networks.LINEAR)
    nodes = _graph(outcome.job_folder / "tb")
    assert nodes["fc/weights"] == "VarHandleOp"
    assert nodes["fc/MatMul"] == "MatMul"
    assert not any(name.startswith(("loss", "train")) for name in nodes)


def _graph(folder: Path) -> dict[str, str]:
    (file,) = folder.iterdir()
    for event in tf.compat.v1.train.summary_iterator(str(file)):
        if event.graph_def:
            graph = tf.compat.v1.GraphDef.FromString(event.graph_def)
            return {node.name: node.op for node in graph.node}
    raise AssertionError("no graph")


MISTAKES = {
    "syntax": ("class UserModel(Tower):\n    def inference(self)\n        pass\n", "Syntax error", 2),
    "no class": ("x = 1\n", "no class UserModel", None),
    "another class": ("x = 1\nclass U_Net(Tower):\n    pass\n", "U_Net(Tower) and no class UserModel", 2),
    "not a tower": ("\nclass UserModel(object):\n    pass\n", "does not derive from Tower", 2),
    "no inference": ("class UserModel(Tower):\n    loss = 1\n", "no property inference", 1),
    "no loss": (
        "class UserModel(Tower):\n    @model_property\n    def inference(self):\n        return self.x\n",
        "no property loss",
        1,
    ),
    "no decorator": (
        networks.LINEAR.replace("    @model_property\n", "", 1),
        "inference is not a property",
        3,
    ),
    "no return": (
        networks.LINEAR.replace("        return digits.", "        digits."),
        "loss returned nothing",
        9,
    ),
    "too few outputs": (
        networks.LINEAR.replace("self.nclasses", "3"),
        "The network has 3 outputs, but the dataset has 4 classes",
        12,
    ),
    "undefined name": (networks.LINEAR.replace("self.x / 100.0", "_x"), "NameError", 5),
    "undefined function": (networks.LINEAR.replace("slim.flatten", "slim.flaten"), "flaten", 5),
    "shapes that do not fit": (
        networks.classifier("return tf.matmul(slim.flatten(self.x), tf.zeros([3, self.nclasses]))"),
        "144 is not 3",
        5,
    ),
    "shapes of keras": (
        networks.classifier("return keras.layers.Conv2D(3, 40)(self.x)"),
        "too small for a kernel",
        5,
    ),
    "loss is no scalar": (
        networks.LINEAR.replace(
            "return digits.classification_loss(self.inference, self.y)", "return self.inference"
        ),
        "The loss is not a number",
        None,
    ),
    "loss without weights": (
        networks.LINEAR.replace(
            "return digits.classification_loss(self.inference, self.y)", "return tf.reduce_mean(self.x)"
        ),
        "does not depend on any variable",
        None,
    ),
    "summary is no scalar": (
        networks.LINEAR.replace("accuracy.op.name, accuracy", "'odd', self.inference"),
        "'odd' is not a number",
        None,
    ),
    "own error": (
        networks.LINEAR.replace("        model =", "        raise ValueError('wrong')\n        model ="),
        "ValueError: wrong",
        5,
    ),
    "missing package": (
        "import tensorpack\n" + networks.LINEAR + "\nconvolved = tensorpack.Conv2D('c', 3)",
        "tensorpack",
        15,
    ),
    "names of a missing package": ("from tensorpack import *\n" + networks.LINEAR, "tensorpack", 1),
    "exit": ("import sys\nsys.exit(3)\n", "exit", 2),
    "variable from the input": (
        networks.classifier("return slim.flatten(self.x) * tf.Variable(tf.reduce_mean(self.x), name='w')"),
        "'model/w' depends on the input",
        5,
    ),
    "division by zero": ("1 / 0\n", "ZeroDivisionError", 1),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_errors_are_reported_with_their_line(visualize: Any, mistake: str) -> None:
    network, words, line = MISTAKES[mistake]
    outcome = visualize(network)
    assert outcome.code == 1
    (failure,) = outcome.of(Failed)
    assert words in failure.message
    assert failure.line == line
    own = [frame["own"] for frame in failure.trace]
    assert own == sorted(own, reverse=True)
    if line and failure.trace:
        assert failure.trace[0]["code"] == network.splitlines()[line - 1].strip()
    assert not outcome.of(Finished)


def test_unusual_line_separators_do_not_shift_line_numbers(visualize: Any) -> None:
    head = "# a\x0cb\u2028c\n"
    failure = visualize(head + networks.LINEAR.replace("self.nclasses", "self.classes")).failure
    assert failure.line == 7 and "self.classes" in failure.trace[0]["code"]
    failure = visualize(head + "print 'Python 2'\nx = '\0'\n" + networks.LINEAR).failure
    assert failure.line == 3 and "U+0000" in failure.message


def test_carriage_returns_of_a_web_form_are_accepted(visualize: Any) -> None:
    assert visualize(networks.LINEAR.replace("\n", "\r\n")).code == 0


def test_an_unfinished_dataset_is_reported(visualize: Any, tmp_path: Path) -> None:
    outcome = visualize(networks.LINEAR, dataset=tmp_path)
    assert outcome.code == 1
    assert "dataset.json" in outcome.failure.message


def test_a_network_that_prints_a_lot_is_built(visualize: Any) -> None:
    outcome = visualize("for number in range(20000):\n    print('line', number)\n" + networks.LINEAR)
    assert outcome.code == 0
    assert outcome.output.count("line") == 20000


@pytest.mark.usefixtures("own_process")
def test_a_network_that_ends_the_process_is_reported(visualize: Any) -> None:
    outcome = visualize("import os\nos._exit(7)\n")
    assert outcome.code == 7
    assert not outcome.events
