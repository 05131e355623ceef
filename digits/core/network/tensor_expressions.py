"""Rewrite expressions of TensorFlow 1 that fail now, in the syntax tree to preserve lines and columns.

- ``shape[1].value``: dimensions of a shape were objects, now they are integers or None;
- ``tensor in tensors``: tested identity, now it would compare values.

The rewritten expressions call the functions named below, which the caller must provide as builtins.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

VALUE, IS_IN = "__digits_value__", "__digits_is_in__"


def rewrite(tree: ast.Module) -> None:
    """Rewrite the expressions of ``tree`` in place. Iterative, because a tree may exceed the recursion limit."""
    for parent, field, index, node in reversed(list(_nodes(tree))):  # inner expressions first
        new = _REWRITERS[type(node)](node)
        if new is node:
            continue
        if index is None:
            setattr(parent, field, new)
        else:
            getattr(parent, field)[index] = new


def _nodes(tree: ast.Module) -> Iterator[tuple[ast.AST, str, int | None, ast.AST]]:
    """Yield the nodes to rewrite, outer ones first, each with its parent, field and index."""
    pending: list[ast.AST] = [tree]
    while pending:
        parent = pending.pop()
        for field in parent._fields:
            value = getattr(parent, field, None)
            # A call of a method named value is not a dimension.
            is_method = field == "func" and isinstance(value, ast.Attribute) and value.attr == "value"
            for index, node in enumerate(value) if isinstance(value, list) else ((None, value),):
                if not isinstance(node, ast.AST) or isinstance(node, _WITHOUT_EXPRESSIONS):
                    continue
                pending.append(node)
                if type(node) in _REWRITERS and not is_method:
                    yield parent, field, index, node


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


def _compare(node: ast.Compare) -> ast.expr:
    if len(node.ops) != 1 or not isinstance(node.ops[0], (ast.In, ast.NotIn)):
        return node
    call = _call(IS_IN, [node.left, node.comparators[0]], node)
    if isinstance(node.ops[0], ast.In):
        return call
    return ast.copy_location(ast.UnaryOp(ast.Not(), call), node)


_REWRITERS: dict[type[ast.AST], Callable[..., ast.expr]] = {ast.Attribute: _attribute, ast.Compare: _compare}


def _call(function: str, arguments: list[ast.expr], where: ast.expr) -> ast.Call:
    name = ast.copy_location(ast.Name(function, ast.Load()), where)
    return ast.copy_location(ast.Call(name, arguments, []), where)
