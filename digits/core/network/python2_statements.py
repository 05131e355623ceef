"""Translation of Python 2 statements to Python 3, line by line.

Covers the statements ``print``, ``exec`` and ``raise``, ``except Error, name``, tabs as indentation to multiples of
eight columns, the literals ``10L`` and ``0777``, the operator ``<>``, and backticks for ``repr``.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator

Tokens = list[tokenize.TokenInfo]

_NOT_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}


# Strings and comments, which are kept, and tokens spelled differently in Python 3. Unterminated strings match too, so
# that matching takes linear time.
_WORDS = re.compile(
    r"""
    \b[uU](?P<raw>[rR])(?=["'])
    | (?P<kept> (?P<quotes>\"{3}|'{3}) (?:\\.|[^\\])*? (?:(?P=quotes)|\\?\Z)
        | "(?:\\.|[^"\\\n])*+"? | '(?:\\.|[^'\\\n])*+'? | \#[^\n]* )
    | (?<![\w.]) (?: (?P<long>0[xX][0-9a-fA-F]+|\d+)[lL] | 0(?P<octal>[0-7]+) ) (?![\w.])
    | (?P<unequal><>)
    | `(?P<backquoted>[^`\n]+)`
    """,
    re.VERBOSE | re.DOTALL,
)


def _word(match: re.Match[str]) -> str:
    if match["octal"]:
        return f"0o{match['octal']}"
    if match["backquoted"]:
        return f"repr({match['backquoted']})"
    return "!=" if match["unequal"] else match["raw"] or match["long"] or match[0]


def translate(text: str) -> str:
    """Translate ``text`` to Python 3, keeping the number of lines; unchanged if it contains no Python 2."""
    text = re.sub(r"^[ \t]+", lambda spaces: spaces[0].expandtabs(8), text, flags=re.MULTILINE)
    text = _WORDS.sub(_word, text)
    lines = io.StringIO(text).readlines()  # Python's definition of a line
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError):
        return text
    # Replace from the end, so that earlier positions stay valid.
    for statement in reversed(list(_statements(tokens))):
        words = _TRANSLATIONS.get(statement[0].string)
        new = words(statement, lines) if words else None
        if new is not None:
            _replace(lines, statement[0].start, statement[-1].end, new)
    return "".join(lines)


def _statements(tokens: Tokens) -> Iterator[Tokens]:
    """Return the tokens of each simple statement, and of the heads of compound statements without the
    colon.
    """
    depth, statement = 0, []
    for token in tokens:
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(token.string, 0)
        is_end = token.type in _NOT_CODE or (depth == 0 and token.string in (";", ":"))
        if not is_end:
            statement.append(token)
        elif statement and (depth == 0 or token.type == tokenize.NEWLINE):
            yield statement
            statement = []


def _parts(tokens: Tokens, lines: list[str]) -> list[str]:
    """Return the texts between the commas of ``tokens``."""
    parts, depth, begin = [], 0, 0
    for index, token in enumerate(tokens):
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(token.string, 0)
        if depth == 0 and token.string == ",":
            parts.append(_text(tokens[begin:index], lines))
            begin = index + 1
    return [*parts, _text(tokens[begin:], lines)]


def _text(tokens: Tokens, lines: list[str]) -> str:
    if not tokens:
        return ""
    (first, begin), (last, end) = tokens[0].start, tokens[-1].end
    if first == last:
        return lines[first - 1][begin:end]
    return "".join([lines[first - 1][begin:], *lines[first : last - 1], lines[last - 1][:end]])


def _replace(lines: list[str], start: tuple[int, int], end: tuple[int, int], new: str) -> None:
    before, after = lines[start[0] - 1][: start[1]], lines[end[0] - 1][end[1] :]
    changed = (before + new + after).splitlines(keepends=True)
    lines[start[0] - 1 : end[0]] = changed


def _print(tokens: Tokens, lines: list[str]) -> str | None:
    if len(tokens) == 1:
        return "print()"
    if tokens[1].string in ("=", ".", ",", ")") or _is_a_call(tokens):
        return None
    to_file = tokens[1].string == ">>"
    parts = _parts(tokens[2 if to_file else 1 :], lines)
    named = [f"file={parts.pop(0)}"] if to_file else []
    if len(parts) > 1 and not parts[-1]:
        named.append('end=" "')
    return f"print({', '.join([*filter(None, parts), *named])})"


def _is_a_call(tokens: Tokens) -> bool:
    """Return whether a single pair of parentheses encloses all tokens after the first."""
    depth = 0
    for token in tokens[1:-1]:
        depth += {"(": 1, ")": -1}.get(token.string, 0)
        if depth == 0:
            return False
    return len(tokens) > 2 and tokens[-1].string == ")"


def _exec(tokens: Tokens, lines: list[str]) -> str | None:
    if len(tokens) < 2 or tokens[1].string in ("=", ".", "("):
        return None
    return f"exec({_text(tokens[1:], lines)})"


def _raise(tokens: Tokens, lines: list[str]) -> str | None:
    error, *values = _parts(tokens[1:], lines)
    return f"raise {error}({values[0]})" if values else None


def _except(tokens: Tokens, lines: list[str]) -> str | None:
    error, *names = _parts(tokens[1:], lines)
    return f"except {error} as {names[0]}" if len(names) == 1 else None


_TRANSLATIONS = {"print": _print, "exec": _exec, "raise": _raise, "except": _except}
