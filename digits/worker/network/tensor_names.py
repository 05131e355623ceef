"""Lookup of tensors by their names in TensorFlow 1.

There, one graph contained a network's tensors under the prefix of their stage (``train/model/conv1/Relu:0``) and
its variables (``model/conv1/weights:0``). Here, a graph contains one stage, without a prefix, and no variables. A
name is looked up unchanged, then without the prefix of a stage or tower, then among the variables, and finally by
its last component.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

_PREFIXES = re.compile(r"^(?:(?:train|val|inf|tower_\d+|model_1|gpu_\d+|\^)/)+")

Variables = Callable[[], Mapping[str, tf.Variable]]


def patch_lookups(graph: tf.Graph, variables: Variables) -> None:
    """Make the lookups of ``graph`` also find names of TensorFlow 1, and the ``variables`` by name."""
    find = type(graph).as_graph_element

    def operation(name: str) -> Any:
        try:
            return find(graph, name, allow_tensor=False)
        except (KeyError, ValueError) as error:
            element = _operation(graph, name)
            if element is None:
                raise KeyError(_missing(graph, name)) from error
            return element

    def tensor(name: str) -> Any:
        name, _, number = name.partition(":")
        known = variables()
        variable = known.get(_PREFIXES.sub("", name.removesuffix("/read")))
        if variable is not None:
            return variable.value()
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
    also = f" Similar names: {', '.join(near)}." if near else ""
    return f"The network has no tensor or operation {name!r}.{also}"
