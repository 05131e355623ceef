"""``digits export``: write a trained model in another format."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import click
import humanize

from digits.cli.job_options import FOLDER, dataset_option, job_argument
from digits.cli.short_tasks import result_of
from digits.core.recipe import ExportFormat


@click.command("export", short_help="Write a trained model as SavedModel, Keras, LiteRT or ONNX.")
@job_argument
@click.argument("target", metavar="DIR", type=FOLDER)
@dataset_option
@click.option("--epoch", type=float, help="Epoch of the snapshot.  [default: best]")
@click.option(
    "--format",
    "format_",
    type=click.Choice(get_args(ExportFormat)),
    default="savedmodel",
    show_default=True,
    help="Format of the file.",
)
def command(
    job: Path, target: Path, dataset: Path | None, epoch: float | None, format_: ExportFormat
) -> None:
    """Write the network of the model job in JOB with the weights of a snapshot in another format to DIR.

    The file is then loaded in its own runtime, and its outputs for validation images are compared with the network's.
    DIR also contains the labels, a model card and an example.
    """
    from digits.runtime import standalone

    result = result_of(lambda: standalone.export(job, target, epoch, dataset, format_))
    click.echo(f"Exported {result['snapshot']} to {target} ({humanize.naturalsize(result['bytes'])})")
    click.echo(f"input {_signature(result['input'])}, 0 to 255")
    for name, output in result["outputs"].items():
        click.echo(f"output {name} {_signature(output)}")
    click.echo(_stamp(result))


def _signature(tensor: dict[str, Any]) -> str:
    """Return shape and type of ``tensor``, such as ``[any, 28, 28, 1] float32``."""
    shape = tensor["shape"]
    if shape is None:
        return f"of any shape, {tensor['type']}"
    return f"[{', '.join('any' if size is None else str(size) for size in shape)}] {tensor['type']}"


def _stamp(result: dict[str, Any]) -> str:
    """Return the result of the verification."""
    parts = [f"{result['runtime']}: {result['milliseconds']:.3g} ms per image"]
    if result["difference"] is not None:
        parts.append(f"differs by {result['difference']:.1g} of the largest output")
    if result["agreement"] is not None:
        parts.append(f"{100 * result['agreement']:.4g}% equal predictions")
    return ", ".join(parts)
