"""Stand-ins for packages that a network imports but that are not installed, and for names of TensorFlow that were
removed or that a network cannot use.

Importing or mentioning one does not fail, because many networks contain code that they never use. Using it raises the
error. The import or mention itself fails inside ``try``, where the network handles the error, and for ``import *``,
which needs the names.
"""

from __future__ import annotations

import ast
import types
from typing import Any, NoReturn

from digits.worker import packages, user_text


class MissingPackage(ModuleNotFoundError):
    """A package that a network uses but that is not installed; ``line`` is the line of its import."""

    def __init__(self, name: str, line: int | None = None) -> None:
        where = f", which line {line} imports" if line else ""
        super().__init__(f"No module named {name!r}{where}", name=name)
        self.hint = packages.advice(name)


class Imports:
    """The missing packages that a network has imported: ``lines`` maps each to the line of its first
    import.
    """

    def __init__(self) -> None:
        self.lines: dict[str, int] = {}

    def import_missing(self, name: str, names: Any, missing: str) -> Any:
        """Return the result of ``import name`` or ``from name import names``. Raises MissingPackage."""
        top, *rest = name.split(".")
        line = user_text.running_line()
        if missing != top or "*" in (names or ()) or line is None or _is_in_try(line):
            raise MissingPackage(missing)
        self.lines.setdefault(top, line)
        package = inner = MissingModule(top, MissingPackage(missing, line))
        for part in rest:
            inner = inner.part(part)
        for part in names or ():
            inner.part(part)
        return inner if names else package


def stand_in_for(name: str, error: Exception) -> MissingModule:
    """Return a stand-in for ``name``, which a module lacks or a network cannot use; using it raises ``error``."""
    stand_in = MissingModule(name, error)
    stand_in.check()
    return stand_in


class MissingModule(types.ModuleType):
    """A stand-in for a missing package, one of its modules, or a name in them."""

    def __init__(self, name: str, error: Exception) -> None:
        super().__init__(name)
        self.__dict__["_error"] = error

    def part(self, name: str) -> MissingModule:
        """Return the stand-in for a name imported from it."""
        return self.__dict__.setdefault(name, MissingModule(f"{self.__name__}.{name}", self._error))

    def check(self, at_once: bool = False) -> None:
        """Raise the error if the network's line handles it, or needs the names ``at_once``."""
        line = user_text.running_line()
        if at_once or line is None or _is_in_try(line):
            self._raise()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._raise()

    def _raise(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise self._error.with_traceback(None)

    __call__ = __getitem__ = __iter__ = __mro_entries__ = _raise


def _is_in_try(line: int) -> bool:
    """Return whether a line of the network is inside a ``try`` that handles errors."""
    tree = user_text.tree()
    return tree is None or any(
        part.lineno <= line <= (part.end_lineno or part.lineno)
        for node in ast.walk(tree)
        if isinstance(node, ast.Try) and node.handlers
        for part in node.body
    )
