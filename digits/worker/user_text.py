"""Analyze the source code of the user's network to explain errors, based on its syntax tree.

Standard library only. The text is the one in `linecache` under the network's fixed file name.
"""

from __future__ import annotations

import ast
import linecache
import sys
import types
import warnings
from collections.abc import Iterator
from typing import Any

from digits.core.network import source_code
from digits.core.network.source_code import NETWORK_FILE as NETWORK_FILE


def lines(text: str) -> list[str]:
    """Return the lines of ``text`` as Python counts them; `str.splitlines` also splits at form feeds, for example."""
    return [line + "\n" for line in text.split("\n")]


def tree() -> ast.Module | None:
    """Return the syntax tree of the network; None if it is not valid Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return source_code.parse("".join(linecache.getlines(NETWORK_FILE)))
    except SyntaxError:
        return None


def running_line() -> int | None:
    """Return the line of the network that is running; None outside of its text."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename != NETWORK_FILE:
        frame = frame.f_back
    return frame.f_lineno if frame else None


def line_of_function(function: Any) -> int | None:
    """Return the line of the ``def`` of a function or property getter of the network; None if it is not found."""
    code = getattr(getattr(function, "__wrapped__", function), "__code__", None)
    # The code of a function begins with its decorators.
    if code is None:
        return None
    lines = linecache.getlines(NETWORK_FILE)
    for number, line in enumerate(lines[code.co_firstlineno - 1 :], code.co_firstlineno):
        if line.lstrip().startswith(("def ", "async def ")):
            return number
    return None


def is_raised_at(line: int) -> bool:
    """Return whether the statement in ``line`` is a ``raise`` or ``assert`` of the user."""
    return any(isinstance(node, (ast.Raise, ast.Assert)) for node in _statements_at(line))


def names_with_attributes(line: int) -> set[str]:
    """Return the names whose attributes ``line`` uses: ``random`` in ``random.random()``."""
    return {
        node.value.id
        for statement in _statements_at(line)
        for node in _own_nodes(statement)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }


def names(line: int) -> list[str]:
    """Return the names that the statement in ``line`` uses."""
    return [
        node.id
        for statement in _statements_at(line)
        for node in _own_nodes(statement)
        if isinstance(node, ast.Name)
    ]


def imports_of(name: str) -> list[tuple[str, int]]:
    """Return the modules from which the network imports ``name``, or of which it is the alias, with their lines."""
    return [
        (getattr(node, "module", None) or alias.name, node.lineno)
        for node in ast.walk(tree() or ast.Module([], []))
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
        if (alias.asname or alias.name.partition(".")[0]) == name
    ]


def method_without_self(name: str = "") -> tuple[str, int] | None:
    """Return a method without ``self`` as ``Class.method`` with its line: the one named ``name``, or the only one."""
    parsed = tree()
    methods = {
        f"{owner.name}.{item.name}": item.lineno
        for owner in ast.walk(parsed or ast.Module([], []))
        if isinstance(owner, ast.ClassDef)
        for item in owner.body
        if isinstance(item, ast.FunctionDef) and _lacks_self(item)
    }
    if name:
        return next(((key, line) for key, line in methods.items() if name.endswith(key)), None)
    return next(iter(methods.items())) if len(methods) == 1 else None


def _lacks_self(method: ast.FunctionDef) -> bool:
    decorators = {node.id for node in method.decorator_list if isinstance(node, ast.Name)}
    if decorators & {"staticmethod", "classmethod"} or (method.args.vararg and not method.args.args):
        return False
    first = next((item.arg for item in (*method.args.posonlyargs, *method.args.args)), None)
    if first in ("self", "cls"):
        return False
    # Another name for self is possible; then its attributes are used.
    uses = (node for node in ast.walk(method) if isinstance(node, ast.Attribute))
    return not any(isinstance(use.value, ast.Name) and use.value.id == first for use in uses)


def _statements_at(line: int) -> list[ast.stmt]:
    """Return the innermost statements that span ``line``."""
    parsed = tree()
    covering = [
        node
        for node in ast.walk(parsed or ast.Module([], []))
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    last = max((node.lineno for node in covering), default=0)
    return [node for node in covering if node.lineno == last]


def _own_nodes(statement: ast.stmt) -> Iterator[ast.AST]:
    """The nodes of a statement, excluding nested statements."""
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.stmt)]
