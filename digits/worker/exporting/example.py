"""Generate the example program of an export: at most 15 lines, using NumPy, Pillow and the runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from digits.core.recipe import ExportFormat
from digits.data.manifest import Manifest
from digits.worker.exporting.exported import input_name, named, restore_structure
from digits.worker.training.trained import Trained

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


def example(found: Trained, format_: ExportFormat, batch: int, has_labels: bool) -> str:
    """Return the source code of the example, which predicts from the file given as its argument."""
    statement, run = _RUN[runtime_of(format_)]
    imports = ["import numpy as np", statement]
    lines = []
    if has_labels:
        lines.append('labels = Path(__file__).with_name("labels.txt").read_text("utf-8").splitlines()')
    shape = (1, *found.input_shape)
    if _takes_image(found):
        imports.append("from PIL import Image, ImageOps")
        lines += _read_image(found.manifest)
        lines.append(f"inputs = np.asarray(image, np.float32).reshape({shape})")
    else:
        lines.append(f"inputs = np.load(sys.argv[1]).astype(np.float32).reshape({shape})")
    if batch > 1:
        lines[-1] += f".repeat({batch}, axis=0)"
    lines += [line.format(input=input_name(found), found=_named_in_keras(found)) for line in run]
    name = main_output(found)
    lines += found.targets.example(name) if not found.traced.latent else [f'print(outputs["{name}"].shape)']
    imports.sort(key=lambda line: line.split()[1].lower())
    return "\n".join(["import sys", "from pathlib import Path", *imports, *lines]) + "\n"


def main_output(found: Trained) -> str:
    """Return the name of the first output that the prediction depends on."""
    structure = found.traced.function.structured_outputs
    outputs = {name: tensor.shape for name, tensor in named(structure).items()}
    if len(outputs) == 1 or found.traced.latent:
        return next(iter(outputs))
    random = np.random.default_rng(0)
    zeros = {name: np.zeros([size or 1 for size in shape], np.float32) for name, shape in outputs.items()}

    def predict(values: dict[str, Any]) -> Any:
        restored = restore_structure(structure, values)
        return found.targets.predict(tf.nest.map_structure(tf.constant, restored)).numpy()

    before = predict(zeros)
    for name, value in zeros.items():
        changed = random.normal(size=value.shape).astype(np.float32)
        after = predict({**zeros, name: changed})
        if after.shape != before.shape or not np.array_equal(after, before):
            return name
    return next(iter(outputs))


def _named_in_keras(found: Trained) -> str:
    """Return an expression that maps ``found``, the result of a Keras model, to a dict of outputs by name."""
    structure = found.traced.function.structured_outputs
    if isinstance(structure, dict):
        return "found"
    if isinstance(structure, (list, tuple)):
        return '{f"output_{place}": value for place, value in enumerate(found)}'
    return '{"output": found}'


def _takes_image(found: Trained) -> bool:
    manifest = found.manifest
    is_image = manifest.dtype == "uint8" and manifest.channels in (1, 3)
    return is_image and not found.traced.latent and found.targets.takes_image


def _read_image(manifest: Manifest) -> list[str]:
    """Return the lines that read and resize an image like the dataset, up to rounding."""
    width, height, mode = manifest.width, manifest.height, manifest.resize_mode
    colors, shape = ("RGB", (height, width, 3)) if manifest.channels == 3 else ("L", (height, width))
    read = [f'image = ImageOps.exif_transpose(Image.open(sys.argv[1])).convert("{colors}")']
    if manifest.padding:
        across, down = manifest.padding
        read.append(f"image = image.crop((0, 0, max(image.width, {across}), max(image.height, {down})))")
    size, how = f"({width}, {height})", "Image.Resampling.BILINEAR"
    if mode == "squash":
        return [*read[:-1], f"{read[-1]}.resize({size}, {how})"]
    if mode == "crop":
        return [*read, f"image = ImageOps.fit(image, {size}, {how})"]
    ratios = f"image.width / {width}", f"image.height / {height}"
    ratio = f"max({', '.join(ratios)})" if mode == "fill" else f"(({' + '.join(ratios)}) / 2)"
    place = f"(({width} - image.width) // 2, ({height} - image.height) // 2)"
    return [
        *read,
        f"part = ImageOps.scale(image, 1 / {ratio}, {how})",
        f"image = Image.fromarray(np.random.default_rng(0).integers(0, 255, {shape}, np.uint8))",
        f"image.paste(part, {place.replace('image', 'part')})",
    ]
