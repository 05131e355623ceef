"""Programs that compute with TensorFlow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def run_program(in_child: Callable[..., Any]) -> Callable[[str], None]:
    """Return a function that runs a program in a forked process, where it may use TensorFlow."""
    return lambda program: in_child(_run, program)


def _run(program: str) -> None:
    exec(program, {})
