"""Building a user's network: from its class to the tensors of one stage."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from digits.data.targets.target import Target
from digits.kinds.network.metrics import Metrics
from digits.worker import build_context, user_text
from digits.worker.failure import UserFault
from digits.worker.network import functional_models, layer_calls, summaries, tower
from digits.worker.network.full_precision import to_float32
from digits.worker.network.variables import LOSS_SCOPE, MODEL_SCOPE, Own, VariableStore, plain, plain_name

# Prefix of the statistics among the metrics, from which the kind's metrics are computed.
_STATISTIC = "statistic/"


@dataclass(frozen=True)
class Objective:
    """A loss of the network and the variables that it trains."""

    loss: tf.Tensor
    variables: list[tf.Variable]


@dataclass(frozen=True)
class Built:
    """The tensors of a network in one graph.

    ``metrics`` are float32 scalars by name; the first is ``loss``: data loss plus regularization. ``record_values``,
    float32 [N, values], are those of the kind's metrics. Gradients are those of ``objectives`` and
    ``regularization``. Inference only has ``output`` and ``calls``.
    """

    tower: Any
    output: Any
    calls: layer_calls.Calls
    objectives: list[Objective]
    regularization: tf.Tensor | None
    metrics: dict[str, tf.Tensor]
    pictures: list[summaries.Recorded]
    record_values: tf.Tensor | None = None

    def layers_up_to(self, variables: Container[str]) -> frozenset[tuple[str, ...]]:
        """Return the paths of the layers with some of the ``variables``, and of those on which these depend."""
        operations = self.calls.graph.get_operations()
        calls = [call for call in self.calls.calls if not call.has_inner]
        owners = [call for call in calls if any(map(variables.__contains__, _weights_of(call.layer)))]
        inputs: list[tf.Tensor] = []
        for call in owners:
            own = operations[call.first : call.last]
            inputs += [item for operation in own for item in operation.inputs if item.op not in own]
        before = {operation.name for operation in operations_behind(inputs)}
        found = [
            call
            for call in calls
            if any(
                item.op.name in before
                for item in tf.nest.flatten(call.outputs)
                if isinstance(item, tf.Tensor)
            )
        ]
        return frozenset(call.path for call in [*owners, *found])


@dataclass(frozen=True)
class Network:
    """A user's class ``UserModel`` in a file in ``folder``, for images of ``shape`` (height, width, channels).

    ``dataset`` is the folder of the dataset, if there is one.

    ``accessed`` contains those of ``y`` and ``is_inference`` that its towers have read; ``own`` is what the text
    created outside of the class. ``kind_metrics`` are those of the dataset's kind.
    """

    tower_class: type
    shape: tuple[int, int, int]
    target: Target
    kind_metrics: Metrics
    folder: Path | None = None
    dataset: Path | None = None
    step: tower.Step = field(default_factory=tower.Step)
    accessed: set[str] = field(default_factory=set)
    own: Own = field(default_factory=Own)

    def build(
        self,
        store: VariableStore,
        stage: str,
        x: tf.Tensor,
        y: tf.Tensor | None,
        step: tf.Tensor | None = None,
    ) -> Built:
        """Build the network in the current graph, with the variables of ``store``.

        ``stage`` is one of those in `digits.worker.network.tower`; ``x`` is float32 [N, H, W, C], ``y`` the labels,
        and ``step`` the number of the training step, an integer scalar. Raises UserFault for mistakes such as a
        missing loss, and whatever the user's code raises.
        """
        training = stage == tower.TRAIN
        _patch_lookups(tf.compat.v1.get_default_graph(), lambda: store.variables)
        with (
            store.trace(self.own, stage),
            layer_calls.record_calls(training) as calls,
            self.building(None, step),
        ):
            built = self.tower_class(
                x, y, list(self.shape), self.target.outputs, training, stage == tower.INFERENCE
            )
            with self.building(built, step, self.accessed):
                with tf.compat.v1.variable_scope(MODEL_SCOPE, reuse=tf.compat.v1.AUTO_REUSE):
                    output = _in_float32(built, self._output(built))
                if stage == tower.INFERENCE:
                    return Built(built, output, calls, [], None, {}, [])
                network = _with_losses(built, output, calls, store)
                network.metrics.update(self._statistics(output, y))
                if stage != tower.VALIDATION:
                    return network
                with tf.name_scope("metrics"):
                    return replace(network, record_values=self.kind_metrics.record_values(output, y))

    def _statistics(self, output: Any, y: tf.Tensor) -> dict[str, tf.Tensor]:
        with tf.name_scope("metrics"):
            statistics = self.kind_metrics.statistics(output, y)
            return {f"{_STATISTIC}{name}": tf.reduce_mean(values) for name, values in statistics.items()}

    def summarize(
        self, means: Mapping[str, float], record_values: NDArray[np.float32] | None = None
    ) -> dict[str, float]:
        """Replace the statistics among the ``means`` of `Built.metrics` by the metrics of the dataset's kind.

        ``record_values`` are the `Built.record_values` of all records of a split, for further metrics. A metric
        that the network reports under the same name takes precedence.
        """
        statistics, own = {}, {}
        for name, value in means.items():
            if name.startswith(_STATISTIC):
                statistics[name.removeprefix(_STATISTIC)] = value
            else:
                own[name] = value
        metrics = self.kind_metrics.summarize(statistics)
        if record_values is not None and record_values.shape[1]:
            metrics |= self.kind_metrics.summarize_records(record_values)
        return own | {name: value for name, value in metrics.items() if name not in own}

    def _output(self, built: Any) -> Any:
        output = _property(built, "inference")
        tuned = functional_models.resolve_output(built.fineTuneHook(output), built.x)
        if tuned is None:
            raise UserFault(
                "UserModel.fineTuneHook returned nothing.",
                "End it with a return statement.",
                user_text.line_of_function(type(built).fineTuneHook),
            )
        if tuned is not output:
            setattr(built, tower.cache_name("inference"), tuned)  # the loss uses the result of the hook
        return tuned

    @contextlib.contextmanager
    def continue_build(self, built: Built, store: VariableStore, step: tf.Tensor) -> Iterator[None]:
        """Continue the build of ``built`` inside, in its graph: variables and the ``step`` are the same."""
        with store.continue_trace(), self.building(built.tower, step):
            yield

    @contextlib.contextmanager
    def building(
        self, built: Any, step: tf.Tensor | None = None, accessed: set[str] | None = None
    ) -> Iterator[None]:
        """Enter the build context of this network with the tower ``built``; see `tower.building`."""
        with (
            build_context.extend(folder=self.folder, dataset=self.dataset),
            tower.building(built, self.step, step, accessed),
        ):
            yield

    def may_depend_on(self, name: str) -> bool:
        """Whether the towers built so far may depend on ``name``, ``y`` or ``is_inference``.

        A constructor of the network's own gets both, so it may depend on either.
        """
        unseen = ("__new__", "__init__", name)
        overridden = any(getattr(self.tower_class, item) is not getattr(tower.Tower, item) for item in unseen)
        return overridden or name in self.accessed


def _property(built: Any, name: str) -> Any:
    value = getattr(built, name)
    if value is None:
        raise UserFault(
            f"UserModel.{name} returned nothing.",
            f"End {name} with a return statement.",
            user_text.line_of_function(getattr(type(built), name).fget),
        )
    return value


def _in_float32(built: Any, output: Any) -> Any:
    """Cast half-precision tensors, the output and those that the network keeps in ``self``, to float32 for the loss."""
    if keras.config.dtype_policy().compute_dtype == "float32":
        return output
    for name, value in list(vars(built).items()):
        setattr(built, name, to_float32(value))
    output = to_float32(output)
    setattr(built, tower.cache_name("inference"), output)
    return output


def _with_losses(built: Any, output: Any, calls: layer_calls.Calls, store: VariableStore) -> Built:
    model_scope = tf.compat.v1.variable_scope(
        MODEL_SCOPE, reuse=tf.compat.v1.AUTO_REUSE, auxiliary_name_scope=False
    )
    with model_scope, tf.name_scope(LOSS_SCOPE):
        returned = _property(built, "loss")
    objectives = _objectives(returned, store, calls.frozen_variables())
    _check_saved(objectives, store)
    calls.copy_constraints()
    recorded = summaries.flatten(built.summaries)
    with tf.name_scope(LOSS_SCOPE):
        regularization = _regularization(calls, objectives)
        data_loss = tf.add_n([tf.cast(item.loss, tf.float32) for item in objectives])
        total = data_loss if regularization is None else data_loss + regularization
    with tf.name_scope("metrics"):
        metrics = {**summaries.charts(recorded), "loss": total}
    ordered = {"loss": metrics.pop("loss"), **metrics}
    return Built(built, output, calls, objectives, regularization, ordered, summaries.pictures(recorded))


def _objectives(returned: Any, store: VariableStore, frozen_variables: set[int]) -> list[Objective]:
    items = returned if isinstance(returned, (list, tuple)) else [returned]
    return [_objective(item, store, frozen_variables) for item in items]


def _objective(item: Any, store: VariableStore, frozen_variables: set[int]) -> Objective:
    loss, wanted = item, None
    if isinstance(item, dict):
        if item.get("loss") is None:
            raise UserFault(
                "An item of the list of losses has no key 'loss'.", "Return [{'loss': …, 'vars': […]}, …]."
            )
        loss, wanted = item["loss"], item.get("vars")
    loss = tf.convert_to_tensor(loss)
    if not loss.dtype.is_floating or (loss.shape.rank not in (0, None) and loss.shape.num_elements() != 1):
        raise UserFault(
            f"The loss is not a number: it has shape {loss.shape} and type {loss.dtype.name}.",
            "Return a scalar, for example tf.reduce_mean(...) of the losses of the records.",
        )
    variables = tf.compat.v1.trainable_variables() if wanted is None else _list_variables(wanted, store)
    trained = {
        id(item): item for item in variables if item.dtype.is_floating and id(item) not in frozen_variables
    }
    return Objective(tf.reshape(loss, []), list(trained.values()))


def _check_saved(objectives: list[Objective], store: VariableStore) -> None:
    known = {id(variable) for variable in store.variables.values()}
    for variable in (item for objective in objectives for item in objective.variables):
        if id(variable) not in known:
            raise UserFault(
                f"The variable {variable.name!r} is created in another graph, so it would be trained but never saved.",
                "Create layers and variables inside the class UserModel or before it, not in a separate graph.",
            )


def _list_variables(wanted: Any, store: VariableStore) -> list[tf.Variable]:
    """Return the variables that a loss lists, without frozen ones."""
    listed = list(wanted) if isinstance(wanted, (list, tuple, set)) else [wanted]
    if not listed:
        raise UserFault(
            "A loss trains no variables: its list 'vars' is empty.",
            "Select variables by their names, such as "
            f"{', '.join(variable.name for variable in tf.compat.v1.trainable_variables()[:8])}.",
        )
    variables = [plain(variable) for variable in listed]
    return [variable for variable in variables if not store.is_frozen(variable)]


def _regularization(calls: layer_calls.Calls, objectives: list[Objective]) -> tf.Tensor | None:
    """Return the regularization that the losses of the network do not already contain."""
    terms = list(tf.compat.v1.losses.get_regularization_losses()) + calls.keras_losses()
    losses = [item.loss for item in objectives]
    if terms and tf.executing_eagerly():
        unused = [gradient is None for gradient in tf.gradients(losses, terms)]
        terms = list(itertools.compress(terms, unused))
    elif terms:
        inputs = [tensor for operation in operations_behind(losses) for tensor in operation.inputs]
        used = {tensor.name for tensor in (*losses, *inputs)}
        terms = [term for term in map(tf.convert_to_tensor, terms) if term.name not in used]
    return tf.add_n([tf.cast(term, tf.float32) for term in terms]) if terms else None


def _weights_of(layer: Any) -> list[str]:
    """Return the names of the variables of ``layer`` without the states of random generators."""
    variables = map(plain, layer_calls.variables_of(layer))
    return [plain_name(variable) for variable in variables if variable.dtype.is_floating]


def operations_behind(tensors: Iterable[Any]) -> list[tf.Operation]:
    """Return the operations that compute ``tensors``, in topological order; values of Python have none."""
    by_name: dict[str, tf.Operation] = {}
    waiting = [(tensor.op, False) for tensor in tensors if isinstance(tensor, tf.Tensor)]
    opened: set[str] = set()
    while waiting:
        operation, is_ready = waiting.pop()
        if is_ready:
            by_name[operation.name] = operation
        elif operation.name not in opened:
            opened.add(operation.name)
            waiting.append((operation, True))
            waiting += [(tensor.op, False) for tensor in operation.inputs]
    return list(by_name.values())


_PREFIXES = re.compile(r"^(?:(?:train|val|inf|tower_\d+|model_1|gpu_\d+|\^)/)+")

Variables = Callable[[], Mapping[str, tf.Variable]]


# Lookup of tensors by their names in TensorFlow 1. There, one graph contained a network's tensors under the prefix of
# their stage (train/model/conv1/Relu:0) and its variables (model/conv1/weights:0). Here, a graph contains one stage,
# without a prefix, and no variables. A name is looked up unchanged, then without the prefix of a stage or tower, then
# among the variables, and finally by its last component.


def _patch_lookups(graph: tf.Graph, variables: Variables) -> None:
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
