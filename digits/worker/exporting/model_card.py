"""Write the model card of an export as Markdown: data, settings, metrics, verification and environment.

The sections follow Mitchell et al., 2019, “Model Cards for Model Reporting”, limited to data recorded in the job.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import digits
from digits.core import recipe as recipes
from digits.core.job import name_of
from digits.core.model_job import epoch_label
from digits.core.snapshot_list import Snapshot
from digits.data.model_export import FORMATS, ModelExport
from digits.kinds import kind_named
from digits.worker.exporting.example import PACKAGES, runtime_of
from digits.worker.training.trained import TRAIN_FOLDER, Trained

_RUNTIMES = ("tensorflow", "keras", "numpy", "tf2onnx", "ai-edge-litert", "onnxruntime")


@dataclass(frozen=True)
class Sources:
    """The folders of the ``model`` and ``dataset`` jobs, and the exported ``snapshot``."""

    model: Path
    dataset: Path
    snapshot: Snapshot


def model_card(found: Trained, sources: Sources, export: ModelExport) -> str:
    """Return the model card of ``export`` as Markdown."""
    manifest, title = found.manifest, FORMATS[export.format].title
    splits = ", ".join(f"{split.count:,} {name}" for name, split in manifest.splits.items() if split.count)
    channels = "color" if manifest.channels == 3 else f"{manifest.channels} channels"
    size = f"{manifest.width}×{manifest.height}, {channels.replace('1 channels', 'grayscale')}"
    pixels = "0 to 255" if manifest.dtype == "uint8" and not found.traced.latent else "any values"
    sections = [
        f"# {name_of(sources.model)}\n\n"
        f"Snapshot of epoch {epoch_label(export.epoch)} (step {export.step:,}), exported as {title} "
        f"by DIGITS {digits.__version__}.",
        _section(
            "Data",
            {
                "Dataset": name_of(sources.dataset),
                "Kind": kind_named(manifest.kind).title,
                "Records": splits,
                "Images": f"{size}, resized by “{manifest.resize_mode}”",
                "Content hash": f"`{export.content_hash}`",
            },
        ),
        _section("Settings", _settings(sources.model, found)),
        _section(
            "Metrics",
            {name: f"{value:.6g}" for name, value in sources.snapshot.metrics.items()},
            "Measured on the validation split when the snapshot was saved.",
            "The snapshot was not validated.",
        ),
        _section(
            "Input and outputs",
            {
                f"`{export.input['name']}`": f"float32 {_shape(export.input['shape'])}, {pixels}; "
                "preprocessing such as mean subtraction is part of the model",
                **{
                    f"`{name}`": f"{value['type']} {_shape(value['shape'])}"
                    for name, value in export.outputs.items()
                },
            },
        ),
        _section("Verification", _verification(export)),
        _section(
            "Environment",
            {
                "Runtime of the example": f"`pip install numpy pillow {PACKAGES[runtime_of(export.format)]}`",
                "Exported with": ", ".join(f"{name} {version(name)}" for name in _RUNTIMES),
                "Python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
                f"SHA-256 of `{export.file}`": f"`{export.sha256}`",
                "Hash of the weights": f"`{export.weights_hash}`",
            },
        ),
    ]
    return "\n\n".join(sections) + "\n"


def _settings(model: Path, found: Trained) -> dict[str, str]:
    recipe = recipes.load(model / TRAIN_FOLDER, recipes.Train)
    defaults = type(recipe.augment)()
    changes = [
        f"{name} {value}"
        for name in recipe.augment.__struct_fields__
        if (value := getattr(recipe.augment, name)) != getattr(defaults, name)
    ]
    return {
        "Network": f"{found.store.parameters:,} parameters",
        "Epochs": f"{recipe.epochs:g}",
        "Batch size": str(found.batch_size),
        "Optimizer": f"{recipe.solver.type}, learning rate {recipe.solver.learning_rate:g}",
        "Mean subtraction": recipe.mean,
        "Crop": f"{recipe.crop_size} pixels" if recipe.crop_size else "none",
        "Augmentation": ", ".join(changes) or "none",
        "Precision": recipe.precision,
        "Initial weights": Path(recipe.weights).name if recipe.weights else "random",
        "Seed": "random" if recipe.seed is None else str(recipe.seed),
    }


def _verification(export: ModelExport) -> dict[str, str]:
    source = {"val": "validation images", "train": "training images"}.get(export.source, "random inputs")
    difference = "not measured: the network uses random numbers"
    if export.difference is not None:
        difference = f"{export.difference:.2g}, relative to the largest output value"
    found = {"Compared with": f"the network in TensorFlow, on {export.images} {source}"}
    found["Greatest difference"] = difference
    if export.agreement is not None:
        found["Equal predictions"] = f"{100 * export.agreement:.1f}%"
    calls = "any number of images" if export.any_batch else f"{export.batch} image{'s' * (export.batch > 1)}"
    return found | {
        "Runtime": export.runtime,
        "Time": f"{export.milliseconds:.3g} ms per image, on {export.machine}",
        "Batch size": calls,
    }


def _section(title: str, facts: Mapping[str, str], words: str = "", without: str = "") -> str:
    lines = [f"- {name}: {value}" for name, value in facts.items()]
    paragraphs = [f"## {title}", words if facts else without, "\n".join(lines)]
    return "\n\n".join(filter(None, paragraphs))


def _shape(sizes: Iterable[int | None] | None) -> str:
    return (
        "of any shape"
        if sizes is None
        else str(["N" if size is None else size for size in sizes]).replace("'", "")
    )


def serving_config(name: str) -> str:
    """Return a TensorFlow Serving configuration for a SavedModel in ``/models/NAME``."""
    return (
        "model_config_list {\n  config {\n"
        f'    name: "{name}"\n    base_path: "/models/{name}"\n    model_platform: "tensorflow"\n'
        "  }\n}\n"
    )
