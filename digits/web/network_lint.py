"""Check a network's text without running it, while the user types.

Run as a program, it reads a text from standard input and prints the result of `lint` as JSON.
"""

from __future__ import annotations

import ast
import json
import resource
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any

Diagnostic = dict[str, Any]

# Parsing holds the GIL: up to this size, for about 20 ms.
QUICK_CHARACTERS = 6_000
CHECK_SECONDS = 20.0
MEMORY_BYTES = 2 << 30
_checking = threading.BoundedSemaphore(2)


def check(text: str) -> list[Diagnostic]:
    """Run `lint`, in a separate process for long texts; returns an empty list if it takes too long."""
    if len(text) <= QUICK_CHARACTERS:
        return lint(text)
    command = [sys.executable, "-I", "-S", __file__]
    with _checking:
        try:
            done = subprocess.run(
                command,
                input=text.encode("utf-8", "surrogatepass"),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=CHECK_SECONDS,
                check=True,
                env={},
            )
        except subprocess.SubprocessError:
            return []
    diagnostics: list[Diagnostic] = json.loads(done.stdout)
    return diagnostics


def lint(text: str) -> list[Diagnostic]:
    """Errors as ``{line, column, message, severity}``; lines count from 1, columns from 0."""
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
    base = model.bases[0]
    if len(model.bases) > 1 or not isinstance(base, ast.Name) or base.id != "Tower":
        return []  # Another base class may define the properties.
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


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    sys.stdout.write(json.dumps(lint(sys.stdin.buffer.read().decode("utf-8", "surrogatepass"))))
