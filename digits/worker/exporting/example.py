"""Generate the example program of an export: at most 15 lines, using NumPy, Pillow and the runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from digits.core.recipe import ExportFormat
from digits.data.images.conversion import FULL_BITS
from digits.kinds.network.targets import is_channels_first
from digits.worker.exporting.exported import input_name
from digits.worker.training.models.outputs import named, restore_structure
from digits.worker.training.models.trained import Trained

_RUN = {
    "savedmodel": (
        "import tensorflow as tf",
        [
            'model = tf.saved_model.load(str(next(Path(__file__).parent.rglob("saved_model.pb")).parent))',
            'found = model.signatures["serving_default"]({input}=tf.constant(inputs)).items()',
            "outputs = {{name: value.numpy() for name, value in found}}",
        ],
    ),
    "keras": (
        "import keras",
        [
            'found = keras.saving.load_model(Path(__file__).with_name("model.keras"))(inputs, training=False)',
            "outputs = {{name: keras.ops.convert_to_numpy(value) for name, value in {found}.items()}}",
        ],
    ),
    "litert": (
        "from ai_edge_litert.interpreter import Interpreter",
        [
            'runner = Interpreter(str(Path(__file__).with_name("model.tflite"))).get_signature_runner()',
            "outputs = runner({input}=inputs)",
        ],
    ),
    "onnx": (
        "import onnxruntime",
        [
            'session = onnxruntime.InferenceSession(Path(__file__).with_name("model.onnx"))',
            "names = [item.name for item in session.get_outputs()]",
            'outputs = dict(zip(names, session.run(names, {{"{input}": inputs}})))',
        ],
    ),
}
PACKAGES = {
    "savedmodel": "tensorflow",
    "keras": "keras tensorflow",
    "litert": "ai-edge-litert",
    "onnx": "onnxruntime",
}


def runtime_of(format_: ExportFormat) -> str:
    """Return the runtime of a format: ``savedmodel``, ``keras``, ``litert`` or ``onnx``."""
    return format_.partition("-")[0]


def example(model: Trained, format_: ExportFormat, batch: int, has_labels: bool) -> str:
    """Return the source code of the example, which predicts from the file given as its argument."""
    statement, run = _RUN[runtime_of(format_)]
    imports = ["import numpy as np", statement]
    lines = []
    if has_labels:
        lines.append('labels = Path(__file__).with_name("labels.txt").read_text("utf-8").splitlines()')
    shape = (1, *model.input_shape)
    if takes_image(model):
        imports.append("from image_conversion import prepare")
        manifest = model.manifest
        settings: tuple[Any, ...] = (
            *(manifest.width, manifest.height, manifest.channels),
            *(manifest.resize_mode, manifest.padding),
        )
        if manifest.bits != FULL_BITS:
            settings += (manifest.bits,)
        prepared = f"prepare(sys.argv[1], {', '.join(map(repr, settings))})"
        lines.append(f"inputs = {prepared}[np.newaxis].astype(np.float32)")
    else:
        lines.append(f"inputs = np.load(sys.argv[1]).astype(np.float32).reshape({shape})")
    if batch > 1:
        lines[-1] += f".repeat({batch}, axis=0)"
    lines += [line.format(input=input_name(model), found=_named_in_keras(model)) for line in run]
    name = main_output(model)
    if is_channels_first(_shapes(model)[name], model.targets.channels):
        lines.append(f'outputs["{name}"] = outputs["{name}"].transpose(0, 2, 3, 1)')
    lines += model.targets.example(name) if not model.traced.latent else [f'print(outputs["{name}"].shape)']
    if any("Image." in line for line in lines):
        imports.append("from PIL import Image")
    imports.sort(key=lambda line: line.split()[1].lower())
    return "\n".join(["import sys", "from pathlib import Path", *imports, *lines]) + "\n"


def main_output(model: Trained) -> str:
    """Return the name of the first output that the prediction depends on."""
    structure, outputs = model.traced.function.structured_outputs, _shapes(model)
    if len(outputs) == 1 or model.traced.latent:
        return next(iter(outputs))
    random = np.random.default_rng(0)
    zeros = {name: np.zeros([size or 1 for size in shape], np.float32) for name, shape in outputs.items()}

    def predict(values: dict[str, Any]) -> Any:
        restored = restore_structure(structure, values)
        return model.targets.predict(tf.nest.map_structure(tf.constant, restored)).numpy()

    before = predict(zeros)
    for name, value in zeros.items():
        changed = random.normal(size=value.shape).astype(np.float32)
        after = predict({**zeros, name: changed})
        if after.shape != before.shape or not np.array_equal(after, before):
            return name
    return next(iter(outputs))


def _shapes(model: Trained) -> dict[str, list[int | None]]:
    """Return the shapes of all outputs by name; that of one with an unknown number of dimensions is empty."""
    outputs = named(model.traced.function.structured_outputs)
    return {
        name: tensor.shape.as_list() if tensor.shape.rank is not None else []
        for name, tensor in outputs.items()
    }


def _named_in_keras(model: Trained) -> str:
    """Return an expression that maps ``found``, the result of a Keras model, to a dict of outputs by name."""
    structure = model.traced.function.structured_outputs
    if isinstance(structure, dict):
        return "found"
    if isinstance(structure, (list, tuple)):
        return '{f"output_{place}": value for place, value in enumerate(found)}'
    return '{"output": found}'


def takes_image(model: Trained) -> bool:
    """Return whether the example reads an image file, for which it needs the module `image_conversion`."""
    manifest = model.manifest
    is_image = manifest.dtype == "uint8" and manifest.channels in (1, 3)
    return is_image and not model.traced.latent and model.targets.takes_image
