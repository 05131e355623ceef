"""The `tf` module that networks import: TensorFlow 1 on top of TensorFlow 2.

A name such as ``tf.nn.dropout`` is looked up in this package first, then in ``tf.compat.v1``, then in TensorFlow 2.
Networks import through a private ``__import__``, so that ``import tensorflow as tf`` returns this module instead of
the installed one; ``sys.modules`` is not changed.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import importlib
import importlib.util
import sys
import types
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from digits.worker.compat import compat_ops, hints, missing_modules, slim_patches
from digits.worker.failure import NETWORK_FILE
from digits.worker.network import api, batch_norm, functional_models, loading, summaries, tower

v1 = tf.compat.v1


class CompatModule(types.ModuleType):
    """A module composed of others: looks a name up in its own attributes, then in each source in order."""

    def __init__(self, name: str, *sources: Any, **own: Any) -> None:
        super().__init__(name)
        self.__dict__.update(own)
        self.__dict__["_sources"] = sources
        self.__dict__["__path__"] = []  # makes it a package, so that its submodules can be imported

    def __getattr__(self, name: str) -> Any:
        if name == "__all__":  # for `from module import *`
            return [item for item in dir(self) if not item.startswith("_") and hasattr(self, item)]
        if name.startswith("__") and name != "__version__":
            raise AttributeError(name)
        if not hints.is_usable(self.__name__, name):
            refusal = hints.MissingName(self.__name__, name)
            return missing_modules.stand_in_for(f"{self.__name__}.{name}", refusal)
        for source in self._sources:
            try:
                return getattr(source, name)
            except AttributeError:
                continue
        inner = sys.modules.get(f"{self.__name__}.{name}")
        if inner is not None:
            return inner
        raise hints.MissingName(self.__name__, name, dir(self))

    def __dir__(self) -> list[str]:
        return sorted({*self.__dict__, *(item for source in self._sources for item in dir(source))})


class _Contrib(CompatModule):
    """A module below ``tensorflow.contrib``. Former submodules resolve to the module itself."""

    def __getattr__(self, name: str) -> Any:
        if name in ("python", "ops", "api", self.__name__.rpartition(".")[2]):
            return self
        return super().__getattr__(name)


@functools.cache
def tensorflow() -> CompatModule:
    """Return the module that networks import as ``tf``."""
    slim = slim_patches.install()
    functional_models.install()
    batch_norm.install()
    compat_tf = CompatModule(
        "tensorflow",
        v1,
        tf,
        **compat_ops.top(),
        layers=slim_patches.layer_functions(),
        summary=CompatModule("tensorflow.summary", summaries.SummaryFunctions()),
        nn=_nn(),
        contrib=_contrib(slim),
        losses=CompatModule("tensorflow.losses", v1.losses, tf.losses),
        app=CompatModule("tensorflow.app", v1.app),
        data=CompatModule("tensorflow.data", v1.data, tf.data),
        train=CompatModule("tensorflow.train", v1.train, tf.train, **compat_ops.train(), **loading.train()),
        image=CompatModule("tensorflow.image", v1.image, tf.image, **compat_ops.image()),
        math=CompatModule("tensorflow.math", v1.math, tf.math),
        random=CompatModule("tensorflow.random", v1.random, tf.random),
        linalg=CompatModule("tensorflow.linalg", v1.linalg, tf.linalg),
        signal=CompatModule("tensorflow.signal", v1.signal, tf.signal),
        saved_model=CompatModule(
            "tensorflow.saved_model", v1.saved_model, tf.saved_model, load=loading.saved_model
        ),
    )
    compat_tf.__dict__["keras"] = _Keras("tensorflow.keras", tf.keras, keras)
    compat_tf.__dict__["compat"] = CompatModule("tensorflow.compat", tf.compat, v1=compat_tf, v2=tf.compat.v2)
    compat_tf.__dict__["python"] = _Internal("tensorflow.python", compat_tf)
    return compat_tf


def _nn() -> CompatModule:
    return CompatModule("tensorflow.nn", v1.nn, tf.nn, rnn_cell=_rnn_cell(), **compat_ops.nn())


def _rnn_cell() -> CompatModule:
    return CompatModule("tensorflow.nn.rnn_cell", **compat_ops.rnn_cells())


def _contrib(slim: types.ModuleType) -> CompatModule:
    nets = importlib.import_module("tf_slim.nets")
    losses = _Contrib("tensorflow.contrib.losses", slim.losses)
    step = dict.fromkeys(
        ("get_or_create_global_step", "get_global_step", "create_global_step"), compat_ops.global_step
    )
    names = {
        "layers": _Contrib("tensorflow.contrib.layers", slim.layers, slim),
        "rnn": _Contrib("tensorflow.contrib.rnn", _rnn_cell(), v1.nn),
        "framework": _Contrib("tensorflow.contrib.framework", slim, v1, **step, **loading.framework()),
        "slim": _slim(slim, nets, losses),
        "losses": losses,
    }
    return CompatModule("tensorflow.contrib", **names)


def _slim(slim: types.ModuleType, nets: types.ModuleType, losses: CompatModule) -> CompatModule:
    # Networks also import the nets by contrib's internal path.
    own = {
        "nets": nets,
        "losses": losses,
        "get_or_create_global_step": compat_ops.global_step,
        "get_global_step": compat_ops.global_step,
        **loading.framework(),
    }
    inner = CompatModule("tensorflow.contrib.slim.python.slim", slim, **own)
    python = CompatModule("tensorflow.contrib.slim.python", slim=inner)
    return CompatModule("tensorflow.contrib.slim", slim, python=python, **own)


class _Internal(CompatModule):
    """A module below ``tensorflow.python``: its current names and its former ones.

    Names that have moved are looked up in their current location; those of Keras in Keras 3.
    """

    def __init__(self, name: str, compat_tf: Any) -> None:
        try:
            source = importlib.import_module(name)
        except ImportError:
            source = types.ModuleType(name)
        super().__init__(name, source)
        self.__dict__["_compat_tf"] = compat_tf

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        full = f"{self.__name__}.{name}"
        if full == "tensorflow.python.keras":
            return self._compat_tf.keras
        member = self._sources[0].__dict__.get(name)
        if isinstance(member, types.ModuleType) or (member is None and _is_module(full)):
            inner = member if member is not None and member.__name__ != full else None
            part = inner or _Internal(full, self._compat_tf)
            self.__dict__[name] = part
            return part
        for source in (self._sources[0], *self._candidate_sources()):
            # A lazily loaded attribute may require Keras 2, which is not installed.
            with contextlib.suppress(AttributeError, ImportError):
                return getattr(source, name)
        raise hints.MissingName(self.__name__, name)

    def _candidate_sources(self) -> list[Any]:
        """Return the modules that may contain this module's former names today."""
        last = self.__name__.rpartition(".")[2]
        compat_tf = self._compat_tf
        known = {
            "rnn": types.SimpleNamespace(
                rnn=compat_tf.nn.rnn, bidirectional_rnn=compat_tf.nn.bidirectional_rnn
            ),
            "rnn_cell": compat_tf.nn.rnn_cell,
            "rnn_cell_impl": compat_tf.nn.rnn_cell,
            "layers": compat_tf.layers,
            "normalization": compat_tf.layers,
        }
        return [known.get(last, compat_tf), compat_tf.nn, compat_tf]


class _Keras(CompatModule):
    """A module of Keras: `tf.keras`, then Keras 3."""

    def __init__(self, name: str, *sources: Any) -> None:
        super().__init__(name, *sources)
        if name.endswith((".backend", ".utils")):
            # Clearing the session would discard the state that tracks the network's variables.
            self.__dict__["clear_session"] = lambda: None

    def __getattr__(self, name: str) -> Any:
        member = super().__getattr__(name)
        if isinstance(member, types.ModuleType) and not isinstance(member, CompatModule):
            parts = [getattr(source, name) for source in self._sources if hasattr(source, name)]
            member = self.__dict__[name] = _Keras(f"{self.__name__}.{name}", *parts)
        return member


@functools.cache
def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


# Modules that networks use without importing them.
_STANDARD_MODULES = ("datetime", "inspect", "json", "logging", "math", "os", "time")


def namespace(missing: missing_modules.Imports | None = None) -> dict[str, Any]:
    """Return the global names of a network's module. ``missing`` records imports of packages that are not
    installed.
    """
    compat_ops.make_tensors_hashable()
    compat_tf = tensorflow()
    own_builtins = {
        **vars(builtins),
        **compat_ops.expressions(),
        "__import__": _importer(missing or missing_modules.Imports()),
    }
    return {
        "__builtins__": own_builtins,
        "__name__": "network",
        "__file__": NETWORK_FILE,
        "Tower": tower.Tower,
        "Model": tower.Tower,
        "model_property": tower.model_property,
        "tf": compat_tf,
        "slim": compat_tf.contrib.slim,
        "digits": api,
        "keras": compat_tf.keras,
        "np": importlib.import_module("numpy"),
        **{name: importlib.import_module(name) for name in _STANDARD_MODULES},
    }


def _module(name: str, **names: Any) -> types.ModuleType:
    module = types.ModuleType(name)
    module.__dict__.update(names)
    return module


def _importer(missing: missing_modules.Imports) -> Callable[..., Any]:
    """Return an ``__import__`` that resolves TensorFlow and the modules provided by DIGITS."""
    compat_tf = tensorflow()
    own: dict[str, Any] = {
        "tensorflow": compat_tf,
        "tf_slim": compat_tf.contrib.slim,
        "keras": compat_tf.keras,
        "model": _module("model", Tower=tower.Tower, Model=tower.Tower, model_property=tower.model_property),
        "utils": CompatModule("utils", api, model_property=tower.model_property, tf=compat_tf),
        "digits": api,
    }

    def importer(
        name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0
    ) -> Any:
        top, _, rest = name.partition(".")
        if level or top not in own:
            return _import_other(missing, name, globals, locals, fromlist, level)
        module = own[top]
        for part in rest.split(".") if rest else ():
            module = _import_part(module, part, name)
        for part in fromlist or ():
            if part != "*":
                _import_part(module, part, name)
            elif isinstance(module, missing_modules.MissingModule):
                module.check(at_once=True)
        return module if fromlist else own[top]

    return importer


def _import_other(
    missing: missing_modules.Imports, name: str, globals: Any, locals: Any, fromlist: Any, level: int
) -> Any:
    """Import any other module, or a stand-in for one that is not installed."""
    try:
        return builtins.__import__(name, globals, locals, fromlist, level)
    except ModuleNotFoundError as error:
        if error.name and name.partition(".")[0] == error.name.partition(".")[0]:
            return missing.import_missing(name, fromlist, error.name)
        raise


def _import_part(module: Any, part: str, wanted: str) -> Any:
    if isinstance(module, missing_modules.MissingModule):
        return module.part(part)
    try:
        imported = _find_part(module, part, wanted)
    except MissingPart as error:
        imported = missing_modules.stand_in_for(wanted, error)
        setattr(module, part, imported)  # for the import statement
    if isinstance(imported, missing_modules.MissingModule):
        imported.check()
    return imported


def _find_part(module: Any, part: str, wanted: str) -> Any:
    try:
        return getattr(module, part)
    except AttributeError:
        pass
    if isinstance(module, _Contrib) and ".python" in wanted and hints.may_be_module(module.__name__, part):
        module.__dict__[part] = module  # a former submodule resolves to the module itself
        return module
    try:
        return importlib.import_module(f"{module.__name__}.{part}")
    except ImportError as error:
        raise MissingPart(part, wanted) from error


class MissingPart(ImportError):
    """A name below TensorFlow that does not exist."""

    def __init__(self, part: str, wanted: str) -> None:
        super().__init__(f"cannot import {part!r} from {wanted!r}", name=wanted)
        path = wanted if wanted.endswith(part) else f"{wanted}.{part}"
        self.hint = hints.suggest(path.removeprefix("tensorflow."))
