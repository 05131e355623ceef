"""Support for Python 2 syntax, builtins and TensorFlow 1 shapes in a network's text.

Expressions that have no valid meaning in Python 3 are rewritten in the syntax tree, so that lines and columns
remain those of the user's text:

- ``shape[1].value``: dimensions of a shape were objects, now they are integers or None;
- ``tensor in tensors``: tested identity, now it would compare values;
- ``d.iteritems()``, ``itervalues()``, ``iterkeys()``, ``has_key(k)``, ``d.keys()[0]``, ``range(3) + [5]``.

Integer division by ``/`` is the true division of Python 3, which DIGITS 6 had also enabled. Text that is not valid
Python 3 may contain Python 2 statements (see `digits.worker.compat.python2_statements`).
"""

from __future__ import annotations

import ast
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

from digits.worker.compat import python2_statements

_VALUE, _IS_IN, _OLD_METHOD = "__digits_value__", "__digits_is_in__", "__digits_old_method__"
_AS_LIST = "__digits_listed__"
_OLD_METHODS = {"iteritems": "items", "itervalues": "values", "iterkeys": "keys", "has_key": "__contains__"}


_VIEWS = ("keys", "values", "items")


def compile_text(text: str, file: str) -> types.CodeType:
    """Compile ``text`` as a module. Raises SyntaxError."""
    tree = _parse(text, file)
    return compile(ast.fix_missing_locations(_Rewriter().visit(tree)), file, "exec", dont_inherit=True)


def _parse(text: str, file: str) -> ast.Module:
    try:
        return ast.parse(text, file)
    except SyntaxError as error:
        translated = python2_statements.translate(text)
        if translated == text:
            raise
        try:
            return ast.parse(translated, file)
        except SyntaxError as later:
            # An error that is not about Python 2 is more useful than one that is.
            raise (later if later.lineno != error.lineno else error) from None


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
        _VALUE: _value,
        _IS_IN: _is_in,
        _OLD_METHOD: _old_method,
        _AS_LIST: _as_list,
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


class _Rewriter(ast.NodeTransformer):
    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if node.attr != "value" or not isinstance(node.ctx, ast.Load):
            return node
        return _call(_VALUE, [node.value], node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Attribute) and node.func.attr == "value":
            node.func.value = self.visit(node.func.value)  # a method of this name is not a dimension
            node.args = [self.visit(item) for item in node.args]
            node.keywords = [self.visit(item) for item in node.keywords]
            return node
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr in _OLD_METHODS:
            name = ast.copy_location(ast.Constant(node.func.attr), node)
            node.func = _call(_OLD_METHOD, [node.func.value, name], node)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        if _returned_list(node.value):
            node.value = _call(_AS_LIST, [node.value], node.value)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.op, ast.Add):
            sides = node.left, node.right
            node.left, node.right = (
                _call(_AS_LIST, [side], side) if _returned_list(side) else side for side in sides
            )
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        if len(node.ops) != 1 or not isinstance(node.ops[0], (ast.In, ast.NotIn)):
            return node
        found = _call(_IS_IN, [node.left, node.comparators[0]], node)
        if isinstance(node.ops[0], ast.In):
            return found
        return ast.copy_location(ast.UnaryOp(ast.Not(), found), node)


def _returned_list(node: ast.expr) -> bool:
    """Return whether ``node`` is ``range(…)``, ``d.keys()`` or similar, which returned a list in Python 2."""
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Name):
        return node.func.id in ("range", "xrange")
    return isinstance(node.func, ast.Attribute) and node.func.attr in _VIEWS and not node.args


def _call(function: str, arguments: list[ast.expr], where: ast.expr) -> ast.Call:
    name = ast.copy_location(ast.Name(function, ast.Load()), where)
    return ast.copy_location(ast.Call(name, arguments, []), where)


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
    return getattr(owner, name, None) or getattr(owner, _OLD_METHODS[name])


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
