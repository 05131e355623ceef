"""Loading a user's network: from its text to its class.

The text runs on top of the compatibility layer, which provides the `tf` of TensorFlow 1, Keras 1 and Python 2.
"""

from __future__ import annotations

import linecache
import sys
import types
from pathlib import Path
from typing import Any

from digits.data.manifest import Manifest
from digits.data.target import TargetSpec
from digits.kinds import kind_named
from digits.kinds.metrics import Metrics
from digits.worker import packages, user_text
from digits.worker.compat import (
    compat_module,
    keras1,
    missing_modules,
    python2,
    python2_statements,
    tensor_names,
)
from digits.worker.failure import NETWORK_FILE, UserFault
from digits.worker.network import tower
from digits.worker.network.network import Hooks, Network
from digits.worker.network.variables import record_outside_variables

# The name of the module in which the text runs.
_MODULE = "network"

_TEMPLATE_HINT = "A network is a class UserModel(Tower) with the properties inference and loss."


def load_for(manifest: Manifest, path: Path, shape: tuple[int, int, int]) -> Network:
    """Load the network in the file ``path`` for a dataset whose images have the ``shape`` after preparation.

    Raises SyntaxError, UserFault, or whatever its text raises.
    """
    metrics: Metrics = kind_named(manifest.kind).load("metrics").Metrics(manifest.target)
    return load(path, shape, manifest.target, metrics)


def load(
    path: Path, shape: tuple[int, int, int], target: TargetSpec, metrics: Metrics | None = None
) -> Network:
    """Load the network in the file ``path`` for images of ``shape`` (height, width, channels) and a ``target``.

    ``metrics`` are those of the dataset's kind. Raises SyntaxError, UserFault, or whatever its text raises.
    """
    text = path.read_text(encoding="utf-8-sig", errors="replace")
    with record_outside_variables() as own:
        tower_class = user_model(text)
    if not hasattr(tower_class, "target"):
        tower_class.target = target  # type: ignore[attr-defined]
    return Network(tower_class, shape, target, metrics or Metrics(target), own=own, hooks=_HOOKS)


# Networks of TensorFlow 1 look tensors up by their old names, and return outputs of functional Keras models.
_HOOKS = Hooks(prepare_graph=tensor_names.patch_lookups, resolve_output=keras1.resolve_output)


class _Source:
    """The loader of the network's module: AutoGraph clears `linecache` and asks it for the text again."""

    def __init__(self, text: str) -> None:
        self._text = text

    def get_source(self, name: str) -> str:
        return self._text


def user_model(text: str) -> type:
    """Run the ``text`` of a network and return its class. Raises SyntaxError, UserFault, or whatever it raises."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    user_text.register_translation(python2_statements.translate)
    # Tracebacks find the text under one fixed name.
    linecache.cache[NETWORK_FILE] = (len(text), None, user_text.lines(text), NETWORK_FILE)
    _check_characters(text)
    code = python2.compile_text(text, NETWORK_FILE)
    # Data classes look their module up by name.
    module = sys.modules[_MODULE] = types.ModuleType(_MODULE)
    names = vars(module)
    missing = missing_modules.Imports()
    names.update(compat_module.namespace(missing))
    names["__loader__"] = _Source(text)
    exec(code, names)  # noqa: S102 - running the user's network is what this process is for
    try:
        return _tower_class_in(names)
    except UserFault as fault:
        for package, line in missing.lines.items():
            # The text is probably a network for another framework.
            words = f"{fault.message} It imports {package}, which is not installed."
            raise UserFault(words, packages.advice(package), line) from None
        raise


def _check_characters(text: str) -> None:
    """Raise SyntaxError, with a line number, for a null character; Python reports no line for it."""
    before, null, _ = text.partition("\0")
    if null:
        line = before.count("\n")
        message = "invalid non-printable character U+0000"
        raise SyntaxError(message, (NETWORK_FILE, line + 1, len(before) + 1, text.split("\n")[line]))


def _tower_class_in(names: dict[str, Any]) -> type:
    kind = names.get("UserModel")
    if kind is None and callable(names.get("build_model")):
        kind = tower.from_function(names["build_model"])
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
            user_text.line_of_function(found),
        )


def _line_of(kind: Any) -> int | None:
    return user_text.line_starting(f"class {getattr(kind, '__name__', 'UserModel')}", 1)
