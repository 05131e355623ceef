"""The TensorFlow 1 API as networks see it."""

from __future__ import annotations

from typing import Any

import pytest

from digits.worker.compat.guaranteed import GUARANTEED
from tests.worker import networks
from tests.worker.lazily import api, compat_module, tf

IMPORTS = """
import tensorflow as tf
import tensorflow.contrib.slim as slim
import tensorflow.contrib.layers as contrib_layers
import tensorflow.compat.v1 as old
import tf_slim
import utils as digits
import digits as also_digits
import model
from tensorflow.contrib import slim as slim_again
from tensorflow.contrib.slim.nets import resnet_v1
from tensorflow.contrib.slim.python.slim.nets import inception
from tensorflow.contrib.layers import batch_norm
from tensorflow.python.framework import ops
from tensorflow.python.ops import array_ops
from tensorflow import keras
from tensorflow.keras import layers
from tensorflow.keras.layers import Dense
import tensorflow.keras.backend as K
from model import Tower
from utils import model_property, classification_loss
import numpy
import os.path as path
"""


def test_imports_return_the_compatibility_module(in_child: Any) -> None:
    names = in_child(_names, IMPORTS, "old is tf and slim is slim_again is tf_slim and Dense is layers.Dense")
    assert names is True
    assert in_child(_names, IMPORTS, "tf.nn.softmax.__name__, resnet_v1.resnet_v1_50.__name__, path.sep") == (
        "softmax",
        "resnet_v1_50",
        "/",
    )


def test_the_real_modules_are_unchanged(in_child: Any) -> None:
    text = IMPORTS + "import sys, tensorflow.version as version\nreal = sys.modules['tensorflow']"
    assert in_child(_names, text, "real is not tf and hasattr(tf, 'contrib') and 'contrib' not in dir(real)")
    assert in_child(_names, text, "'model' in sys.modules or 'utils' in sys.modules") is False


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import tensorflow.nonesuch", "cannot import 'nonesuch' from 'tensorflow.nonesuch'"),
        ("from tensorflow.contrib import nonesuch", "cannot import 'nonesuch'"),
        ("tf.nonesuch", "TensorFlow has no tf.nonesuch"),
        ("tf.contrib.quantize.create_training_graph()", "TensorFlow has no tf.contrib.quantize"),
        ("tf.contrib.nonesuch", "TensorFlow has no tf.contrib.nonesuch"),
    ],
)
def test_a_missing_name_is_reported(in_child: Any, text: str, words: str) -> None:
    assert words in in_child(_error, text)


def _names(text: str, expression: str) -> Any:
    names = compat_module.namespace()
    exec(text, names)
    return eval(expression, names)


def _error(text: str) -> str:
    try:
        exec(text, compat_module.namespace())
    except (ImportError, AttributeError) as error:
        return str(error)
    return ""


def test_guaranteed_names_exist(in_child: Any) -> None:
    names = [f"{module}.{name}" for module, names in GUARANTEED.items() for name in names.split()]
    assert in_child(_missing_names, names) == []


def _missing_names(names: list[str]) -> list[str]:
    known = compat_module.namespace()
    missing = []
    for name in names:
        try:
            eval(name, known)
        except AttributeError:
            missing.append(name)
    return missing


# Old argument names and calls of TensorFlow 1, one per line.
OLD_CALLS = [
    "tf.reduce_mean(x, reduction_indices=[1, 2], keep_dims=True)",
    "tf.expand_dims(x, dim=0)",
    "tf.to_float(tf.argmax(slim.flatten(x), dimension=1))",
    "tf.nn.dropout(x, 0.5)",
    "tf.nn.max_pool(x, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding='SAME')",
    "tf.log(tf.div(x, 2.0) + 300.0)",
    "tf.image.resize_images(x, [6, 6])",
    "tf.contrib.layers.flatten(x)",
    "tf.truncated_normal([3], stddev=0.1)",
    "tf.histogram_fixed_width(x, [0.0, 1.0], nbins=4, dtype=tf.float32)",
    "tf.Print(x, [x], message='x', first_n=1)",
    "tf.losses.mean_squared_error(x, x)",
    "slim.avg_pool2d(x, [2, 2])",
    "digits.nchw_to_nhwc(digits.nhwc_to_nchw(x))",
    "digits.classification_accuracy_top_n(slim.flatten(x), self.y if self.y is not None else [0], 2)",
    "tf.get_collection(tf.GraphKeys.UPDATE_OPS) and x",
]


def test_old_calls_are_supported(visualize: Any) -> None:
    lines = "\n".join(f"found = {call}" for call in OLD_CALLS)
    outcome = visualize(
        networks.classifier(
            f"x = self.x\n{lines}\nreturn slim.fully_connected(slim.flatten(x), self.nclasses)"
        )
    )
    assert outcome.code == 0, outcome.output


def test_digits_functions(in_child: Any) -> None:
    assert in_child(_contrastive) == pytest.approx([(4.0 + (1.5 - 1.0) ** 2) / 2] * 2, rel=1e-4)


def _contrastive() -> list[float]:
    left, right = [[0.0, 0.0], [0.0, 0.0]], [[2.0, 0.0], [0.0, 1.0]]
    found = api.constrastive_loss(tf.constant(left), tf.constant(right), [1, 0], margin=1.5)
    of_distances = api.constrastive_loss(tf.constant([[2.0], [1.0]]), tf.constant([1, 0]), margin=1.5)
    return [float(found), float(of_distances)]
