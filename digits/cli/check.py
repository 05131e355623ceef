"""``digits check``: the preflight of a model job, in the terminal."""

from __future__ import annotations

from pathlib import Path

import click

from digits.cli.job_options import dataset_option, job_argument
from digits.cli.short_tasks import result_of


@click.command("check", short_help="Run the first training step of a model job.")
@job_argument
@dataset_option
@click.option(
    "--eager",
    is_flag=True,
    help="Run a few steps eagerly: print(tensor) shows values, breakpoint() starts the debugger.",
)
def command(job: Path, dataset: Path | None, eager: bool) -> None:
    """Run the first training step of the model job in the folder JOB and estimate the whole training.

    The folder is not changed.
    """
    from digits.core.results import preflight_result
    from digits.runtime import standalone

    result = result_of(lambda: standalone.check(job, dataset, eager))
    click.echo("\n".join(preflight_result.format_lines(result)))
