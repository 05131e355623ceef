"""Create dataset jobs."""

from __future__ import annotations

from pathlib import Path

from flask import request
from wtforms import Form

from digits.core.compute import Compute
from digits.core.recipe import CreateDataset
from digits.data.samples.catalog import Sample
from digits.kinds import kind_named
from digits.kinds.jobs import DatasetJob
from digits.web.security.sessions import current_username
from digits.web.services import services

SAMPLES_KIND = "image-classification"


def submit_dataset(
    folder: Path,
    recipe: CreateDataset,
    form: Form,
    compute: Compute = Compute(),  # noqa: B008 (immutable)
) -> DatasetJob:
    """Create and submit the job in ``folder``, with the name and the group in ``form`` and the user of this request."""
    job = DatasetJob.create(
        folder,
        recipe=recipe,
        name=form["dataset_name"].data.strip(),
        owner=current_username(request),
        group=(form["group_name"].data or "").strip(),
        compute=compute,
    )
    services().scheduler.submit(job)
    return job


def new_sample(folder: Path, sample: Sample) -> DatasetJob:
    """Create a job in ``folder`` of this request's user that downloads a sample and creates a dataset from it."""
    settings = services().settings
    make_recipe = kind_named(SAMPLES_KIND).load("recipe").for_sample
    recipe = make_recipe(sample, settings.samples_dir, [*settings.sample_mirrors])
    return DatasetJob.create(folder, recipe=recipe, name=sample.title, owner=current_username(request))
