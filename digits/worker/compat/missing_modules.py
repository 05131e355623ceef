"""Packages that a network imports and that are not installed, and parts that TensorFlow has no more.

An import alone does no harm: many a network imports what it never uses. Nor does a setting of such a package: a call
of its functions in a line of its own, outside of those of the network, as ``matplotlib.use('Agg')`` is. The first
other use of something of them fails and says what is missing. The import itself fails where the network is prepared
for that, in ``try``, and where its names would be needed at once, ``import *``.
"""

from __future__ import annotations

import ast
import sys
import types
from typing import Any, NoReturn

from digits.worker import packages, user_text
from digits.worker.user_text import NETWORK_FILE


class MissingPackage(ModuleNotFoundError):
    """A package that a network uses but that is not installed; ``line`` is the line of its import."""

    def __init__(self, name: str, line: int | None = None) -> None:
        where = f", which line {line} imports" if line else ""
        super().__init__(f"No module named {name!r}{where}", name=name)
        self.hint = packages.advice(name)


class Imports:
    """The missing packages that a network has imported: ``lines`` has the line of the first import of each."""

    def __init__(self) -> None:
        self.lines: dict[str, int] = {}

    def import_missing(self, name: str, names: Any, missing: str) -> Any:
        """The result of ``import name`` or ``from name import names``; raises MissingPackage."""
        top, *rest = name.split(".")
        line = _line()
        if missing != top or "*" in (names or ()) or line is None or _is_tried(line):
            raise MissingPackage(missing)
        self.lines.setdefault(top, line)
        package = inner = Absent(top, MissingPackage(missing, line))
        for part in rest:
            inner = inner.part(part)
        for part in names or ():
            inner.part(part)
        return inner if names else package


def in_place_of(name: str, error: ImportError) -> Absent:
    """What is imported as ``name``, a part of a module that has no such part; raises ``error``."""
    found = Absent(name, error)
    found.check()
    return found


class Absent(types.ModuleType):
    """Stands in for a missing package, a module of it or something in there."""

    def __init__(self, name: str, error: ImportError) -> None:
        super().__init__(name)
        self.__dict__["_error"] = error

    def part(self, name: str) -> Absent:
        """What is imported from it."""
        return self.__dict__.setdefault(name, Absent(f"{self.__name__}.{name}", self._error))

    def check(self, at_once: bool = False) -> None:
        """Raise the error of the import where the network's line is prepared for it, or needs names ``at_once``."""
        line = _line()
        if at_once or line is None or _is_tried(line):
            self._used()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if isinstance(self._error, MissingPackage) and _is_setting():
            return _Setting()
        return self._used()

    def _used(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise self._error.with_traceback(None)

    __call__ = __getitem__ = __iter__ = __mro_entries__ = _used


class _Setting:
    """A function of a missing package that is called for what it changes there, and does nothing."""

    def __getattr__(self, name: str) -> _Setting:
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        pass


def _frame() -> types.FrameType | None:
    """The part of the network that is being run."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename != NETWORK_FILE:
        frame = frame.f_back
    return frame


def _line() -> int | None:
    frame = _frame()
    return frame.f_lineno if frame else None


def _is_tried(line: int) -> bool:
    """Whether a line of the network is in a ``try`` that handles errors."""
    tree = user_text.tree()
    return tree is None or any(
        part.lineno <= line <= (part.end_lineno or part.lineno)
        for node in ast.walk(tree)
        if isinstance(node, ast.Try) and node.handlers
        for part in node.body
    )


def _is_setting() -> bool:
    """Whether the network is at a call outside of its functions, the result of which nobody takes."""
    frame = _frame()
    if frame is None or frame.f_code.co_name != "<module>":
        return False
    body = tree.body if (tree := user_text.tree()) else []
    found = [node for node in body if node.lineno <= frame.f_lineno <= (node.end_lineno or 0)]
    return any(isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) for node in found)
