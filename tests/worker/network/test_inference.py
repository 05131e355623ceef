"""How often a network is rebuilt before its error is reported, and which error that is."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import pytest

from digits.data.targets.class_index import ClassIndex
from tests.worker.lazily import inference, network_loader, variables

PLAIN = """
def output(x, count):
    return tf.layers.dense(tf.layers.flatten(x), count)

class UserModel(Tower):
    @model_property
    def inference(self):
        print('built')
        {}
        return output(self.x, self.nclasses)

    @model_property
    def loss(self):
        return digits.classification_loss(self.inference, self.y)
"""
OWN_CONSTRUCTOR = """
class UserModel(Tower):
    def __init__(self, x, y, *others):
        super().__init__(x, y, *others)
        print('built')
        {}

    inference = loss = property(lambda self: tf.reduce_mean(self.x))
"""
BUILD_MODEL = """
def build_model(params):
    print('built')
    {}
    output = tf.layers.dense(tf.layers.flatten(params['x']), params['nclasses'])
    return {{'model': output, 'loss': lambda y: digits.classification_loss(output, y)}}
"""


@pytest.mark.parametrize(
    ("network", "built", "reported"),
    [
        # The network cannot see that it is built for inference, so a second build would be identical.
        (PLAIN.format("1 / 0"), 1, "division by zero"),
        (PLAIN.format("y = tf.one_hot(self.y, self.nclasses); 1 / 0"), 2, "division by zero"),
        (PLAIN.format("1 / (0 if self.is_inference else 1)"), 2, ""),
        (PLAIN.format("1 / 0 if self.is_inference else undefined"), 2, "name 'undefined' is not defined"),
        (
            PLAIN.format("1 / 0 if self.is_inference else self.y.shap"),
            2,
            "'SymbolicTensor' object has no attribute 'shap'",
        ),
        (
            PLAIN.format("self.y = tf.one_hot(self.y, 4); self.y.shap"),
            2,
            "'SymbolicTensor' object has no attribute 'shap'",
        ),
        (PLAIN.format("del self.y; self.y"), 2, "'UserModel' object has no attribute 'y'"),
        (PLAIN.format("y = getattr(self, 'y'); 1 / (self.is_inference - 1)"), 3, ""),
        (PLAIN.format("wanted = self.y.shape"), 2, ""),
        # These receive all arguments at once, so their use of labels cannot be observed.
        (OWN_CONSTRUCTOR.format("1 / 0"), 3, "division by zero"),
        (OWN_CONSTRUCTOR.format("y.shape"), 2, ""),
        (OWN_CONSTRUCTOR.format("1 / (0 if others[-1] else 1)"), 3, ""),
        (PLAIN.format("1 / 0") + "    y = is_inference = None\n", 3, "division by zero"),
        (BUILD_MODEL.format("1 / 0"), 3, "division by zero"),
        (BUILD_MODEL.format("params['y'].shape"), 2, ""),
    ],
)
def test_a_network_is_rebuilt_only_if_the_result_can_differ(
    network: str, built: int, reported: str, in_child: Any, tmp_path: Path
) -> None:
    path = tmp_path / "network.py"
    path.write_text(network)
    assert in_child(_count_builds, path) == (built, reported)


def _count_builds(path: Path) -> tuple[int, str]:
    """Return how often the network was built, and the error reported in the end."""
    output, reported = io.StringIO(), ""
    with contextlib.redirect_stdout(output):
        try:
            inference.trace_for_display(
                network_loader.load(path, (12, 12, 1), ClassIndex.of(list("abcd"))), variables.VariableStore()
            )
        except Exception as error:
            reported = str(error)
    return output.getvalue().count("built"), reported
