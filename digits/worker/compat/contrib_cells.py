"""RNN cells of ``tf.contrib.rnn`` and ``tf.contrib.cudnn_rnn``, and related functions.

A cell maps inputs [N, D] and a state to outputs and the next state; its variables have the names they had in
TensorFlow 1. A fused cell processes a whole sequence [T, N, D].
"""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import rnn_cell

from digits.worker.failure import NETWORK_FILE, UserFault

v1 = tf.compat.v1

LSTMStateTuple = rnn_cell.LSTMStateTuple
_Initializer = Any


def linear(
    args: Any,
    output_size: int,
    bias: bool = True,
    bias_initializer: _Initializer = None,
    kernel_initializer: _Initializer = None,
) -> tf.Tensor:
    """Multiply ``args``, one tensor [N, D] or several concatenated, by ``kernel`` and add a zero-initialized
    ``bias``.
    """
    joined = tf.concat(args, 1) if isinstance(args, (list, tuple)) else args
    kernel = v1.get_variable(
        "kernel", [joined.shape[1], output_size], joined.dtype, initializer=kernel_initializer
    )
    outputs = tf.matmul(joined, kernel)
    if not bias:
        return outputs
    initial = v1.zeros_initializer() if bias_initializer is None else bias_initializer
    return outputs + v1.get_variable("bias", [output_size], joined.dtype, initializer=initial)


def _check_units(cell: Any) -> Any:
    """Let the constructor of ``cell`` check the number of units, which TensorFlow does when the cell is called."""
    initialize = cell.__init__

    @functools.wraps(initialize)
    def checked(self: Any, *args: Any, **kwargs: Any) -> None:
        units: Any = args[0] if args else kwargs.get("num_units")
        try:
            is_valid = int(units) == units and units > 0
        except (TypeError, ValueError):
            is_valid = False
        if not is_valid:
            raise ValueError(f"num_units of {type(self).__name__} must be a positive integer, not {units!r}")
        initialize(self, *args, **kwargs)

    cell.__init__ = checked
    return cell


def _accept_input_size(cell: Any) -> Any:
    """Return ``cell`` with an ignored ``input_size`` argument, which early versions had."""

    def initialize(self: Any, *args: Any, input_size: Any = None, **kwargs: Any) -> None:
        cell.__init__(self, *args, **kwargs)

    return type(cell.__name__, (cell,), {"__init__": initialize})


BasicRNNCell = _check_units(_accept_input_size(rnn_cell.BasicRNNCell))
GRUCell = _check_units(_accept_input_size(rnn_cell.GRUCell))
BasicLSTMCell = _check_units(_accept_input_size(rnn_cell.BasicLSTMCell))
LSTMCell = _check_units(_accept_input_size(rnn_cell.LSTMCell))


class MultiRNNCell(rnn_cell.MultiRNNCell):
    """Cells on top of each other. Errors of one that is used several times name the line that creates this."""

    def __init__(self, cells: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(cells, *args, **kwargs)
        frames = (frame for frame, _ in traceback.walk_stack(None))
        self._line = next((item.f_lineno for item in frames if item.f_code.co_filename == NETWORK_FILE), None)

    def call(self, inputs: Any, state: Any) -> Any:
        try:
            return super().call(inputs, state)
        except ValueError as error:
            if len({id(cell) for cell in self._cells}) == len(self._cells):
                raise
            raise UserFault(
                "MultiRNNCell contains a cell several times, which shares its weights, but the inputs of the layers "
                "have different sizes.",
                "Make one cell for each layer: MultiRNNCell([LSTMCell(units) for layer in range(layers)]).",
                self._line,
            ) from error


@_check_units
class LSTMBlockCell(rnn_cell.LSTMCell):
    """An LSTM cell whose variables are named as in `BasicLSTMCell`."""

    def __init__(
        self,
        num_units: int,
        forget_bias: float = 1.0,
        cell_clip: float | None = None,
        use_peephole: bool = False,
        dtype: Any = None,
        reuse: Any = None,
        name: str = "lstm_cell",
    ) -> None:
        clip = cell_clip if cell_clip and cell_clip > 0 else None
        super().__init__(
            num_units,
            use_peepholes=use_peephole,
            cell_clip=clip,
            forget_bias=forget_bias,
            reuse=reuse,
            name=name,
            dtype=dtype,
        )


class GRUBlockCell(rnn_cell.GRUCell):
    """A GRU cell."""

    def __init__(self, num_units: Any = None, cell_size: Any = None, reuse: Any = None, name: Any = None):
        super().__init__(cell_size if num_units is None else num_units, reuse=reuse, name=name or "gru_cell")


@_check_units
class LayerNormBasicLSTMCell(rnn_cell.RNNCell):
    """An LSTM cell with layer normalization (https://arxiv.org/abs/1607.06450) and recurrent dropout."""

    def __init__(
        self,
        num_units: int,
        forget_bias: float = 1.0,
        input_size: Any = None,
        activation: Callable[..., Any] = tf.tanh,
        layer_norm: bool = True,
        norm_gain: float = 1.0,
        norm_shift: float = 0.0,
        dropout_keep_prob: Any = 1.0,
        dropout_prob_seed: Any = None,
        reuse: Any = None,
    ) -> None:
        super().__init__(_reuse=reuse)
        self._units, self._forget_bias, self._activation = num_units, forget_bias, activation
        self._has_norm, self._gain, self._shift = layer_norm, norm_gain, norm_shift
        self._keep, self._dropout_seed = dropout_keep_prob, dropout_prob_seed

    @property
    def state_size(self) -> Any:
        return LSTMStateTuple(self._units, self._units)

    @property
    def output_size(self) -> int:
        return self._units

    def call(self, inputs: Any, state: Any) -> Any:
        c, h = state
        gates = tf.split(linear([inputs, h], 4 * self._units, bias=not self._has_norm), 4, 1)
        names = ("input", "transform", "forget", "output")
        i, j, f, o = (self._normalize(gate, name) for gate, name in zip(gates, names, strict=True))
        taken_up = self._activation(j)
        if not isinstance(self._keep, (int, float)) or self._keep < 1:
            taken_up = v1.nn.dropout(taken_up, self._keep, seed=self._dropout_seed)
        c = c * tf.sigmoid(f + self._forget_bias) + tf.sigmoid(i) * taken_up
        c = self._normalize(c, "state")
        h = self._activation(c) * tf.sigmoid(o)
        return h, LSTMStateTuple(c, h)

    def _normalize(self, values: tf.Tensor, name: str) -> tf.Tensor:
        if not self._has_norm:
            return values
        with v1.variable_scope(name):
            size = [self._units]
            gamma = v1.get_variable("gamma", size, initializer=v1.constant_initializer(self._gain))
            beta = v1.get_variable("beta", size, initializer=v1.constant_initializer(self._shift))
        mean, variance = tf.nn.moments(values, [1], keepdims=True)
        return tf.nn.batch_normalization(values, mean, variance, beta, gamma, 1e-12)


class ConvLSTMCell(rnn_cell.RNNCell):
    """A convolutional LSTM cell (https://arxiv.org/abs/1506.04214) for inputs [N, …, C] of ``input_shape``
    (…, C).
    """

    def __init__(
        self,
        conv_ndims: int,
        input_shape: Any,
        output_channels: int,
        kernel_shape: Any,
        use_bias: bool = True,
        skip_connection: bool = False,
        forget_bias: float = 1.0,
        initializers: Any = None,
        name: str = "conv_lstm_cell",
    ) -> None:
        super().__init__(name=name)
        if conv_ndims != len(input_shape) - 1:
            raise ValueError(f"input_shape {input_shape} does not have {conv_ndims} axes and channels")
        self._place, self._input_channels = list(input_shape[:-1]), input_shape[-1]
        self._channels, self._kernel = output_channels, list(kernel_shape)
        self._has_bias, self._skips, self._forget_bias = use_bias, skip_connection, forget_bias
        self._initial = initializers

    @property
    def state_size(self) -> Any:
        size = tf.TensorShape([*self._place, self._channels])
        return LSTMStateTuple(size, size)

    @property
    def output_size(self) -> Any:
        channels = self._channels + (self._input_channels if self._skips else 0)
        return tf.TensorShape([*self._place, channels])

    def call(self, inputs: Any, state: Any, scope: Any = None) -> Any:
        c, h = state
        i, j, f, o = tf.split(self._convolve(tf.concat([inputs, h], -1)), 4, -1)
        c = tf.sigmoid(f + self._forget_bias) * c + tf.sigmoid(i) * tf.tanh(j)
        h = tf.tanh(c) * tf.sigmoid(o)
        return tf.concat([h, inputs], -1) if self._skips else h, LSTMStateTuple(c, h)

    def _convolve(self, values: tf.Tensor) -> tf.Tensor:
        shape = [*self._kernel, values.shape[-1], 4 * self._channels]
        kernel = v1.get_variable("kernel", shape, values.dtype, initializer=self._initial)
        outputs = tf.nn.convolution(values, kernel, padding="SAME")
        if not self._has_bias:
            return outputs
        initial = v1.zeros_initializer()
        return outputs + v1.get_variable("biases", [4 * self._channels], outputs.dtype, initializer=initial)


def _conv_cell(axes: int) -> Callable[..., ConvLSTMCell]:
    def cell(name: str = f"conv_{axes}d_lstm_cell", **kwargs: Any) -> ConvLSTMCell:
        return ConvLSTMCell(conv_ndims=axes, name=name, **kwargs)

    return cell


@_check_units
class UGRNNCell(rnn_cell.RNNCell):
    """Update gate RNN cell (https://arxiv.org/abs/1611.09913): one gate between the previous and the next
    state.
    """

    def __init__(
        self,
        num_units: int,
        initializer: _Initializer = None,
        forget_bias: float = 1.0,
        activation: Callable[..., Any] = tf.tanh,
        reuse: Any = None,
    ) -> None:
        super().__init__(_reuse=reuse)
        self._units, self._initial = num_units, initializer
        self._forget_bias, self._activation = forget_bias, activation

    @property
    def state_size(self) -> int:
        return self._units

    @property
    def output_size(self) -> int:
        return self._units

    def call(self, inputs: Any, state: Any) -> Any:
        both = linear([inputs, state], 2 * self._units, kernel_initializer=self._initial)
        gate, candidate = tf.split(both, 2, 1)
        gate = tf.sigmoid(gate + self._forget_bias)
        state = gate * state + (1 - gate) * self._activation(candidate)
        return state, state


@_check_units
class NASCell(rnn_cell.RNNCell):
    """The NAS cell found by neural architecture search (https://arxiv.org/abs/1611.01578)."""

    def __init__(
        self, num_units: int, num_proj: int | None = None, use_biases: bool = False, reuse: Any = None
    ) -> None:
        super().__init__(_reuse=reuse)
        self._units, self._projected, self._has_bias = num_units, num_proj, use_biases

    @property
    def state_size(self) -> Any:
        return LSTMStateTuple(self._units, self.output_size)

    @property
    def output_size(self) -> int:
        return self._projected or self._units

    def call(self, inputs: Any, state: Any) -> Any:
        c, h = state
        size = 8 * self._units
        kernel = v1.get_variable("kernel", [inputs.shape[1], size], inputs.dtype)
        recurrent = v1.get_variable("recurrent_kernel", [self.output_size, size], inputs.dtype)
        x, m = tf.matmul(inputs, kernel), tf.matmul(h, recurrent)
        if self._has_bias:
            m += v1.get_variable("bias", [size], inputs.dtype, initializer=v1.zeros_initializer())
        x, m = tf.split(x, 8, 1), tf.split(m, 8, 1)
        left = tf.tanh(tf.sigmoid(x[0] + m[0]) * tf.nn.relu(x[1] + m[1]))
        right = tf.tanh(tf.sigmoid(x[2] + m[2]) + tf.nn.relu(x[3] * m[3]))
        c = tf.tanh(left + c) * right
        left = tf.tanh(tf.tanh(x[4] + m[4]) * tf.sigmoid(x[5] + m[5]))
        right = tf.sigmoid(tf.tanh(x[6] + m[6]) + tf.sigmoid(x[7] + m[7]))
        h = tf.tanh(c * tf.tanh(left + right))
        if self._projected:
            h = tf.matmul(h, v1.get_variable("projection_weights", [self._units, self._projected], h.dtype))
        return h, LSTMStateTuple(c, h)


@_check_units
class IndRNNCell(rnn_cell.RNNCell):
    """Independently recurrent cell (https://arxiv.org/abs/1803.04831): each unit sees only its own last
    output.
    """

    def __init__(
        self,
        num_units: int,
        activation: Callable[..., Any] | None = None,
        reuse: Any = None,
        name: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(name=name, _reuse=reuse)
        self._units, self._activation = num_units, activation or tf.tanh

    @property
    def state_size(self) -> int:
        return self._units

    @property
    def output_size(self) -> int:
        return self._units

    def call(self, inputs: Any, state: Any) -> Any:
        kernel = v1.get_variable("kernel_w", [inputs.shape[1], self._units], inputs.dtype)
        uniform = v1.random_uniform_initializer(-1, 1)
        own = v1.get_variable("kernel_u", [1, self._units], inputs.dtype, initializer=uniform)
        bias = v1.get_variable("bias", [self._units], inputs.dtype, initializer=v1.zeros_initializer())
        state = self._activation(tf.matmul(inputs, kernel) + state * own + bias)
        return state, state


@_check_units
class SRUCell(rnn_cell.RNNCell):
    """Simple recurrent unit (https://arxiv.org/abs/1709.02755): its gates do not depend on the state."""

    def __init__(self, num_units: int, activation: Any = None, reuse: Any = None, name: Any = None) -> None:
        super().__init__(name=name, _reuse=reuse)
        self._units, self._activation = num_units, activation or tf.tanh

    @property
    def state_size(self) -> int:
        return self._units

    @property
    def output_size(self) -> int:
        return self._units

    def call(self, inputs: Any, state: Any) -> Any:
        kernel = v1.get_variable("kernel", [inputs.shape[1], 4 * self._units], inputs.dtype)
        bias = v1.get_variable("bias", [2 * self._units], inputs.dtype, initializer=v1.zeros_initializer())
        candidate, f, r, passed = tf.split(tf.matmul(inputs, kernel), 4, 1)
        f, r = tf.split(tf.sigmoid(tf.concat([f, r], 1) + bias), 2, 1)
        state = f * state + (1 - f) * candidate
        return r * self._activation(state) + (1 - r) * passed, state


class AttentionCellWrapper(rnn_cell.RNNCell):
    """A cell that attends to its last ``attn_length`` outputs.

    Its state contains the state of the cell, the last attention, and the outputs it attends to.
    """

    def __init__(
        self,
        cell: Any,
        attn_length: int,
        attn_size: int | None = None,
        attn_vec_size: int | None = None,
        input_size: int | None = None,
        state_is_tuple: bool = True,
        reuse: Any = None,
    ) -> None:
        super().__init__(_reuse=reuse)
        self._cell, self._length, self._input_size = cell, attn_length, input_size
        self._is_tuple = state_is_tuple
        self._size = cell.output_size if attn_size is None else attn_size
        self._vector = self._size if attn_vec_size is None else attn_vec_size

    @property
    def state_size(self) -> Any:
        sizes = (self._cell.state_size, self._size, self._size * self._length)
        return sizes if self._is_tuple else sum(sizes)

    @property
    def output_size(self) -> int:
        return self._size

    def call(self, inputs: Any, state: Any) -> Any:
        sizes = [self._cell.state_size, self._size, self._size * self._length]
        state, look, history = state if self._is_tuple else tf.split(state, sizes, 1)
        history = tf.reshape(history, [-1, self._length, self._size])
        inputs = linear([inputs, look], self._input_size or inputs.shape[1])
        outputs, state = self._cell(inputs, state)
        look = self._look_back(tf.concat(tf.nest.flatten(state), 1), history)
        with v1.variable_scope("attn_output_projection"):
            outputs = linear([outputs, look], self._size)
        history = tf.concat([history[:, 1:], outputs[:, None]], 1)
        parts = (state, look, tf.reshape(history, [-1, self._length * self._size]))
        return outputs, parts if self._is_tuple else tf.concat(parts, 1)

    def _look_back(self, query: tf.Tensor, history: tf.Tensor) -> tf.Tensor:
        with v1.variable_scope("attention"):
            weights = v1.get_variable("attn_w", [1, 1, self._size, self._vector], history.dtype)
            vector = v1.get_variable("attn_v", [self._vector], history.dtype)
            keys = tf.tensordot(history, weights[0, 0], 1)
            scores = tf.reduce_sum(vector * tf.tanh(keys + linear(query, self._vector)[:, None]), 2)
            return tf.reduce_sum(tf.nn.softmax(scores)[:, :, None] * history, 1)


class _Wrapper(rnn_cell.RNNCell):
    """A wrapper around a cell, with the cell's state."""

    def __init__(self, cell: Any, reuse: Any = None) -> None:
        super().__init__(_reuse=reuse)
        self._cell = cell

    @property
    def state_size(self) -> Any:
        return self._cell.state_size

    @property
    def output_size(self) -> Any:
        return self._cell.output_size


class InputProjectionWrapper(_Wrapper):
    """Apply a linear projection to the inputs of a cell."""

    def __init__(
        self, cell: Any, num_proj: int, activation: Any = None, input_size: Any = None, reuse: Any = None
    ) -> None:
        super().__init__(cell, reuse)
        self._size, self._activation = num_proj, activation or tf.identity

    def call(self, inputs: Any, state: Any) -> Any:
        return self._cell(self._activation(linear(inputs, self._size)), state)


class OutputProjectionWrapper(_Wrapper):
    """Apply a linear projection to the outputs of a cell."""

    def __init__(self, cell: Any, output_size: int, activation: Any = None, reuse: Any = None) -> None:
        super().__init__(cell, reuse)
        self._size, self._activation = output_size, activation or tf.identity

    @property
    def output_size(self) -> int:
        return self._size

    def call(self, inputs: Any, state: Any) -> Any:
        outputs, state = self._cell(inputs, state)
        return self._activation(linear(outputs, self._size)), state


class EmbeddingWrapper(_Wrapper):
    """Embed integer inputs [N] or [N, 1] below ``embedding_classes``."""

    def __init__(
        self,
        cell: Any,
        embedding_classes: int,
        embedding_size: int,
        initializer: _Initializer = None,
        reuse: Any = None,
    ) -> None:
        super().__init__(cell, reuse)
        self._shape, self._initial = [embedding_classes, embedding_size], initializer

    def call(self, inputs: Any, state: Any) -> Any:
        initial = self._initial or v1.random_uniform_initializer(-(3**0.5), 3**0.5)
        table = v1.get_variable("embedding", self._shape, initializer=initial)
        return self._cell(tf.nn.embedding_lookup(table, tf.reshape(inputs, [-1])), state)


class HighwayWrapper(_Wrapper):
    """Combine the output of a cell with its input, of the same size, by a learned gate."""

    def __init__(
        self, cell: Any, couple_carry_transform_gates: bool = True, carry_bias_init: float = 1.0
    ) -> None:
        super().__init__(cell)
        self._is_coupled, self._bias = couple_carry_transform_gates, carry_bias_init

    def call(self, inputs: Any, state: Any) -> Any:
        outputs, state = self._cell(inputs, state)
        carry = self._gate(inputs, "carry", self._bias)
        transform = 1 - carry if self._is_coupled else self._gate(inputs, "transform", -self._bias)
        return inputs * carry + outputs * transform, state

    @staticmethod
    def _gate(inputs: tf.Tensor, name: str, bias: float) -> tf.Tensor:
        size = inputs.shape[1]
        weights = v1.get_variable(f"{name}_w", [size, size], inputs.dtype)
        initial = v1.constant_initializer(bias)
        return tf.sigmoid(
            tf.matmul(inputs, weights)
            + v1.get_variable(f"{name}_b", [size], inputs.dtype, initializer=initial)
        )


class FusedRNNCellAdaptor:
    """Run a cell over a whole sequence [T, N, D]; returns all outputs and the last state."""

    def __init__(self, cell: Any, use_dynamic_rnn: bool = False) -> None:
        self._cell = cell

    def __call__(
        self,
        inputs: Any,
        initial_state: Any = None,
        dtype: Any = None,
        sequence_length: Any = None,
        scope: Any = None,
    ) -> Any:
        inputs = tf.stack(inputs) if isinstance(inputs, (list, tuple)) else inputs
        if isinstance(initial_state, tuple) and isinstance(self._cell.state_size, LSTMStateTuple):
            initial_state = LSTMStateTuple(*initial_state)
        return v1.nn.dynamic_rnn(
            self._cell,
            inputs,
            sequence_length,
            initial_state,
            dtype if dtype is not None or initial_state is not None else inputs.dtype,
            time_major=True,
            scope=scope,
        )


class LSTMBlockFusedCell(FusedRNNCellAdaptor):
    """An LSTM over a whole sequence."""

    def __init__(self, num_units: int, *args: Any, **kwargs: Any) -> None:
        super().__init__(LSTMBlockCell(num_units, *args, **kwargs))


class TimeReversedFusedRNN:
    """Run a fused cell over reversed sequences."""

    def __init__(self, cell: Any) -> None:
        self._cell = cell

    def __call__(
        self,
        inputs: Any,
        initial_state: Any = None,
        dtype: Any = None,
        sequence_length: Any = None,
        scope: Any = None,
    ) -> Any:
        def reverse_time(values: Any) -> Any:
            if sequence_length is None:
                return tf.reverse(values, [0])
            return tf.reverse_sequence(values, sequence_length, seq_axis=0, batch_axis=1)

        outputs, state = self._cell(reverse_time(inputs), initial_state, dtype, sequence_length, scope)
        return reverse_time(outputs), state


class _Cudnn:
    """Stacked RNN layers over sequences [T, N, D], in one or both directions, with cuDNN's interface."""

    def __init__(
        self,
        num_layers: int,
        num_units: int,
        input_mode: str = "linear_input",
        direction: str = "unidirectional",
        dropout: float = 0.0,
        seed: Any = None,
        dtype: Any = tf.float32,
        kernel_initializer: Any = None,
        bias_initializer: Any = None,
        name: Any = None,
    ) -> None:
        self._layers, self._units, self._is_both = num_layers, num_units, direction == "bidirectional"
        self._dropout, self._seed, self._name = dropout, seed, name or self.scope

    scope = "cudnn"

    def cell(self) -> Any:
        raise NotImplementedError

    def __call__(self, inputs: Any, initial_state: Any = None, training: Any = True) -> Any:
        outputs, states = inputs, []
        given = self._split_states(initial_state)
        for layer in range(self._layers):
            if layer and self._dropout and training is not False:
                rate = tf.where(training, self._dropout, 0.0)
                outputs = v1.nn.dropout(outputs, rate=rate, seed=self._seed)
            with v1.variable_scope(f"{self._name}/cell_{layer}", reuse=v1.AUTO_REUSE):
                outputs, more = self._layer(outputs, given[layer])
            states += more
        return outputs, self._join_states(states)

    def _layer(self, inputs: Any, states: list[Any]) -> tuple[Any, list[Any]]:
        options = {"dtype": inputs.dtype, "time_major": True}
        if not self._is_both:
            outputs, state = v1.nn.dynamic_rnn(self.cell(), inputs, initial_state=states[0], **options)
            return outputs, [state]
        outputs, both = v1.nn.bidirectional_dynamic_rnn(
            self.cell(),
            self.cell(),
            inputs,
            initial_state_fw=states[0],
            initial_state_bw=states[1],
            **options,
        )
        return tf.concat(outputs, 2), list(both)

    def _split_states(self, state: Any) -> list[list[Any]]:
        """Split state tensors [layers × directions, N, units] by layer and direction; None stays None."""
        ways = 2 if self._is_both else 1
        if state is None:
            return [[None] * ways] * self._layers
        parts = list(zip(*(tf.unstack(part, self._layers * ways) for part in state), strict=True))
        each = [self._state(part) for part in parts]
        return [each[layer * ways : (layer + 1) * ways] for layer in range(self._layers)]

    def _state(self, parts: Any) -> Any:
        return parts[0]

    def _join_states(self, states: list[Any]) -> tuple[Any, ...]:
        return (tf.stack(states),)


class CudnnLSTM(_Cudnn):
    """LSTM layers; the state is (h, c)."""

    scope = "cudnn_lstm"

    def cell(self) -> Any:
        return LSTMBlockCell(self._units, forget_bias=0.0, name="cudnn_compatible_lstm_cell")

    def _state(self, parts: Any) -> Any:
        return LSTMStateTuple(parts[1], parts[0])

    def _join_states(self, states: list[Any]) -> tuple[Any, ...]:
        return tf.stack([state.h for state in states]), tf.stack([state.c for state in states])


class CudnnGRU(_Cudnn):
    """GRUs."""

    scope = "cudnn_gru"

    def cell(self) -> Any:
        return GRUBlockCell(self._units)


class CudnnRNNTanh(_Cudnn):
    """Simple RNN layers with tanh activation."""

    scope = "cudnn_rnn_tanh"

    def cell(self) -> Any:
        return BasicRNNCell(self._units)


class CudnnRNNRelu(_Cudnn):
    """Simple RNN layers with ReLU activation."""

    scope = "cudnn_rnn_relu"

    def cell(self) -> Any:
        return BasicRNNCell(self._units, activation=tf.nn.relu)


def cudnn() -> dict[str, Any]:
    """Return the names of ``tf.contrib.cudnn_rnn``."""
    cells = (CudnnLSTM, CudnnGRU, CudnnRNNTanh, CudnnRNNRelu)
    return {
        **{cell.__name__: cell for cell in cells},
        "CudnnCompatibleLSTMCell": functools.partial(
            LSTMBlockCell, forget_bias=0.0, name="cudnn_compatible_lstm_cell"
        ),
        "CudnnCompatibleGRUCell": GRUBlockCell,
    }


def stack_bidirectional_rnn(
    cells_fw: Any,
    cells_bw: Any,
    inputs: Any,
    initial_states_fw: Any = None,
    initial_states_bw: Any = None,
    dtype: Any = None,
    sequence_length: Any = None,
    scope: Any = None,
) -> tuple[Any, Any, Any]:
    """Stack bidirectional layers over ``inputs``, a list of T tensors [N, D]."""

    def layer(forth: Any, back: Any, below: Any, first: Any, last: Any, name: str) -> Any:
        return v1.nn.static_bidirectional_rnn(forth, back, below, first, last, dtype, sequence_length, name)

    return _stack(layer, cells_fw, cells_bw, inputs, initial_states_fw, initial_states_bw, scope)


def stack_bidirectional_dynamic_rnn(
    cells_fw: Any,
    cells_bw: Any,
    inputs: Any,
    initial_states_fw: Any = None,
    initial_states_bw: Any = None,
    dtype: Any = None,
    sequence_length: Any = None,
    parallel_iterations: Any = None,
    time_major: bool = False,
    scope: Any = None,
    swap_memory: bool = False,
) -> tuple[Any, Any, Any]:
    """Stack bidirectional layers over ``inputs`` [N, T, D]."""

    def layer(forth: Any, back: Any, below: Any, first: Any, last: Any, name: str) -> Any:
        outputs, (forward, backward) = v1.nn.bidirectional_dynamic_rnn(
            forth,
            back,
            below,
            sequence_length,
            first,
            last,
            dtype,
            parallel_iterations,
            swap_memory,
            time_major,
            name,
        )
        return tf.concat(outputs, 2), forward, backward

    return _stack(layer, cells_fw, cells_bw, inputs, initial_states_fw, initial_states_bw, scope)


def _stack(
    layer: Callable[..., Any],
    forth: Any,
    back: Any,
    inputs: Any,
    first: Any,
    last: Any,
    scope: Any,
) -> tuple[Any, Any, Any]:
    if not forth or len(forth) != len(back):
        raise ValueError("every layer needs a cell for each direction")
    outputs, forward, backward = inputs, [], []
    first, last = first or [None] * len(forth), last or [None] * len(forth)
    with v1.variable_scope(scope or "stack_bidirectional_rnn"):
        for number, cells in enumerate(zip(forth, back, strict=True)):
            with v1.variable_scope(f"cell_{number}"):
                outputs, one, other = layer(*cells, outputs, first[number], last[number], None)
            forward.append(one)
            backward.append(other)
    return outputs, tuple(forward), tuple(backward)


def transpose_batch_time(x: Any) -> Any:
    """Transpose [N, T, …] to [T, N, …], or back."""
    x = tf.convert_to_tensor(x)
    return tf.transpose(x, [1, 0, *range(2, x.shape.rank)])


def names() -> dict[str, Any]:
    """Return the names in ``tf.nn.rnn_cell`` and ``tf.contrib.rnn`` that TensorFlow 2 does not have."""
    cells = (
        BasicRNNCell,
        GRUCell,
        BasicLSTMCell,
        LSTMCell,
        MultiRNNCell,
        LSTMBlockCell,
        LSTMBlockFusedCell,
        GRUBlockCell,
        LayerNormBasicLSTMCell,
        ConvLSTMCell,
        UGRNNCell,
        NASCell,
        IndRNNCell,
        SRUCell,
        AttentionCellWrapper,
        InputProjectionWrapper,
        OutputProjectionWrapper,
        EmbeddingWrapper,
        HighwayWrapper,
        FusedRNNCellAdaptor,
        TimeReversedFusedRNN,
    )
    return {
        **{cell.__name__: cell for cell in cells},
        "GRUBlockCellV2": GRUBlockCell,
        **{f"Conv{axes}DLSTMCell": _conv_cell(axes) for axes in (1, 2, 3)},
        "CompiledWrapper": lambda cell, *args, **kwargs: cell,
        "stack_bidirectional_rnn": stack_bidirectional_rnn,
        "stack_bidirectional_dynamic_rnn": stack_bidirectional_dynamic_rnn,
        "transpose_batch_time": transpose_batch_time,
        "_linear": linear,
    }
