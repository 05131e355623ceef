"""Sequence models of ``tf.contrib``: conditional random fields (``crf``), decoders and attention
(``seq2seq``).

Sequences are [N, T, …]; in ``legacy_seq2seq`` they are lists of T tensors [N, …]. Steps beyond the length of a
sequence are ignored.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.ops import rnn_cell

from digits.worker.compat.contrib_cells import linear, transpose_batch_time

v1 = tf.compat.v1


# Conditional random fields


def crf_sequence_score(
    inputs: Any, tag_indices: Any, sequence_lengths: Any, transition_params: Any
) -> tf.Tensor:
    """Return the score [N] of the tags [N, T] for ``inputs`` [N, T, K] and ``transition_params`` [K, K]."""
    return crf_unary_score(tag_indices, sequence_lengths, inputs) + crf_binary_score(
        tag_indices, sequence_lengths, transition_params
    )


def crf_unary_score(tag_indices: Any, sequence_lengths: Any, inputs: Any) -> tf.Tensor:
    """Return the sum [N] of the ``inputs`` [N, T, K] selected by the tags [N, T]."""
    each = tf.gather(inputs, tf.cast(tag_indices, tf.int32), batch_dims=2)
    return tf.reduce_sum(each * tf.sequence_mask(sequence_lengths, tf.shape(inputs)[1], inputs.dtype), 1)


def crf_binary_score(tag_indices: Any, sequence_lengths: Any, transition_params: Any) -> tf.Tensor:
    """Return the sum [N] of the transition scores between consecutive tags [N, T]."""
    tags = tf.cast(tag_indices, tf.int32)
    transitions = tf.convert_to_tensor(transition_params)
    each = tf.gather_nd(transitions, tf.stack([tags[:, :-1], tags[:, 1:]], 2))
    mask = tf.sequence_mask(sequence_lengths - 1, tf.shape(tags)[1] - 1, transitions.dtype)
    return tf.reduce_sum(each * mask, 1)


def crf_log_norm(inputs: Any, sequence_lengths: Any, transition_params: Any) -> tf.Tensor:
    """Return the log [N] of the partition function, the sum over all tag sequences."""

    def step(before: tf.Tensor, now: Any) -> tf.Tensor:
        values, number = now
        after = values + tf.reduce_logsumexp(before[:, :, None] + transition_params, 1)
        return tf.where((number < sequence_lengths)[:, None], after, before)

    values, numbers = _later_steps(inputs, sequence_lengths)
    return tf.reduce_logsumexp(tf.foldl(step, (values, numbers), inputs[:, 0]), 1)


def crf_log_likelihood(
    inputs: Any, tag_indices: Any, sequence_lengths: Any, transition_params: Any = None
) -> tuple[tf.Tensor, Any]:
    """Return the log-likelihood [N] of the tags, and the transitions [K, K], which are created if None is
    passed.
    """
    if transition_params is None:
        count = inputs.shape[2]
        transition_params = v1.get_variable("transitions", [count, count])
    score = crf_sequence_score(inputs, tag_indices, sequence_lengths, transition_params)
    return score - crf_log_norm(inputs, sequence_lengths, transition_params), transition_params


def crf_decode(potentials: Any, transition_params: Any, sequence_length: Any) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the most likely tags, int32 [N, T], and their scores [N] (Viterbi decoding)."""
    count = tf.shape(potentials)[2]

    def step(before: Any, now: Any) -> tuple[tf.Tensor, tf.Tensor]:
        values, number = now
        through = before[0][:, :, None] + transition_params
        inside = (number < sequence_length)[:, None]
        best = tf.cast(tf.argmax(through, 1), tf.int32)
        score = tf.where(inside, values + tf.reduce_max(through, 1), before[0])
        return score, tf.where(inside, best, tf.range(count)[None])

    first = potentials[:, 0]
    start = (first, tf.zeros_like(first, tf.int32))
    scores, came_from = tf.scan(step, _later_steps(potentials, sequence_length), start)
    last_score = tf.concat([first[None], scores], 0)[-1]
    last = tf.cast(tf.argmax(last_score, 1), tf.int32)
    earlier = tf.scan(lambda tag, places: tf.gather(places, tag, batch_dims=1), came_from, last, reverse=True)
    tags = tf.transpose(tf.concat([earlier, last[None]], 0))
    mask = tf.sequence_mask(sequence_length, tf.shape(potentials)[1], tf.int32)
    return tags * mask, tf.reduce_max(last_score, 1)


def _later_steps(inputs: Any, lengths: Any) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the inputs after the first step, [T - 1, N, K], and their step numbers."""
    later = tf.transpose(inputs, [1, 0, 2])[1:]
    return later, tf.cast(tf.range(1, tf.shape(inputs)[1]), tf.convert_to_tensor(lengths).dtype)


def viterbi_decode(score: Any, transition_params: Any) -> tuple[list[int], float]:
    """Return the most likely tags of one sequence of scores [T, K], a NumPy array, and their score."""
    best, came_from = np.asarray(score[0]), []
    for values in score[1:]:
        through = best[:, None] + transition_params
        came_from.append(through.argmax(0))
        best = values + through.max(0)
    tags = [int(best.argmax())]
    for places in reversed(came_from):
        tags.append(int(places[tags[-1]]))
    return tags[::-1], float(best.max())


# Sequences as lists


def rnn_decoder(
    decoder_inputs: Any, initial_state: Any, cell: Any, loop_function: Any = None, scope: Any = None
) -> tuple[list[Any], Any]:
    """Return the outputs of ``cell`` for each input, and its last state.

    With ``loop_function(output, number)``, its results replace all inputs after the first.
    """
    state: Any = initial_state
    outputs: list[Any] = []
    with v1.variable_scope(scope or "rnn_decoder"):
        for number, given in enumerate(decoder_inputs):
            if number:
                v1.get_variable_scope().reuse_variables()
            if loop_function is not None and outputs:
                with v1.variable_scope("loop_function", reuse=True):
                    given = loop_function(outputs[-1], number)
            output, state = cell(given, state)
            outputs.append(output)
    return outputs, state


def basic_rnn_seq2seq(
    encoder_inputs: Any, decoder_inputs: Any, cell: Any, dtype: Any = tf.float32, scope: Any = None
) -> tuple[list[Any], Any]:
    """Run a decoder from the last state of an encoder; both use ``cell``, with separate weights."""
    import copy

    with v1.variable_scope(scope or "basic_rnn_seq2seq"):
        _, state = v1.nn.static_rnn(copy.deepcopy(cell), encoder_inputs, dtype=dtype)
        return rnn_decoder(decoder_inputs, state, cell)


def attention_decoder(
    decoder_inputs: Any,
    initial_state: Any,
    attention_states: Any,
    cell: Any,
    output_size: int | None = None,
    num_heads: int = 1,
    loop_function: Any = None,
    dtype: Any = None,
    scope: Any = None,
    initial_state_attention: bool = False,
) -> tuple[list[Any], Any]:
    """Run a decoder that attends to ``attention_states`` [N, T, D] before each output."""
    size = attention_states.shape[2]
    length = output_size or cell.output_size

    def look(state: Any, head: int) -> tf.Tensor:
        weights = v1.get_variable(f"AttnW_{head}", [1, 1, size, size])[0, 0]
        vector = v1.get_variable(f"AttnV_{head}", [size])
        with v1.variable_scope(f"Attention_{head}"):
            query = linear(tf.concat(tf.nest.flatten(state), 1), size)[:, None]
        keys = tf.tensordot(attention_states, weights, 1)
        shares = tf.nn.softmax(tf.reduce_sum(vector * tf.tanh(keys + query), 2))
        return tf.reduce_sum(shares[:, :, None] * attention_states, 1)

    state: Any = initial_state
    outputs: list[Any] = []
    with v1.variable_scope(scope or "attention_decoder", reuse=v1.AUTO_REUSE):
        nothing = tf.zeros([tf.shape(attention_states)[0], size])
        looks = [nothing] * num_heads
        if initial_state_attention:
            looks = [look(state, head) for head in range(num_heads)]
        for number, given in enumerate(decoder_inputs):
            if loop_function is not None and outputs:
                given = loop_function(outputs[-1], number)
            given = linear([given, *looks], given.shape[1])
            output, state = cell(given, state)
            looks = [look(state, head) for head in range(num_heads)]
            with v1.variable_scope("AttnOutputProjection"):
                outputs.append(linear([output, *looks], length))
    return outputs, state


def sequence_loss_by_example(
    logits: Any,
    targets: Any,
    weights: Any,
    average_across_timesteps: bool = True,
    softmax_loss_function: Any = None,
    name: Any = None,
) -> tf.Tensor:
    """Return the weighted cross-entropy [N] of lists of T logits [N, K], targets [N] and weights [N]."""
    loss = softmax_loss_function or v1.nn.sparse_softmax_cross_entropy_with_logits
    each = [
        loss(labels=tf.reshape(target, [-1]), logits=logit) * weight
        for logit, target, weight in zip(logits, targets, weights, strict=True)
    ]
    total = tf.add_n(each)
    return total / (tf.add_n(list(weights)) + 1e-12) if average_across_timesteps else total


def sequence_loss_of_lists(
    logits: Any,
    targets: Any,
    weights: Any,
    average_across_timesteps: bool = True,
    average_across_batch: bool = True,
    softmax_loss_function: Any = None,
    name: Any = None,
) -> tf.Tensor:
    """Return the sum of `sequence_loss_by_example`, or its mean over the batch."""
    each = sequence_loss_by_example(logits, targets, weights, average_across_timesteps, softmax_loss_function)
    return tf.reduce_mean(each) if average_across_batch else tf.reduce_sum(each)


def sequence_loss(
    logits: Any,
    targets: Any,
    weights: Any,
    average_across_timesteps: bool = True,
    average_across_batch: bool = True,
    softmax_loss_function: Any = None,
    name: Any = None,
) -> Any:
    """Return the weighted cross-entropy of logits [N, T, C], with targets and weights [N, T]."""
    loss = softmax_loss_function or v1.nn.sparse_softmax_cross_entropy_with_logits
    with tf.name_scope(name or "sequence_loss"):
        each = loss(labels=targets, logits=logits) * tf.cast(weights, logits.dtype)
        total = tf.cast(weights, logits.dtype)
        axes = [
            axis for axis, wanted in enumerate((average_across_batch, average_across_timesteps)) if wanted
        ]
        if not axes:
            return each
        return tf.reduce_sum(each, axes) / (tf.reduce_sum(total, axes) + 1e-12)


# Decoders of any length


class TrainingHelper:
    """Feed a decoder the true inputs [N, T, D] (teacher forcing)."""

    def __init__(self, inputs: Any, sequence_length: Any, time_major: bool = False, name: Any = None) -> None:
        self._inputs = inputs if time_major else transpose_batch_time(inputs)
        self._lengths = tf.cast(sequence_length, tf.int32)

    def initialize(self, name: Any = None) -> tuple[tf.Tensor, tf.Tensor]:
        return self._lengths <= 0, self._inputs[0]

    def sample(self, time: Any, outputs: Any, state: Any, name: Any = None) -> tf.Tensor:
        return tf.cast(tf.argmax(outputs, -1), tf.int32)

    def next_inputs(
        self, time: Any, outputs: Any, state: Any, sample_ids: Any = None, name: Any = None
    ) -> tuple[tf.Tensor, Any, Any]:
        last = tf.shape(self._inputs)[0] - 1
        return time + 1 >= self._lengths, self._inputs[tf.minimum(time + 1, last)], state


class GreedyEmbeddingHelper:
    """Feed a decoder the embedding of its most likely output until that is ``end_token``."""

    def __init__(self, embedding: Any, start_tokens: Any, end_token: Any) -> None:
        self._embed = embedding if callable(embedding) else lambda ids: tf.nn.embedding_lookup(embedding, ids)
        self._start, self._end = tf.cast(start_tokens, tf.int32), end_token

    def initialize(self, name: Any = None) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.zeros_like(self._start, tf.bool), self._embed(self._start)

    def sample(self, time: Any, outputs: Any, state: Any, name: Any = None) -> tf.Tensor:
        return tf.cast(tf.argmax(outputs, -1), tf.int32)

    def next_inputs(
        self, time: Any, outputs: Any, state: Any, sample_ids: Any, name: Any = None
    ) -> tuple[tf.Tensor, Any, Any]:
        return tf.equal(sample_ids, self._end), self._embed(sample_ids), state


BasicDecoderOutput = namedtuple("BasicDecoderOutput", ("rnn_output", "sample_id"))


class BasicDecoder:
    """A decoder with a cell, a helper that provides its inputs, and an optional output layer."""

    def __init__(self, cell: Any, helper: Any, initial_state: Any, output_layer: Any = None) -> None:
        self._cell, self._helper = cell, helper
        self._state, self._layer = initial_state, output_layer

    def initialize(self, name: Any = None) -> tuple[Any, Any, Any]:
        return (*self._helper.initialize(), self._state)

    def step(self, time: Any, inputs: Any, state: Any, name: Any = None) -> tuple[Any, Any, Any, Any]:
        outputs, state = self._cell(inputs, state)
        if self._layer is not None:
            outputs = self._layer(outputs)
        ids = self._helper.sample(time, outputs, state)
        finished, inputs, state = self._helper.next_inputs(time, outputs, state, ids)
        return BasicDecoderOutput(outputs, ids), state, inputs, finished

    @property
    def output_dtype(self) -> Any:
        return BasicDecoderOutput(tf.nest.flatten(self._state)[0].dtype, tf.int32)


def dynamic_decode(
    decoder: Any,
    output_time_major: bool = False,
    impute_finished: bool = False,
    maximum_iterations: Any = None,
    parallel_iterations: int = 32,
    swap_memory: bool = False,
    scope: Any = None,
    **kwargs: Any,
) -> tuple[Any, Any, tf.Tensor]:
    """Run ``decoder`` until all sequences are finished; returns outputs, last state and sequence lengths."""

    def is_unfinished(time: Any, finished: Any, *others: Any) -> tf.Tensor:
        more = tf.logical_not(tf.reduce_all(finished))
        return more if maximum_iterations is None else more & (time < maximum_iterations)

    def step(time: Any, finished: Any, lengths: Any, inputs: Any, state: Any, arrays: Any) -> Any:
        outputs, after, inputs, ends = decoder.step(time, inputs, state)
        if impute_finished:
            outputs = tf.nest.map_structure(lambda new: _where(finished, tf.zeros_like(new), new), outputs)
            after = tf.nest.map_structure(lambda new, old: _where(finished, old, new), after, state)
        arrays = tf.nest.map_structure(lambda array, value: array.write(time, value), arrays, outputs)
        lengths = tf.where(finished, lengths, time + 1)
        return time + 1, finished | ends, lengths, inputs, after, arrays

    with v1.variable_scope(scope or "decoder"):
        finished, inputs, state = decoder.initialize()
        arrays = tf.nest.map_structure(
            lambda dtype: tf.TensorArray(dtype, 0, dynamic_size=True), decoder.output_dtype
        )
        start = (tf.constant(0), finished, tf.zeros_like(finished, tf.int32), inputs, state, arrays)
        ended = v1.while_loop(
            is_unfinished, step, start, parallel_iterations=parallel_iterations, swap_memory=swap_memory
        )
    outputs = tf.nest.map_structure(lambda array: array.stack(), ended[5])
    if not output_time_major:
        outputs = tf.nest.map_structure(transpose_batch_time, outputs)
    return outputs, ended[4], ended[2]


def _where(finished: tf.Tensor, yes: Any, no: Any) -> Any:
    if yes.shape.rank == 0:  # such as the step number
        return no
    return tf.where(tf.reshape(finished, [-1, *[1] * (yes.shape.rank - 1)]), yes, no)


class _Attention:
    """Attention weights [N, T] over a memory [N, T, D], by scores of a query."""

    def __init__(self, memory: Any, lengths: Any, units: int, probability_fn: Any, keyed: bool, name: str):
        self._name, self._units = name, units
        self._probability = probability_fn or tf.nn.softmax
        self._mask = None if lengths is None else tf.sequence_mask(lengths, tf.shape(memory)[1])
        self.values = memory
        if self._mask is not None:
            self.values *= tf.cast(self._mask, memory.dtype)[:, :, None]
        self.keys = self.values
        if keyed:
            with v1.variable_scope("memory_layer"):
                weights = v1.get_variable("kernel", [memory.shape[2], units], memory.dtype)
            self.keys = tf.tensordot(self.values, weights, 1)

    @property
    def alignments_size(self) -> Any:
        return self.values.shape[1] or tf.shape(self.values)[1]

    def __call__(self, query: Any, state: Any = None, previous_alignments: Any = None) -> tf.Tensor:
        with v1.variable_scope(self._name):
            scores = self._scores(query)
        if self._mask is not None:
            scores = tf.where(self._mask, scores, -float("inf"))
        return self._probability(scores)

    def _scores(self, query: Any) -> tf.Tensor:
        raise NotImplementedError


class BahdanauAttention(_Attention):
    """Additive attention (https://arxiv.org/abs/1409.0473)."""

    def __init__(
        self,
        num_units: int,
        memory: Any,
        memory_sequence_length: Any = None,
        normalize: bool = False,
        probability_fn: Any = None,
        name: str = "bahdanau_attention",
        **kwargs: Any,
    ) -> None:
        super().__init__(memory, memory_sequence_length, num_units, probability_fn, True, name)
        self._normalizes = normalize

    def _scores(self, query: Any) -> tf.Tensor:
        with v1.variable_scope("query_layer"):
            query = linear(query, self._units, bias=False)[:, None]
        vector = v1.get_variable("attention_v", [self._units], query.dtype)
        if not self._normalizes:
            return tf.reduce_sum(vector * tf.tanh(self.keys + query), 2)
        gain = v1.get_variable("attention_g", [], initializer=v1.constant_initializer(self._units**-0.5))
        bias = v1.get_variable("attention_b", [self._units], initializer=v1.zeros_initializer())
        direction = gain * vector * tf.math.rsqrt(tf.reduce_sum(tf.square(vector)))
        return tf.reduce_sum(direction * tf.tanh(self.keys + query + bias), 2)


class LuongAttention(_Attention):
    """Multiplicative attention (https://arxiv.org/abs/1508.04025)."""

    def __init__(
        self,
        num_units: int,
        memory: Any,
        memory_sequence_length: Any = None,
        scale: bool = False,
        probability_fn: Any = None,
        name: str = "luong_attention",
        **kwargs: Any,
    ) -> None:
        super().__init__(memory, memory_sequence_length, num_units, probability_fn, True, name)
        self._scales = scale

    def _scores(self, query: Any) -> tf.Tensor:
        scores = tf.reduce_sum(self.keys * query[:, None], 2)
        if not self._scales:
            return scores
        return scores * v1.get_variable("attention_g", [], initializer=v1.ones_initializer())


class AttentionWrapperState(
    namedtuple(
        "AttentionWrapperState", ("cell_state", "attention", "time", "alignments", "alignment_history")
    )
):
    """The state of an `AttentionWrapper`."""

    __slots__ = ()

    def clone(self, **changed: Any) -> AttentionWrapperState:
        return self._replace(**changed)


class AttentionWrapper(rnn_cell.RNNCell):
    """A cell that receives the previous attention as input, and attends to a memory after each step."""

    def __init__(
        self,
        cell: Any,
        attention_mechanism: Any,
        attention_layer_size: int | None = None,
        alignment_history: bool = False,
        cell_input_fn: Any = None,
        output_attention: bool = True,
        initial_cell_state: Any = None,
        name: Any = None,
    ) -> None:
        super().__init__(name=name)
        if isinstance(attention_mechanism, (list, tuple)):
            raise NotImplementedError("AttentionWrapper supports a single attention mechanism")
        self._cell, self._attention = cell, attention_mechanism
        self._layer_size, self._gives_attention = attention_layer_size, output_attention
        self._input = cell_input_fn or (lambda inputs, attention: tf.concat([inputs, attention], -1))
        self._initial = initial_cell_state

    @property
    def _attention_size(self) -> int:
        return self._layer_size or self._attention.values.shape[2]

    @property
    def output_size(self) -> Any:
        return self._attention_size if self._gives_attention else self._cell.output_size

    @property
    def state_size(self) -> Any:
        size = self._attention.alignments_size
        return AttentionWrapperState(
            self._cell.state_size, self._attention_size, tf.TensorShape([]), size, ()
        )

    def zero_state(self, batch_size: Any, dtype: Any) -> AttentionWrapperState:
        cell_state = self._initial
        if cell_state is None:
            cell_state = self._cell.zero_state(batch_size, dtype)
        attention = tf.zeros([batch_size, self._attention_size], dtype)
        alignments = tf.zeros_like(self._attention.values[:, :, 0])
        return AttentionWrapperState(cell_state, attention, tf.constant(0), alignments, ())

    def call(self, inputs: Any, state: AttentionWrapperState) -> Any:
        outputs, cell_state = self._cell(self._input(inputs, state.attention), state.cell_state)
        alignments = self._attention(outputs)
        attention = tf.reduce_sum(alignments[:, :, None] * self._attention.values, 1)
        if self._layer_size:
            with v1.variable_scope("attention_layer"):
                attention = linear([outputs, attention], self._layer_size, bias=False)
        after = AttentionWrapperState(cell_state, attention, state.time + 1, alignments, ())
        return attention if self._gives_attention else outputs, after


def tile_batch(t: Any, multiplier: int, name: Any = None) -> Any:
    """Repeat each record ``multiplier`` times in a row."""
    return tf.nest.map_structure(lambda value: tf.repeat(value, multiplier, axis=0), t)


def crf() -> dict[str, Any]:
    """Return the names of ``tf.contrib.crf``."""
    functions = (
        crf_sequence_score,
        crf_unary_score,
        crf_binary_score,
        crf_log_norm,
        crf_log_likelihood,
        crf_decode,
        viterbi_decode,
    )
    return {function.__name__: function for function in functions}


def seq2seq() -> dict[str, Any]:
    """Return the names of ``tf.contrib.seq2seq``."""
    names = (
        TrainingHelper,
        GreedyEmbeddingHelper,
        BasicDecoder,
        BasicDecoderOutput,
        dynamic_decode,
        BahdanauAttention,
        LuongAttention,
        AttentionWrapper,
        AttentionWrapperState,
        tile_batch,
        sequence_loss,
    )
    return {item.__name__: item for item in names}


def legacy_seq2seq() -> dict[str, Any]:
    """Return the names of ``tf.contrib.legacy_seq2seq`` and its predecessor ``tf.nn.seq2seq``."""
    functions = (rnn_decoder, basic_rnn_seq2seq, attention_decoder, sequence_loss_by_example)
    return {
        **{function.__name__: function for function in functions},
        "sequence_loss": sequence_loss_of_lists,
    }
