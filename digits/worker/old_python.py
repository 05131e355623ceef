"""Lets a network's text say what Python 2 and the shapes of TensorFlow 1 allowed.

Only what can mean nothing else today is rewritten, in the syntax tree, so that lines
and columns stay as the user wrote them:

- ``shape[1].value``: a dimension of a shape was an object, now it is a number or None;
- ``tensor in tensors``: asked for the same tensor, now it would compare numbers;
- ``d.iteritems()``, ``itervalues()``, ``iterkeys()``, ``has_key(k)``.

A division of integers by ``/`` is the true division of Python 3.
"""

from __future__ import annotations

import ast
import collections
import collections.abc
import functools
import importlib
import types
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import ops

_VALUE, _IS_IN, _OLD_METHOD = "__digits_value__", "__digits_is_in__", "__digits_old_method__"
_OLD_METHODS = {"iteritems": "items", "itervalues": "values", "iterkeys": "keys", "has_key": "__contains__"}


def compiled(text: str, file: str) -> types.CodeType:
    """The code of a module with the text ``text``; raises SyntaxError."""
    tree = ast.parse(text, file)
    return compile(ast.fix_missing_locations(_Rewriter().visit(tree)), file, "exec", dont_inherit=True)


def restore_aliases() -> None:
    """Give numpy and collections the names back that they had, where nothing else has them now."""
    for name, kind in {"float": float, "int": int, "bool": bool, "object": object, "str": str}.items():
        if name not in vars(np):
            setattr(np, name, kind)
    for name in collections.abc.__all__:
        if not hasattr(collections, name):
            setattr(collections, name, getattr(collections.abc, name))


def let_tensors_be_keys() -> None:
    """Let tensors of a graph be keys of dicts and members of sets, as ``{placeholder: value}`` has them.

    TensorFlow refuses this because equality of tensors compares numbers; a dict asks for identity first.
    """
    ops.SymbolicTensor.__hash__ = object.__hash__


def names() -> dict[str, Any]:
    """The builtins of Python 2, and what rewritten text calls."""
    return {
        _VALUE: _value,
        _IS_IN: _is_in,
        _OLD_METHOD: _old_method,
        "xrange": range,
        "unicode": str,
        "basestring": str,
        "long": int,
        "unichr": chr,
        "raw_input": input,
        "reduce": functools.reduce,
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
}


def module(name: str) -> Any:
    """The module that a module of Python 2 called ``name`` has become, or None."""
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
            node.func.value = self.visit(node.func.value)  # a method of that name is no dimension
            node.args = [self.visit(item) for item in node.args]
            node.keywords = [self.visit(item) for item in node.keywords]
            return node
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr in _OLD_METHODS:
            name = ast.copy_location(ast.Constant(node.func.attr), node)
            node.func = _call(_OLD_METHOD, [node.func.value, name], node)
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        if len(node.ops) != 1 or not isinstance(node.ops[0], (ast.In, ast.NotIn)):
            return node
        found = _call(_IS_IN, [node.left, node.comparators[0]], node)
        if isinstance(node.ops[0], ast.In):
            return found
        return ast.copy_location(ast.UnaryOp(ast.Not(), found), node)


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
    # In half precision a network holds views of its variables.
    wanted = getattr(item, "master", item)
    return any(getattr(other, "master", other) is wanted for other in container)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, (tf.Tensor, tf.Variable))


def _old_method(owner: Any, name: str) -> Any:
    return getattr(owner, name, None) or getattr(owner, _OLD_METHODS[name])
