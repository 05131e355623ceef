"""The exported model of another job, for ``digits.pretrained``; exports it first if necessary.

The export runs in a separate process, because the network that requests it is being built in this one. It is kept in
the folder of the job, like those that users start, so that later builds of the network find it.
"""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from digits.core import events, job, snapshot_list
from digits.core import recipe as recipes
from digits.core.events import Failed
from digits.core.files import UnreadableFile, locked
from digits.core.recipe import ExportFormat
from digits.core.snapshot_list import Snapshot
from digits.core.task import EVENTS_FILE
from digits.data.models import export as model_export
from digits.worker import network_watch
from digits.worker.failure import UserFault

NAME = re.compile(rf"({job.ID})(?:/([^/]+))?")
# How long to wait for another network that exports a snapshot of the same job.
LOCK_SECONDS = 1800.0
_LOCK_FILE = ".exports.lock"
_TRAIN_FOLDER = "train"
_EPOCH = re.compile(r"\d+(?:\.\d+)?")
# In order of preference: Keras models can be trained.
_FORMATS: tuple[ExportFormat, ...] = ("keras", "savedmodel")
log = logging.getLogger(__name__)


def exported(job_id: str, snapshot: str | None, beside: Iterable[Path | None]) -> Path:
    """Return the export of a snapshot of the model job ``job_id``: a ``.keras`` file or the folder of a SavedModel.

    The job is in a folder that also contains one of those in ``beside``, such as the dataset's, directly or further
    down. ``snapshot`` is its name or its epoch. Without it, it is the best one that has been exported or, if none has
    been, the best one. Raises UserFault if there is no such snapshot, or if it cannot be exported.
    """
    candidates = (each / job_id for known in beside if known for each in known.parents)
    folder = next((each for each in candidates if os.path.isdir(each)), None)
    if folder is None:
        raise UserFault(
            f"digits.pretrained: there is no job {job_id} on this server.",
            "The folder of the job must be beside that of the dataset.",
        )
    chosen = _choose(folder, job_id, snapshot)
    if export := _find(folder, chosen):
        return export
    (folder / model_export.FOLDER).mkdir(exist_ok=True)
    try:
        with network_watch.excused(), locked(folder / _LOCK_FILE, LOCK_SECONDS):
            return _find(folder, chosen[:1]) or _export(folder, job_id, chosen[0].name)
    except TimeoutError as error:
        raise UserFault(
            f"digits.pretrained: another process has exported the job {job_id} for {LOCK_SECONDS / 60:.0f} minutes.",
            "Export a snapshot on the page of its model first.",
        ) from error


def _choose(folder: Path, job_id: str, snapshot: str | None) -> list[Snapshot]:
    """Return the snapshots that can be used, the preferred one first; at least one."""
    snapshots = snapshot_list.read(folder)
    default = snapshots.default
    if default is None:
        raise UserFault(
            f"digits.pretrained: the job {job_id} has no snapshots.", "Choose a model that has been trained."
        )
    if snapshot is None:
        return [default, *(each for each in snapshots if each is not default)]
    name = f"snapshot_{snapshot}.ckpt" if _EPOCH.fullmatch(snapshot) else snapshot
    chosen = [each for each in snapshots if each.name == name]
    if not chosen:
        epochs = ", ".join(f"{each.epoch:g}" for each in list(snapshots)[:8])
        raise UserFault(
            f"digits.pretrained: the job {job_id} has no snapshot {snapshot!r}.",
            f"The newest snapshots are from the epochs {epochs}: write {job_id}/{default.epoch:g}, for example.",
        )
    return chosen


def _find(folder: Path, chosen: list[Snapshot]) -> Path | None:
    """Return the first export of the ``chosen`` snapshots; None if there is none."""
    for snapshot in chosen:
        for format_ in _FORMATS:
            if export := model_export.find(folder, snapshot.name, format_):
                return _path(folder, snapshot.name, format_, export.file)
    return None


def _path(folder: Path, snapshot: str, format_: ExportFormat, file: str) -> Path:
    path = model_export.folder_of(folder, snapshot, format_)
    return path if format_ == "savedmodel" else path / file


def _export(folder: Path, job_id: str, snapshot: str) -> Path:
    """Export a snapshot as Keras or, if the network contains anything but Keras layers, as SavedModel."""
    try:
        dataset = Path(recipes.load(folder / _TRAIN_FOLDER, recipes.Train).dataset)
    except UnreadableFile as error:
        raise UserFault(f"digits.pretrained: the job {job_id} cannot be read: {error}") from error
    sibling = folder.with_name(dataset.name)  # the jobs may have been moved
    failures: list[Failed] = []
    for format_ in _FORMATS:
        log.info("Exporting %s of the job %s as %s", snapshot, job_id, model_export.FORMATS[format_].title)
        target = model_export.folder_of(folder, snapshot, format_)
        recipe = recipes.Export(
            model=str(folder),
            snapshot=snapshot,
            dataset=str(sibling if sibling.is_dir() else dataset),
            target=str(target),
            format=format_,
            replace=True,
        )
        failure = _run(recipe, folder)
        if failure is None:
            return _path(folder, snapshot, format_, model_export.FORMATS[format_].file)
        log.info("%s", failure.message)
        failures.append(failure)
    raise UserFault(
        f"digits.pretrained: {snapshot} of the job {job_id} cannot be used: {failures[-1].message}",
        failures[-1].hint,
    )


def _run(recipe: recipes.Export, folder: Path) -> Failed | None:
    """Run an export in a process whose working directory is ``folder``; return its failure, or None."""
    with tempfile.TemporaryDirectory() as task_folder:
        recipe.save(Path(task_folder))
        done = subprocess.run(
            [sys.executable, "-P", "-m", "digits.worker", task_folder],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # a failed attempt prints a traceback
            stderr=subprocess.DEVNULL,
            check=False,
        )
        log_events = events.read(Path(task_folder) / EVENTS_FILE)[0]
    failures = [event for event in log_events if isinstance(event, Failed)]
    if failures:
        return failures[-1]
    return Failed(message=f"Its export ended with exit code {done.returncode}.") if done.returncode else None
