"""The outputs of a network, which are a tensor, a list or a dict of them, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray


def named(outputs: Any, name: str = "output") -> dict[str, tf.Tensor]:
    """Flatten a network's outputs to a dict: ``output``, ``output_0`` and so on for a list, or the keys of a dict."""
    return {whole: tf.convert_to_tensor(tensor) for whole, tensor in _flat(outputs, name)}


def as_array(tensor: tf.Tensor) -> NDArray[Any]:
    """Return an output as an array, with types that JSON lacks, such as bfloat16, converted to float32."""
    values: NDArray[Any] = tensor.numpy()
    return values if values.dtype.kind in "iufb" else values.astype(np.float32)


def restore_structure(outputs: Any, values: Mapping[str, Any]) -> Any:
    """Pack ``values``, arrays or tensors in the format of `named`, into the structure of ``outputs``."""
    return _restored(outputs, values, "output")


def _restored(outputs: Any, values: Mapping[str, Any], name: str) -> Any:
    if isinstance(outputs, dict):
        return {key: _restored(item, values, _plain(str(key))) for key, item in outputs.items()}
    if isinstance(outputs, (list, tuple)):
        return [_restored(item, values, f"{name}_{index}") for index, item in enumerate(outputs)]
    return None if outputs is None else values[name]


def _flat(outputs: Any, name: str) -> list[tuple[str, Any]]:
    if isinstance(outputs, dict):
        parts = [(_plain(str(key)), item) for key, item in outputs.items()]
    elif isinstance(outputs, (list, tuple)):
        parts = [(f"{name}_{index}", item) for index, item in enumerate(outputs)]
    else:
        return [] if outputs is None else [(name, outputs)]
    return [pair for part, item in parts for pair in _flat(item, part)]


def _plain(name: str) -> str:
    """Replace characters that are not allowed in output names with underscores."""
    return "".join(letter if letter.isalnum() and letter.isascii() else "_" for letter in name) or "output"
