"""Writes a trained network as a SavedModel, which TensorFlow Serving, TensorFlow Lite and others take.

Its signature ``serving_default`` takes ``images``, float32 [N, H, W, C], pixels of 0 to 255 as the dataset has them;
what is done to them before the network, such as taking off the mean, is inside. It gives all outputs of the network:
one as ``output``, those of a list as ``output_0`` and so on, those of a dict by their names. Beside it, in
``assets.extra``, lie the labels, the text of the network and a description. What was written is loaded again and
compared before it counts.
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

# Differences up to this part of the largest number come from adding up in another order.
TOLERANCE = 1e-4
COMPARED_IMAGES = 3

_OF_PYTHON = ("PyFunc", "PyFuncStateless", "EagerPyFunc")


def run(recipe: recipes.Export, task_folder: Path, events: EventLog) -> dict[str, Any]:
    """Write what ``recipe`` asks for. Raises UserFault, or whatever the network raises."""
    tf.config.set_visible_devices([], "GPU")
    events.append(Progressed(0.0, doing="Loading the snapshot"))
    model, target = Path(recipe.model), Path(recipe.target)
    if target.exists():
        raise UserFault(f"There is something in {target} already.", "Choose another folder.")
    found = trained.load(model, recipe.snapshot, Path(recipe.dataset))
    _check(found)
    events.append(Progressed(0.5, doing="Writing the model"))
    try:
        exported = _Exported(found)
        _save(exported, target)
        difference = _difference(found, target)
        if difference is None:
            events.append(
                Warned("The network draws random numbers, so what was written could not be compared.")
            )
        elif difference > TOLERANCE:
            raise UserFault(
                f"Loaded again, the model gives other numbers: they differ by {difference:.2g} of the largest.",
                "The network computes something that a SavedModel does not hold.",
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
    """What a SavedModel is made of: the variables and the function that computes with them."""

    def __init__(self, found: Trained) -> None:
        super().__init__()
        known = [*found.store.variables.values(), *found.store.local.values()]
        # The network may also ask for what is not its own, such as the number of the step.
        self._variables = list(
            {id(item): item for item in [*known, *found.traced.function.variables]}.values()
        )
        spec = tf.TensorSpec((None, *found.manifest.shape), tf.float32, name="images")
        self.predict = tf.function(
            lambda images: named(found.outputs(images)), autograph=False, input_signature=[spec]
        )
        self.signature = self.predict.get_concrete_function()


def named(outputs: Any, name: str = "output") -> dict[str, tf.Tensor]:
    """All tensors of a network's outputs by name: ``output``, ``output_0`` of a list, ``name`` of a dict."""
    if isinstance(outputs, dict):
        parts = {_plain(str(key)): item for key, item in outputs.items()}
    elif isinstance(outputs, (list, tuple)):
        parts = {f"{name}_{number}": item for number, item in enumerate(outputs)}
    else:
        return {} if outputs is None else {name: tf.convert_to_tensor(outputs)}
    return {whole: tensor for part, item in parts.items() for whole, tensor in named(item, part).items()}


def _plain(name: str) -> str:
    """``name`` with nothing in it that the names of outputs may not have."""
    return "".join(letter if letter.isalnum() and letter.isascii() else "_" for letter in name) or "output"


def _check(found: Trained) -> None:
    graph = found.traced.function.graph
    definition = graph.as_graph_def()
    nodes = [*definition.node, *(node for inner in definition.library.function for node in inner.node_def)]
    for node in nodes:
        if node.op in _OF_PYTHON:
            raise UserFault(
                "The network calls Python while it computes (tf.py_func), which a SavedModel cannot hold.",
                "Compute it with functions of TensorFlow.",
                numerics.line_that_created(graph, node.name) or None,
            )


def _save(exported: _Exported, target: Path) -> None:
    # Gradients of the network's own are not called for here, and they may be of Python.
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    try:
        tf.saved_model.save(exported, str(target), signatures=exported.signature, options=options)
    except (AssertionError, ValueError, TypeError) as error:
        reason = str(error).partition("\n")[0][:300]
        raise UserFault(
            f"The network cannot be written as a SavedModel: {reason}",
            "It may depend on something outside of it, such as a table or a loaded graph.",
        ) from error


def _difference(found: Trained, target: Path) -> float | None:
    """The largest difference to what the written model gives, as a part of the largest number; None for random ones."""
    try:
        return _difference_for(min(COMPARED_IMAGES, found.batch_size), found, target)
    except tf.errors.InvalidArgumentError:
        # A network that splits or reshapes its batch may require the training's batch size.
        return _difference_for(found.batch_size, found, target)


def _difference_for(count: int, found: Trained, target: Path) -> float | None:
    draw = np.random.default_rng(0).integers(0, 256, (count, *found.manifest.shape))
    images = tf.constant(draw, tf.float32)
    expected, again = named(found.outputs(images)), named(found.outputs(images))
    if _largest(expected, again) > TOLERANCE:
        return None
    return _largest(expected, tf.saved_model.load(str(target)).signatures["serving_default"](images=images))


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
    return {
        "input": {
            "name": "images",
            "shape": [None, *manifest.shape],
            "type": "float32",
            "range": [0, 255],
            "colors": "RGB" if manifest.channels == 3 else "gray",
            "resize_mode": manifest.resize_mode,
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
