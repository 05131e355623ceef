"""Replacements for names that TensorFlow, Keras or DIGITS no longer have, and the errors that name them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

_LOOP = "DIGITS runs the training: compute the output in inference and the loss in loss."
_DATA = "DIGITS feeds the network: take the images from self.x and the labels from self.y."
_CELLS = "Use a cell of tf.nn.rnn_cell, such as LSTMCell, or tf.keras.layers.LSTM."
_SUMMARIES = "Append tf.summary.histogram(name, values) to self.summaries."
_DENSITIES = "Compute the densities with tf.math, or install tensorflow_probability beside DIGITS."
_FLAGS = "Assign the value to a variable: a network has no command line."

# Name below tf, or a prefix of one, and what to use instead. `slim` is also tf.contrib.slim.
_INSTEAD = {
    "contrib": "Look for it in tf, slim or tf.keras.",
    "contrib.crf": "Compute the likelihood with tf.scan, or predict each label with tf.keras.layers.Dense.",
    "contrib.ctc": "Use tf.nn.ctc_loss and tf.nn.ctc_beam_search_decoder.",
    "contrib.cudnn_rnn": "Use tf.keras.layers.LSTM or GRU, which use cuDNN where possible.",
    "contrib.data": _DATA,
    "contrib.deprecated": "Use tf.summary.scalar, tf.summary.histogram and tf.summary.image.",
    "contrib.distributions": _DENSITIES,
    "contrib.eager": "Networks are built as graphs: remove the eager execution.",
    "contrib.estimator": _LOOP,
    "contrib.framework": "Use the function of the same name in tf or tf.train.",
    "contrib.framework.smart_cond": "Use tf.cond, or if for a bool of Python.",
    "contrib.framework.with_shape": "Use tf.ensure_shape.",
    "contrib.gan": "Return a list of {'loss': …, 'vars': …} from loss.",
    "contrib.image": "Use tf.keras.layers.RandomRotation and similar layers, or tf.image.",
    "contrib.keras": "Use tf.keras.",
    "contrib.layers": "Use the layer of the same name in tf.layers, slim or tf.keras.layers.",
    "contrib.layers.bow_encoder": "Use tf.reduce_mean(tf.nn.embedding_lookup(table, ids), 1).",
    "contrib.layers.embed_sequence": "Use tf.nn.embedding_lookup, or tf.keras.layers.Embedding.",
    "contrib.learn": _LOOP,
    "contrib.legacy_seq2seq": "Use tf.nn.dynamic_rnn, or tf.keras.layers.",
    "contrib.linalg": "Use tf.linalg.",
    "contrib.lookup": "Use tf.lookup.StaticHashTable, or tf.keras.layers.StringLookup.",
    "contrib.losses": "Use tf.losses, such as tf.losses.mean_squared_error.",
    "contrib.metrics": "Use tf.metrics, or tf.math.confusion_matrix.",
    "contrib.model_pruning": "Multiply the weights by a mask: tf.get_variable(…, trainable=False).",
    "contrib.nn": "Use tf.nn, or tf.keras.layers.AlphaDropout.",
    "contrib.opt": "Choose the optimizer in the form.",
    "contrib.quantize": "Quantize weights and outputs with tf.fake_quant_with_min_max_vars.",
    "contrib.resampler": "Use tf.gather_nd, or tf.image.crop_and_resize.",
    "contrib.rnn": _CELLS,
    "contrib.rnn.AttentionCellWrapper": "Use tf.keras.layers.Attention.",
    "contrib.rnn.ConvLSTMCell": "Use tf.keras.layers.ConvLSTM2D.",
    "contrib.rnn.GRUBlockCell": "Use tf.nn.rnn_cell.GRUCell.",
    "contrib.rnn.InputProjectionWrapper": "Apply tf.layers.dense to the inputs.",
    "contrib.rnn.LSTMBlockCell": "Use tf.nn.rnn_cell.LSTMCell.",
    "contrib.rnn.LSTMBlockFusedCell": "Use tf.nn.dynamic_rnn with tf.nn.rnn_cell.LSTMCell.",
    "contrib.rnn.LayerNormBasicLSTMCell": "Use tf.nn.rnn_cell.LSTMCell, or tf.keras.layers.LayerNormalization.",
    "contrib.rnn.OutputProjectionWrapper": "Apply tf.layers.dense to the outputs.",
    "contrib.rnn._linear": "Use tf.layers.dense(tf.concat(args, 1), units).",
    "contrib.rnn.stack_bidirectional_dynamic_rnn": "Call tf.nn.bidirectional_dynamic_rnn for each layer.",
    "contrib.rnn.stack_bidirectional_rnn": "Call tf.nn.static_bidirectional_rnn for each layer.",
    "contrib.seq2seq": (
        "Use tf.nn.dynamic_rnn, tf.keras.layers.Attention, and tf.losses.sparse_softmax_cross_entropy with weights."
    ),
    "contrib.signal": "Use tf.signal.",
    "contrib.summary": "Use tf.summary.",
    "contrib.slim": "Use the layer of the same name in tf.layers or tf.keras.layers.",
    "contrib.tensorboard": "Remove it: an embedding map can be made on the page of the model.",
    "contrib.tpu": "Remove it: DIGITS trains on CPUs and GPUs.",
    "contrib.training": f"Use a dict in place of HParams. {_LOOP}",
    "contrib.util": "Use tf.get_static_value, tf.make_ndarray and tf.make_tensor_proto.",
    "data.Dataset.make_one_shot_iterator": _DATA,
    "estimator": _LOOP,
    "examples": _DATA,
    "keras.backend.image_dim_ordering": "Use keras.backend.image_data_format.",
    "keras.backend.in_train_phase": "Use if self.is_training.",
    "keras.backend.learning_phase": "Use self.is_training.",
    "keras.engine": "Use keras.layers.Layer and keras.layers.InputSpec.",
    "keras.layers.Convolution1D": "Use keras.layers.Conv1D.",
    "keras.layers.CuDNNGRU": "Use keras.layers.GRU, which uses cuDNN where possible.",
    "keras.layers.CuDNNLSTM": "Use keras.layers.LSTM, which uses cuDNN where possible.",
    "keras.layers": "Use the layer of the same name in keras.layers.",
    "keras.objectives": "Use keras.losses.",
    "keras.preprocessing.image": _DATA,
    "keras.utils.multi_gpu_model": "Remove it: choose the GPUs in the form.",
    "models": "Copy the model's code into the network.",
    "Session": _LOOP,
    "slim": "Import it as tensorflow.contrib.slim.",
    "summary": "Append tf.summary.scalar, histogram, image or text to self.summaries.",
    "train": _LOOP,
    # Before 1.0.
    "audio_summary": "Append tf.summary.scalar, histogram, image or text to self.summaries.",
    "batch_cholesky": "Use tf.linalg.cholesky.",
    "batch_matmul": "Use tf.matmul.",
    "batch_matrix_diag": "Use tf.linalg.diag.",
    "batch_matrix_inverse": "Use tf.linalg.inv.",
    "batch_matrix_transpose": "Use tf.linalg.matrix_transpose.",
    "complex_abs": "Use tf.abs.",
    "image.per_image_whitening": "Use tf.image.per_image_standardization.",
    "inv": "Use tf.math.reciprocal.",
    "listdiff": "Use tf.setdiff1d.",
}

_READERS = (
    "batch batch_join maybe_batch maybe_batch_join shuffle_batch shuffle_batch_join maybe_shuffle_batch "
    "input_producer string_input_producer range_input_producer slice_input_producer start_queue_runners"
).split()
_PROGRAMS = (
    "Supervisor MonitoredSession MonitoredTrainingSession SingularMonitoredSession SessionManager Server "
    "basic_train_loop"
).split()
_OPTIMIZERS = (
    "AdadeltaOptimizer AdagradDAOptimizer AdagradOptimizer AdamOptimizer FtrlOptimizer GradientDescentOptimizer "
    "MomentumOptimizer Optimizer ProximalAdagradOptimizer ProximalGradientDescentOptimizer RMSPropOptimizer "
    "SyncReplicasOptimizer"
).split()
# Functions whose random numbers a resumed training could not repeat.
_SAMPLERS = (
    "sampled_softmax_loss nce_loss uniform_candidate_sampler log_uniform_candidate_sampler all_candidate_sampler "
    "fixed_unigram_candidate_sampler learned_unigram_candidate_sampler"
).split()
_UNREPEATABLE = "a training that is resumed could not repeat the random numbers."
_SLIM_SUMMARIES = (
    "summarize_activation summarize_activations summarize_biases summarize_collection summarize_tensor "
    "summarize_tensors summarize_variables summarize_weights"
).split()

# Names that TensorFlow has, but that a network cannot use.
_UNUSABLE = {
    "app.flags": _FLAGS,
    "app.run": _LOOP,
    "flags": _FLAGS,
    **{f"train.{name}": _DATA for name in _READERS},
    **{f"train.{name}": _LOOP for name in _PROGRAMS},
    **{f"train.{name}": "Choose the optimizer in the form." for name in _OPTIMIZERS},
    **{
        f"{module}.{name}": f"Use tf.nn.softmax_cross_entropy_with_logits: {_UNREPEATABLE}"
        for module in ("nn", "random")
        for name in _SAMPLERS
    },
    "image.sample_distorted_bounding_box": (
        f"Use tf.image.stateless_sample_distorted_bounding_box: {_UNREPEATABLE}"
    ),
    "train.replica_device_setter": "Remove it: choose the GPUs in the form.",
    **{f"contrib.{module}.{name}": _SUMMARIES for name in _SLIM_SUMMARIES for module in ("slim", "layers")},
    **{f"contrib.slim.{name}": _LOOP for name in ("evaluation", "learning", "optimize_loss")},
    "contrib.layers.optimize_loss": _LOOP,
}

# Names of the same object.
_SAME = {
    "nn.rnn_cell": "contrib.rnn",
    "nn.seq2seq": "contrib.legacy_seq2seq",
    "contrib.slim.losses": "contrib.losses",
}


class MissingName(AttributeError):
    """A name that TensorFlow does not have or that a network cannot use; ``hint`` names a replacement."""

    def __init__(self, module: str, name: str, names: Iterable[str] = ()) -> None:
        short = module.replace("tensorflow", "tf", 1)
        path = f"{short}.{name}".removeprefix("tf.")
        self.hint = _UNUSABLE.get(path, "")
        if self.hint:
            super().__init__(f"A network cannot use {short}.{name}")
            return
        super().__init__(f"TensorFlow has no {short}.{name}")
        near = (
            None
            if _path(path) in _INSTEAD
            else next(iter(difflib.get_close_matches(name, names, 1, 0.8)), None)
        )
        self.hint = f"Did you mean {short}.{near}?" if near else suggest(path)


# The former module of a name below tf.contrib, which contains all its names here.
_INSIDE = re.compile(r"(?<=^contrib\.)(\w+)\.python\..*(?=\.\w+$)")


def _path(name: str) -> str:
    name = _INSIDE.sub(r"\1", name)
    for old, new in _SAME.items():
        if name == old or name.startswith(f"{old}."):
            return name.replace(old, new, 1)
    return name


def is_usable(module: str, name: str) -> bool:
    """Return whether a network can use ``name`` if ``module`` of TensorFlow has it."""
    return f"{module.removeprefix('tensorflow').removeprefix('.')}.{name}".removeprefix(".") not in _UNUSABLE


def may_be_module(module: str, name: str) -> bool:
    """Return whether ``name``, which ``module`` of TensorFlow lacks, may be a former module: it is in lower case and
    not in the table.
    """
    return (
        name.islower()
        and name[0] != "_"
        and _path(f"{module.removeprefix('tensorflow.')}.{name}") not in _INSTEAD
    )


def suggest(name: str) -> str:
    """Return a hint for the missing ``name`` (below ``tf``), or "" if there is none."""
    name = _path(name)
    while name:
        if name in _INSTEAD:
            return _INSTEAD[name]
        name = name.rpartition(".")[0]
    return ""
