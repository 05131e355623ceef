"""Modules of the worker by their names, and TensorFlow as ``tf``, which are imported when a test first uses them.

So collecting the tests does not load TensorFlow.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import digits.worker

_WORKER = Path(digits.worker.__file__).parent


class _Module:
    """Stands in for the module called ``path``."""

    __slots__ = ("_path",)

    def __init__(self, path: str) -> None:
        object.__setattr__(self, "_path", path)

    def __getattr__(self, name: str) -> Any:
        if name == "_mock_name" or (name.startswith("__") and name != "__dict__"):  # pytest asks for them
            raise AttributeError(name)
        return getattr(importlib.import_module(self._path), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(importlib.import_module(self._path), name, value)

    def __delattr__(self, name: str) -> None:
        delattr(importlib.import_module(self._path), name)


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    if name == "tf":
        return _Module("tensorflow")
    (file,) = _WORKER.rglob(f"{name}.py")
    return _Module(".".join(["digits.worker", *file.relative_to(_WORKER).with_suffix("").parts]))
