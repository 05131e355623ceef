"""Whether a network can compute in half precision, which Keras' layers do by themselves."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import reduce

import tensorflow as tf

from digits.core.network import source_code

# What the names mean that networks use without importing them.
_GIVEN = {"tf": "tensorflow", "slim": "tensorflow.contrib.slim"}
_SAME = {"tf_slim": "tensorflow.contrib.slim", "tensorflow.compat.v1": "tensorflow"}
# Losses get float32, and the others compute nothing.
_HARMLESS = ("tensorflow.losses", "tensorflow.contrib.losses", "tensorflow.contrib.slim.losses",
             "tensorflow.summary", "tensorflow.logging", "tensorflow.app")  # fmt: skip
MAX_LISTED = 3


def reason_for_float32(text: str) -> str:
    """Return why the network ``text`` can only compute in float32, a sentence; "" if its layers are those of Keras.

    The variables of slim, of TensorFlow 1 and of the network itself are float32, and so are operations with them.
    """
    uses = dict[str, int]()
    for name, line in _names(text):
        uses.setdefault(name, line)
    if not uses:
        return ""
    listed = ", ".join(f"{name} (line {line})" for name, line in list(uses.items())[:MAX_LISTED])
    return (
        "The network computes in float32: half precision is for networks of Keras layers, and this one uses "
        f"{listed}{', …' if len(uses) > MAX_LISTED else ''}."
    )


def _names(text: str) -> Iterator[tuple[str, int]]:
    """Yield the names of slim, of TensorFlow 1 and of variables that ``text`` uses, with their lines."""
    try:
        tree = source_code.parse(source_code.normalize(text))
    except SyntaxError:
        return  # loading the network reports it
    finder = _Finder()
    finder.visit(tree)
    for name, line in finder.found:
        head, dot, rest = name.partition(".")
        path = finder.meanings.get(head, "") + dot + rest
        for beginning, same in _SAME.items():
            if f"{path}.".startswith(f"{beginning}."):
                path = same + path.removeprefix(beginning)
        if path.startswith("tensorflow.") and _is_legacy(path):
            yield name, line


def _is_legacy(path: str) -> bool:
    if any(f"{path}.".startswith(f"{harmless}.") for harmless in _HARMLESS):
        return False
    try:
        return reduce(getattr, path.split(".")[1:], tf) is tf.Variable
    except AttributeError:
        return True


class _Finder(ast.NodeVisitor):
    """Finds dotted names with their lines, and what imports make them mean."""

    def __init__(self) -> None:
        self.meanings = dict(_GIVEN)
        self.found: list[tuple[str, int]] = []

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            head = alias.name.partition(".")[0]
            self.meanings[alias.asname or head] = alias.name if alias.asname else head

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            self.meanings[alias.asname or alias.name] = f"{node.module}.{alias.name}"

    def visit_Name(self, node: ast.Name) -> None:
        self.found.append((node.id, node.lineno))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if name := _dotted(node):
            self.found.append((name, node.lineno))
        else:
            self.generic_visit(node)


def _dotted(node: ast.expr) -> str:
    """Return ``tf.nn.relu`` for an expression like this; empty for others."""
    if isinstance(node, ast.Name):
        return node.id
    inner = _dotted(node.value) if isinstance(node, ast.Attribute) else ""
    return f"{inner}.{node.attr}" if inner and isinstance(node, ast.Attribute) else ""
