"""Import models into new jobs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flask import request

from digits.core.errors import BadRequest
from digits.core.model_job import ModelJob
from digits.core.recipe import ImportModel, Train
from digits.core.recipe import load as load_recipe
from digits.core.status import Status
from digits.core.task import Task
from digits.data import manifest as manifests
from digits.kinds import kind_named
from digits.kinds.views import views_of
from digits.runtime.offload import in_thread
from digits.web.security.sessions import current_username
from digits.web.services import services


def import_from(source: Path, name: str = "", group: str = "") -> ModelJob:
    """Import the model in an archive, or in a folder with the files of one, into a new job.

    Without a ``name``, the job has that of the model. Raises BadRequest if it cannot be imported.
    """
    return import_model(import_recipe(source), name, group)


def import_recipe(source: Path) -> ImportModel:
    settings = services().settings
    return ImportModel(
        source=str(source),
        target="",
        max_bytes=settings.max_upload_unpacked,
        max_files=settings.max_upload_files,
    )


def import_model(recipe: ImportModel, name: str = "", group: str = "") -> ModelJob:
    """Import the model of ``recipe`` into a new job. Raises BadRequest if it cannot be imported."""
    began = time.time()
    with services().store.creation() as new_folder:
        folder = new_folder()
        recipe.target = str(folder)
        result = services().short_tasks.run(recipe)
        failure = result.state.failure
        services().short_tasks.forget(result)
        if failure:
            # The other frames are those of the server.
            own = [dict(frame) for frame in failure.trace if frame["own"]]
            raise BadRequest(failure.message, failure.hint, own)
        manifest = in_thread(manifests.load, folder)
        kind = kind_named(manifest.kind)
        if not views_of(kind).predicts_from_image(manifest):
            raise BadRequest(
                f"Models for {kind.title.lower()} cannot be imported.",
                "Import a model that predicts from a single image.",
            )
        history = [
            (Status.INIT, began),
            (Status.WAIT, began),
            (Status.RUN, began),
            (Status.DONE, time.time()),
        ]
        job = ModelJob(
            id=folder.name,
            folder=folder,
            name=name or str((result.state.result or {}).get("name", "")) or "Imported model",
            owner=current_username(request),
            group=group,
            tasks=[Task(name="train", title="Import the model", history=list(history))],
            history=history,
            dataset_id=folder.name,
            recipe=load_recipe(folder / "train", Train),
        )
        services().scheduler.submit(job)
    return job


@contextmanager
def scratch() -> Iterator[Path]:
    """Yield a temporary folder on the same file system as the jobs, and discard it on exit."""
    folder = services().new_upload()
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        services().store.discard(folder)
