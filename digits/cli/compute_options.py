"""The options that choose where a training runs: one for each setting of `Compute`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click
from msgspec import structs

from digits.core import schema
from digits.core.compute import Compute

Command = TypeVar("Command", bound=Callable[..., Any])


def compute_options(command: Command) -> Command:
    """Add the options to a ``command``, which passes them to `compute_of`."""
    for setting in reversed(structs.fields(Compute)):
        limits = schema.limits(Compute, setting.name)
        is_list = isinstance(limits.default, tuple)
        help_ = limits.description.replace(", one per line", "; repeat it for several" if is_list else "")
        command = click.option(
            f"--{setting.name.replace('_', '-')}",
            setting.name,
            type=int if limits.high else str,
            multiple=is_list,
            help=help_,
        )(command)
    return command


def compute_of(options: dict[str, Any]) -> Compute:
    """Return where to run, from the values of the `compute_options`; raises ``click.UsageError``."""
    given = {name: value for name, value in options.items() if value not in (None, ())}
    try:
        return schema.convert(given, Compute)
    except schema.Malformed as error:
        name = str(error).rpartition("$.")[2].partition("[")[0].strip("`").replace("_", "-")
        raise click.UsageError(f"Invalid value for --{name}: {str(error).partition(' - ')[0]}.") from None
