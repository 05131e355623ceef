"""Exit with an error message. Only the command line exits; libraries raise."""

from __future__ import annotations

from typing import NoReturn

import click

FAILURE = 1
BAD_USAGE = 2


def fail(message: str, *more: str) -> NoReturn:
    """Exit with code 1; each nonempty text in ``more`` is another line of the message."""
    click.echo("\n".join([f"digits: {message}", *filter(None, more)]), err=True)
    raise SystemExit(FAILURE)


def refuse(message: str) -> NoReturn:
    """Exit with code 2: an option or setting is wrong."""
    click.echo(f"digits: {message}", err=True)
    raise SystemExit(BAD_USAGE)
