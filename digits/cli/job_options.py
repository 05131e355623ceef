"""Parameters shared by the commands that run a job folder without the server."""

from __future__ import annotations

from pathlib import Path

import click

FOLDER = click.Path(path_type=Path)

job_argument = click.argument("job", metavar="JOB", type=FOLDER)
dataset_option = click.option(
    "--dataset", metavar="DIR", type=FOLDER, help="Folder of the dataset job, if it was moved."
)
