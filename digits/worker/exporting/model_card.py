"""Write the model card of an export as Markdown: data, settings, metrics, verification and environment.

The sections follow Mitchell et al., 2019, “Model Cards for Model Reporting”, limited to data recorded in the job.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import msgspec

import digits
from digits.core import recipe as recipes
from digits.core.job import name_of
from digits.core.model_job import epoch_label
from digits.core.resume_point import resume_point
from digits.core.schedules import TITLES
from digits.core.snapshot_list import Snapshot
from digits.core.task import EVENTS_FILE, TaskState
from digits.data.models import evaluation as evaluations
from digits.data.models.export import FORMATS, PREDICTIONS_SIGNATURE, ModelExport
from digits.data.sources.plan import count_of
from digits.kinds import kind_named, standard_networks
from digits.worker.exporting.example import PACKAGES, runtime_of
from digits.worker.training.models.trained import TRAIN_FOLDER, Trained

_RUNTIMES = ("tensorflow", "keras", "numpy", "tf2onnx", "ai-edge-litert", "onnxruntime")


@dataclass(frozen=True)
class Sources:
    """The folders of the ``model`` and ``dataset`` jobs, and the exported ``snapshot``."""

    model: Path
    dataset: Path
    snapshot: Snapshot

    @property
    def is_imported(self) -> bool:
        """Whether the model was imported: its dataset is its own folder."""
        return self.dataset == self.model


def model_card(model: Trained, sources: Sources, export: ModelExport) -> str:
    """Return the model card of ``export`` as Markdown."""
    manifest = model.manifest
    splits = ", ".join(f"{split.count:,} {name}" for name, split in manifest.splits.items() if split.count)
    channels = {1: "grayscale", 3: "color"}.get(manifest.channels, f"{manifest.channels} channels")
    pixels = "0 to 255" if manifest.dtype == "uint8" and not model.traced.latent else "any values"
    sections = {
        "Data": {
            "Dataset": name_of(sources.dataset),
            "Kind": kind_named(manifest.kind).title,
            "Records": splits,
            "Images": f"{manifest.width}×{manifest.height}, {channels}, resized by “{manifest.resize_mode}”",
            "Content hash": f"`{export.content_hash}`",
        },
        "Settings": _settings(sources, model),
        "Validation metrics when the snapshot was saved": {
            name: f"{value:.6g}" for name, value in sources.snapshot.metrics.items()
        }
        or {"Not measured": "the snapshot was not validated"},
        "Evaluation": {
            f"{name_of(sources.model.with_name(item.dataset_id))}, {item.split} split, {item.records:,} records": (
                ", ".join(f"{name} {value:.6g}" for name, value in item.metrics.items())
            )
            for item in evaluations.load_all(sources.model)
            if item.snapshot == sources.snapshot.name
        },
        "Input and outputs": {
            f"`{export.input['name']}`": f"float32 {_shape(export.input['shape'])}, {pixels}; "
            "preprocessing such as mean subtraction is part of the model",
            **{
                f"`{name}`": f"{item['type']} {_shape(item['shape'])}"
                for name, item in export.outputs.items()
            },
            **{
                f"Signature `{name}`": "the predictions as DIGITS serves them, such as class probabilities"
                for name in export.signatures
                if name == PREDICTIONS_SIGNATURE
            },
        },
        "Verification": _verification(export),
        "Environment": {
            "Runtime of the example": f"`pip install numpy pillow {PACKAGES[runtime_of(export.format)]}`",
            "Exported with": ", ".join(f"{name} {version(name)}" for name in _RUNTIMES),
            "Python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
            f"SHA-256 of `{export.file}`": f"`{export.sha256}`",
            "Hash of the weights": f"`{export.weights_hash}`",
        },
    }
    head = (
        f"# {name_of(sources.model)}\n\nSnapshot of epoch {epoch_label(export.epoch)} (step {export.step:,}), "
        f"exported as {FORMATS[export.format].title} by DIGITS {digits.__version__}.\n"
    )
    return head + "".join(_section(title, facts) for title, facts in sections.items() if facts)


def _section(title: str, facts: Mapping[str, str]) -> str:
    return f"\n## {title}\n\n" + "".join(f"- {name}: {value}\n" for name, value in facts.items())


def _settings(sources: Sources, model: Trained) -> dict[str, str]:
    recipe = recipes.load(sources.model / TRAIN_FOLDER, recipes.Train)
    preparation = {
        "Mean subtraction": recipe.mean,
        "Crop": f"{recipe.crop_size} pixels" if recipe.crop_size else "none",
    }
    parameters = f"{model.store.parameters:,} parameters"
    if sources.is_imported:
        return {"Network": f"imported, {parameters}", **preparation}
    text = (sources.model / recipe.network).read_text(encoding="utf-8", errors="replace")
    network = standard_networks.of_text(text)
    defaults = msgspec.to_builtins(type(recipe.augment)())
    augmentation = msgspec.to_builtins(recipe.augment).items()
    schedule = msgspec.to_builtins(recipe.lr_policy).items()
    seed = _seed(sources.model, recipe)
    return {
        "Network": f"{network.title if network else 'custom'}, {parameters}",
        "Epochs": f"{recipe.epochs:g}",
        "Batch size": str(model.batch_size),
        "Optimizer": f"{recipe.solver.type}, learning rate {recipe.solver.learning_rate:g}",
        "Learning-rate schedule": ", ".join(
            [
                TITLES[type(recipe.lr_policy)],
                *(f"{name} {value}" for name, value in schedule if name != "policy"),
            ]
        ),
        **preparation,
        "Augmentation": ", ".join(
            f"{name} {value}" for name, value in augmentation if value != defaults[name]
        )
        or "none",
        "Precision": recipe.precision,
        "Initial weights": Path(recipe.weights).name if recipe.weights else "random",
        "Seed": "random" if seed is None else str(seed),
    }


def _seed(model: Path, recipe: recipes.Train) -> int | None:
    """Return the seed of the training, which the worker draws if the recipe has none; None if it is unknown."""
    state = TaskState()
    state.read(model / TRAIN_FOLDER / EVENTS_FILE)
    if isinstance(seed := (state.result or {}).get("seed"), int):
        return seed
    point = resume_point(model)
    return point.seed if point else recipe.seed


def _verification(export: ModelExport) -> dict[str, str]:
    source = {"val": "validation images", "train": "training images"}.get(export.source, "random inputs")
    difference, agreement = export.difference, export.agreement
    return {
        "Compared with": f"the network in TensorFlow, on {export.images} {source}",
        "Greatest difference": "not measured: the network uses random numbers"
        if difference is None
        else f"{difference:.2g}, relative to the largest output value",
        **({} if agreement is None else {"Equal predictions": f"{100 * agreement:.1f}%"}),
        "Runtime": export.runtime,
        "Time": f"{export.milliseconds:.3g} ms per image, on {export.machine}",
        "Batch size": "any number of images" if export.any_batch else count_of(export.batch, "image"),
    }


def _shape(sizes: Iterable[int | None] | None) -> str:
    if sizes is None:
        return "of any shape"
    return f"[{', '.join('N' if size is None else str(size) for size in sizes)}]"


def serving_config(name: str) -> str:
    """Return a TensorFlow Serving configuration for a SavedModel in ``/models/NAME``."""
    return (
        "model_config_list {\n  config {\n"
        f'    name: "{name}"\n    base_path: "/models/{name}"\n    model_platform: "tensorflow"\n'
        "  }\n}\n"
    )
