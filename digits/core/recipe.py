"""Recipes: what a task is to do, as one readable JSON file that both processes know.

Unknown keys of a file are ignored and missing ones take their default, so that
old and new versions read each other's recipes.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, TypedDict

from digits.core import schema
from digits.core.files import UnreadableFile, read_json, write_json
from digits.core.schema import Matching, Of

FILE_NAME = "recipe.json"
SCHEMA = 1

# Not a path: a recipe cannot refer to files outside its job's folder.
FileName = Annotated[str, Matching(r"[\w-][\w.-]{0,200}")]


@dataclass(kw_only=True)
class Recipe:
    """Base of all recipes. ``task`` names the work; the worker has one program for each."""

    task: ClassVar[str] = ""

    def save(self, folder: Path) -> None:
        """Write this recipe into a task's folder."""
        write_json(folder / FILE_NAME, self.as_json())

    def as_json(self) -> dict[str, Any]:
        return {"schema": SCHEMA, "task": self.task, **dataclasses.asdict(self)}

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> Self:
        """The recipe in ``body``; raises `schema.Malformed` if a key is missing or has the wrong type."""
        return schema.build(cls, body)


@dataclass(kw_only=True)
class FolderSplit:
    """Where the images of a split come from, and how many each class may have."""

    folder: str
    min_per_class: int = 2
    max_per_class: int | None = None


@dataclass(kw_only=True)
class CreateDataset(Recipe):
    """Read a folder of images (one sub-folder per class) into TFRecord shards.

    ``val`` and ``test`` name separate folders; without them ``pct_val`` and
    ``pct_test`` percent of each class of ``train`` are taken. With ``sample``, a
    sample dataset (see `digits.data.samples`) is downloaded into the train folder's parent first.
    Width and height are in pixels; ``channels`` is 1 or 3.
    """

    task = "create-dataset"
    train: Annotated[dict[str, Any], Of(FolderSplit)]
    val: Annotated[dict[str, Any], Of(FolderSplit)] | None = None
    test: Annotated[dict[str, Any], Of(FolderSplit)] | None = None
    pct_val: float = 25
    pct_test: float = 0
    width: int = 256
    height: int = 256
    channels: int = 3
    resize_mode: str = "squash"
    encoding: str = "png"
    seed: int = 0
    sample: str | None = None
    sample_mirrors: list[str] = field(default_factory=list)
    processes: int | None = None


@dataclass(kw_only=True)
class Solver:
    """The optimizer and its settings; ``type`` is a name of the model form's list."""

    type: str = "SGD"
    learning_rate: float = 0.01
    momentum: float = 0.9
    rms_decay: float = 0.99
    beta_1: float = 0.9
    beta_2: float = 0.999
    weight_decay: float = 0.004


@dataclass(kw_only=True)
class Augment:
    """Random changes of training images; the defaults change nothing.

    ``flip`` is ``none``, ``fliplr``, ``flipud`` or ``fliplrud``; ``quad_rotation`` is
    ``none``, ``rot90`` (a quarter turn either way), ``rot180`` or ``rotall``;
    ``rotation`` is the largest angle in degrees, ``scale`` the standard deviation of
    the zoom factor around 1. ``noise`` (standard deviation), ``contrast`` and the
    ``hsv`` shifts are parts of the full range of pixels, 0 to 1. ``whitening``
    standardises each image, in validation and inference too. ``pad_crop`` pads by so
    many pixels and cuts the old size out at random; ``cutout`` blanks a square of so
    many pixels; ``mixup`` and ``cutmix`` are the parameter of their beta distribution;
    ``randaugment`` is the magnitude, 0 to 1.
    """

    flip: str = "none"
    quad_rotation: str = "none"
    rotation: float = 0
    scale: float = 0
    noise: float = 0
    contrast: float = 0
    whitening: bool = False
    hsv_hue: float = 0
    hsv_saturation: float = 0
    hsv_value: float = 0
    pad_crop: int = 0
    cutout: int = 0
    mixup: float = 0
    cutmix: float = 0
    randaugment: float = 0


class EarlyStopping(TypedDict):
    """Stop if the validation ``metric`` has not improved for ``patience`` epochs."""

    metric: str
    patience: float


@dataclass(kw_only=True)
class _Policy:
    policy: str


@dataclass(kw_only=True)
class Train(Recipe):
    """Train ``network`` (a file of the job's folder) on the dataset in folder ``dataset``.

    Intervals are in epochs and may be fractions; 0 means never. ``lr_policy`` is
    ``{"policy": name, …}`` as `digits.core.schedules` takes it. ``weights`` is the
    prefix of a snapshot to start from. ``devices`` lists ``"cpu"`` or the indexes
    of GPUs. ``seed`` None draws one. ``mean`` is ``image``, ``pixel`` or ``none``.

    ``batch_accumulation`` batches make one step. ``augment`` is an `Augment`.
    ``balance`` is ``none``, ``class_weights`` or ``sampling``. ``precision`` is
    ``float32``, ``mixed_float16`` or ``mixed_bfloat16``; ``xla`` None leaves it to the
    device. ``strategy`` for several devices is ``mirrored`` or ``central``.
    ``snapshots_kept`` None keeps all; the best one by ``best_metric`` of the validation
    is kept always. ``early_stopping`` is ``{"metric": name, "patience": epochs}``.
    ``freeze`` lists patterns of variables' names that are not trained. ``histograms``
    (of weights and outputs of layers) and ``traces_interval`` (steps, 0 for never) go to TensorBoard.
    ``numerics_checks`` names the operation that first gives no number. ``resume`` goes on from where an
    earlier run in the same folder was left.
    """

    task = "train"
    dataset: str
    network: FileName = "network.py"
    epochs: float = 30
    batch_size: int | None = None
    snapshot_interval: float = 1
    val_interval: float = 1
    seed: int | None = None
    solver: Annotated[dict[str, Any], Of(Solver)] = field(
        default_factory=lambda: dataclasses.asdict(Solver())
    )
    lr_policy: Annotated[dict[str, Any], Of(_Policy)] = field(default_factory=lambda: {"policy": "fixed"})
    weights: str | None = None
    mean: str = "image"
    crop_size: int | None = None
    shuffle: bool = True
    devices: list[str] = field(default_factory=lambda: ["cpu"])
    batch_accumulation: int = 1
    augment: Annotated[dict[str, Any], Of(Augment)] = field(
        default_factory=lambda: dataclasses.asdict(Augment())
    )
    balance: str = "none"
    precision: str = "float32"
    xla: bool | None = None
    strategy: str = "mirrored"
    gpu_memory_mb: int | None = None
    snapshots_kept: int | None = None
    best_metric: str | None = None
    early_stopping: EarlyStopping | None = None
    freeze: list[str] = field(default_factory=list)
    histograms: bool = False
    traces_interval: int = 0
    numerics_checks: bool = False
    resume: bool = False


@dataclass(kw_only=True)
class Preflight(Train):
    """Try the training that this describes: one step and one validation batch, nothing saved.

    The first batch goes to ``batch.png`` in the task's parent folder,
    the graph to ``tb/``. With ``eager`` a few steps are taken operation by operation, so that
    the network can print values.
    """

    task = "preflight"
    eager: bool = False


@dataclass(kw_only=True)
class Visualize(Recipe):
    """Build ``network`` without training it: its layers as an event, its graph for TensorBoard.

    ``dataset`` gives the input's shape and the classes. The graph goes to ``tb/``
    in the task's parent folder.
    """

    task = "visualize"
    dataset: str
    network: FileName = "network.py"
    crop_size: int | None = None


@dataclass(kw_only=True)
class Export(Recipe):
    """Write the trained model in folder ``model`` as a SavedModel into the folder ``target``.

    ``snapshot`` is the prefix of one of its snapshots, such as ``snapshot_1.ckpt``; ``dataset``
    is the folder of its dataset.
    """

    task = "export"
    model: str
    snapshot: str
    dataset: str
    target: str


@dataclass(kw_only=True)
class Serve(Recipe):
    """Answer inference requests for the trained model in folder ``model``.

    Requests come as JSON lines over the Unix socket ``socket``, which the task
    makes. It ends after ``idle_seconds`` without a request.
    """

    task = "serve"
    model: str
    socket: str
    idle_seconds: float = 600


def load(folder: Path, kind: type[Recipe]) -> Any:
    """The recipe of ``kind`` in a task's folder; raises UnreadableFile."""
    body = read_json(folder / FILE_NAME, below=folder.parent)
    if not isinstance(body, dict) or body.get("task") != kind.task:
        raise UnreadableFile(f"{FILE_NAME} is not a recipe for {kind.task!r}")
    try:
        return kind.from_json(body)
    except schema.Malformed as error:
        raise UnreadableFile(f"{FILE_NAME}: {error}") from error


def task_of(folder: Path) -> str:
    """The name of the work that the recipe in ``folder`` asks for."""
    body = read_json(folder / FILE_NAME, below=folder.parent)
    return str(body.get("task", "")) if isinstance(body, dict) else ""
