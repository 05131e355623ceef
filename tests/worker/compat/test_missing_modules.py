"""Imports of packages that are not installed, and mentions of names that a network cannot use."""

from __future__ import annotations

from typing import Any

import pytest

from digits.worker.compat import missing_modules
from tests.worker.lazily import failure, network_loader

UNUSED = """
import cv3, skimages.io
import matplotlip.pyplot as plt
from scipi.misc import imresize as resize, imread
from scipi import misc
print_pictures = False
if print_pictures:
    plt.plot(resize(cv3.imread('a'), misc))
try:
    import tensorpacks.models as models
except ImportError:
    models = None
assert models is None
"""


def test_unused_missing_packages_are_ignored(in_child: Any) -> None:
    assert in_child(_fault, UNUSED) is None


@pytest.mark.parametrize(
    ("use", "package"),
    [
        ("used = plt.plot([1])", "matplotlip"),
        ("used = skimages.io.imread('a')", "skimages"),
        ("plt.switch_backend('Agg')", "matplotlip"),
        ("resize(3)", "scipi"),
        ("used = misc.imresize(3)", "scipi"),
        ("def draw():\n    plt.plot([1])\ndraw()", "matplotlip"),
        ("class Mine(misc): pass", "scipi"),
        ("cv3.IMREAD_COLOR", "cv3"),
        ("from scipi.misc import *", "scipi"),
    ],
)
def test_the_first_use_names_the_missing_package(in_child: Any, use: str, package: str) -> None:
    message, hint, line = in_child(_fault, UNUSED + use)
    assert message.startswith(f"ModuleNotFoundError: No module named {package!r}")
    imported = {"matplotlip": 3, "skimages": 2, "scipi": 5 if "misc" in use else 4, "cv3": 2}
    assert message.endswith(f", which line {imported[package]} imports") == ("*" not in use)
    assert "beside DIGITS" in hint
    assert line == (15 if "def" in use else 14)


@pytest.mark.parametrize(
    "use",
    [
        "used = 3 * misc",
        "used = isinstance(3, misc)",
        "used = tf.constant(misc)",
        "used = tf.keras.layers.Dense(misc)",
        "used = range(misc)",
    ],
)
def test_functions_that_receive_a_name_of_a_missing_package_report_it(in_child: Any, use: str) -> None:
    message, _, line = in_child(_fault, UNUSED + use, Exception)
    assert message == "ModuleNotFoundError: No module named 'scipi', which line 5 imports" and line == 14


@pytest.mark.parametrize("fallback", ["pass", "nn = None"])
def test_a_name_whose_import_failed_is_reported_with_its_package(in_child: Any, fallback: str) -> None:
    text = f"try:\n    import torsh.nn as nn\nexcept ImportError:\n    {fallback}\nused = nn.relu(3)"
    message, _, line = in_child(_fault, text, Exception)
    assert message == "ModuleNotFoundError: No module named 'torsh', which line 2 imports" and line == 5


def test_a_missing_module_of_an_installed_package_is_named(in_child: Any) -> None:
    message, hint, line = in_child(_fault, UNUSED + "import numpy.nonesuch")
    assert message == "ModuleNotFoundError: No module named 'numpy.nonesuch'" and line == 14
    assert hint.startswith("numpy is installed but has no numpy.nonesuch")


def test_a_network_for_another_framework_is_refused(visualize: Any) -> None:
    network = "from mxnet import gluon\n\nclass UserModel(Tower):\n    def construct_net(self):\n        return gluon.nn\n"
    failure = visualize(network).failure
    assert "no property inference" in failure.message and "mxnet, which is not installed" in failure.message
    assert failure.hint == "Use a network for TensorFlow."
    assert failure.line == 1


MENTIONED = """
import tensorflow as tf
from tensorflow.train import Supervisor as Runner
from tensorflow.contrib.slim import learning
optimizers = {'adam': tf.train.AdamOptimizer, 'sgd': tf.train.GradientDescentOptimizer}
flags, sampled = tf.app.flags, tf.nn.sampled_softmax_loss
try:
    monitored = tf.train.MonitoredSession
except AttributeError:
    monitored = None
assert monitored is None
def main():
    flags.DEFINE_integer('steps', 3, '')
    tf.app.run()
"""


def test_names_that_networks_cannot_use_may_be_mentioned(in_child: Any) -> None:
    assert in_child(_fault, MENTIONED) is None


@pytest.mark.parametrize(
    ("use", "name"),
    [
        ("optimizer = optimizers['adam'](0.1)", "tf.train.AdamOptimizer"),
        ("class Mine(tf.train.Optimizer): pass", "tf.train.Optimizer"),
        ("with Runner() as session: pass", "tf.train.Supervisor"),
        ("learning.create_train_op(3, optimizers)", "tf.contrib.slim.learning"),
        ("sampled([[1.0]], [1.0], [[1]], [[1.0]], 1, 2)", "tf.nn.sampled_softmax_loss"),
        ("tf.app.run()", "tf.app.run"),
        ("flags.DEFINE_integer('steps', 3, '')", "tf.app.flags"),
    ],
)
def test_the_use_of_a_mentioned_name_is_refused(in_child: Any, use: str, name: str) -> None:
    message, hint, line = in_child(_fault, MENTIONED + use, AttributeError)
    assert message == f"AttributeError: A network cannot use {name}" and hint and line == 15


def _fault(text: str, kind: type[Exception] = missing_modules.MissingPackage) -> Any:
    try:
        network_loader.user_model(
            text + "\nclass UserModel(Tower):\n    inference = loss = property(lambda self: None)\n"
        )
    except Exception as error:
        event = failure.describe(error)
        assert isinstance(error, kind)
        return event.message, event.hint, event.line
    return None
