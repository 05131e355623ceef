"""Print the reference of the functions of networks: ``.venv/bin/python -m tools.network_api > docs/network-api.md``.

It is made from the source code, so that it needs no TensorFlow.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

_NETWORK = Path(__file__).resolve().parent.parent / "digits" / "worker" / "network"
_PREAMBLE = """\
# Functions of networks

In a network, `digits` is a module with these functions, and `Tower` the class to derive from; neither needs an import.
[Networks](networks.md) explains how to use them. Made from the source code by `python -m tools.network_api`.
"""


def network_api() -> str:
    """Return the page as Markdown."""
    (tower,) = [item for item in _body("tower") if isinstance(item, ast.ClassDef) and item.name == "Tower"]
    sections = [_PREAMBLE, f"## Tower\n\n{_described(tower)}\n"]
    sections += [_section(function) for function in _public()]
    return "\n".join([*sections, *_other()])


def _body(module: str) -> list[ast.stmt]:
    return ast.parse((_NETWORK / f"{module}.py").read_text()).body


def _public() -> Iterator[ast.FunctionDef]:
    """Yield the functions of the module ``api``, also those that it imports for networks."""
    for item in _body("api"):
        if isinstance(item, ast.ImportFrom) and item.module:
            names = {alias.name for alias in item.names if alias.asname}
            functions = _body(item.module.rpartition(".")[2]) if names else []
        else:
            names, functions = {getattr(item, "name", "_")}, [item]
        for function in functions:
            if isinstance(function, ast.FunctionDef) and function.name in names and function.name[0] != "_":
                yield function


def _section(function: ast.FunctionDef) -> str:
    function.returns = None
    for argument in (*function.args.args, *function.args.kwonlyargs):
        argument.annotation = None
    call = f"digits.{function.name}({ast.unparse(function.args)})"
    return f"## {function.name}\n\n```python\n{call}\n```\n\n{_described(function)}\n"


def _described(item: ast.FunctionDef | ast.ClassDef) -> str:
    """Return the docstring as Markdown."""
    text = inspect.cleandoc(ast.get_docstring(item) or "")
    return re.sub(r"``(.+?)``", r"`\1`", text, flags=re.S)


def _other() -> Iterator[str]:
    """Yield the other names of the module: second names of functions, and constants."""
    (keys,) = [item for item in _body("api") if isinstance(item, ast.ClassDef)]
    yield "## Other names\n\n| Name | Value |\n|---|---|"
    for item in _body("api"):
        if isinstance(item, ast.Assign) and isinstance(item.targets[0], ast.Name):
            name = item.targets[0].id
            if not name.startswith("_"):
                yield f"| `digits.{name}` | `{ast.unparse(item.value)}` |"
    for item in keys.body:
        if isinstance(item, ast.Assign):
            yield f"| `digits.GraphKeys.{ast.unparse(item.targets[0])}` | `{ast.unparse(item.value)}` |"
    yield ""


if __name__ == "__main__":
    sys.stdout.write(network_api())
