"""Expressions of TensorFlow 1 in the text of a network."""

from __future__ import annotations

import ast

import pytest

from digits.core.network.tensor_expressions import rewrite


@pytest.mark.parametrize(
    ("text", "rewritten"),
    [
        ("x.shape[1].value", "__digits_value__(x.shape[1])"),
        ("f(a.value * b.value)", "f(__digits_value__(a) * __digits_value__(b))"),
        ("a.value.value", "__digits_value__(__digits_value__(a))"),
        ("x.value = 3; del y.value", "x.value = 3; del y.value"),
        ("x.value()", "x.value()"),
        ("f(x.value())", "f(x.value())"),
        ("x in tensors", "__digits_is_in__(x, tensors)"),
        ("a.value not in [b]", "not __digits_is_in__(__digits_value__(a), [b])"),
        ("1 < x < 3 or a in b in c", "1 < x < 3 or a in b in c"),
        (
            "def f(n=a.value):\n    while n in m: yield from n.value",
            "def f(n=__digits_value__(a)):\n    while __digits_is_in__(n, m): yield from __digits_value__(n)",
        ),
    ],
)
def test_dimensions_and_memberships_are_rewritten(text: str, rewritten: str) -> None:
    tree = ast.parse(text)
    places = {(node.lineno, node.col_offset) for node in ast.walk(tree) if hasattr(node, "lineno")}
    rewrite(tree)
    assert ast.unparse(tree) == ast.unparse(ast.parse(rewritten))
    assert {(node.lineno, node.col_offset) for node in ast.walk(tree) if hasattr(node, "lineno")} <= places
