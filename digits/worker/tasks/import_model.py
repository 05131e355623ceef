"""Import a model trained elsewhere: build its network, restore its weights and save them as a snapshot.

The result is the folder of a finished model job, with the network, a snapshot, the mean image, and the manifest of an
empty dataset.
"""

from __future__ import annotations

import contextlib
import io
import shutil
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from digits.core import pretrained_files, snapshot_list
from digits.core import recipe as recipes
from digits.core.events import Built, EventLog, Finished, Progressed
from digits.core.files import UnreadableFile, files_below, open_plain, read_bytes, remove_tree, write_bytes
from digits.core.model_job import NETWORK_FILE
from digits.core.recipe import Augment, Mean, ResizeMode
from digits.core.snapshot_list import Snapshot
from digits.core.task import EVENTS_FILE
from digits.data import caffe, images, model_archive, unpacking
from digits.data import manifest as manifests
from digits.data.manifest import LABELS_FILE, MEAN_ARRAY_FILE, Manifest
from digits.data.model_archive import CHECKPOINT_SUFFIX, ArchiveProblem
from digits.data.model_export import CONVERSION_FILE, EXAMPLE_FILE, SAVED_MODEL_EXTRA_FOLDER
from digits.data.sources import UnusableSource
from digits.data.targets.class_index import ClassIndex
from digits.data.targets.numbers import Numbers
from digits.data.targets.target import Target
from digits.data.unpacking import ENDINGS, MAX_LEVELS, ArchiveError, Limits
from digits.worker import network_loader
from digits.worker.failure import UserFault
from digits.worker.input import feeds
from digits.worker.network import inference
from digits.worker.network.variables import VariableStore
from digits.worker.tasks import background
from digits.worker.training.models.trained import TRAIN_FOLDER
from digits.worker.training.weights import restore, snapshots

SAVED_MODEL_FILE = "saved_model.pb"
# Models are searched for in subfolders down to this level, such as MODEL/VERSION in an unpacked archive.
MAX_SEARCHED_LEVELS = 3
# Outputs are considered probabilities if they sum to 1 within this tolerance.
SUM_TOLERANCE = 1e-3
MAX_ARCHIVE_RATIO = 1000.0

# The network that wraps a complete model, such as a SavedModel, whose architecture is part of the file.
_WRAPPER = '''{imports}class UserModel(Tower):
    """Wraps the imported model {source}."""

    @model_property
    def inference(self):
        model = digits.pretrained({path!r}, include_top=True)
        {answer}

    @model_property
    def loss(self):
        return digits.loss(self.inference, self.y)
'''
_ANSWERS = {
    False: "return model(self.x)",
    True: "return keras.ops.log(model(self.x) + 1e-9)  # probabilities to logits",
}


@dataclass(frozen=True)
class _Description:
    """The model to import: source code, weights if they are separate, and the expected images.

    ``folder`` contains the `pretrained_files` that the network loads, if they are not in the job's folder yet.
    """

    network: str
    weights: Path | None
    epoch: float
    manifest: Manifest
    mean_image: NDArray[np.float32]
    folder: Path | None = None
    mean: Mean = "none"
    crop_size: int | None = None
    whitening: bool = False
    name: str = ""


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
                _from_archive(source)
                if source.is_dir() and _is_archive(source)
                else _from_files(recipe, source)
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


def _is_archive(folder: Path) -> bool:
    """Return whether ``folder`` is an unpacked archive, rather than a SavedModel or checkpoint."""
    try:
        model_archive.find(folder)
    except ArchiveProblem:
        return False
    return True


def _from_archive(source: Path) -> _Description:
    folder = model_archive.find(source)
    info = model_archive.read(folder)
    assert info.network
    manifest = _manifest_in(folder, info)
    mean = np.zeros(manifest.shape, np.float32)
    if info.mean != "none":
        mean = _mean_in(folder, info, manifest)
        if not any(manifest.mean_pixel):
            manifest.mean_pixel = [float(value) for value in mean.mean(axis=(0, 1))]
    return _Description(
        network=_text(folder / info.network, folder),
        weights=folder / info.snapshot_file,
        epoch=model_archive.epoch_of(info.snapshot_file),
        manifest=manifest,
        mean_image=mean,
        mean=info.mean,
        crop_size=info.crop_size or None,
        whitening=info.whitening,
        name=info.name,
        folder=folder if info.pretrained_files else None,
    )


def _manifest_in(folder: Path, info: model_archive.Info) -> Manifest:
    """Return the manifest in the archive without its records, or one built from ``info``."""
    if (folder / manifests.FILE_NAME).is_file():
        manifest = manifests.load(folder)
        manifest.splits = {}
        return manifest
    if info.dimensions is None:
        raise ArchiveProblem(
            f"{model_archive.INFO_FILE} has no “image dimensions”.", "Add the height, width and channels."
        )
    labels = model_archive.labels_in(folder, info.labels_file) if info.labels_file else []
    height, width, channels = info.dimensions
    return _describe(labels, height, width, channels, info.resize_mode or "squash")


def _mean_in(folder: Path, info: model_archive.Info, manifest: Manifest) -> NDArray[np.float32]:
    """Return the mean image of the archive, float32 [H, W, C], with values from 0 to 255."""
    name = info.mean_file or MEAN_ARRAY_FILE
    path = folder / name
    if path.suffix == ".npy":
        with open_plain(path, below=folder) as file:
            try:
                mean = np.load(file, allow_pickle=False)
            except (ValueError, EOFError) as error:
                raise ArchiveProblem(
                    f"{name} is not a valid NumPy array.", "Download the model again."
                ) from error
    elif path.suffix == ".binaryproto":
        mean = caffe.read_mean(path, below=folder)
    else:
        mean = images.as_pixels(images.open_picture(path, manifest.channels).image)
        mean = mean.reshape(*mean.shape[:2], manifest.channels)
    if mean.shape != manifest.shape or mean.dtype.kind not in "fui":
        raise ArchiveProblem(
            f"The mean image {name} has the shape {list(mean.shape)}, but the images have {list(manifest.shape)}.",
            "Download the model again.",
        )
    return mean.astype(np.float32)


def _from_files(recipe: recipes.ImportModel, source: Path) -> _Description:
    """Describe the model in ``source`` with the settings of ``recipe``.

    If ``source`` is a folder, it may also contain the source code of the network and the class names (labels.txt).
    """
    weights = _weights_in(source)
    # From the model up to the source.
    folders = [
        folder for folder in (weights, *weights.parents) if folder.is_relative_to(source) and folder.is_dir()
    ]
    path = Path(recipe.network) if recipe.network else _network_in(folders)
    whole = None if path else _whole_model(weights)
    if path is None and whole is None:
        raise UserFault(
            f"{weights.name} contains weights but no network.",
            "Add the source code of the network, such as network.py.",
        )
    labels = recipe.labels
    if not labels:
        places = [*folders, weights / SAVED_MODEL_EXTRA_FOLDER]
        folder = next((each for each in places if (each / LABELS_FILE).is_file()), None)
        labels = model_archive.labels_in(folder, LABELS_FILE) if folder else []
    height, width, channels = _shape_of(recipe, whole)
    manifest = _describe(labels, height, width, channels, recipe.resize_mode)
    mean = np.zeros(manifest.shape, np.float32)
    if path is None:
        network = _wrap(weights, Path(recipe.target), whole, manifest)
        return _Description(network, None, 0.0, manifest, mean)
    return _Description(_text(path), weights, model_archive.epoch_of(weights.name), manifest, mean)


def _network_in(folders: Iterable[Path]) -> Path | None:
    """Return the Python file in the first of the ``folders`` that contains one, or None.

    Raises UserFault if there are several. Examples of exports are ignored.
    """
    files = (
        [path for path in sorted(folder.glob("*.py")) if path.name not in (EXAMPLE_FILE, CONVERSION_FILE)]
        for folder in folders
    )
    sources = next(filter(None, files), [])
    if len(sources) > 1:
        names = ", ".join(path.name for path in sources[:5])
        raise UserFault(
            f"The folder contains several Python files: {names}.", "Specify the one that defines the network."
        )
    return sources[0] if sources else None


def _weights_in(source: Path) -> Path:
    """Return the file, checkpoint prefix or SavedModel folder at ``source``, or the only one inside it.

    Those in subfolders count only if there is none above.
    """
    if source.is_file():
        return source.with_suffix("") if source.suffix in (CHECKPOINT_SUFFIX, ".meta") else source
    if _is_saved_model(source) or not source.is_dir():
        return source  # a prefix
    models: list[Path] = []
    folders = [source]
    for _ in range(1 + MAX_SEARCHED_LEVELS):
        inside = [path for folder in folders for path in sorted(folder.iterdir())]
        models += [path.with_suffix("") for path in inside if path.suffix == CHECKPOINT_SUFFIX]
        models += [path for path in inside if path.suffix in (*pretrained_files.KERAS_SUFFIXES, ".pb")]
        models += [path for path in inside if _is_saved_model(path)]
        if models:
            break
        folders = [path for path in inside if path.is_dir() and not path.is_symlink()]
    if len(models) == 1:
        return models[0]
    if not models:
        raise UserFault(
            "The folder or archive contains no model.",
            "Add a DIGITS archive (info.json), a checkpoint (.index), a SavedModel, or a .keras or .h5 file.",
        )
    names = ", ".join(path.name for path in models[:5])
    raise UserFault(f"The folder or archive contains several models: {names}.", "Specify one of them.")


def _is_saved_model(folder: Path) -> bool:
    return (folder / SAVED_MODEL_FILE).is_file()


def _whole_model(weights: Path) -> Any:
    """Load the model if the file includes its architecture, otherwise return None."""
    if _is_saved_model(weights):
        try:
            return tf.saved_model.load(str(weights))
        except Exception as error:  # TensorFlow raises many types
            reason = str(error).partition("\n")[0][:300]
            raise UserFault(f"The SavedModel {weights.name} cannot be read: {reason}") from error
    if weights.suffix not in pretrained_files.KERAS_SUFFIXES or weights.name.endswith(".weights.h5"):
        return None
    import keras

    try:
        return keras.saving.load_model(weights, compile=False, safe_mode=True)
    except Exception as error:  # Keras raises many types
        if weights.suffix != ".keras":  # an HDF5 file may contain weights alone
            return None
        reason = str(error).partition("\n")[0][:300]
        raise UserFault(f"The Keras model {weights.name} cannot be read: {reason}") from error


def _shape_of(recipe: recipes.ImportModel, whole: Any) -> tuple[int, int, int]:
    """Return the height, width and channels of the images, from the recipe or else from the model."""
    known = _input_shape(whole) if whole is not None else (None, None, None)
    height, width = recipe.height or known[0], recipe.width or known[1]
    if height is None or width is None:
        raise UserFault(
            "The model does not specify the size of its images.", "Enter the width and the height."
        )
    for name, given, own in (("height", recipe.height, known[0]), ("width", recipe.width, known[1])):
        if given and own and given != own:
            raise UserFault(
                f"The model requires images with a {name} of {own} pixels, not {given}.",
                f"Enter {own}, or leave the field empty.",
            )
    return height, width, known[2] or recipe.channels


def _input_shape(model: Any) -> tuple[int | None, int | None, int | None]:
    """Return the height, width and channels of a model's input images, with None for variable sizes."""
    shape: Any = getattr(model, "input_shape", None)
    if shape is None and getattr(model, "signatures", None):
        signature = model.signatures.get("serving_default")
        inputs = signature.structured_input_signature[1].values() if signature else []
        shape = next((tuple(spec.shape) for spec in inputs if spec.shape.rank == 4), None)
    if not isinstance(shape, tuple) or len(shape) != 4 or shape[3] not in (1, 3, None):
        raise UserFault(
            "The input of the model is not a batch of images, [N, height, width, 1 or 3].",
            "Add a network that converts the images to this input.",
        )
    return shape[1], shape[2], shape[3]


def _wrap(weights: Path, target: Path, model: Any, manifest: Manifest) -> str:
    """Copy a complete model to the job folder ``target``; return the source code of a network that calls it."""
    name = pretrained_files.NAME
    if weights.is_dir():
        for path in files_below(weights):
            inner = path.relative_to(weights)
            if len(inner.parts) > MAX_LEVELS:
                raise UserFault(f"The model contains more than {MAX_LEVELS} levels of folders.")
            _copy(path, target / name / inner)
    else:
        name += weights.suffix
        _copy(weights, target / name)
    noise = tf.random.uniform([4, *manifest.shape], maxval=255.0, seed=1)
    gives_probabilities = _gives_probabilities(model, noise)
    return _WRAPPER.format(
        imports="import keras\n\n\n" if gives_probabilities else "",
        source=weights.name.replace('"', "'"),
        path=name,
        answer=_ANSWERS[gives_probabilities],
    )


def _copy(path: Path, target: Path) -> None:
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open_plain(path) as file, open(target, "xb") as copy:
        shutil.copyfileobj(file, copy)


def _gives_probabilities(model: Any, batch: tf.Tensor) -> bool:
    """Return whether ``model`` returns class probabilities: nonnegative values that sum to 1."""
    if callable(model):
        output = model(batch)
    else:
        signature = model.signatures["serving_default"]
        name = next(iter(signature.structured_input_signature[1]))
        output = next(iter(signature(**{name: batch}).values()))
    values = np.asarray(output)
    return (
        values.ndim == 2
        and values.min() >= 0
        and bool(np.allclose(values.sum(axis=1), 1, atol=SUM_TOLERANCE))
    )


def _describe(labels: list[str], height: int, width: int, channels: int, resize_mode: ResizeMode) -> Manifest:
    """Return the manifest of an empty dataset: for classification if there are ``labels``, otherwise generic."""
    target: Target = ClassIndex.of(labels) if labels else Numbers.of(["output"], [], [])
    if channels not in (1, 3):
        raise UserFault(
            f"The model takes images with {channels} channels.",
            "Import a model for images with 1 or 3 channels.",
        )
    return Manifest(
        kind="image-classification" if labels else "generic",
        width=width,
        height=height,
        channels=channels,
        encoding="png",
        resize_mode=resize_mode,
        target=target,
        splits={},
        mean_pixel=[0.0] * channels,
    )


def _text(path: Path, below: Path | None = None) -> str:
    data = read_bytes(path, model_archive.MAX_NETWORK_BYTES, below=below)
    return data.decode("utf-8-sig", errors="replace").replace("\r\n", "\n")


def _write(description: _Description, target: Path) -> dict[str, Any]:
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
