"""Parse and compile the source code of a network, for the worker and for the form's check.

Both accept the same code because they share these functions: Python 3, and the statements of Python 2 that
`python2_statements` translates. Standard library only, so that long code can be checked in a bare interpreter.
"""

from __future__ import annotations

import ast
import re
import types
import unicodedata
from dataclasses import dataclass

from digits.core.network import python2_statements, tensor_expressions

NETWORK_FILE = "network.py"

# Python's own limit depends on the version and on the current stack depth.
MAX_DEPTH = 500

# Python reports an error without a line number for these.
_FORBIDDEN = re.compile("[\0\ud800-\udfff]")


@dataclass(frozen=True)
class Fault:
    """An error in a network's source code, with a ``hint`` on how to fix it. Lines count from 1, columns from 0."""

    message: str
    hint: str = ""
    line: int | None = None
    column: int = 0


def normalize(text: str) -> str:
    """Return ``text`` without a byte order mark and with ``\\n`` line endings."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def parse(text: str) -> ast.Module:
    """Parse a normalized ``text`` as a module, preserving lines and columns. Raises SyntaxError."""
    match = _FORBIDDEN.search(text)
    if match:
        message = f"invalid non-printable character U+{ord(match[0]):04X}"
        raise _syntax_error(message, text, text.count("\n", 0, match.start()) + 1)
    try:
        tree = _parse(text)
    except SyntaxError as error:
        translated = python2_statements.translate(text)
        if translated == text:
            raise
        try:
            tree = _parse(translated)
        except SyntaxError as later:
            # If the translation fixed the first error, report the remaining one.
            raise (later if later.lineno != error.lineno else error) from None
    _check_depth(tree, text)
    return tree


def compile_tree(tree: ast.Module) -> types.CodeType:
    """Compile the ``tree`` of a network, modifying it in place. Raises SyntaxError."""
    tensor_expressions.rewrite(tree)
    try:
        return compile(tree, NETWORK_FILE, "exec", dont_inherit=True)
    except (ValueError, RecursionError) as error:
        raise _syntax_error(str(error), "", 1) from error


def _parse(text: str) -> ast.Module:
    try:
        return ast.parse(text, NETWORK_FILE)
    except (MemoryError, RecursionError) as error:
        raise _syntax_error("too deeply nested", text, 1) from error


def _check_depth(tree: ast.Module, text: str) -> None:
    level: list[ast.AST] = [tree]
    line = 1
    for depth in range(MAX_DEPTH):
        level = [
            child
            for node in level
            for child in ast.iter_child_nodes(node)
            if not _is_short(child, MAX_DEPTH - depth)
        ]
        if not level:
            return
        line = getattr(level[0], "lineno", line)
    raise _syntax_error("too deeply nested", text, line)


def _is_short(node: ast.AST, characters: int) -> bool:
    """Return whether the source of a node is shorter than ``characters``, which bounds its nesting depth too."""
    first, last = getattr(node, "lineno", None), getattr(node, "end_lineno", None)
    return first is not None and first == last and node.end_col_offset - node.col_offset < characters  # type: ignore[attr-defined]


def _syntax_error(message: str, text: str, line: int) -> SyntaxError:
    return SyntaxError(message, (NETWORK_FILE, line, 1, text.split("\n", line)[line - 1]))


def describe_syntax_error(error: SyntaxError) -> Fault:
    """Describe an error of `parse` or `compile_tree`, or one raised by the network itself."""
    line = error.lineno or 1
    column = max(0, (error.offset or 1) - 1)
    return _bad_character(error, line, column) or Fault(
        f"Syntax error: {_sentence(error.msg or 'invalid syntax')}", "Correct the marked line.", line, column
    )


def _sentence(text: str) -> str:
    return text if text.endswith((".", "?", "!")) else f"{text}."


_CHARACTER = re.compile(r"invalid (?:non-printable )?character .*?U\+([0-9A-F]{4,6})")
_QUOTES, _DASHES = "\u201c\u201d\u201e\u2018\u2019\u201a\u00b4", "\u2010\u2011\u2012\u2013\u2014\u2212"


def _bad_character(error: SyntaxError, line: int, column: int) -> Fault | None:
    match = _CHARACTER.search(error.msg or "")
    if match is None:
        return None
    character = chr(int(match[1], 16))
    name = unicodedata.name(character, "a control character").lower()
    if character in _QUOTES:
        hint = "Use straight quotes, \" or '."
    elif character in _DASHES:
        hint = "Use an ASCII hyphen, -."
    elif character == "\N{REPLACEMENT CHARACTER}":
        hint = "The file is not UTF-8 text. Save it as UTF-8."
    elif unicodedata.category(character).startswith(("C", "Z")):
        hint = "Retype the line without this invisible character, often copied from a web page."
    else:
        hint = "Python allows it only in strings and comments."
    return Fault(f"The network contains the character U+{match[1]} ({name}).", hint, line, column)
