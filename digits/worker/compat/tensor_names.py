"""Finds tensors by the names that they had in TensorFlow 1.

There, ``get_tensor_by_name`` knew everything in one graph: a network's tensors under its
stage (``train/model/conv1/Relu:0``), its variables by theirs (``model/conv1/weights:0``).
Here a graph holds one stage, without a prefix, and no variables. So a name is looked
up as it is, then without the prefix of a stage or tower, then among the variables, and
at last by its end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

_PREFIXES = re.compile(r"^(?:(?:train|val|inf|tower_\d+|model_1|gpu_\d+|\^)/)+")

Variables = Callable[[], Mapping[str, tf.Variable]]


def teach(graph: tf.Graph, variables: Variables) -> None:
    """Let the lookups of ``graph`` find the names of TensorFlow 1 too, and the ``variables`` by name."""
    find = type(graph).as_graph_element

    def operation(name: str) -> Any:
        try:
            return find(graph, name, allow_tensor=False)
        except (KeyError, ValueError) as error:
            found = _operation(graph, name)
            if found is None:
                raise KeyError(_missing(graph, name)) from error
            return found

    def tensor(name: str) -> Any:
        name, _, number = name.partition(":")
        known = variables()
        found = known.get(_PREFIXES.sub("", name.removesuffix("/read")))
        if found is not None:
            return found.value()
        return operation(name).outputs[int(number or 0)]

    def element(obj: Any, allow_tensor: bool = True, allow_operation: bool = True) -> Any:
        if isinstance(obj, str):
            return tensor(obj) if ":" in obj and allow_tensor else operation(obj)
        return find(graph, obj, allow_tensor, allow_operation)

    graph.get_operation_by_name = operation
    graph.get_tensor_by_name = tensor
    graph.as_graph_element = element


def _operation(graph: tf.Graph, name: str) -> Any:
    bare = _PREFIXES.sub("", name)
    operations = graph.get_operations()
    for wanted in (bare, f"model/{bare}"):
        for item in operations:
            if item.name == wanted:
                return item
    return next((item for item in operations if item.name.endswith(f"/{bare}")), None)


def _missing(graph: tf.Graph, name: str) -> str:
    last = name.rpartition("/")[2]
    near = [item.name for item in graph.get_operations() if last and last in item.name][:5]
    also = f" Of the names like it there are: {', '.join(near)}." if near else ""
    return f"The network has no tensor or operation {name!r}.{also}"
