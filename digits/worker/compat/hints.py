"""Hints for names of TensorFlow 1 that no longer exist."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

LOOP = "DIGITS runs the training: compute the output in inference and the loss in loss."
DATA = "DIGITS feeds the network: take the images from self.x and the labels from self.y."

# Name below tf, or a prefix of one, and what to use instead.
_INSTEAD = {
    "contrib.distributions": "Use Normal, MultivariateNormalDiag etc., or implement the densities.",
    "contrib.learn": LOOP,
    "contrib.estimator": LOOP,
    "estimator": LOOP,
    "contrib.training": LOOP,
    "contrib.data": DATA,
    "contrib.eager": "Networks are built as graphs: remove the eager execution.",
    "contrib.keras": "Use tf.keras.",
    "contrib.opt": "Choose the optimizer in the form.",
    "contrib.tpu": "Remove it: DIGITS trains on CPUs and GPUs.",
    "contrib.cudnn_rnn": "Use tf.keras.layers.LSTM or GRU, which use cuDNN where possible.",
    "contrib.rnn": "Use a cell of tf.nn.rnn_cell, or tf.keras.layers.",
    "contrib.seq2seq": "Use BasicDecoder with TrainingHelper or GreedyEmbeddingHelper, or tf.keras.layers.",
    "contrib.gan": "Return a list of {'loss': …, 'vars': …} from loss.",
    "contrib.legacy_seq2seq": "Use tf.keras.layers.",
    "contrib.quantize": "Quantize weights and outputs with tf.fake_quant_with_min_max_vars.",
    "contrib.model_pruning": "Multiply the weights by a mask: tf.get_variable(…, trainable=False).",
    "contrib.layers": "Use the layer of the same name in tf.layers, slim or tf.keras.layers.",
    "contrib": "Look for it in tf, slim or tf.keras.",
    "examples": DATA,
    "models": "Copy the model's code into the network.",
    "nn.seq2seq": "Use tf.keras.layers.",
    "slim": "Import it as tensorflow.contrib.slim.",
    "data.Dataset.make_one_shot_iterator": DATA,
    "train": LOOP,
    "Session": LOOP,
}


class MissingName(AttributeError):
    """A name that TensorFlow does not have; ``hint`` names a replacement."""

    def __init__(self, module: str, name: str, names: Iterable[str] = ()) -> None:
        short = module.replace("tensorflow", "tf", 1)
        super().__init__(f"TensorFlow has no {short}.{name}")
        near = difflib.get_close_matches(name, names, 1, 0.8)
        self.hint = (
            f"Did you mean {short}.{near[0]}?" if near else suggest(f"{short}.{name}".removeprefix("tf."))
        )


def suggest(name: str) -> str:
    """Return a hint for the missing ``name`` (below ``tf``), or "" if there is none."""
    while name:
        if name in _INSTEAD:
            return _INSTEAD[name]
        name = name.rpartition(".")[0]
    return ""
