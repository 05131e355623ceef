"""Cutting the graph of a training step behind what depends only on its images: the features of layers not trained.

Networks are written by users, so the cut is found in the graph and not by the names of layers. Each operation is one
of three kinds:

    constant   depends on nothing that a step changes, such as weights of layers that are not trained, or on the shapes
               of the images, which are those of any other batch
    feature    depends on the images as well
    live       everything else: it depends on labels, on trained variables, on random numbers or on several images, or
               has side effects

The features that live operations use are the cut: with their values, and those of the constants, the live operations
can be computed without the others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework.graph_pb2 import GraphDef
from tensorflow.python.framework import op_def_registry
from tensorflow.python.framework.auto_control_deps_utils import get_read_write_resource_inputs

from digits.worker.failure import first_line

CONSTANT, FEATURE, LIVE = 0, 1, 2
# Operations whose results depend only on the shape of their input.
_OF_SHAPES = {"Shape", "ShapeN", "Size", "Rank"}
_REDUCTIONS = {"All", "Any", "Max", "Mean", "Min", "Prod", "Sum"}
_CALLS = {"PartitionedCall", "StatefulPartitionedCall"}
_READS = {"ReadVariableOp", "ResourceGather", "ResourceGatherNd"}
_REFERENCES = (tf.resource, tf.variant)


class Uncuttable(Exception):
    """There is no cut that saves anything. The message completes “…, because ”."""


class Cut:
    """The cut of ``graph``, that of a traced function, for its argument ``x``, the images.

    ``features`` are tensors of the graph, and ``constants`` those that the rest uses as well. Raises Uncuttable.
    """

    def __init__(self, graph: Any, x: tf.Tensor) -> None:
        self._graph, self._x = graph, x
        self._captures = {inside.name: outside for outside, inside in graph.captures}
        self._definition = graph.as_graph_def()
        self._functions = {item.signature.name: item for item in self._definition.library.function}
        self._operations = _in_order(graph.get_operations())
        self._weighted: set[str] = set()  # constant tensors that depend on variables
        self._moved: set[str] = set()  # operations that both parts compute
        self._kinds: dict[str, int] = {}
        self._sort()
        self._needed = self._behind([*(item.op for item in graph.outputs), *graph.control_outputs], LIVE)
        self._enlarge_head()
        self._check_saving()
        used = self._used()
        self.features = [item for item in used if self._kind(item) == FEATURE]
        self.constants = [
            item for item in used if self._kind(item) == CONSTANT and item.dtype not in _REFERENCES
        ]

    def trunk(self, x: tf.Tensor) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        """Build the features and the constants for the images ``x`` in the current graph."""
        outputs = [*self.features, *self.constants]
        names = {item.name for item in self._behind([item.op for item in outputs], FEATURE)}
        built = self._build(names, {self._x.name: x}, outputs)
        return built[: len(self.features)], built[len(self.features) :]

    def head(
        self,
        features: Sequence[tf.Tensor],
        constants: Sequence[tf.Tensor],
        arguments: Mapping[str, tf.Tensor],
    ) -> list[tf.Tensor]:
        """Build the live operations in the current graph, with the values of the other ``arguments`` by name.

        Returns the outputs of the function. Its side effects happen.
        """
        used = zip([*self.features, *self.constants], [*features, *constants], strict=True)
        known = {**arguments, **{item.name: value for item, value in used}}
        return self._build({item.name for item in self._needed}, known, self._graph.outputs)

    # The kinds of operations

    def _kind(self, tensor: tf.Tensor) -> int:
        return LIVE if tensor.op.name in self._moved else self._kinds[tensor.op.name]

    def _sort(self) -> None:
        """Determine the kinds of all operations."""
        written = {
            handle.name
            for operation in self._operations
            for handle in get_read_write_resource_inputs(operation)[1]
        }
        for operation in self._operations:
            self._kinds[operation.name] = self._kind_of(operation, written)
            is_weighted = operation.type in _READS or any(
                item.name in self._weighted for item in operation.inputs
            )
            if is_weighted and self._kinds[operation.name] == CONSTANT:
                self._weighted.update(item.name for item in operation.outputs)

    def _kind_of(self, operation: tf.Operation, written: set[str]) -> int:
        if operation.type == "Placeholder":
            (output,) = operation.outputs
            if output is self._x:
                return FEATURE
            return CONSTANT if output.name in self._captures and output.name not in written else LIVE
        before = [self._kinds[item.op.name] for item in operation.inputs]
        # An operation that waits for another one may see its effect.
        before += [kind for item in operation.control_inputs if (kind := self._kinds[item.name]) == LIVE]
        kind = max(before, default=CONSTANT)
        if self._has_state(operation) or any(item.dtype in _REFERENCES for item in operation.outputs):
            return LIVE
        if kind != FEATURE:
            return kind
        return CONSTANT if operation.type in _OF_SHAPES else LIVE if _mixes_records(operation) else FEATURE

    def _has_state(self, operation: tf.Operation) -> bool:
        if not operation.op_def.is_stateful or operation.type in _READS:
            return False
        return operation.type not in _CALLS or self._calls_state(operation.get_attr("f").name)

    def _calls_state(self, function: str) -> bool:
        """Whether ``function`` does more than to read variables."""
        return any(
            self._calls_state(node.attr["f"].func.name)
            if node.op in _CALLS
            else node.op in self._functions or op_def_registry.get(node.op).is_stateful
            for node in self._functions[function].node_def
            if node.op not in _READS
        )

    # The place of the cut

    def _behind(self, operations: Iterable[tf.Operation], most: int) -> list[tf.Operation]:
        """Return the operations behind ``operations``, these included, up to the kind ``most``; live ones only if
        that is `LIVE`.
        """
        wanted = {LIVE} if most == LIVE else {CONSTANT, FEATURE}
        waiting, found = list(operations), {}
        while waiting:
            operation = waiting.pop()
            if operation.name not in found and self._kinds[operation.name] in wanted:
                found[operation.name] = operation
                waiting += [*(item.op for item in operation.inputs), *operation.control_inputs]
        return list(found.values())

    def _used(self) -> list[tf.Tensor]:
        """Return the features and constants that the needed live operations use, each once."""
        found = [item for operation in self._needed for item in operation.inputs]
        found += self._graph.outputs
        return list({item.name: item for item in found if self._kind(item) != LIVE}.values())

    def _enlarge_head(self) -> None:
        """Move operations without weights behind the cut where the features before them are smaller."""
        for feature in [item for item in self._used() if self._kind(item) == FEATURE]:
            chain = [feature]
            while len(before := self._features_before(chain[-1].op)) == 1:
                chain += before
            sizes = [_bytes_per_record(item) for item in chain]
            moved = [item.op for item in chain[: sizes.index(min(sizes))]]
            self._moved.update(operation.name for operation in moved)
            self._needed += moved

    def _features_before(self, operation: tf.Operation) -> list[tf.Tensor]:
        """Return the features that an operation without weights depends on."""
        inputs = () if self._has_weights(operation) else operation.inputs
        return [item for item in inputs if self._kind(item) == FEATURE]

    def _has_weights(self, operation: tf.Operation) -> bool:
        """Whether the operation uses weights of layers that are not trained, such as the kernel of a convolution."""
        return any(item.name in self._weighted and (item.shape.rank or 0) > 1 for item in operation.inputs)

    def _check_saving(self) -> None:
        of_features = [item for item in self._operations if self._kinds[item.name] == FEATURE]
        if not any(map(self._has_weights, of_features)):
            raise Uncuttable("no layers with weights come before random numbers and trained layers")
        if any(map(self._has_weights, self._needed)):
            raise Uncuttable("layers that are not trained come behind random numbers or trained layers")

    # Copies

    def _build(
        self, names: set[str], known: Mapping[str, tf.Tensor], outputs: Sequence[tf.Tensor]
    ) -> list[tf.Tensor]:
        """Copy the operations ``names`` to the current graph; tensors of others are ``known`` by name, or captured."""
        graph: Any = tf.compat.v1.get_default_graph()
        names = names - {name.partition(":")[0] for name in (*known, *self._captures)}
        operations = [item for item in self._operations if item.name in names]
        definition = GraphDef(library=self._definition.library, versions=self._definition.versions)
        for operation in operations:
            node = definition.node.add()
            node.CopyFrom(operation.node_def)
            node.attr.pop("_class", None)  # may name an operation that is left out
            inputs = [item for item in node.input if item[0] != "^" or item[1:] in names]
            del node.input[:]
            node.input.extend(inputs)
        taken = {item.name for operation in operations for item in operation.inputs}
        given = {
            name: known[name] if name in known else graph.capture(self._captures[name])
            for name in taken
            if name in known or name in self._captures
        }
        made = [item.name for item in outputs if item.name not in known]
        try:
            found = tf.graph_util.import_graph_def(definition, given, made, name="cut")
        except ValueError as error:
            raise Uncuttable(f"the graph of the network cannot be cut: {first_line(error)}") from error
        copies = dict(zip(made, found, strict=True))
        return [known[item.name] if item.name in known else copies[item.name] for item in outputs]


def _mixes_records(operation: tf.Operation) -> bool:
    """Whether the operation combines the records of a batch, as batch normalization does: it is known of some."""
    if operation.type.startswith("FusedBatchNorm"):
        return bool(operation.get_attr("is_training"))
    if operation.type not in _REDUCTIONS:
        return False
    axes, rank = tf.get_static_value(operation.inputs[1]), operation.inputs[0].shape.rank
    return axes is not None and bool({0, -(rank or 0)} & set(np.ravel(axes).tolist()))


def _in_order(operations: Iterable[tf.Operation]) -> list[tf.Operation]:
    """Return ``operations`` in topological order, which control dependencies may change."""
    by_name = {item.name: item for item in operations}
    before = {
        name: [*(tensor.op.name for tensor in item.inputs), *(other.name for other in item.control_inputs)]
        for name, item in by_name.items()
    }
    try:
        return [by_name[name] for name in TopologicalSorter(before).static_order()]
    except CycleError as error:
        raise Uncuttable("the network contains loops of TensorFlow 1") from error


def _bytes_per_record(tensor: tf.Tensor) -> float:
    """Return the size of the tensor [N, …] for a record; infinite if it is unknown."""
    size = tensor.shape[1:].num_elements() if tensor.shape.rank else None
    return math.inf if size is None else size * tensor.dtype.size
