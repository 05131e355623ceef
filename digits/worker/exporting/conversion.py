"""Convert a network to a SavedModel, LiteRT or ONNX file."""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

from digits.worker.exporting import metadata
from digits.worker.exporting.exported import Exported, ServedModel, input_name, refuse_operations
from digits.worker.failure import UserFault, first_line
from digits.worker.training.models.trained import Trained

OPSET = 17
_LITERT_OPERATION = re.compile(r"'tf\.(\w+)' op is neither a custom op nor a flex op")


def write_saved_model(exported: ServedModel, folder: Path) -> None:
    """Write a SavedModel. Raises UserFault if TensorFlow cannot save the network."""
    # Custom gradients are not needed here, and may call Python.
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    try:
        tf.saved_model.save(exported, str(folder), signatures=exported.functions, options=options)
    except (AssertionError, ValueError, TypeError) as error:
        raise UserFault(
            f"The network cannot be exported as a SavedModel: {first_line(error)}",
            "It may depend on an external resource, such as a table or a loaded graph.",
        ) from error


def write_litert(
    exported: Exported,
    model: Trained,
    file: Path,
    precision: str,
    calibration: NDArray[np.float32] | None = None,
) -> None:
    """Write a LiteRT file. Raises UserFault if it does not support an operation.

    ``precision`` is ``float32``, ``float16`` (weights only) or ``int8`` (weights and activations, calibrated on the
    images in ``calibration``, float32 [images, ...]; None for the others). The input and outputs are always float32.
    """
    converter = tf.lite.TFLiteConverter.from_concrete_functions([exported.signature], exported)
    if precision != "float32":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if precision == "float16":
        converter.target_spec.supported_types = [tf.float16]
    elif calibration is not None:
        name, batch = input_name(model), exported.signature.inputs[0].shape[0] or 1

        def examples() -> Iterator[dict[str, NDArray[np.float32]]]:
            for start in range(0, len(calibration) - batch + 1, batch):
                yield {name: calibration[start : start + batch]}

        converter.representative_dataset = examples
    try:
        content = converter.convert()
    except Exception as error:  # its own class is not public
        unsupported = set(_LITERT_OPERATION.findall(str(error)))
        if unsupported:
            raise refuse_operations(model, "LiteRT", unsupported) from error
        raise UserFault(
            f"The network cannot be converted to LiteRT: {first_line(error)}",
            "Export it as a SavedModel, which supports all operations.",
        ) from error
    file.write_bytes(content)
    metadata.add_to_litert(file, metadata.describe(model, exported))


def write_onnx(exported: Exported, trained: Trained, file: Path) -> None:
    """Write an ONNX file. Raises UserFault if it does not support an operation."""
    import onnx
    from tf2onnx import convert

    _register_operations()
    frozen = convert_variables_to_constants_v2(exported.signature)
    taken, outputs = frozen.inputs[0], frozen.outputs
    # A function returns the values of its dict sorted by key.
    names = dict(
        zip((tensor.name for tensor in outputs), sorted(exported.signature.structured_outputs), strict=True)
    )
    with _unsupported_operations() as unsupported:
        try:
            model, _ = convert.from_graph_def(
                _inlinable(frozen.graph.as_graph_def()),
                input_names=[taken.name],
                output_names=list(names),
                tensors_to_rename={taken.name: input_name(trained), **names},
                opset=OPSET,
            )
        except Exception as error:
            if unsupported:
                raise refuse_operations(trained, "ONNX", unsupported) from error
            reason = " ".join(str(error).split())[:300]
            raise UserFault(
                f"The network cannot be converted to ONNX: {reason}",
                "Export it as a SavedModel, which supports all operations.",
            ) from error
    if unsupported:
        raise refuse_operations(trained, "ONNX", unsupported)
    for value in (*model.graph.input, *model.graph.output):
        dimensions = value.type.tensor_type.shape.dim
        if dimensions and dimensions[0].dim_param:
            dimensions[0].dim_param = "N"
    metadata.add_to_onnx(model, metadata.describe(trained, exported))
    onnx.save(model, str(file))


def _inlinable(graph: Any) -> Any:
    """Return a GraphDef whose functions are inlined: not those to compile with XLA, such as grouped convolutions."""
    functions = graph.library.function
    for part in (*graph.node, *functions, *(node for function in functions for node in function.node_def)):
        for name in ("_XlaMustCompile", "_noinline"):
            part.attr.pop(name, None)
    return graph


@functools.cache
def _register_operations() -> None:
    """Add operations that tf2onnx does not convert, once per process."""
    from tf2onnx.handler import tf_op

    @tf_op("Erfc")
    class Complementary:
        """1 - erf(x), as in the exact GELU."""

        @classmethod
        def version_9(cls, ctx: Any, node: Any, **kwargs: Any) -> None:
            erf = ctx.insert_new_node_on_input(node, "Erf", node.input[0])
            one = ctx.make_const(f"{node.name}_one", np.ones([], np.float32))
            node.type = "Sub"
            ctx.replace_inputs(node, [one.output[0], erf.output[0]])


class _unsupported_operations(logging.Handler):  # noqa: N801 - used as a function
    """Collect the operation types that tf2onnx logs as unsupported; it leaves them in the file without raising."""

    def __enter__(self) -> set[str]:
        self.found: set[str] = set()
        logging.getLogger("tf2onnx").addHandler(self)
        return self.found

    def __exit__(self, *exception: object) -> None:
        logging.getLogger("tf2onnx").removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        arguments: Any = record.args
        if "is not supported" in str(record.msg) and isinstance(arguments, tuple) and len(arguments) == 2:
            self.found.add(str(arguments[1]))
