"""``digits train``: train a model job without the server."""

from __future__ import annotations

from pathlib import Path

import click

from digits.cli.exits import fail
from digits.cli.job_options import FOLDER, dataset_option, job_argument


@click.command("train", short_help="Train a model job without the server.")
@job_argument
@dataset_option
@click.option("--output", metavar="DIR", type=FOLDER, help="Train from scratch in this folder.")
def command(job: Path, dataset: Path | None, output: Path | None) -> None:
    """Train the model job in the folder JOB without the server.

    A training that was stopped or killed resumes. A finished one is repeated in a sibling folder.
    """
    from digits.core.errors import DigitsError
    from digits.runtime import standalone

    try:
        training = standalone.prepare(job, dataset, output)
    except (DigitsError, OSError) as error:
        fail(str(error), getattr(error, "hint", ""))
    start = f" from step {training.step}" if training.step else ""
    click.echo(f"Training in {training.job_folder}{start}")
    if not standalone.train(training, say=click.echo):
        fail(
            standalone.failure(training)
            or "The training was stopped. Run the same command again to resume it."
        )
