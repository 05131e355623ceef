"""Support for the builtins and modules of Python 2, and for dimensions of TensorFlow 1, in a network.

`digits.core.network_text` translates the source code. Integer division with ``/`` is true division as in Python 3,
which DIGITS 6 enabled too.
"""

from __future__ import annotations

import collections
import collections.abc
import functools
import importlib
import inspect
import itertools
import string
import sys
import time
import types
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import ops

from digits.core.python2_expressions import AS_LIST, IS_IN, OLD_METHOD, OLD_METHODS, VALUE

_OLD_NAMES: dict[types.ModuleType, dict[str, Any]] = {
    itertools: {
        "izip": zip,
        "imap": map,
        "ifilter": filter,
        "izip_longest": itertools.zip_longest,
        "ifilterfalse": itertools.filterfalse,
    },
    sys: {"maxint": sys.maxsize, "setdefaultencoding": lambda name: None},
    string: {"letters": string.ascii_letters, "join": lambda words, between=" ": between.join(words)},
    time: {"clock": time.perf_counter},
    inspect: {"getargspec": inspect.getfullargspec},
}


def restore_aliases() -> None:
    """Restore the aliases of builtins that NumPy and others have removed."""
    for name, builtin in {"float": float, "int": int, "bool": bool, "object": object, "str": str}.items():
        if name not in vars(np):
            setattr(np, name, builtin)
    for name in collections.abc.__all__:
        if not hasattr(collections, name):
            setattr(collections, name, getattr(collections.abc, name))
    for module, names_of_old in _OLD_NAMES.items():
        for name, value in names_of_old.items():
            if not hasattr(module, name):
                setattr(module, name, value)


def make_tensors_hashable() -> None:
    """Make graph tensors hashable, for dict keys such as ``{placeholder: value}`` and sets.

    TensorFlow forbids it because ``==`` compares tensors element-wise; dicts compare identity first.
    """
    ops.SymbolicTensor.__hash__ = object.__hash__


def names() -> dict[str, Any]:
    """Return the builtins of Python 2, and the functions that rewritten text calls."""
    return {
        VALUE: _value,
        IS_IN: _is_in,
        OLD_METHOD: _old_method,
        AS_LIST: _as_list,
        "map": _eager(map),
        "filter": _eager(filter),
        "zip": _eager(zip),
        "xrange": range,
        "unicode": str,
        "basestring": str,
        "long": int,
        "unichr": chr,
        "raw_input": input,
        "reduce": functools.reduce,
        "reload": lambda module: module,
        "cmp": lambda left, right: (left > right) - (left < right),
    }


_RENAMED_MODULES = {
    "cPickle": "pickle",
    "Queue": "queue",
    "StringIO": "io",
    "cStringIO": "io",
    "ConfigParser": "configparser",
    "urllib2": "urllib.request",
    "__builtin__": "builtins",
    "itertools.izip": "itertools",
    "past.builtins": "builtins",
    "past": "builtins",
    "future.utils": "six",
    "commands": "subprocess",
    "thread": "_thread",
    "copy_reg": "copyreg",
    "HTMLParser": "html.parser",
}


def module(name: str) -> Any:
    """Return the current module for the Python 2 module ``name``, or None."""
    if name in ("future", "future.standard_library"):  # which provides these modules for Python 2
        own = types.SimpleNamespace(install_aliases=lambda: None, install_hooks=lambda: None)
        return types.SimpleNamespace(standard_library=own, **vars(own))
    renamed = _RENAMED_MODULES.get(name)
    if renamed is None:
        return None
    found = importlib.import_module(renamed)
    if renamed != "builtins":
        return found
    stand_in = types.ModuleType(name)
    stand_in.__dict__.update(vars(found) | names() | {"builtins": stand_in, "__name__": name})
    return stand_in


def _value(owner: Any) -> Any:
    if owner is None or (
        isinstance(owner, int) and not isinstance(owner, bool) and not hasattr(owner, "value")
    ):
        return owner
    return owner.value


def _is_in(item: Any, container: Any) -> Any:
    if not isinstance(container, (list, tuple)) or not any(map(_is_tensor, (item, *container))):
        return item in container
    if not _is_tensor(item):
        return any(other == item for other in container if not _is_tensor(other))
    # In half precision, a network holds views of its variables.
    wanted = getattr(item, "master", item)
    return any(getattr(other, "master", other) is wanted for other in container)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, (tf.Tensor, tf.Variable))


def _old_method(owner: Any, name: str) -> Any:
    return getattr(owner, name, None) or getattr(owner, OLD_METHODS[name])


def _as_list(items: Any) -> Any:
    """Convert a range or dict view to a list; return other values unchanged."""
    views = (range, collections.abc.KeysView, collections.abc.ValuesView, collections.abc.ItemsView)
    return list(items) if isinstance(items, views) else items


class _Items(list[Any]):
    """A list, as returned by Python 2's ``map`` and ``zip``, that also supports ``next``."""

    def __next__(self) -> Any:
        if not hasattr(self, "_rest"):
            self._rest = iter(list(self))
        return next(self._rest)


def _eager(function: Any) -> Any:
    @functools.wraps(function, updated=())
    def listed(*args: Any, **kwargs: Any) -> _Items:
        return _Items(function(*args, **kwargs))

    return listed
