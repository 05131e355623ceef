"""Temporarily replacing functions of libraries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def replace(owner: Any, name: str, replacement: Any) -> Iterator[None]:
    """Replace or add the attribute ``name`` of a class or module inside the block."""
    is_own, original = name in vars(owner), getattr(owner, name, None)
    setattr(owner, name, replacement)
    try:
        yield
    finally:
        if is_own:
            setattr(owner, name, original)
        else:
            delattr(owner, name)  # reveals the inherited attribute again, if there is one
