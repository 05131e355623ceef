"""``digits train``: train a model job without the server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from digits.cli.compute_options import compute_of, compute_options
from digits.cli.exits import fail
from digits.cli.job_options import FOLDER, dataset_option, job_argument
from digits.core.compute import LOCAL, Compute
from digits.core.model_job import NETWORK_FILE

if TYPE_CHECKING:
    from digits.runtime.executors.cluster import ClusterExecutor


@click.command("train", short_help="Train a model job without the server.")
@job_argument
@dataset_option
@click.option("--output", metavar="DIR", type=FOLDER, help="Train from scratch in this folder.")
@compute_options
def command(job: Path, dataset: Path | None, output: Path | None, **compute: Any) -> None:
    """Train the model job in the folder JOB without the server.

    A training that was stopped or killed resumes. A finished one is repeated in a sibling folder. If JOB is the folder
    of a dataset, the recommended network is trained on it in a sibling folder.

    With --target slurm or ray, it runs on a cluster, with as many GPUs on each node as the recipe lists. JOB must then
    be in a folder that the nodes share.
    """
    from digits.core.errors import DigitsError
    from digits.core.files import UnreadableFile
    from digits.data import manifest
    from digits.runtime import standalone

    target = compute_of(compute)
    try:
        if (job / manifest.FILE_NAME).is_file() and not (job / NETWORK_FILE).exists():
            job, output = _recommended(job, output), None
        training = standalone.prepare(job, dataset, output)
    except (DigitsError, UnreadableFile, OSError) as error:
        fail(str(error), getattr(error, "hint", ""))
    start = f" from step {training.step}" if training.step else ""
    click.echo(f"Training in {training.job_folder}{start}")
    try:
        cluster = _cluster(target, training.job_folder.absolute().parent)
        went_well = standalone.train(training, click.echo, target, cluster)
    except DigitsError as error:
        fail(error.message, error.hint)
    if not went_well:
        fail(
            standalone.failure(training)
            or "The training was stopped. Run the same command again to resume it."
        )


def _cluster(compute: Compute, jobs_folder: Path) -> ClusterExecutor | None:
    """Return the cluster to train on, None for this machine; raises BadRequest if it is unknown or not configured."""
    from dataclasses import replace

    from digits.core.errors import BadRequest
    from digits.core.settings import read_process_settings
    from digits.runtime.executors.targets import configured_clusters

    if compute.target == LOCAL:
        return None
    settings = replace(read_process_settings(), jobs_dir=jobs_folder, slurm=compute.target == "slurm")
    if cluster := configured_clusters(settings).get(compute.target):
        return cluster
    hint = "Use local or slurm, or ray with DIGITS_RAY set to the address of its dashboard."
    raise BadRequest(f"there is no compute target “{compute.target}”", hint)


def _recommended(dataset: Path, output: Path | None) -> Path:
    """Prepare a training of the recommended network in ``output``, unless there is one; return its folder.

    Raises BadRequest or OSError.
    """
    from flask import Flask

    from digits.core.errors import BadRequest
    from digits.core.settings import read_process_settings
    from digits.data import manifest
    from digits.data.models.pretrained import WeightsPlaces
    from digits.kinds.advice.recommendation import facts_in, recommend
    from digits.runtime.devices import Devices
    from digits.web.models import network_settings

    folder = output or dataset.resolve().with_name(f"{dataset.resolve().name}-model")
    if (folder / NETWORK_FILE).exists():
        return folder
    settings = read_process_settings()
    places = WeightsPlaces(settings.weights_dir, settings.weights_sources)
    resources = network_settings.resources_of(Devices().list(), places)
    best = recommend(facts_in(manifest.load(dataset)), resources)
    if best is None:
        raise BadRequest("There is no standard network for this kind of dataset.", "Name a model job.")
    click.echo(best.reason)
    with Flask("digits").app_context():  # for the form
        network_settings.save_recommended(folder, best, dataset.resolve(), places, resources)
    return folder
