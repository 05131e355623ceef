"""A user's network: from its text to the tensors of one stage."""

from __future__ import annotations

import contextlib
import linecache
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tensorflow as tf

from digits.data.target import TargetSpec
from digits.worker import user_text
from digits.worker.compat import compat_module, hints, keras1, missing_modules, python2, tensor_names
from digits.worker.failure import NETWORK_FILE, UserFault
from digits.worker.network import layer_calls, summaries, tower
from digits.worker.network.variables import LOSS_SCOPE, MODEL_SCOPE, Own, VariableStore, made_outside, plain
from digits.worker.precision import autocast_variable, loss_scale

# What the text calls itself.
_MODULE = "network"

_TEMPLATE_HINT = "A network is a class UserModel(Tower) with the properties inference and loss."


@dataclass(frozen=True)
class Objective:
    """A loss of the network and the variables that it trains."""

    loss: tf.Tensor
    variables: list[tf.Variable]


@dataclass(frozen=True)
class Built:
    """The tensors of a network in one graph.

    ``metrics`` are float32 scalars; the first is ``loss``: data loss and regularisation.
    ``objectives`` and ``regularisation`` are what gradients are taken of. For
    inference only ``output`` and ``calls`` are there.
    """

    tower: Any
    output: Any
    calls: layer_calls.Calls
    objectives: list[Objective]
    regularisation: tf.Tensor | None
    metrics: dict[str, tf.Tensor]
    pictures: list[summaries.Recorded]


@dataclass(frozen=True)
class Network:
    """The class ``UserModel`` of a text, for images of ``shape`` (height, width, channels).

    ``asked`` holds which of ``y`` and ``is_inference`` its towers were asked for; ``own`` is what
    the text made outside of the class.
    """

    kind: type
    shape: tuple[int, int, int]
    target: TargetSpec
    step: tower.Step = field(default_factory=tower.Step)
    asked: set[str] = field(default_factory=set)
    own: Own = field(default_factory=Own)

    def build(
        self,
        store: VariableStore,
        stage: str,
        x: tf.Tensor,
        y: tf.Tensor | None,
        step: tf.Tensor | None = None,
    ) -> Built:
        """Build the network in the current graph, on the weights of ``store``.

        ``step`` is the number of the training step, for networks that ask for it.
        Whatever the user's code raises passes through; UserFault for what it leaves out.
        """
        training = stage == tower.TRAIN
        tensor_names.teach(tf.compat.v1.get_default_graph(), lambda: store.variables)
        with (
            store.trace(self.own, stage),
            layer_calls.watched(training) as calls,
            tower.building(None, self.step, step),
        ):
            built = self.kind(
                loss_scale.lowered(x, store.compute_type),
                y,
                list(self.shape),
                self.target.outputs,
                training,
                stage == tower.INFERENCE,
            )
            with tower.building(built, self.step, step, self.asked):
                with tf.compat.v1.variable_scope(MODEL_SCOPE, reuse=tf.compat.v1.AUTO_REUSE):
                    output = _in_full(built, x, _output(built))
                if stage == tower.INFERENCE:
                    return Built(built, output, calls, [], None, {}, [])
                return _with_losses(built, output, calls, store)

    @contextlib.contextmanager
    def continued(self, built: Built, store: VariableStore, step: tf.Tensor) -> Iterator[None]:
        """What ``built`` does inside, in its graph, finds the number of the ``step`` and variables as before."""
        with store.continued(), tower.building(built.tower, self.step, step):
            yield

    def may_depend_on(self, name: str) -> bool:
        """Whether what was built so far may depend on ``y`` or ``is_inference``.

        A constructor of the network's own gets both, and what it does with them cannot be seen.
        """
        unseen = ("__new__", "__init__", name)
        overridden = any(getattr(self.kind, item) is not getattr(tower.Tower, item) for item in unseen)
        return overridden or name in self.asked


def load(path: Path, shape: tuple[int, int, int], target: TargetSpec) -> Network:
    """The network in the file ``path``. Raises SyntaxError, UserFault, or what its text raises."""
    text = path.read_text(encoding="utf-8-sig", errors="replace")
    with made_outside() as own:
        kind = _user_model(text)
    if not hasattr(kind, "target"):
        kind.target = target
    return Network(kind, shape, target, own=own)


class _Source:
    """Tells the text of the network's module: AutoGraph forgets what `linecache` knew, and asks anew."""

    def __init__(self, text: str) -> None:
        self._text = text

    def get_source(self, name: str) -> str:
        return self._text


def _user_model(text: str) -> type:
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    # The text as the interpreter's tracebacks and ours show it: under one fixed name.
    linecache.cache[NETWORK_FILE] = (len(text), None, user_text.lines(text), NETWORK_FILE)
    _check_characters(text)
    code = python2.compiled(text, NETWORK_FILE)
    # A module that is known by its name: data classes look for theirs.
    module = sys.modules[_MODULE] = types.ModuleType(_MODULE)
    names = vars(module)
    names.update(compat_module.namespace())
    names["__loader__"] = _Source(text)
    missing_modules.lines.clear()
    exec(code, names)  # noqa: S102 - running the user's network is what this process is for
    try:
        return _kind_in(names)
    except UserFault as fault:
        for package, line in missing_modules.lines.items():
            # What is no network of DIGITS is one of another program, which the package tells.
            words = f"{fault.message} It imports {package}, which is not installed."
            raise UserFault(words, hints.package(package), line) from None
        raise


def _check_characters(text: str) -> None:
    """Raise SyntaxError, with a line number, for a null character; Python reports no line for it."""
    before, null, _ = text.partition("\0")
    if null:
        line = before.count("\n")
        message = "invalid non-printable character U+0000"
        raise SyntaxError(message, (NETWORK_FILE, line + 1, len(before) + 1, text.split("\n")[line]))


def _kind_in(names: dict[str, Any]) -> type:
    kind = names.get("UserModel")
    if kind is None and callable(names.get("build_model")):
        kind = tower.of_function(names["build_model"])
    if kind is None:
        raise _without_user_model(names)
    if not isinstance(kind, type) or not issubclass(kind, tower.Tower):
        raise UserFault(
            "UserModel does not derive from Tower.", "Write class UserModel(Tower):", _line_of(kind)
        )
    for name in ("inference", "loss"):
        _check_property(kind, name)
    return kind


def _without_user_model(names: dict[str, Any]) -> UserFault:
    for name, kind in names.items():
        if isinstance(kind, type) and issubclass(kind, tower.Tower) and kind is not tower.Tower:
            return UserFault(
                f"The network defines a class {name}(Tower) and no class UserModel.",
                f"Rename the class {name} to UserModel.",
                _line_of(kind),
            )
    return UserFault("The network defines no class UserModel.", _TEMPLATE_HINT)


def _check_property(kind: type, name: str) -> None:
    found = getattr(kind, name, None)
    if found is None:
        raise UserFault(f"UserModel has no property {name}.", _TEMPLATE_HINT, _line_of(kind))
    if not isinstance(found, property):
        raise UserFault(
            f"UserModel.{name} is not a property.",
            "Write @model_property above it.",
            _line_of_function(found),
        )


def _line_of(kind: Any) -> int | None:
    return _line_starting(f"class {getattr(kind, '__name__', 'UserModel')}", 1)


def _line_of_function(function: Any) -> int | None:
    code = getattr(getattr(function, "__wrapped__", function), "__code__", None)
    # The code of a function begins with its decorators.
    return _line_starting("def ", code.co_firstlineno) if code else None


def _line_starting(words: str, first: int) -> int | None:
    lines = linecache.getlines(NETWORK_FILE)
    for number, line in enumerate(lines[first - 1 :], first):
        if line.lstrip().startswith(words):
            return number
    return None


def _property(built: Any, name: str) -> Any:
    value = getattr(built, name)
    if value is None:
        raise UserFault(
            f"UserModel.{name} returned nothing.",
            f"End {name} with a return statement.",
            _line_of_function(getattr(type(built), name).fget),
        )
    return value


def _output(built: Any) -> Any:
    output = _property(built, "inference")
    tuned = keras1.computed(built.fineTuneHook(output), built.x)
    if tuned is None:
        raise UserFault(
            "UserModel.fineTuneHook returned nothing.",
            "End it with a return statement.",
            _line_of_function(type(built).fineTuneHook),
        )
    if tuned is not output:
        setattr(built, tower.cache_name("inference"), tuned)  # what the loss sees
    return tuned


def _in_full(built: Any, x: tf.Tensor, output: Any) -> Any:
    """``output`` in float32; the loss sees it, the input and all that the network keeps in ``self`` so."""
    if built.x is None or built.x.dtype == x.dtype:
        return output
    for name, value in list(vars(built).items()):
        setattr(built, name, loss_scale.restored(value))
    built.x, output = x, loss_scale.restored(output)
    setattr(built, tower.cache_name("inference"), output)
    return output


def _with_losses(built: Any, output: Any, calls: layer_calls.Calls, store: VariableStore) -> Built:
    model_scope = tf.compat.v1.variable_scope(
        MODEL_SCOPE, reuse=tf.compat.v1.AUTO_REUSE, auxiliary_name_scope=False
    )
    # What the loss asks for itself is float32 as well.
    variables = (
        autocast_variable.variables_for(tf.float32)
        if autocast_variable.is_low()
        else contextlib.nullcontext()
    )
    with model_scope, tf.name_scope(LOSS_SCOPE), variables:
        returned = _property(built, "loss")
    objectives = _objectives(returned, store, calls.held_fast())
    _check_saved(objectives, store)
    calls.hand_on_constraints()
    recorded = summaries.flatten(built.summaries)
    with tf.name_scope(LOSS_SCOPE):
        regularisation = _regularisation(calls, objectives)
        data_loss = tf.add_n([tf.cast(item.loss, tf.float32) for item in objectives])
        total = data_loss if regularisation is None else data_loss + regularisation
    with tf.name_scope("metrics"):
        metrics = {**summaries.charts(recorded), "loss": total}
    ordered = {"loss": metrics.pop("loss"), **metrics}
    return Built(built, output, calls, objectives, regularisation, ordered, summaries.pictures(recorded))


def _objectives(returned: Any, store: VariableStore, held_fast: set[int]) -> list[Objective]:
    items = returned if isinstance(returned, (list, tuple)) else [returned]
    return [_objective(item, store, held_fast) for item in items]


def _objective(item: Any, store: VariableStore, held_fast: set[int]) -> Objective:
    loss, wanted = item, None
    if isinstance(item, dict):
        if item.get("loss") is None:
            raise UserFault(
                "A loss of the list has no entry 'loss'.", "Return [{'loss': …, 'vars': […]}, …]."
            )
        loss, wanted = item["loss"], item.get("vars")
    loss = tf.convert_to_tensor(loss)
    if not loss.dtype.is_floating or (loss.shape.rank not in (0, None) and loss.shape.num_elements() != 1):
        raise UserFault(
            f"The loss is not a number: it has shape {loss.shape} and type {loss.dtype.name}.",
            "Return a scalar, for example tf.reduce_mean(...) of the losses of the records.",
        )
    variables = tf.compat.v1.trainable_variables() if wanted is None else _listed(wanted, store)
    trained = {id(item): item for item in variables if item.dtype.is_floating and id(item) not in held_fast}
    return Objective(tf.reshape(loss, []), list(trained.values()))


def _check_saved(objectives: list[Objective], store: VariableStore) -> None:
    known = {id(variable) for variable in store.variables.values()}
    for variable in (item for objective in objectives for item in objective.variables):
        if id(variable) not in known:
            raise UserFault(
                f"The variable {variable.name!r} would be trained, and never saved: it was made in another graph.",
                "Make layers and variables in the class UserModel or before it, and in no graph of their own.",
            )


def _listed(wanted: Any, store: VariableStore) -> list[tf.Variable]:
    """The variables that a loss names, without those that are frozen."""
    listed = list(wanted) if isinstance(wanted, (list, tuple, set)) else [wanted]
    if not listed:
        raise UserFault(
            "A loss names no variable that it trains: its list 'vars' is empty.",
            "Look for the variables by names that they have: "
            f"{', '.join(variable.name for variable in tf.compat.v1.trainable_variables()[:8])}.",
        )
    found = [plain(variable) for variable in listed]
    return [variable for variable in found if not store.is_frozen(variable)]


def _regularisation(calls: layer_calls.Calls, objectives: list[Objective]) -> tf.Tensor | None:
    """What is added to the losses of the network, which may have added some of it themselves."""
    terms = list(tf.compat.v1.losses.get_regularization_losses()) + calls.keras_losses()
    if terms:
        used = _used([item.loss for item in objectives])
        terms = [term for term in map(tf.convert_to_tensor, terms) if term.name not in used]
    return tf.add_n([tf.cast(term, tf.float32) for term in terms]) if terms else None


def _used(tensors: list[tf.Tensor]) -> set[str]:
    """The names of all tensors that ``tensors`` are computed from."""
    names: set[str] = set()
    waiting = list(tensors)
    while waiting:
        tensor = waiting.pop()
        if tensor.name not in names:
            names.add(tensor.name)
            waiting += tensor.op.inputs
    return names
