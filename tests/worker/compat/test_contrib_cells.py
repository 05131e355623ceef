"""Cells of tf.contrib.rnn, compared with their formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.worker import networks

pytestmark = pytest.mark.tensorflow

X = np.array([[0.5, -1.0, 2.0], [1.0, 0.25, -0.5]], np.float32)


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def _lstm(gates: Any, c: Any, forget_bias: float = 1.0) -> tuple[Any, Any]:
    i, j, f, o = np.split(gates, 4, -1)
    c = c * _sigmoid(f + forget_bias) + _sigmoid(i) * np.tanh(j)
    return np.tanh(c) * _sigmoid(o), c


def _run(build: Any) -> Any:
    """Evaluate ``build`` in a graph whose variables have the values 0.1, -0.2, 0.3, 0.1, …"""
    import tensorflow as tf

    from digits.worker.compat import contrib_cells

    v1 = tf.compat.v1

    def initial(shape: Any, dtype: Any = tf.float32, **kwargs: Any) -> Any:
        numbers = np.resize(np.array([0.1, -0.2, 0.3], np.float32), [int(size) for size in shape])
        return tf.constant(numbers, dtype)

    with tf.Graph().as_default(), v1.Session() as session:
        with v1.variable_scope("", initializer=initial):
            built = build(contrib_cells, tf)
        names = {variable.op.name: variable for variable in v1.global_variables()}
        session.run(v1.global_variables_initializer())
        return session.run((built, names))


def _twice(cell: Any, tf: Any, x: Any = X) -> Any:
    """Run ``cell`` for two steps on the same input."""
    state = cell.zero_state(len(x), tf.float32)
    _, state = cell(tf.constant(x), state)
    return cell(tf.constant(x), state)


def test_plain_lstm_cells_are_equivalent(in_child: Any) -> None:
    def all_of_them(cells: Any, tf: Any) -> Any:
        same = {"reuse": tf.compat.v1.AUTO_REUSE, "name": "same"}
        return [
            _twice(cells.BasicLSTMCell(2, input_size=3, **same), tf),
            _twice(cells.LSTMBlockCell(2, **same), tf),
        ]

    def norms(cells: Any, tf: Any) -> Any:
        return _twice(cells.LayerNormBasicLSTMCell(2, layer_norm=False), tf)

    (plain, block), variables = in_child(_run, all_of_them)
    unnormalized, _ = in_child(_run, norms)
    kernel = variables["same/kernel"]
    h = c = np.zeros((2, 2))
    for _ in range(2):
        h, c = _lstm(np.concatenate([X, h], 1) @ kernel, c)
    for output, state in (plain, block, unnormalized):
        assert np.allclose(output, h, atol=1e-6) and np.allclose(state.c, c, atol=1e-6)


def test_layer_normalization(in_child: Any) -> None:
    (output, _), variables = in_child(
        _run, lambda cells, tf: _twice(cells.LayerNormBasicLSTMCell(4, norm_gain=0.5, norm_shift=0.25), tf)
    )

    def normalized(x: Any) -> Any:
        return (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True) * 0.5 + 0.25

    kernel = variables.pop("layer_norm_basic_lstm_cell/kernel")
    assert sorted(name.split("/")[1] for name in variables if name.endswith("beta")) == [
        *("forget", "input", "output", "state", "transform")
    ]
    h = c = np.zeros((2, 4))
    for _ in range(2):
        gates = np.split(np.concatenate([X, h], 1) @ kernel, 4, 1)
        i, j, f, o = map(normalized, gates)
        c = normalized(c * _sigmoid(f + 1) + _sigmoid(i) * np.tanh(j))
        h = np.tanh(c) * _sigmoid(o)
    assert np.allclose(output, h, atol=1e-5)


def test_convolutions(in_child: Any) -> None:
    """For images of one pixel, only the center of the kernel matters."""

    def build(cells: Any, tf: Any) -> Any:
        cell = cells.ConvLSTMCell(2, [1, 1, 3], 2, [3, 3], skip_connection=True)
        assert cell.output_size.as_list() == [1, 1, 5]
        return _twice(cell, tf, X[:, None, None])

    (output, state), variables = in_child(_run, build)
    kernel = variables["conv_lstm_cell/kernel"][1, 1]
    h = c = np.zeros((2, 2))
    for _ in range(2):
        # Its gates have the order of BasicLSTMCell.
        h, c = _lstm(np.concatenate([X, h], 1) @ kernel, c)
    assert np.allclose(output[:, 0, 0], np.concatenate([h, X], 1), atol=1e-6)
    assert np.allclose(state.c[:, 0, 0], c, atol=1e-6)


def test_update_gate(in_child: Any) -> None:
    (output, _), variables = in_child(_run, lambda cells, tf: _twice(cells.UGRNNCell(2), tf))
    h = np.zeros((2, 2))
    for _ in range(2):
        gate, new = np.split(np.concatenate([X, h], 1) @ variables["ugrnn_cell/kernel"], 2, 1)
        gate = _sigmoid(gate + 1)
        h = gate * h + (1 - gate) * np.tanh(new)
    assert np.allclose(output, h, atol=1e-6)


def test_independent_and_simple_units(in_child: Any) -> None:
    def both(cells: Any, tf: Any) -> Any:
        return _twice(cells.IndRNNCell(2), tf)[0], _twice(cells.SRUCell(2), tf)[0]

    (independent, simple), variables = in_child(_run, both)
    h = c = np.zeros((2, 2))
    for _ in range(2):
        own = h * variables["ind_rnn_cell/kernel_u"]
        h = np.tanh(X @ variables["ind_rnn_cell/kernel_w"] + own)
        new, f, r, passed = np.split(X @ variables["sru_cell/kernel"], 4, 1)
        c = _sigmoid(f) * c + (1 - _sigmoid(f)) * new
        output = _sigmoid(r) * np.tanh(c) + (1 - _sigmoid(r)) * passed
    assert np.allclose(simple, output, atol=1e-6)
    assert np.allclose(independent, h, atol=1e-6)


def test_nas_cell(in_child: Any) -> None:
    (output, state), variables = in_child(_run, lambda cells, tf: _twice(cells.NASCell(2, num_proj=3), tf))
    h, c = np.zeros((2, 3)), np.zeros((2, 2))
    for _ in range(2):
        x = np.split(X @ variables["nas_cell/kernel"], 8, 1)
        m = np.split(h @ variables["nas_cell/recurrent_kernel"], 8, 1)
        first = [_sigmoid(x[n] + m[n]) for n in range(8)]
        first[1], first[3] = np.maximum(x[1] + m[1], 0), np.maximum(x[3] * m[3], 0)
        first[4], first[6] = np.tanh(x[4] + m[4]), np.tanh(x[6] + m[6])
        second = np.tanh([first[0] * first[1], first[2] + first[3], first[4] * first[5], first[6] + first[7]])
        c = np.tanh(second[0] + c) * second[1]
        h = np.tanh(c * np.tanh(second[2] + _sigmoid(first[6] + first[7])))
        h = h @ variables["nas_cell/projection_weights"]
    assert np.allclose(output, h, atol=1e-6) and np.allclose(state.c, c, atol=1e-6)


@pytest.mark.parametrize("is_tuple", [True, False])
def test_attention_to_earlier_outputs(in_child: Any, is_tuple: bool) -> None:
    def build(cells: Any, tf: Any) -> Any:
        cell = cells.AttentionCellWrapper(cells.GRUCell(2), 3, state_is_tuple=is_tuple)
        state, steps = cell.zero_state(2, tf.float32), []
        for _ in range(2):
            output, state = cell(tf.constant(X), state)
            steps.append((output, state))
        return steps

    steps, _ = in_child(_run, build)
    (first, _), (second, state) = steps
    history = state[2] if is_tuple else state[:, 4:]
    assert np.allclose(history, np.concatenate([np.zeros((2, 2)), first, second], 1))
    look = state[1] if is_tuple else state[:, 2:4]
    # The attention before the second output is between zero and the first output.
    assert np.all(np.abs(look) <= np.abs(first) + 1e-6) and np.all(look * first > 0)


def test_wrappers(in_child: Any) -> None:
    def build(cells: Any, tf: Any) -> Any:
        zeros = tf.zeros([2, 4])
        highway = cells.HighwayWrapper(cells.GRUCell(3), carry_bias_init=100.0)
        projected = cells.OutputProjectionWrapper(cells.InputProjectionWrapper(cells.GRUCell(4), 7), 5)
        embedded = cells.EmbeddingWrapper(cells.GRUCell(4), 10, 3)
        return (
            highway(tf.constant(X), tf.zeros([2, 3]))[0],
            projected(tf.constant(X), zeros)[0],
            embedded(tf.constant([[1], [9]]), zeros)[0],
        )

    (highway, projected, embedded), variables = in_child(_run, build)
    assert np.allclose(highway, X)  # an open gate passes the input on
    assert projected.shape == (2, 5) and embedded.shape == (2, 4)
    assert variables["embedding_wrapper/embedding"].shape == (10, 3)


def test_whole_sequences(in_child: Any) -> None:
    """A fused cell matches dynamic_rnn; reversed in time, it matches dynamic_rnn on the reversed sequence."""
    sequence = np.stack([X, X + 1, X - 1])
    lengths = np.array([2, 3])

    def build(cells: Any, tf: Any) -> Any:
        scope = {"scope": "same"}
        v1 = tf.compat.v1
        with v1.variable_scope("", reuse=v1.AUTO_REUSE):
            fused = cells.LSTMBlockFusedCell(2)(tf.constant(sequence), dtype=tf.float32, **scope)
            plain = v1.nn.dynamic_rnn(
                cells.BasicLSTMCell(2, name="lstm_cell"),
                tf.constant(sequence),
                dtype=tf.float32,
                time_major=True,
                **scope,
            )
            back = cells.TimeReversedFusedRNN(cells.LSTMBlockFusedCell(2))(
                tf.constant(sequence), dtype=tf.float32, sequence_length=lengths, **scope
            )
            turned = np.stack([[sequence[1, 0], X[1] - 1], [X[0], sequence[1, 1]], [X[0], X[1]]])
            there = cells.LSTMBlockFusedCell(2)(
                tf.constant(turned.astype(np.float32)), dtype=tf.float32, sequence_length=lengths, **scope
            )
        return fused, plain, back, there

    (fused, plain, back, there), _ = in_child(_run, build)
    assert np.allclose(fused[0], plain[0]) and np.allclose(fused[1].h, plain[1].h)
    assert np.allclose(back[1].h, there[1].h)
    assert np.allclose(back[0][0, 0], there[0][1, 0]) and np.allclose(back[0][0, 1], there[0][2, 1])


def test_cudnn_layers(in_child: Any) -> None:
    sequence = np.stack([X, X + 1, X - 1])

    def build(cells: Any, tf: Any) -> Any:
        outputs, (h, c) = cells.CudnnLSTM(2, 2, direction="bidirectional")(tf.constant(sequence))
        again = cells.CudnnLSTM(2, 2, direction="bidirectional", dropout=0.5, name="cudnn_lstm")
        resumed, _ = again(tf.constant(sequence), initial_state=(h, c), training=False)
        return outputs, h, c, resumed, cells.CudnnGRU(1, 4)(tf.constant(sequence))

    (outputs, h, c, resumed, (gru, (last,))), variables = in_child(_run, build)
    assert outputs.shape == resumed.shape == (3, 2, 4) and h.shape == c.shape == (4, 2, 2)
    assert np.allclose(h[2], outputs[-1, :, :2]) and np.allclose(h[3], outputs[0, :, 2:])
    assert not np.allclose(outputs, resumed)
    assert np.allclose(gru[-1], last[0]) and len(variables) == 8 + 4


def test_bidirectional_layers(in_child: Any) -> None:
    sequence = np.stack([X, X + 1, X - 1], 1)

    def build(cells: Any, tf: Any) -> Any:
        def layers() -> list[Any]:
            return [cells.GRUCell(2), cells.GRUCell(4)]

        dynamic = cells.stack_bidirectional_dynamic_rnn(
            layers(), layers(), tf.constant(sequence), dtype=tf.float32
        )
        with tf.compat.v1.variable_scope("other"):
            static = cells.stack_bidirectional_rnn(
                layers(), layers(), tf.unstack(tf.constant(sequence), axis=1), dtype=tf.float32
            )
        return dynamic, static

    (dynamic, static), variables = in_child(_run, build)
    assert dynamic[0].shape == (2, 3, 8)
    assert np.allclose(dynamic[0], np.stack(static[0], 1), atol=1e-6)
    assert np.allclose(dynamic[1][1], static[1][1], atol=1e-6)
    wanted = "stack_bidirectional_rnn/cell_1/bidirectional_rnn/bw/gru_cell/candidate/kernel"
    assert wanted in variables and f"other/{wanted}" in variables


@pytest.mark.parametrize("name", ["BasicLSTMCell", "GRUCell", "LSTMCell", "LSTMBlockCell", "UGRNNCell"])
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
