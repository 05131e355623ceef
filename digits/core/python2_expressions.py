"""Rewrite expressions that fail or behave differently in Python 3, in the syntax tree to preserve lines and columns.

- ``shape[1].value``: dimensions of a shape were objects, now they are integers or None;
- ``tensor in tensors``: tested identity, now it would compare values;
- ``d.iteritems()``, ``itervalues()``, ``iterkeys()``, ``has_key(k)``, ``d.keys()[0]``, ``range(3) + [5]``.

The rewritten expressions call the functions named below, which the caller must provide as builtins.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

VALUE, IS_IN, OLD_METHOD = "__digits_value__", "__digits_is_in__", "__digits_old_method__"
AS_LIST = "__digits_listed__"
OLD_METHODS = {"iteritems": "items", "itervalues": "values", "iterkeys": "keys", "has_key": "__contains__"}

_VIEWS = ("keys", "values", "items")


def rewrite(tree: ast.Module) -> None:
    """Rewrite the expressions of ``tree`` in place. Iterative, because a tree may exceed the recursion limit."""
    for parent, field, place, node in reversed(list(_nodes(tree))):  # inner expressions first
        new = _REWRITERS[type(node)](node)
        if new is node:
            continue
        if place is None:
            setattr(parent, field, new)
        else:
            getattr(parent, field)[place] = new


def _nodes(tree: ast.Module) -> Iterator[tuple[ast.AST, str, int | None, ast.AST]]:
    """Yield the nodes to rewrite, outer ones first, each with its parent, field and index."""
    pending: list[ast.AST] = [tree]
    while pending:
        parent = pending.pop()
        for field in parent._fields:
            value = getattr(parent, field, None)
            # A call of a method named value is not a dimension.
            is_method = field == "func" and isinstance(value, ast.Attribute) and value.attr == "value"
            for place, node in enumerate(value) if isinstance(value, list) else ((None, value),):
                if not isinstance(node, ast.AST) or isinstance(node, _WITHOUT_EXPRESSIONS):
                    continue
                pending.append(node)
                if type(node) in _REWRITERS and not is_method:
                    yield parent, field, place, node


# Patterns contain only names and literals.
_WITHOUT_EXPRESSIONS = (
    ast.Constant,
    ast.Name,
    ast.expr_context,
    ast.operator,
    ast.cmpop,
    ast.pattern,
    ast.alias,
)


def _attribute(node: ast.Attribute) -> ast.expr:
    if node.attr != "value" or not isinstance(node.ctx, ast.Load):
        return node
    return _call(VALUE, [node.value], node)


def _method_call(node: ast.Call) -> ast.expr:
    if isinstance(node.func, ast.Attribute) and node.func.attr in OLD_METHODS:
        name = ast.copy_location(ast.Constant(node.func.attr), node)
        node.func = _call(OLD_METHOD, [node.func.value, name], node)
    return node


def _subscript(node: ast.Subscript) -> ast.expr:
    node.value = _list(node.value)
    return node


def _binary(node: ast.BinOp) -> ast.expr:
    if isinstance(node.op, ast.Add):
        node.left, node.right = _list(node.left), _list(node.right)
    return node


def _compare(node: ast.Compare) -> ast.expr:
    if len(node.ops) != 1 or not isinstance(node.ops[0], (ast.In, ast.NotIn)):
        return node
    found = _call(IS_IN, [node.left, node.comparators[0]], node)
    if isinstance(node.ops[0], ast.In):
        return found
    return ast.copy_location(ast.UnaryOp(ast.Not(), found), node)


_REWRITERS: dict[type[ast.AST], Callable[..., ast.expr]] = {
    ast.Attribute: _attribute,
    ast.Call: _method_call,
    ast.Subscript: _subscript,
    ast.BinOp: _binary,
    ast.Compare: _compare,
}


def _list(node: ast.expr) -> ast.expr:
    """Convert the result of ``range(…)``, ``d.keys()`` or similar, which was a list in Python 2."""
    if not isinstance(node, ast.Call):
        return node
    if isinstance(node.func, ast.Name):
        returned_list = node.func.id in ("range", "xrange")
    else:
        is_view = isinstance(node.func, ast.Attribute) and node.func.attr in _VIEWS
        returned_list = is_view and not node.args
    return _call(AS_LIST, [node], node) if returned_list else node


def _call(function: str, arguments: list[ast.expr], where: ast.expr) -> ast.Call:
    name = ast.copy_location(ast.Name(function, ast.Load()), where)
    return ast.copy_location(ast.Call(name, arguments, []), where)
