"""Run a short task in the terminal and return its result, or exit with its error."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from digits.cli.exits import fail

if TYPE_CHECKING:
    from digits.core.task import TaskState


def result_of(run: Callable[[], TaskState]) -> dict[str, Any]:
    """Return the result of a short task and print its warnings; exit if it failed."""
    from digits.core.errors import DigitsError

    try:
        state = run()
    except (DigitsError, OSError) as error:
        fail(str(error), getattr(error, "hint", ""))
    if state.failure:
        line, hint = state.failure.line, state.failure.hint
        advice = f"Line {line}. {hint}" if line and f"line {line}" not in hint else hint
        fail(state.failure.message, state.failure.detail, advice)
    if state.result is None:
        fail("The task ended without a result.")
    for warning in state.warnings:
        click.echo(warning)
    return state.result
