"""``digits export``: write a trained model as a SavedModel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import humanize

from digits.cli.job_options import FOLDER, dataset_option, job_argument
from digits.cli.short_tasks import result_of


@click.command("export", short_help="Write a trained model as a SavedModel.")
@job_argument
@click.argument("target", metavar="DIR", type=FOLDER)
@dataset_option
@click.option("--epoch", type=float, help="Epoch of the snapshot.  [default: best]")
def command(job: Path, target: Path, dataset: Path | None, epoch: float | None) -> None:
    """Write the network of the model job in JOB with the weights of a snapshot as a SavedModel to DIR.

    The SavedModel is then loaded and its outputs are compared with the network's.
    """
    from digits.runtime import standalone

    result = result_of(lambda: standalone.export(job, target, epoch, dataset))
    click.echo(f"Exported {result['snapshot']} to {target} ({humanize.naturalsize(result['bytes'])})")
    click.echo(f"input {_signature(result['input'])}, 0 to 255")
    for name, output in result["outputs"].items():
        click.echo(f"output {name} {_signature(output)}")


def _signature(tensor: dict[str, Any]) -> str:
    """Return shape and type of ``tensor``, such as ``[any, 28, 28, 1] float32``."""
    shape = tensor["shape"]
    if shape is None:
        return f"of any shape, {tensor['type']}"
    return f"[{', '.join('any' if size is None else str(size) for size in shape)}] {tensor['type']}"
