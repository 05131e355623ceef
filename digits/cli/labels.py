"""``digits labels``: start, list and freeze labels on a running server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from digits.cli.exits import fail

if TYPE_CHECKING:
    from digits.client import Client


DEFAULT_KIND = "images/classification"


@click.group("labels", short_help="Start, list and freeze labels on a running server.")
@click.option(
    "--server",
    metavar="URL",
    envvar="DIGITS_SERVER",
    default="http://127.0.0.1:5000",
    show_default=True,
    show_envvar=True,
    help="Address of the server, with its URL prefix.",
)
@click.option("--token", envvar="DIGITS_TOKEN", default="", show_envvar=True, help="Token of the server.")
@click.option("--username", default="", help="Owner of new jobs.")
@click.pass_context
def command(context: click.Context, server: str, token: str, username: str) -> None:
    """Work with labels on a running server."""
    from digits.client import Client

    try:
        context.obj = Client(server, token=token, username=username)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--server") from None


@command.command("create", short_help="Start labels of the images in a folder.")
@click.argument("name")
@click.argument("folder", default="")
@click.option("--kind", default="", help=f"Kind of the datasets.  [default: {DEFAULT_KIND}]")
@click.option("--class", "classes", multiple=True, help="Name of a class; repeat it for several.")
@click.option("--folders-are-classes", is_flag=True, help="Begin with the names of the folders as labels.")
@click.option("--annotations", default="", help="Begin with this table, file or folder on the server.")
@click.option(
    "--dataset", default="", help="Begin with this dataset, by id. Its kind and folder are the default."
)
@click.pass_obj
def create(
    server: Client, /, name: str, folder: str, kind: str, classes: tuple[str, ...], **labels: str | bool
) -> None:
    """Start labels called NAME of the images in FOLDER, a path on the server, and print their id.

    It returns when the images are listed.
    """
    if not labels["dataset"]:
        kind = kind or DEFAULT_KIND
    with _failing():
        job = server.create_labels(name, kind, folder, classes, **labels)
        server.wait(job.id)
    click.echo(job.id)


@command.command("list", short_help="List labels.")
@click.argument("words", nargs=-1)
@click.pass_obj
def list_(server: Client, words: tuple[str, ...]) -> None:
    """List the labels that match WORDS, the newest first: id, name, and what they contain."""
    with _failing():
        for row in server.list_labels(" ".join(words)):
            click.echo(f"{row.id}  {row.name}  ({row.detail})")


@command.command("freeze", short_help="Create a dataset from labels.")
@click.argument("labels_id", metavar="ID")
@click.argument("name")
@click.option("--width", type=int, help="Width of the images in pixels.  [default: recommended]")
@click.option("--height", type=int, help="Height of the images in pixels.  [default: recommended]")
@click.pass_obj
def freeze(server: Client, labels_id: str, name: str, width: int | None, height: int | None) -> None:
    """Create a dataset called NAME from the labels so far, and print its id when it is done."""
    with _failing():
        dataset = server.freeze(labels_id, name, width=width, height=height)
        for warning in dataset.warnings:
            click.echo(warning, err=True)
        server.wait(dataset.id)
    click.echo(dataset.id)


@contextmanager
def _failing() -> Iterator[None]:
    from digits.core.errors import DigitsError

    try:
        yield
    except DigitsError as error:
        fail(error.message, error.hint)
