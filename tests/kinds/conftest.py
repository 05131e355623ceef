"""Requests for forms, and programs that compute with TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import flask
import pytest


@pytest.fixture
def request_in_progress() -> Iterator[None]:
    app = flask.Flask(__name__)
    app.secret_key = "for tests"
    with app.test_request_context(method="POST"):
        yield


@pytest.fixture
def run_program(in_child: Callable[..., Any]) -> Callable[[str], None]:
    """Return a function that runs a program in a forked process, where it may use TensorFlow."""
    return lambda program: in_child(_run, program)


def _run(program: str) -> None:
    exec(program, {})
