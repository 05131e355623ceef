"""Import a model trained elsewhere: build its network, restore its weights and save them as a snapshot.

The result is the folder of a finished model job, with the network, a snapshot, the mean image, and the manifest of an
empty dataset.
"""

from __future__ import annotations

import contextlib
import io
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from digits.core import pretrained_files, snapshot_list
from digits.core import recipe as recipes
from digits.core.events import Built, EventLog, Finished, Progressed
from digits.core.files import UnreadableFile, remove_tree, write_bytes
from digits.core.model_job import NETWORK_FILE
from digits.core.recipe import Augment
from digits.core.snapshot_list import Snapshot
from digits.core.task import EVENTS_FILE
from digits.data.archives import unpacking
from digits.data.archives.unpacking import ENDINGS, Limits
from digits.data.archives.zip_names import ArchiveError
from digits.data.manifest import LABELS_FILE, MEAN_ARRAY_FILE
from digits.data.models.archive import CHECKPOINT_SUFFIX, ArchiveProblem
from digits.data.sources.plan import UnusableSource
from digits.worker import network_loader
from digits.worker.failure import UserFault
from digits.worker.importing.archive import from_archive, is_archive
from digits.worker.importing.description import Description, complete_target
from digits.worker.importing.model_files import from_files
from digits.worker.input import feeds
from digits.worker.network import inference
from digits.worker.network.variables import VariableStore
from digits.worker.tasks import background
from digits.worker.training.models.trained import TRAIN_FOLDER
from digits.worker.training.weights import restore, snapshots

MAX_ARCHIVE_RATIO = 1000.0


def run(recipe: recipes.ImportModel, task_folder: Path, events: EventLog) -> dict[str, Any]:
    """Import the model of ``recipe``.

    Raises UserFault if files are missing or do not match, and any exception that the network raises.
    """
    background.hide_gpus()
    target = Path(recipe.target)
    try:
        with _opened(recipe, task_folder, events) as source:
            events.append(Progressed(fraction=0.3, seconds_left=None, doing="Building the network"))
            description = (
                from_archive(source) if source.is_dir() and is_archive(source) else from_files(recipe, source)
            )
            return _write(description, target)
    except ArchiveProblem as problem:
        raise UserFault(problem.message, problem.hint) from problem
    except UnreadableFile as error:
        raise UserFault(f"The model cannot be read: {error}.") from error
    except UnusableSource as error:
        raise UserFault(error.sentences) from error


@contextlib.contextmanager
def _opened(recipe: recipes.ImportModel, task_folder: Path, events: EventLog) -> Iterator[Path]:
    """Yield the folder or file that contains the weights, unpacking archives to a temporary folder."""
    source = Path(recipe.source)
    if source.is_dir() or not _is_packed(source):
        yield source
        return
    folder = task_folder / "unpacked"
    events.append(Progressed(fraction=0.0, seconds_left=None, doing="Unpacking the archive"))
    try:
        unpacking.unpack(source, folder, Limits(recipe.max_bytes, recipe.max_files, MAX_ARCHIVE_RATIO))
    except ArchiveError as error:
        raise UserFault(str(error)) from error
    try:
        yield folder
    finally:
        remove_tree(folder, ignore_errors=True)


def _is_packed(file: Path) -> bool:
    """Return whether ``file`` is to be unpacked: by its content, because programs upload archives under any name."""
    if file.name.lower().endswith(tuple(f".{ending}" for ending in ENDINGS)):
        return True
    # A Keras file is a zip file, too.
    is_model = file.suffix.lower() in (*pretrained_files.KERAS_SUFFIXES, ".pb")
    return not is_model and file.is_file() and (zipfile.is_zipfile(file) or tarfile.is_tarfile(file))


def _write(description: Description, target: Path) -> dict[str, Any]:
    """Write the job files to ``target``, including the event log of a finished task."""
    manifest = description.manifest
    write_bytes(target / NETWORK_FILE, description.network.encode())
    if description.folder:
        pretrained_files.copy(description.folder, target)
    file = io.BytesIO()
    np.save(file, description.mean_image, allow_pickle=False)
    write_bytes(target / MEAN_ARRAY_FILE, file.getvalue())
    if manifest.target.labels:
        write_bytes(target / LABELS_FILE, "".join(f"{name}\n" for name in manifest.target.labels).encode())
    training = recipes.Train(
        dataset=str(target),
        mean=description.mean,
        crop_size=description.crop_size,
        augment=Augment(whitening=description.whitening),
    )
    prepare = feeds.preparation(manifest, target, training.mean, training.crop_size, training.augment)
    net = network_loader.load_for(manifest, target, target / NETWORK_FILE, prepare.shape)
    store = VariableStore()
    traced, fault = inference.trace_for_display(net, store)
    if fault is not None:
        raise fault
    complete_target(manifest, traced.built.output)
    step = 0
    if description.weights is not None:
        restored = restore.restore(description.weights, store.variables)
        if restored.missing or restored.other_shape:
            raise UserFault(
                f"The weights do not match the network. {restored.remark}",
                "Use the network and the image size that the weights were trained with.",
            )
        if Path(f"{description.weights}{CHECKPOINT_SUFFIX}").is_file():
            step = snapshots.step_of(description.weights)
    prefix = snapshots.prefix(target, description.epoch)
    snapshots.save(prefix, store.variables, step)
    snapshot_list.append(target, Snapshot(description.epoch, prefix.name), "")
    folder = target / TRAIN_FOLDER
    folder.mkdir(mode=0o700)
    training.save(folder)
    log = EventLog(folder / EVENTS_FILE)
    log.append(Built(layers=traced.layers, parameters=store.parameters, latent=traced.latent))
    log.append(Finished(result={"parameters": store.parameters}))
    log.close()
    manifest.save(target)
    return {"parameters": store.parameters, "epoch": description.epoch, "name": description.name}
