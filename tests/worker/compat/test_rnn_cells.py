"""RNN cells of TensorFlow 1."""

from __future__ import annotations

from typing import Any

import pytest

from tests.worker import networks


@pytest.mark.parametrize("name", ["BasicLSTMCell", "BasicRNNCell", "GRUCell", "LSTMCell"])
def test_an_invalid_number_of_units_is_reported_where_the_cell_is_made(visualize: Any, name: str) -> None:
    network = networks.classifier(
        f"""
cell = tf.contrib.rnn.{name}(self.input_shape)
outputs, state = tf.nn.dynamic_rnn(cell, self.x[..., 0], dtype=tf.float32)
return tf.layers.dense(outputs[:, -1], self.nclasses)
"""
    )
    failure = visualize(network).failure
    assert f"num_units of {name} must be a positive integer" in failure.message
    assert name in network.splitlines()[failure.line - 1]


def test_a_cell_in_several_layers_is_reported_where_they_are_made(visualize: Any) -> None:
    network = networks.classifier(
        """
cell = tf.nn.rnn_cell.LSTMCell(8)
cells = tf.nn.rnn_cell.MultiRNNCell([cell] * 2)
outputs, state = tf.nn.dynamic_rnn(cells, self.x[..., 0], dtype=tf.float32)
return tf.layers.dense(outputs[:, -1], self.nclasses)
"""
    )
    failure = visualize(network).failure
    assert "contains a cell several times" in failure.message and "one cell for each layer" in failure.hint
    assert "[cell] * 2" in network.splitlines()[failure.line - 1]
    # With inputs of the same size, the layers share their weights.
    assert visualize(network.replace("LSTMCell(8)", "LSTMCell(12)")).code == 0
