"""CRFs, decoders and attention, compared with enumerated results."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.tensorflow

SCORES = np.random.default_rng(3).normal(size=(2, 4, 3)).astype(np.float32)
STEPS = np.random.default_rng(4).normal(size=(3, 3)).astype(np.float32)
LENGTHS = np.array([4, 2])
TAGS = np.array([[0, 2, 1, 1], [1, 0, 0, 0]])


def _score(number: int, tags: Any) -> float:
    unary = sum(SCORES[number, place, tag] for place, tag in enumerate(tags))
    return float(unary + sum(STEPS[one, other] for one, other in itertools.pairwise(tags)))


def _all_chains(number: int) -> dict[Any, float]:
    return {tags: _score(number, tags) for tags in itertools.product(range(3), repeat=int(LENGTHS[number]))}


def test_crf(in_child: Any) -> None:
    likelihood, norm, best, best_score, viterbi = in_child(_chains)
    for number in range(2):
        chains = _all_chains(number)
        length = int(LENGTHS[number])
        total = np.log(np.sum(np.exp(list(chains.values()))))
        assert norm[number] == pytest.approx(total, rel=1e-5)
        wanted = _score(number, TAGS[number, :length]) - total
        assert likelihood[number] == pytest.approx(wanted, rel=1e-4)
        winner = max(chains, key=chains.get)
        assert tuple(best[number, :length]) == winner and not best[number, length:].any()
        assert best_score[number] == pytest.approx(chains[winner], rel=1e-5)
    assert tuple(viterbi[0]) == tuple(best[0])


def _chains() -> Any:
    import tensorflow as tf

    from digits.worker.compat import contrib_sequences as sequences

    scores, steps = tf.constant(SCORES), tf.constant(STEPS)
    likelihood, _ = sequences.crf_log_likelihood(scores, TAGS, LENGTHS, steps)
    best, best_score = sequences.crf_decode(scores, steps, LENGTHS)
    values = (likelihood, sequences.crf_log_norm(scores, LENGTHS, steps), best, best_score)
    return *(value.numpy() for value in values), sequences.viterbi_decode(SCORES[0], STEPS)


def test_decoders(in_child: Any) -> None:
    trained, lengths, plain, greedy, greedy_lengths = in_child(_decoded)
    assert lengths.tolist() == [4, 2]
    assert np.allclose(trained[0], plain[0], atol=1e-6) and np.allclose(
        trained[1, :2], plain[1, :2], atol=1e-6
    )
    assert not trained[1, 2:].any()
    # Each word is followed by the next one; word 3 ends the sequence.
    assert greedy.tolist() == [[1, 2, 3], [3, 0, 0]]
    assert greedy_lengths.tolist() == [3, 1]


def _decoded() -> Any:
    import tensorflow as tf

    from digits.worker.compat import contrib_cells, contrib_sequences

    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        inputs = tf.constant(SCORES)
        cell = contrib_cells.GRUCell(3, name="cell")
        helper = contrib_sequences.TrainingHelper(inputs, LENGTHS)
        decoder = contrib_sequences.BasicDecoder(cell, helper, cell.zero_state(2, tf.float32))
        outputs, _, lengths = contrib_sequences.dynamic_decode(decoder, impute_finished=True, scope="same")
        with v1.variable_scope("same", reuse=True):
            again = contrib_cells.GRUCell(3, name="cell")
            state, plain = again.zero_state(2, tf.float32), []
            for step in range(4):
                output, state = again(inputs[:, step], state)
                plain.append(output)
        decoder = contrib_sequences.BasicDecoder(
            _Successor(), contrib_sequences.GreedyEmbeddingHelper(tf.eye(4), [0, 2], 3), tf.zeros([2, 1])
        )
        greedy, _, greedy_lengths = contrib_sequences.dynamic_decode(
            decoder, impute_finished=True, maximum_iterations=9
        )
        session.run(v1.global_variables_initializer())
        wanted = (outputs.rnn_output, lengths, tf.stack(plain, 1), greedy.sample_id, greedy_lengths)
        return session.run(wanted)


class _Successor:
    """A cell that outputs the word after its input."""

    def __call__(self, inputs: Any, state: Any) -> Any:
        import tensorflow as tf

        return tf.roll(inputs, 1, 1), state


def test_attention_matches_the_query(in_child: Any) -> None:
    shares, output, count = in_child(_attended)
    assert shares.shape == (2, 4) and np.allclose(shares.sum(1), 1)
    assert np.allclose(shares[1, 2:], 0)  # past the end of the sequence
    assert output.shape == (2, 6) and count == 4


def _attended() -> Any:
    import tensorflow as tf

    from digits.worker.compat import contrib_cells, contrib_sequences

    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        memory = tf.constant(SCORES)
        attention = contrib_sequences.LuongAttention(5, memory, LENGTHS)
        cell = contrib_sequences.AttentionWrapper(contrib_cells.GRUCell(5), attention, 6)
        helper = contrib_sequences.TrainingHelper(memory, [4, 4])
        decoder = contrib_sequences.BasicDecoder(cell, helper, cell.zero_state(2, tf.float32))
        outputs, state, _ = contrib_sequences.dynamic_decode(decoder)
        with v1.variable_scope("other"):
            other = contrib_sequences.BahdanauAttention(5, memory, LENGTHS, normalize=True)(tf.zeros([2, 7]))
        session.run(v1.global_variables_initializer())
        session.run(other)
        return session.run((state.alignments, outputs.rnn_output[:, -1], state.time))


def test_sequence_lists(in_child: Any) -> None:
    assert in_child(_lists) == pytest.approx([np.log(3), 2 * np.log(3)])


def _lists() -> list[float]:
    import tensorflow as tf

    from digits.worker.compat import contrib_sequences

    logits, targets = [tf.zeros([2, 3])] * 2, [tf.constant([0, 1])] * 2
    weights = [tf.ones([2]), tf.constant([1.0, 0.0])]
    sum_of_all = contrib_sequences.sequence_loss_of_lists(
        logits, targets, weights, average_across_batch=False
    )
    return [float(contrib_sequences.sequence_loss_by_example(logits, targets, weights)[1]), float(sum_of_all)]
