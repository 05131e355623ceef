"""Exports a trained network as a SavedModel for TensorFlow Serving, TensorFlow Lite and other programs.

Its signature ``serving_default`` takes ``images``, float32 [N, H, W, C], pixels of 0 to 255 in the dataset's size;
preprocessing such as mean subtraction is part of the model. A network that generates images takes ``vectors``,
float32 [N, size]. It returns all outputs of the network: ``output``, or
``output_0`` and so on for a list, or the names of a dict. ``assets.extra`` contains the labels, the text of the
network and a description. The exported model is loaded again and compared with the network.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from digits.core import recipe as recipes
from digits.core.events import EventLog, Progressed, Warned
from digits.core.files import sync_tree, write_json
from digits.worker.failure import NETWORK_FILE, UserFault
from digits.worker.training import numerics, trained
from digits.worker.training.trained import Trained

EXTRA_FOLDER = "assets.extra"
LABELS_FILE = "labels.txt"
ABOUT_FILE = "model.json"

# Relative differences up to this size are due to another order of summation.
TOLERANCE = 1e-4
COMPARED_IMAGES = 3

_OF_PYTHON = ("PyFunc", "PyFuncStateless", "EagerPyFunc")


def run(recipe: recipes.Export, task_folder: Path, events: EventLog) -> dict[str, Any]:
    """Export the model of ``recipe``. Raises UserFault, or whatever the network raises."""
    tf.config.set_visible_devices([], "GPU")
    events.append(Progressed(0.0, doing="Loading the snapshot"))
    model, target = Path(recipe.model), Path(recipe.target)
    if target.exists():
        raise UserFault(f"The folder {target} is not empty.", "Choose another folder.")
    found = trained.load(model, recipe.snapshot, Path(recipe.dataset))
    _check(found)
    events.append(Progressed(0.5, doing="Writing the model"))
    try:
        exported = _Exported(found)
        _save(exported, target)
        difference = _difference(found, target)
        if difference is None:
            events.append(
                Warned("The network draws random numbers, so the exported model could not be verified.")
            )
        elif difference > TOLERANCE:
            raise UserFault(
                f"The exported model returns other values: they differ by {difference:.2g} of the largest value.",
                "The network contains a computation that a SavedModel cannot represent.",
            )
        about = {"snapshot": recipe.snapshot, **_about(found, exported)}
        _describe(model / NETWORK_FILE, target / EXTRA_FOLDER, about)
        sync_tree(target)
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise
    size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    return {**about, "difference": difference, "bytes": size}


class _Exported(tf.Module):
    """The contents of a SavedModel: the variables and the function that uses them."""

    def __init__(self, found: Trained) -> None:
        super().__init__()
        known = [*found.store.variables.values(), *found.store.local.values()]
        # The network may also use variables that it does not own, such as the step number.
        self._variables = list(
            {id(item): item for item in [*known, *found.traced.function.variables]}.values()
        )
        spec = tf.TensorSpec((None, *found.input_shape), tf.float32, name=_input_name(found))
        self.predict = tf.function(
            lambda values: named(found.outputs(values)), autograph=False, input_signature=[spec]
        )
        self.signature = self.predict.get_concrete_function()


def _input_name(found: Trained) -> str:
    return "vectors" if found.traced.latent else "images"


def named(outputs: Any, name: str = "output") -> dict[str, tf.Tensor]:
    """Return all tensors of a network's outputs by name: ``output``, ``output_0`` of a list, ``name`` of a dict."""
    if isinstance(outputs, dict):
        parts = {_plain(str(key)): item for key, item in outputs.items()}
    elif isinstance(outputs, (list, tuple)):
        parts = {f"{name}_{number}": item for number, item in enumerate(outputs)}
    else:
        return {} if outputs is None else {name: tf.convert_to_tensor(outputs)}
    return {whole: tensor for part, item in parts.items() for whole, tensor in named(item, part).items()}


def _plain(name: str) -> str:
    """Return ``name`` without the characters that names of outputs may not contain."""
    return "".join(letter if letter.isalnum() and letter.isascii() else "_" for letter in name) or "output"


def _check(found: Trained) -> None:
    graph = found.traced.function.graph
    definition = graph.as_graph_def()
    nodes = [*definition.node, *(node for inner in definition.library.function for node in inner.node_def)]
    for node in nodes:
        if node.op in _OF_PYTHON:
            raise UserFault(
                "The network calls Python while it computes (tf.py_func), which a SavedModel cannot contain.",
                "Use TensorFlow functions instead.",
                numerics.line_that_created(graph, node.name) or None,
            )


def _save(exported: _Exported, target: Path) -> None:
    # Custom gradients are not needed here, and may call Python.
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    try:
        tf.saved_model.save(exported, str(target), signatures=exported.signature, options=options)
    except (AssertionError, ValueError, TypeError) as error:
        reason = str(error).partition("\n")[0][:300]
        raise UserFault(
            f"The network cannot be exported as a SavedModel: {reason}",
            "It may depend on an external resource, such as a table or a loaded graph.",
        ) from error


def _difference(found: Trained, target: Path) -> float | None:
    """Return the largest difference to the exported model, relative to the largest value; None for random
    outputs.
    """
    try:
        return _difference_for(min(COMPARED_IMAGES, found.batch_size), found, target)
    except tf.errors.InvalidArgumentError:
        # A network that splits or reshapes its batch may require the training's batch size.
        return _difference_for(found.batch_size, found, target)


def _difference_for(count: int, found: Trained, target: Path) -> float | None:
    random, shape = np.random.default_rng(0), (count, *found.input_shape)
    drawn = random.normal(size=shape) if found.traced.latent else random.integers(0, 256, shape)
    values = tf.constant(drawn, tf.float32)
    expected, again = named(found.outputs(values)), named(found.outputs(values))
    if _largest(expected, again) > TOLERANCE:
        return None
    exported = tf.saved_model.load(str(target)).signatures["serving_default"]
    return _largest(expected, exported(**{_input_name(found): values}))


def _largest(expected: dict[str, Any], given: dict[str, Any]) -> float:
    if set(given) != set(expected):
        return float("inf")
    return max((_apart(given[name].numpy(), value.numpy()) for name, value in expected.items()), default=0.0)


def _apart(one: Any, other: Any) -> float:
    if one.shape != other.shape:
        return float("inf")
    if not one.size or np.array_equal(one, other, equal_nan=one.dtype.kind in "fc"):
        return 0.0
    scale = max(float(np.abs(other).max()), 1e-12)
    return float(np.abs(one.astype(np.float64) - other.astype(np.float64)).max()) / scale


def _about(found: Trained, exported: _Exported) -> dict[str, Any]:
    manifest = found.manifest
    pixels = {
        "range": [0, 255] if manifest.dtype == "uint8" else None,
        "colors": "RGB" if manifest.channels == 3 else "gray",
        "resize_mode": manifest.resize_mode,
    }
    return {
        "input": {
            "name": _input_name(found),
            "shape": [None, *found.input_shape],
            "type": "float32",
            **({} if found.traced.latent else pixels),
        },
        "outputs": {
            name: {
                "shape": spec.shape.as_list() if spec.shape.rank is not None else None,
                "type": spec.dtype.name,
            }
            for name, spec in exported.signature.structured_outputs.items()
        },
        "target": {"names": manifest.target.names, "classes": manifest.target.classes},
        "labels": manifest.target.labels,
        "parameters": found.store.parameters,
        "tensorflow": tf.__version__,
    }


def _describe(network: Path, extra: Path, about: dict[str, Any]) -> None:
    extra.mkdir()
    shutil.copyfile(network, extra / NETWORK_FILE)
    if about["labels"]:
        (extra / LABELS_FILE).write_text("".join(f"{label}\n" for label in about["labels"]))
    write_json(extra / ABOUT_FILE, about)
