"""``digits.pretrained``: pretrained models as parts of a network."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from digits.core import job, pretrained_files, snapshot_list
from digits.core.recipe import ExportFormat
from digits.data import model_export
from digits.data.pretrained_catalog import CATALOG, Pretrained
from digits.worker import build_context
from digits.worker.failure import UserFault
from digits.worker.network import loading

_JOB = re.compile(rf"({job.ID})(?:/([^/]+))?")
# The first one can be trained.
_USABLE_FORMATS: tuple[ExportFormat, ...] = ("keras", "savedmodel")


def pretrained(
    source: Any, *, include_top: bool = False, pooling: str | None = "avg"
) -> Callable[[Any], Any]:
    """Return a function of a batch that computes the features of a pretrained model.

    ``source`` is the name of a network with ImageNet weights, such as ``resnet50``; the path of a Keras model
    (``.keras`` or ``.h5``); the folder of a SavedModel; or the id of another model job, optionally followed by ``/``
    and the name of a snapshot, for its export as one of these. Without a snapshot, it is the best one that has been
    exported. A relative path starts at the folder of the network's file.

    - A network with ImageNet weights takes images of pixels from 0 to 255, float32 [N, H, W, 1 or 3], which it
      preprocesses itself. It returns features, float32 [N, C], their maps [N, H, W, C] if ``pooling`` is None, or the
      logits of ImageNet's 1000 classes if ``include_top``. A training loads its weights before the first step.
    - A Keras model takes what it was trained with. Without ``include_top``, it returns the input of its last layer
      with weights.
    - A SavedModel takes and returns what its call or its signature ``serving_default`` does; it is not trained.

    Batch normalization uses its moving averages and dropout is off, in training, too. Raises UserFault if there is no
    such model.
    """
    name = str(source)
    if name in CATALOG:
        return _application(CATALOG[name], include_top, pooling)
    path = _exported(*match.groups()) if (match := _JOB.fullmatch(name)) else _path(name)
    if (path / "saved_model.pb").is_file():
        return _saved_model(path)
    if path.suffix in pretrained_files.KERAS_SUFFIXES and path.is_file():
        return _keras_model(path, include_top)
    raise UserFault(
        f"digits.pretrained: there is no pretrained model {name!r}.",
        f"Pass one of {', '.join(CATALOG)}, the path of a .keras or .h5 file, the folder of a SavedModel, or the id of "
        "a model job.",
    )


def _path(name: str) -> Path:
    folder = build_context.current().folder or Path()
    path = folder / name
    # Networks of earlier imports name the folder in which the model was imported.
    beside = folder / path.name
    return beside if not path.exists() and path.name in pretrained_files.NAMES else path


def _exported(job_id: str, snapshot: str | None) -> Path:
    """Return the exported model of a snapshot of the model job ``job_id``; raises UserFault if there is none."""
    # Tasks run in folders below that of the jobs.
    here = Path.cwd()
    folder = next((each / job_id for each in (here, *here.parents) if (each / job_id).is_dir()), None)
    if folder is None:
        raise UserFault(f"digits.pretrained: there is no job {job_id} on this server.")
    found = snapshot_list.read(folder)
    ordered = [found.best, *found] if found.best else list(found)
    names = [snapshot] if snapshot else [each.name for each in ordered]
    for name in names:
        for format_ in _USABLE_FORMATS:
            if export := model_export.find(folder, name, format_):
                path = model_export.folder_of(folder, name, format_)
                return path if format_ == "savedmodel" else path / export.file
    raise UserFault(
        f"digits.pretrained: {f'{snapshot} of the job' if snapshot else 'the job'} {job_id} has not been exported.",
        "Export it on its page as Keras, which can be trained further, or as SavedModel, which cannot.",
    )


def _application(entry: Pretrained, include_top: bool, pooling: str | None) -> Callable[[Any], Any]:
    requested = build_context.current().pretrained
    if requested is not None:
        requested.add(entry.id)

    def features(x: Any) -> Any:
        color = x if x.shape[3] == 3 else tf.repeat(x, 3, axis=3)
        top = {"classifier_activation": None} if include_top else {"pooling": pooling}
        net = getattr(keras.applications, entry.application)(
            weights=None, include_top=include_top, input_shape=(*x.shape[1:3], 3), **top
        )
        return net(_preprocess(entry, color), training=False)

    return features


def _preprocess(entry: Pretrained, x: tf.Tensor) -> tf.Tensor:
    """Convert RGB pixels of 0 to 255 to the input of the network; those that are not listed do this themselves."""
    if entry.id == "resnet50":
        return tf.reverse(x, [3]) - tf.constant([103.939, 116.779, 123.68], x.dtype)
    return x


def _saved_model(path: Path) -> Callable[[Any], Any]:
    model = loading.saved_model(path)
    if callable(model):
        return lambda x: model(x)
    signature = model.signatures["serving_default"]

    def features(x: Any) -> Any:
        _, inputs = signature.structured_input_signature
        outputs = signature(**{next(iter(inputs)): x})
        return next(iter(outputs.values())) if len(outputs) == 1 else outputs

    return features


def _keras_model(path: Path, include_top: bool) -> Callable[[Any], Any]:
    try:
        model = keras.saving.load_model(path, compile=False, safe_mode=True)
    except ValueError as error:
        raise UserFault(
            f"digits.pretrained: {path.name} is not a Keras model: {str(error).partition(chr(10))[0][:200]}",
            "A file of weights alone can be chosen as initial weights of the training.",
        ) from error
    if not include_top:
        last = next((layer for layer in reversed(model.layers) if layer.weights), None)
        if last is None:
            raise UserFault(f"digits.pretrained: the model {path.name} has no layer with weights.")
        model = keras.Model(model.inputs, last.input, name=model.name)
    return lambda x: model(x, training=False)
