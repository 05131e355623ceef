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
from dataclasses import dataclass, field
from typing import Any

from digits.core import network_text
from digits.core.network_text import NETWORK_FILE as NETWORK_FILE

# The results of these for labels are no longer labels.
_NOT_VALUES = {"shape", "get_shape", "dtype", "ndim", "name", "device", "graph", "op", "size"}


def lines(text: str) -> list[str]:
    """Return the lines of ``text`` as Python counts them; `str.splitlines` also splits at form feeds, for example."""
    return [line + "\n" for line in text.split("\n")]


def tree() -> ast.Module | None:
    """Return the syntax tree of the network; None if it is not valid Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return network_text.parse("".join(linecache.getlines(NETWORK_FILE)))
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


def uses_labels(line: int) -> bool:
    """Return whether the statement in ``line`` uses ``self.y`` or values derived from it."""
    parsed = tree()
    try:
        return parsed is not None and _Labels(parsed).are_in(line)
    except RecursionError:  # a very long expression
        return False


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


@dataclass
class _Scope:
    """A function or the module, with the ``names`` that refer to labels in it."""

    node: ast.AST
    outer: _Scope | None
    names: set[str] = field(default_factory=set)

    def holds(self, name: str) -> bool:
        return name in self.names or (self.outer is not None and self.outer.holds(name))


class _Labels:
    """Tracks labels: ``self.y``, and everything assigned from it, passed to functions or returned."""

    def __init__(self, parsed: ast.Module) -> None:
        self._attributes = {"y"}
        self._scopes: dict[ast.stmt, _Scope] = {}
        self._functions: dict[str, tuple[ast.FunctionDef, _Scope]] = {}
        self._add(parsed.body, _Scope(parsed, None))
        before = -1
        while (count := self._count()) != before:
            before = count
            for statement, scope in self._scopes.items():
                self._spread(statement, scope)

    def are_in(self, line: int) -> bool:
        return any(
            self._has_labels(node, self._scopes[statement])
            for statement in _covering(self._scopes, line)
            for node in ast.iter_child_nodes(statement)
            if isinstance(node, ast.expr)
        )

    def _add(self, body: list[ast.stmt], scope: _Scope) -> None:
        for statement in body:
            self._scopes[statement] = scope
            inner = scope
            if isinstance(statement, ast.FunctionDef):
                inner = _Scope(statement, scope)
                self._functions[statement.name] = statement, inner
            for part in ("body", "orelse", "finalbody"):
                self._add(getattr(statement, part, []), inner)
            for handler in getattr(statement, "handlers", []):
                self._add(handler.body, inner)

    def _count(self) -> int:
        return len(self._attributes) + sum(
            len(scope.names) for scope in {id(s): s for s in self._all()}.values()
        )

    def _all(self) -> Iterator[_Scope]:
        yield from self._scopes.values()
        yield from (scope for _, scope in self._functions.values())

    def _spread(self, statement: ast.stmt, scope: _Scope) -> None:
        if isinstance(statement, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            if statement.value is not None and self._has_labels(statement.value, scope):
                for target in targets:
                    self._mark(target, scope)
        elif isinstance(statement, ast.For) and self._has_labels(statement.iter, scope):
            self._mark(statement.target, scope)
        elif isinstance(statement, ast.Return) and statement.value is not None:
            name = getattr(scope.node, "name", "loss")
            # The loss is computed from labels but is not a label.
            if name != "loss" and scope.outer is not None and self._has_labels(statement.value, scope):
                self._attributes.add(name)
                scope.outer.names.add(name)
        for node in _own_nodes(statement):
            if isinstance(node, ast.Call):
                self._pass_on(node, scope)

    def _mark(self, target: ast.AST, scope: _Scope) -> None:
        for node in ast.walk(target):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                scope.names.add(node.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                self._attributes.add(node.attr)

    def _pass_on(self, call: ast.Call, scope: _Scope) -> None:
        """Propagate labels from arguments to the parameters of the text's own functions."""
        is_method = isinstance(call.func, ast.Attribute)
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if name not in self._functions or (is_method and not _is_self(call.func.value)):  # type: ignore[attr-defined]
            return
        function, inner = self._functions[name]
        parameters = [item.arg for item in function.args.args][is_method:]
        inner.names.update(
            parameter
            for parameter, value in zip(parameters, call.args, strict=False)
            if self._has_labels(value, scope)
        )
        inner.names.update(
            item.arg for item in call.keywords if item.arg and self._has_labels(item.value, scope)
        )

    def _has_labels(self, node: ast.AST, scope: _Scope) -> bool:
        if isinstance(node, ast.Attribute):
            if node.attr in _NOT_VALUES:
                return False
            if _is_self(node.value):
                return node.attr in self._attributes
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in _NOT_VALUES:
            return False
        if isinstance(node, ast.Name):
            return scope.holds(node.id)
        return any(
            self._has_labels(child, scope)
            for child in ast.iter_child_nodes(node)
            if not isinstance(child, ast.stmt)
        )


def _covering(statements: dict[ast.stmt, _Scope], line: int) -> list[ast.stmt]:
    covering = [item for item in statements if item.lineno <= line <= (item.end_lineno or item.lineno)]
    last = max((item.lineno for item in covering), default=0)
    return [item for item in covering if item.lineno == last]


def _is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"
