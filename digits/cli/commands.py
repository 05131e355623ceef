"""The commands of ``digits``, each in a separate module that is imported when needed."""

from __future__ import annotations

from importlib import import_module

import click
from click.shell_completion import CompletionItem

from digits import __version__
from digits.cli.default_command import is_serving

# The module of each command, which defines `command`.
MODULES = {
    "serve": "digits.cli.serve",
    "train": "digits.cli.train",
    "check": "digits.cli.check",
    "export": "digits.cli.export",
    "labels": "digits.cli.labels",
    "download-data": "digits.cli.download_data",
}


class Commands(click.Group):
    """The group of all commands. ``serve`` is the default: ``digits -p 8080`` is ``digits serve -p 8080``."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in MODULES:
            return None
        command: click.Command = import_module(MODULES[cmd_name]).command
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # While completing `digits <TAB>` there are no words yet, and any command may follow.
        is_completing = ctx.resilient_parsing and not args
        if is_serving(args) and args[:1] != ["serve"] and not is_completing:
            args.insert(0, "serve")
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        completions = super().shell_complete(ctx, incomplete)
        serve = self.get_command(ctx, "serve")
        if incomplete.startswith("-") and serve is not None:
            completions += serve.shell_complete(click.Context(serve, ctx), incomplete)
        return completions


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Without a command, digits serves: 'digits -p 8080' is 'digits serve -p 8080'.",
)
@click.version_option(__version__, message="%(prog)s %(version)s")
def digits() -> None:
    """Train deep networks on your own images, in a browser."""
