"""Checks a network's text without running it: what can be said while the user types."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from typing import Any

Diagnostic = dict[str, Any]


def lint(text: str) -> list[Diagnostic]:
    """Mistakes as ``{line, column, message, severity}``; lines from 1, columns from 0."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text.replace("\r\n", "\n"))
    except SyntaxError as error:
        return [_at(error.lineno or 1, (error.offset or 1) - 1, f"Syntax error: {error.msg}.")]
    except (ValueError, RecursionError, MemoryError):
        return [_at(1, 0, "This is not Python text.")]
    if not text.strip():
        return []
    return _check_contract(tree)


def _check_contract(tree: ast.Module) -> list[Diagnostic]:
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    model = next((node for node in classes if node.name == "UserModel"), None)
    if model is None:
        near = next((node for node in classes), None)
        return [_at(near.lineno if near else 1, 0, "The network must define “class UserModel(Tower)”.")]
    if not model.bases:
        return [_at(model.lineno, model.col_offset, "UserModel must inherit Tower.")]
    if [ast.unparse(base) for base in model.bases] != ["Tower"]:
        return []  # Another base class may bring the properties along.
    defined = set(_names_defined_in(model))
    return [
        _at(model.lineno, model.col_offset, f"UserModel must define the property “{name}”.")
        for name in ("inference", "loss")
        if name not in defined
    ]


def _names_defined_in(model: ast.ClassDef) -> Iterator[str]:
    for node in model.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def _at(line: int, column: int, message: str) -> Diagnostic:
    return {"line": line, "column": max(0, column), "message": message, "severity": "error"}
