"""Export a trained network as a SavedModel, Keras model, LiteRT file or ONNX file.

The input is ``images``, float32 [N, H, W, C], with values from 0 to 255 and the size of the dataset; preprocessing such
as mean subtraction is part of the model. A network that generates images takes ``vectors``, float32 [N, size]. All
outputs are exported: ``output``, ``output_0`` and so on for a list, or the keys of a dict. The file is loaded in its
own runtime and compared with the network on images of the dataset; the task fails if they differ.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import shutil
import time
from pathlib import Path
from typing import Any

import msgspec
import tensorflow as tf

from digits.core import recipe as recipes
from digits.core import snapshot_list
from digits.core.events import EventLog, Progressed, Warned
from digits.core.files import publish_folder, remove_tree, tree_bytes, write_json
from digits.data.images import conversion as image_conversion
from digits.data.models import export as exports
from digits.data.models.export import FORMATS, LABELS_FILE, ModelExport
from digits.worker import environment
from digits.worker.exporting import (
    conversion,
    example,
    images,
    keras_model,
    metadata,
    model_card,
    verification,
)
from digits.worker.exporting.exported import (
    Exported,
    LayerOutputs,
    NotExportable,
    ServedModel,
    check_is_exportable,
    required_batch,
)
from digits.worker.exporting.verification import TOLERANCE, RuntimeRefusal, Verified
from digits.worker.failure import NETWORK_FILE, UserFault
from digits.worker.tasks import background
from digits.worker.training.models import trained
from digits.worker.training.models.trained import Trained
from digits.worker.training.weights import snapshots

ABOUT_FILE = "model.json"
VERIFIED_IMAGES = 50
CALIBRATION_IMAGES = 100
# Formats that must match the network; for float16 and int8, the difference is only reported.
EXACT = ("savedmodel", "keras", "litert", "onnx")


def run(recipe: recipes.Export, task_folder: Path, events: EventLog) -> dict[str, Any]:
    """Export the model of ``recipe``; return its description. Raises UserFault and exceptions of the network."""
    background.begin(events, "Loading the snapshot")
    target = Path(recipe.target)
    if target.exists() and not recipe.replace:
        raise UserFault(f"The folder {target} is not empty.", "Choose another folder.")
    # Write to a temporary folder and rename it, so that incomplete exports are never visible.
    folder = target.with_name(f".{target.name}.partial")
    remove_tree(folder)
    try:
        with background.reporting_full_disk("the export"):
            folder.mkdir(parents=True)
            result = _Export(recipe, folder, events).write()
            publish_folder(folder, target)
    except NotExportable as fault:
        refusal = exports.Refusal(message=fault.message, hint=fault.hint, line=fault.line)
        exports.refuse(Path(recipe.model), recipe.format, refusal)
        raise
    finally:
        remove_tree(folder, ignore_errors=True)
    return result


class _Export:
    """Writes the export of ``recipe`` into ``folder``."""

    def __init__(self, recipe: recipes.Export, folder: Path, events: EventLog) -> None:
        self._recipe, self._folder, self._events = recipe, folder, events
        self._model, self._dataset = Path(recipe.model), Path(recipe.dataset)
        self._format = FORMATS[recipe.format]
        self._file = folder / self._format.file

    def write(self) -> dict[str, Any]:
        began = time.monotonic()
        model = trained.load(self._model, self._recipe.snapshot, self._dataset)
        check_is_exportable(model)
        batch = required_batch(model)
        try:
            exported, verified, used = self._convert_and_verify(model, batch)
        except RuntimeRefusal:
            # TensorFlow accepts some batch sizes that other runtimes reject, because it prunes operations.
            if batch == model.batch_size:
                raise
            exported, verified, used = self._convert_and_verify(model, model.batch_size)
        self._check(model, verified, used)
        self._events.append(Progressed(0.95, doing="Writing the model card"))
        return self._describe(model, exported, verified, began, used)

    def _convert_and_verify(
        self, model: Trained, batch: int
    ) -> tuple[Exported, Verified, tuple[int, str, int]]:
        self._events.append(Progressed(0.2, doing=f"Converting to {self._format.title}"))
        exported = self._convert(model, batch)
        self._events.append(Progressed(0.6, doing="Comparing the outputs"))
        inputs, source = images.verification_images(model, self._dataset, VERIFIED_IMAGES, batch)
        runtime = example.runtime_of(self._recipe.format)
        verified = verification.verify(model, self._file, runtime, inputs, batch)
        return exported, verified, (len(inputs), source, batch)

    def _convert(self, model: Trained, batch: int) -> Exported:
        runtime, _, precision = self._recipe.format.partition("-")
        if runtime == "savedmodel":
            served = ServedModel(model)
            conversion.write_saved_model(served, self._folder)
            return served
        if runtime == "keras":
            keras_model.write_keras(model, self._file)
            return Exported(model)
        exported = Exported(model, batch if batch > 1 else None)
        if runtime == "onnx":
            conversion.write_onnx(exported, model, self._file)
        else:
            calibration = None
            if precision == "int8":
                calibration = images.calibration_images(model, self._dataset, CALIBRATION_IMAGES, batch)
            conversion.write_litert(exported, model, self._file, precision or "float32", calibration)
        return exported

    def _check(self, model: Trained, verified: Verified, used: tuple[int, str, int]) -> None:
        if verified.difference is None:
            self._events.append(
                Warned("The network uses random numbers, so the exported model could not be verified.")
            )
        elif not math.isfinite(verified.difference):
            raise UserFault(
                f"The exported model does not work in {verified.runtime}: its output “{verified.worst_output}” "
                "has a different shape, or contains NaN or infinity where the network returns finite values.",
                "Choose another format, such as one in float32.",
            )
        elif self._recipe.format in EXACT and verified.difference > TOLERANCE:
            layer = self._differing_layer(model, used[2])
            where = f" The first layer that differs is “{layer}”." if layer else ""
            raise UserFault(
                f"The exported model returns different values in {verified.runtime}: its output "
                f"“{verified.worst_output}” differs by {verified.difference:.2g} relative to the largest value.{where}",
                f"The network contains a computation that {self._format.title} does not reproduce. "
                "Choose another format.",
            )

    def _differing_layer(self, model: Trained, batch: int) -> str:
        """Return the name of the first layer that differs in LiteRT or ONNX; empty if unknown."""
        runtime = example.runtime_of(self._recipe.format)
        if runtime not in ("litert", "onnx") or model.traced.latent:
            return ""
        self._events.append(Progressed(0.8, doing="Searching for the layer that differs"))
        inputs, _ = images.verification_images(model, self._dataset, batch, batch)
        with contextlib.suppress(UserFault):  # such as an output of a layer that cannot be converted
            layers = LayerOutputs(model, batch if batch > 1 else None)
            if runtime == "onnx":
                conversion.write_onnx(layers, model, self._file)
            else:
                conversion.write_litert(layers, model, self._file, "float32")
            return verification.differing_layer(layers, self._file, runtime, inputs)
        return ""

    def _describe(
        self,
        model: Trained,
        exported: Exported,
        verified: Verified,
        began: float,
        images_used: tuple[int, str, int],
    ) -> dict[str, Any]:
        recipe, manifest = self._recipe, model.manifest
        count, source, batch = images_used
        snapshot = next(item for item in snapshot_list.read(self._model) if item.name == recipe.snapshot)
        about = _about(model, exported)
        labels = about["labels"]
        if labels:
            (self._folder / LABELS_FILE).write_text(metadata.labels_text(labels))
        (self._folder / exports.EXAMPLE_FILE).write_text(
            example.example(model, recipe.format, batch, bool(labels))
        )
        if example.takes_image(model):
            shutil.copyfile(image_conversion.__file__, self._folder / exports.CONVERSION_FILE)
        if recipe.format == "savedmodel":
            details = {"snapshot": recipe.snapshot, **about}
            _write_extra(self._model / NETWORK_FILE, self._folder / exports.SAVED_MODEL_EXTRA_FOLDER, details)
            name = exports.SERVED_FOLDER
            (self._folder / exports.SERVING_FILE).write_text(model_card.serving_config(name))
        size = tree_bytes(self._folder)
        result = ModelExport(
            format=recipe.format,
            snapshot=recipe.snapshot,
            epoch=snapshot.epoch,
            step=snapshots.step_of(self._model / recipe.snapshot),
            dataset_id=self._dataset.name,
            content_hash=manifest.content_hash,
            weights_hash=exports.weights_hash(self._model, recipe.snapshot),
            file=self._format.file,
            bytes=size,
            sha256=hashlib.sha256(self._file.read_bytes()).hexdigest(),
            difference=verified.difference,
            agreement=verified.agreement,
            images=count,
            source=source,
            batch=batch,
            any_batch=verified.any_batch,
            milliseconds=verified.milliseconds,
            runtime=verified.runtime,
            machine=environment.machine(),
            seconds=round(time.monotonic() - began, 2),
            input=about["input"],
            outputs=about["outputs"],
            signatures=[*exported.functions] if isinstance(exported, ServedModel) else [],
        )
        sources = model_card.Sources(self._model, self._dataset, snapshot)
        (self._folder / exports.CARD_FILE).write_text(model_card.model_card(model, sources, result))
        write_json(
            self._folder / exports.FILE_NAME, {"schema": 1, **msgspec.to_builtins(result)}, type(result)
        )
        return {**about, **msgspec.to_builtins(result)}


def _about(model: Trained, exported: Exported) -> dict[str, Any]:
    return {
        **metadata.describe(model, exported),
        "parameters": model.store.parameters,
        "tensorflow": tf.__version__,
    }


def _write_extra(network: Path, extra: Path, about: dict[str, Any]) -> None:
    """Write the network, labels and description to the ``assets.extra`` folder of a SavedModel."""
    extra.mkdir()
    shutil.copyfile(network, extra / NETWORK_FILE)
    if about["labels"]:
        (extra / LABELS_FILE).write_text(metadata.labels_text(about["labels"]))
    write_json(extra / ABOUT_FILE, about)
