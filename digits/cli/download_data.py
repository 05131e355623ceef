"""``digits download-data``: download a sample dataset as folders of images."""

from __future__ import annotations

from pathlib import Path

import click

from digits.cli.exits import fail, refuse
from digits.cli.job_options import FOLDER


@click.command("download-data", short_help="Download a sample dataset as folders of images.")
@click.argument("name", metavar="NAME")
@click.argument("folder", metavar="DIR", type=FOLDER)
@click.option("-c", "--clean", is_flag=True, help="Remove an earlier download from DIR first.")
def command(name: str, folder: Path, clean: bool) -> None:
    """Download the sample dataset NAME, such as mnist, into DIR, with one folder of images per class."""
    from digits.core.errors import DigitsError
    from digits.core.settings import SettingsError, read_process_settings
    from digits.data.samples import samples

    target = folder.expanduser().absolute()
    last = ""

    def show_progress(fraction: float, action: str) -> None:
        nonlocal last
        line = f"{action} ({int(fraction * 10) * 10}%)"
        if line != last:
            click.echo(line)
            last = line

    try:
        mirrors = read_process_settings().sample_mirrors
        if clean:
            samples.remove(target)
        samples.download(name, target, show_progress, mirrors=mirrors)
    except SettingsError as error:
        refuse(str(error))
    except DigitsError as error:
        fail(error.message, error.hint)
    click.echo(f"Dataset directory is {target}")
