"""Write the model card of an export as Markdown: data, settings, metrics, verification and environment.

The sections follow Mitchell et al., 2019, “Model Cards for Model Reporting”, limited to data recorded in the job.
"""

from __future__ import annotations

import importlib.resources
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
from digits.core.schedules import TITLES, Schedule
from digits.core.snapshot_list import Snapshot
from digits.core.task import EVENTS_FILE, TaskState
from digits.data.models import evaluation as evaluations
from digits.data.models.export import FORMATS, PREDICTIONS_SIGNATURE, ModelExport
from digits.kinds import kind_named
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
    manifest, title = model.manifest, FORMATS[export.format].title
    splits = ", ".join(f"{split.count:,} {name}" for name, split in manifest.splits.items() if split.count)
    channels = "color" if manifest.channels == 3 else f"{manifest.channels} channels"
    size = f"{manifest.width}×{manifest.height}, {channels.replace('1 channels', 'grayscale')}"
    pixels = "0 to 255" if manifest.dtype == "uint8" and not model.traced.latent else "any values"
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
        _section("Settings", _settings(sources, model)),
        _section(
            "Metrics",
            {name: f"{value:.6g}" for name, value in sources.snapshot.metrics.items()},
            "Measured on the validation split when the snapshot was saved.",
            "The snapshot was not validated.",
        ),
        *_evaluations(sources),
        _section(
            "Input and outputs",
            {
                f"`{export.input['name']}`": f"float32 {_shape(export.input['shape'])}, {pixels}; "
                "preprocessing such as mean subtraction is part of the model",
                **{
                    f"`{name}`": f"{value['type']} {_shape(value['shape'])}"
                    for name, value in export.outputs.items()
                },
                **_signatures(export),
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


def _settings(sources: Sources, model: Trained) -> dict[str, str]:
    recipe = recipes.load(sources.model / TRAIN_FOLDER, recipes.Train)
    network = _network_name(sources.model, recipe, model)
    preparation = {
        "Mean subtraction": recipe.mean,
        "Crop": f"{recipe.crop_size} pixels" if recipe.crop_size else "none",
    }
    parameters = f"{model.store.parameters:,} parameters"
    if sources.is_imported:
        return {"Network": f"imported, {parameters}", **preparation}
    defaults = type(recipe.augment)()
    changes = [
        f"{name} {value}"
        for name in recipe.augment.__struct_fields__
        if (value := getattr(recipe.augment, name)) != getattr(defaults, name)
    ]
    seed = _seed(sources.model, recipe)
    return {
        "Network": f"{network}, {parameters}",
        "Epochs": f"{recipe.epochs:g}",
        "Batch size": str(model.batch_size),
        "Optimizer": f"{recipe.solver.type}, learning rate {recipe.solver.learning_rate:g}",
        "Learning-rate schedule": _schedule(recipe.lr_policy),
        **preparation,
        "Augmentation": ", ".join(changes) or "none",
        "Precision": recipe.precision,
        "Initial weights": Path(recipe.weights).name if recipe.weights else "random",
        "Seed": "random" if seed is None else str(seed),
    }


def _network_name(model: Path, recipe: recipes.Train, trained: Trained) -> str:
    """Return the title of the standard network, or ``custom`` if the source code is not that of one."""
    text = (model / recipe.network).read_text(encoding="utf-8", errors="replace")
    packages = ("digits", kind_named(trained.manifest.kind).package)
    folders = [importlib.resources.files(package) / "networks" for package in packages]
    files = [file for folder in folders if folder.is_dir() for file in folder.iterdir() if file.is_file()]
    if any(file.name.endswith(".py") and file.read_text(encoding="utf-8") == text for file in files):
        return text.removeprefix("# ").partition(":")[0]
    return "custom"


def _schedule(policy: Schedule) -> str:
    settings: dict[str, object] = msgspec.to_builtins(policy)
    shown = [f"{name} {value}" for name, value in settings.items() if name != "policy"]
    return f"{TITLES[type(policy)]}, {', '.join(shown)}"


def _seed(model: Path, recipe: recipes.Train) -> int | None:
    """Return the seed of the training, which the worker draws if the recipe has none; None if it is unknown."""
    state = TaskState()
    state.read(model / TRAIN_FOLDER / EVENTS_FILE)
    if isinstance(seed := (state.result or {}).get("seed"), int):
        return seed
    point = resume_point(model)
    return point.seed if point else recipe.seed


def _evaluations(sources: Sources) -> list[str]:
    """Return the section with the evaluations of the snapshot, if there are any."""
    current = [item for item in evaluations.load_all(sources.model) if item.snapshot == sources.snapshot.name]
    facts = {
        f"{name_of(sources.model.with_name(item.dataset_id))}, {item.split} split, {item.records:,} records": ", ".join(
            f"{name} {value:.6g}" for name, value in item.metrics.items()
        )
        for item in current
    }
    return [_section("Evaluation", facts)] if facts else []


def _signatures(export: ModelExport) -> dict[str, str]:
    if PREDICTIONS_SIGNATURE not in export.signatures:
        return {}
    about = "the predictions as DIGITS serves them, such as class probabilities"
    return {f"Signature `{PREDICTIONS_SIGNATURE}`": about}


def _verification(export: ModelExport) -> dict[str, str]:
    source = {"val": "validation images", "train": "training images"}.get(export.source, "random inputs")
    difference = "not measured: the network uses random numbers"
    if export.difference is not None:
        difference = f"{export.difference:.2g}, relative to the largest output value"
    facts = {"Compared with": f"the network in TensorFlow, on {export.images} {source}"}
    facts["Greatest difference"] = difference
    if export.agreement is not None:
        facts["Equal predictions"] = f"{100 * export.agreement:.1f}%"
    calls = "any number of images" if export.any_batch else f"{export.batch} image{'s' * (export.batch > 1)}"
    return facts | {
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
