"""What a program must know to use an exported file, inside of the file.

An ONNX file has one entry of `metadata_props` for each part, whose value is JSON. A LiteRT file ends with a zip
archive, as files with associated files of TensorFlow Lite do: ``labels.txt``, and all parts as ``metadata.json``.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

from digits.data.images.conversion import FULL_BITS
from digits.data.models.export import LABELS_FILE
from digits.worker.exporting.exported import Exported, input_name
from digits.worker.training.models.trained import Trained

FILE = "metadata.json"
_COLORS = {1: "gray", 3: "RGB", 4: "RGBA"}


def describe(model: Trained, exported: Exported) -> dict[str, Any]:
    """Return the ``input``, the ``outputs``, the ``target``, and the ``labels`` in the order of the classes."""
    manifest, shape = model.manifest, [exported.signature.inputs[0].shape[0], *model.input_shape]
    pixels: dict[str, Any] = {
        "range": [0, 255] if manifest.dtype == "uint8" else None,
        "colors": _COLORS.get(manifest.channels, f"{manifest.channels} channels"),
        "order": "NHWC",
        "resize_mode": manifest.resize_mode,
        **({} if manifest.bits == FULL_BITS else {"bits": manifest.bits}),
    }
    return {
        "input": {
            "name": input_name(model),
            "shape": shape,
            "type": "float32",
            **({} if model.traced.latent else pixels),
        },
        "outputs": {
            name: {
                "shape": spec.shape.as_list() if spec.shape.rank is not None else None,
                "type": spec.dtype.name,
            }
            for name, spec in exported.signature.structured_outputs.items()
        },
        "target": {"names": manifest.target.names, "classes": manifest.target.classes},
        "labels": labels_of(model),
    }


def labels_of(model: Trained) -> list[str]:
    """Return the names of the classes, or of what the target contains, such as objects."""
    target = model.manifest.target
    return target.labels or target.contained_names


def labels_text(labels: list[str]) -> str:
    """Return ``labels`` as a file, one per line."""
    return "".join(f"{label}\n" for label in labels)


def add_to_litert(file: Path, about: dict[str, Any]) -> None:
    """Append ``about`` to a LiteRT ``file``, which runtimes ignore."""
    with zipfile.ZipFile(file, "a") as archive:
        for name, text in ((LABELS_FILE, labels_text(about["labels"])), (FILE, json.dumps(about))):
            # Without the time, equal models are equal files.
            archive.writestr(zipfile.ZipInfo(name), text)


def add_to_onnx(model: Any, about: dict[str, Any]) -> None:
    """Add ``about`` to the metadata of an ONNX ``model``, as JSON by part."""
    for name, value in about.items():
        model.metadata_props.add(key=name, value=json.dumps(value, ensure_ascii=False))
