"""The floating-point operations of a network for one image."""

from __future__ import annotations

import logging

import tensorflow as tf
from tensorflow.python.util import deprecation

from digits.worker.network.inference import Inference

log = logging.getLogger(__name__)


def count_flops(shown: Inference) -> int | None:
    """Return the floating-point operations of ``shown`` for one image, with a multiplication and an addition as two.

    TensorFlow's profiler counts them in the graph. None if it knows none of the operations, or if the network cannot
    be built for a single image.
    """
    shape = (1, *shown.function.inputs[0].shape[1:])
    signature = [tf.TensorSpec(shape, tf.float32)]
    builder = tf.compat.v1.profiler.ProfileOptionBuilder
    try:
        function = tf.function(lambda x: shown.build(x).output, autograph=False, input_signature=signature)
        graph = function.get_concrete_function().graph
        options = builder(builder.float_operation()).with_empty_output().build()
        with deprecation.silence():
            profile = tf.compat.v1.profiler.profile(graph, options=options)
    except Exception as fault:  # whatever the network raises
        log.debug("The operations cannot be counted: %s", fault)
        return None
    return int(profile.total_float_ops) or None if profile else None
