"""``digits.pretrained``: pretrained models as parts of a network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from digits.core import pretrained_files
from digits.data.models.pretrained_catalog import CATALOG, Pretrained
from digits.worker import build_context
from digits.worker.build_context import PretrainedParts
from digits.worker.failure import UserFault, first_line
from digits.worker.network import applications, job_export, loading
from digits.worker.network.variables import plain, plain_name


def pretrained(
    source: Any, *, include_top: bool = False, pooling: str | None = "avg"
) -> Callable[[Any], Any]:
    """Return a function of a batch that computes the features of a pretrained model.

    ``source`` is the name of a network with ImageNet weights, such as ``resnet50``; the path of a Keras model
    (``.keras`` or ``.h5``); the folder of a SavedModel; or the id of another model job, optionally followed by ``/``
    and the epoch or the name of a snapshot, for its export as one of these. A relative path starts at the folder
    of the network's file.

    - A network with ImageNet weights takes images of pixels from 0 to 255, float32 [N, H, W, 1 or 3], which it
      preprocesses itself. It returns features, float32 [N, C], their maps [N, H, W, C] (of a transformer, its tokens
      [N, T, C]) if ``pooling`` is None, or the logits of ImageNet's 1000 classes if ``include_top``. A training loads
      its weights before the first step.
    - A Keras model takes what it was trained with. Without ``include_top``, it returns the input of its last layer
      with weights.
    - A SavedModel takes and returns what its call or its signature ``serving_default`` does; it is not trained.

    Batch normalization uses its moving averages and dropout is off, also during training. In fine-tuning, the model
    is the trunk. Raises UserFault if there is no such model.
    """
    name = str(source)
    if name in CATALOG:
        return _application(CATALOG[name], include_top, pooling)
    path, title = _path(name), Path(name).name
    if match := job_export.NAME.fullmatch(name):
        context = build_context.current()
        path = job_export.exported(match[1], match[2], (context.folder, context.dataset))
        title = f"the job {name}"
    if (path / "saved_model.pb").is_file():
        return _saved_model(path, title)
    if path.suffix in pretrained_files.KERAS_SUFFIXES and path.is_file():
        return _keras_model(path, title, include_top)
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


def _parts() -> PretrainedParts:
    """Return the collection of the pretrained models of the network; an unused one outside of its class."""
    parts = build_context.current().pretrained
    return PretrainedParts() if parts is None else parts


def _application(entry: Pretrained, include_top: bool, pooling: str | None) -> Callable[[Any], Any]:
    _parts().imagenet.add(entry.id)

    def features(x: Any) -> Any:
        color = x if x.shape[3] == 3 else tf.repeat(x, 3, axis=3)
        shape = (*x.shape[1:3], 3)
        net = applications.build(entry, shape, include_top=include_top, pooling=pooling)
        return net(applications.preprocess(entry, color), training=False)

    return features


def _saved_model(path: Path, title: str) -> Callable[[Any], Any]:
    model = loading.saved_model(path)
    _parts().frozen.add(title)
    if callable(model):
        return lambda x: model(x)
    signature = model.signatures["serving_default"]

    def features(x: Any) -> Any:
        _, inputs = signature.structured_input_signature
        outputs = signature(**{next(iter(inputs)): x})
        return next(iter(outputs.values())) if len(outputs) == 1 else outputs

    return features


def _keras_model(path: Path, title: str, include_top: bool) -> Callable[[Any], Any]:
    try:
        model = keras.saving.load_model(path, compile=False, safe_mode=True)
    except ValueError as error:
        raise UserFault(
            f"digits.pretrained: {path.name} is not a Keras model: {first_line(error)}",
            "A file of weights alone can be chosen as initial weights of the training.",
        ) from error
    if not include_top:
        last = next((layer for layer in reversed(model.layers) if layer.weights), None)
        if last is None:
            raise UserFault(f"digits.pretrained: the model {path.name} has no layer with weights.")
        model = keras.Model(model.inputs, last.input, name=model.name)
    _parts().variables.update({plain_name(plain(variable)): title for variable in model.variables})
    return lambda x: model(x, training=False)
