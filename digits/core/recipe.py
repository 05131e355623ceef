"""Recipes: what a task has to do, as one readable JSON file that both processes read.

The types are the single source of names, defaults and limits: reading enforces them, and forms take theirs
from `schema.limits`. Each kind of dataset defines its recipe as a subclass of `CreateDataset` in its own package.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

import msgspec
from msgspec import Meta, Struct, field

from digits.core import schema
from digits.core.compute import MAX_WORKERS
from digits.core.files import read_json, write_json
from digits.core.remote import RemoteSources
from digits.core.schedules import AnySchedule, Fixed
from digits.core.schema import (
    LARGEST_NUMBER,
    Count,
    Fraction,
    JsonObject,
    NonNegative,
    Percent,
    Positive,
    Seed,
    Whole,
)
from digits.core.splits import Split

FILE_NAME = "recipe.json"
SCHEMA = 1
MAX_EPOCHS = 1_000_000
MAX_SIDE_PIXELS = 4096
MAX_LAYER_NAME = 500
MAX_METRIC_NAME = 64
DEFAULT_BATCH_SIZE = 16
# Metrics of fewer validation records vary by chance: by default, they select no snapshot and stop no training.
FEWEST_TO_JUDGE = 20

# Not a path: a recipe cannot refer to files outside its job's folder.
FileName = Annotated[str, Meta(pattern=r"^(?a:[\w-][\w.-]{0,200})\Z")]
Epochs = Annotated[float, Meta(gt=0, le=MAX_EPOCHS)]
Pixels = Annotated[int, Meta(ge=1, le=MAX_SIDE_PIXELS)]
# Scripts provoke divergence with rates such as 1e15, which stay far from the limit of float32.
Rate = Annotated[float, Meta(ge=0, le=1e18)]
MetricName = Annotated[str, Meta(min_length=1, max_length=MAX_METRIC_NAME)]

Mean = Literal["image", "pixel", "none"]
Balance = Literal["none", "class_weights", "sampling"]
Precision = Literal["float32", "mixed_float16", "mixed_bfloat16"]
WeightsOn = Literal["first_gpu", "cpu"]
Flip = Literal["none", "fliplr", "flipud", "fliplrud"]
QuadRotation = Literal["none", "rot90", "rot180", "rotall"]
ResizeMode = Literal["squash", "crop", "fill", "half_crop"]
# t-SNE takes minutes for more.
MAX_MAPPED_RECORDS = 10_000
MappedRecords = Annotated[int, Meta(ge=3, le=MAX_MAPPED_RECORDS)]
ExportFormat = Literal["savedmodel", "keras", "litert", "litert-float16", "litert-int8", "onnx"]
Encoding = Literal["png", "jpg", "none"]
# Ways to change images before they reach the network; ``hsv`` is the shift of hue, saturation and value.
Transformation = Literal[
    "mean", "crop_size", "flip", "quad_rotation", "rotation", "scale", "noise", "contrast", "whitening", "hsv",
    "pad_crop", "cutout", "mixup", "cutmix", "randaugment"
]  # fmt: skip
TRANSFORMATIONS: tuple[Transformation, ...] = get_args(Transformation)
SolverType = Literal[
    "SGD", "MOMENTUM", "NESTEROV", "ADAM", "ADAMW", "LION", "ADAGRAD", "ADAGRADDA", "ADADELTA", "RMSPROP", "FTRL"
]  # fmt: skip
SOLVER_TITLES: dict[SolverType, str] = {
    "SGD": "SGD",
    "MOMENTUM": "SGD with momentum",
    "NESTEROV": "SGD with Nesterov momentum",
    "ADAM": "Adam",
    "ADAMW": "AdamW",
    "LION": "Lion",
    "ADAGRAD": "AdaGrad",
    "ADAGRADDA": "AdaGrad dual averaging",
    "ADADELTA": "AdaDelta",
    "RMSPROP": "RMSProp",
    "FTRL": "FTRL",
}


class Recipe(Struct, kw_only=True, tag_field="task"):
    """Base of all recipes. The tag ``task`` names the work; the worker has one program for each."""

    @property
    def task(self) -> str:
        return task_name(type(self))

    def save(self, folder: Path) -> None:
        """Write this recipe into a task's folder."""
        write_json(folder / FILE_NAME, self.as_json())

    def as_json(self) -> dict[str, Any]:
        return {"schema": SCHEMA, **msgspec.to_builtins(self)}


R = TypeVar("R", bound=Recipe)


class Frozen(Struct, kw_only=True, frozen=True):
    """The labels that a dataset was made from: the ``id`` and the ``name`` of the job, and the end of the log.

    ``labeled`` is the number of images that were labeled.
    """

    id: str
    name: str
    cursor: Count
    labeled: Count = 0


class CreateDataset(Recipe, tag="create-dataset"):
    """Convert images to TFRecord shards. Each kind of dataset has a subclass that describes its source.

    ``kind`` is a name in `digits.kinds`. ``width`` and ``height`` are in pixels; ``channels`` is 1 or 3.
    ``seed`` determines the split and the order of the records. The task fails if more than
    ``max_unusable_percent`` of the images cannot be used. Without ``processes``, there is one per core. ``remote``
    lists the paths of the recipe that are addresses, which are downloaded first. ``notes`` are sentences about how the
    form understood the source, which begin the warnings of the dataset. Labels that were ``frozen`` are in files in the
    folder of the job, and mean exactly what they say.
    """

    kind: str
    width: Pixels = 256
    height: Pixels = 256
    channels: Literal[1, 3] = 3
    resize_mode: ResizeMode = "squash"
    encoding: Encoding = "png"
    seed: Seed = 0
    max_unusable_percent: Percent = 5.0
    processes: Positive | None = None
    remote: RemoteSources | None = None
    notes: list[str] = []
    frozen: Frozen | None = None


class Solver(Struct, kw_only=True, frozen=True):
    """The optimizer and its settings. Each optimizer uses only some of them."""

    type: SolverType = "SGD"
    learning_rate: Rate = 0.01
    momentum: Fraction = 0.9
    rms_decay: Fraction = 0.99
    beta_1: Fraction = 0.9
    beta_2: Fraction = 0.999
    weight_decay: NonNegative = 0.004


class Augment(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Random augmentation of training images; the defaults change nothing.

    ``quad_rotation`` is ``rot90`` (a quarter turn either way), ``rot180`` or ``rotall``;
    ``rotation`` is the largest angle in degrees, ``scale`` the standard deviation of
    the zoom factor around 1. ``noise`` (standard deviation), ``contrast`` and the
    ``hsv`` shifts are fractions of the full range of pixel values. ``whitening``
    standardizes each image, in validation and inference too. ``pad_crop`` pads by this number
    of pixels and crops the original size at random; ``cutout`` blanks a square with this side in
    pixels; ``mixup`` and ``cutmix`` are the parameter α of their beta distribution;
    ``randaugment`` is the magnitude.
    """

    flip: Flip = "none"
    quad_rotation: QuadRotation = "none"
    rotation: Annotated[float, Meta(ge=0, le=180)] = 0.0
    scale: Fraction = 0.0
    noise: Fraction = 0.0
    contrast: Annotated[float, Meta(ge=0, le=5)] = 0.0
    whitening: bool = False
    hsv_hue: Annotated[float, Meta(ge=0, le=0.5)] = 0.0
    hsv_saturation: Fraction = 0.0
    hsv_value: Fraction = 0.0
    pad_crop: Annotated[int, Meta(ge=0, le=256)] = 0
    cutout: Annotated[int, Meta(ge=0, le=1024)] = 0
    mixup: Annotated[float, Meta(ge=0, le=10)] = 0.0
    cutmix: Annotated[float, Meta(ge=0, le=10)] = 0.0
    randaugment: Fraction = 0.0


class EarlyStopping(Struct, kw_only=True, frozen=True):
    """Stop if the validation ``metric`` has not improved for ``patience`` epochs."""

    metric: MetricName
    patience: NonNegative = 5.0


class FineTune(Struct, kw_only=True, frozen=True):
    """Train from pretrained weights in two phases.

    For ``head_epochs``, only the head is trained: the variables that are not in the pretrained weights. All others
    are the trunk, which is then trained as well, at the learning rate times ``trunk_factor``. The learning-rate
    schedule starts at the second phase; the rate of the head phase falls from ``head_rate`` along a cosine. In both
    phases, batch normalization in the trunk uses its moving averages, which do not change.
    """

    head_epochs: Annotated[float, Meta(ge=0, le=MAX_EPOCHS)] = 2.0
    head_rate: NonNegative = 0.003
    trunk_factor: Fraction = 0.1


class ListImages(Recipe, tag="list-images"):
    """List the images below the folder ``root`` in the job folder ``target``, after those listed before.

    The first images begin with the labels of the ``source``, the recipe of a dataset, whose folder is the default
    ``root`` and whose classes follow the given ``classes``. Images are compared by the features of a network with
    ``weights``, a file that may be missing.
    """

    root: str
    target: str
    classes: list[str] = []
    source: JsonObject | None = None
    weights: str = ""


class ProposeLabels(Recipe, tag="propose-labels"):
    """Predict the images that the job in the folder ``labels`` lists, with the trained model in folder ``model``.

    ``snapshot`` is the prefix of one of its snapshots, and ``trained_on`` the folder of the dataset of the training.
    The proposals go to the folder ``target``, for the ``kind`` of the labels and the ids of their ``classes`` by name;
    objects count from the score ``min_score`` on. ``source`` names the model in them. Their order is that of
    uncertain images which differ in the features of a network with ``weights``, a file that may be missing.
    """

    model: str
    snapshot: str
    trained_on: str
    labels: str
    root: str
    target: str
    kind: str
    classes: dict[str, Count]
    source: str
    min_score: Fraction
    weights: str = ""


class CheckDataset(Recipe, tag="check-dataset"):
    """Check the health of the dataset in the folder ``dataset``. Without ``processes``, there is one per core.

    Without ``appearance``, records are only compared; findings about image appearance are skipped. Without ``counts``,
    findings about the number of images per group are skipped.
    """

    dataset: str
    appearance: bool = True
    counts: bool = True
    processes: Positive | None = None


class CheckLabels(Recipe, tag="check-labels"):
    """Find likely wrong labels in the dataset in the folder ``dataset``.

    The trained model in folder ``model``, with the id ``model_id`` and named ``model_name``, predicts the classes of
    all records. ``snapshot`` is the prefix of one of its snapshots, such as ``snapshot_1.ckpt``. Those of the training
    split are predicted from the features of a network with ``weights``, a file that may be missing.
    """

    dataset: str
    model: str
    snapshot: str
    model_id: str = ""
    model_name: str = ""
    weights: str = ""


class Train(Recipe, tag="train"):
    """Train ``network`` (a file of the job's folder) on the dataset in folder ``dataset``.

    Intervals are in epochs and may be fractions; 0 means never. ``weights`` is the
    prefix of a snapshot or another file or folder to start from, or ``imagenet:`` and the name of an entry of
    `digits.data.models.pretrained_catalog`, whose file is in ``weights_folder`` or comes from one of
    ``weights_sources``, folders and addresses. ``devices`` lists ``"cpu"`` or the indexes of GPUs. Without ``seed``,
    the worker draws one; augmentation uses it modulo 2³¹.

    ``batch_accumulation`` batches make one step. Without ``xla``, the device decides. ``weights_on`` is where several
    devices read the weights from. ``snapshots_kept`` limits the number of snapshots; the best one is always kept. It
    is selected by the validation metric ``best_metric``, and every improvement is saved; if unset, by the kind's
    metric or the loss. ``freeze`` lists patterns of names of variables that are not trained. ``histograms`` (of weights
    and layer outputs) and profiles every ``traces_interval`` steps (0 for never) go to TensorBoard.
    ``numerics_checks`` names the operation that first
    returns NaN or an infinity. ``gradient_metrics`` adds the norm of the gradients and the relative size of the updates
    of each layer to the metrics. With an ``averaging_interval`` above 1, several workers do not average their gradients
    in each step, but train on their own and average their weights after this number of steps. Batch normalization uses
    the records of one worker, or with ``synchronized_batch_norm`` those of all of them. ``resume`` continues from the
    newest resume point in the folder.
    """

    dataset: str
    network: FileName = "network.py"
    epochs: Epochs = 30
    batch_size: Annotated[int, Meta(ge=1, le=int(LARGEST_NUMBER))] | None = None
    snapshot_interval: NonNegative = 1.0
    val_interval: NonNegative = 1.0
    seed: Seed | None = None
    solver: Solver = Solver()
    lr_policy: AnySchedule = Fixed()
    weights: str | None = None
    weights_folder: str | None = None
    weights_sources: list[str] = field(default_factory=list)
    fine_tune: FineTune | None = None
    mean: Mean = "image"
    crop_size: Pixels | None = None
    shuffle: bool = True
    devices: list[str] = field(default_factory=lambda: ["cpu"])
    batch_accumulation: Positive = 1
    augment: Augment = Augment()
    balance: Balance = "none"
    precision: Precision = "float32"
    xla: bool | None = None
    weights_on: WeightsOn = "first_gpu"
    gpu_memory_mb: Annotated[int, Meta(ge=64, le=schema.LARGEST_WHOLE)] | None = None
    snapshots_kept: Positive | None = None
    best_metric: MetricName | None = None
    early_stopping: EarlyStopping | None = None
    freeze: list[str] = field(default_factory=list)
    histograms: bool = False
    traces_interval: Whole = 0
    numerics_checks: bool = False
    gradient_metrics: bool = False
    averaging_interval: Positive = 1
    # Off, because it costs two messages for each layer and step, and XLA; it matters for small shares of a batch.
    synchronized_batch_norm: bool = False
    resume: bool = False


class Preflight(Train, tag="preflight"):
    """Run one step and one validation batch of the training that this describes; save nothing.

    The first batch goes to ``batch.png`` in the task's parent folder,
    the graph to ``tb/``. With ``eager``, a few steps run without a graph, so that the network
    can print values. One worker takes the steps, whatever the number of ``workers``.
    """

    eager: bool = False
    workers: Annotated[int, Meta(ge=1, le=MAX_WORKERS)] = 1

    @classmethod
    def of(cls, training: Train, *, eager: bool = False) -> Preflight:
        """Return the preflight of ``training``."""
        return cls(**{**msgspec.structs.asdict(training), "resume": False}, eager=eager)


class Visualize(Recipe, tag="visualize"):
    """Build ``network`` without training it: its layers as an event, its graph for TensorBoard.

    ``dataset`` gives the input's shape and the classes. The graph goes to ``tb/``
    in the task's parent folder.
    """

    dataset: str
    network: FileName = "network.py"
    crop_size: Pixels | None = None


class PreviewAugmentation(Recipe, tag="preview-augmentation"):
    """Augment a few training records of the dataset in the folder ``dataset`` as in training.

    There are several ``variants`` of each of the ``records``, which depend on the ``seed``. The result goes to a file
    in the task's parent folder; see `digits.core.results.augmentation_preview`.
    """

    dataset: str
    mean: Mean = "image"
    crop_size: Pixels | None = None
    augment: Augment = Augment()
    seed: Annotated[int, Meta(ge=0, lt=2**31)] = 0
    records: Annotated[int, Meta(ge=1, le=16)] = 4
    variants: Annotated[int, Meta(ge=1, le=16)] = 5


class Export(Recipe, tag="export"):
    """Write the trained model in folder ``model`` in another ``format`` into the folder ``target``.

    ``snapshot`` is the prefix of one of its snapshots, such as ``snapshot_1.ckpt``; ``dataset``
    is the folder of its dataset. With ``replace``, an earlier export in ``target`` is replaced. See
    `digits.data.models.export`.
    """

    model: str
    snapshot: str
    dataset: str
    target: str
    format: ExportFormat = "savedmodel"
    replace: bool = False


class ObtainWeights(Recipe, tag="obtain-weights"):
    """Find or download the ImageNet weights ``name``, an entry of `digits.data.models.pretrained_catalog`.

    See `Train` for ``weights_folder`` and ``weights_sources``.
    """

    name: str
    weights_folder: str
    weights_sources: list[str] = field(default_factory=list)


class ImportModel(Recipe, tag="import-model"):
    """Import the model in ``source`` into ``target``, the folder of a new job.

    ``source`` is an archive that DIGITS exported, or the folder with its files; or else weights: a checkpoint of
    TensorFlow, a SavedModel, a Keras file, or a folder with one of these. For weights, ``network`` is the file with the
    source code of the network, unless it is in the same folder or the weights are a complete model; the other fields
    describe its images and classes. The task fails if the files of an archive exceed ``max_bytes`` or ``max_files``.
    """

    source: str
    target: str
    network: str | None = None
    labels: list[str] = field(default_factory=list)
    width: Pixels | None = None
    height: Pixels | None = None
    channels: Literal[1, 3] = 3
    resize_mode: ResizeMode = "squash"
    max_bytes: Count = 20 * 10**9
    max_files: Count = 200_000


class Predict(Recipe, tag="predict"):
    """Predict from a list of images with the trained model in folder ``model``.

    ``snapshot`` is the prefix of one of its snapshots, such as ``snapshot_1.ckpt``, and ``trained_on`` the folder of
    the dataset of the training. The folder ``target`` contains the list and receives the predictions and, with
    ``keeps_values``, the outputs of the network; see `digits.data.models.predictions`. Without ``resizes``, images
    whose size differs from the network's input cannot be used.
    """

    model: str
    snapshot: str
    trained_on: str
    target: str
    keeps_values: bool = False
    resizes: bool = True


class PredictSplit(Recipe):
    """Predict the records of a ``split`` with the trained model in folder ``model``.

    ``snapshot`` is the prefix of one of its snapshots, such as ``snapshot_1.ckpt``. ``trained_on`` is the folder of the
    dataset of the training, and ``dataset`` that of the records. The result goes to the folder ``name``.
    """

    model: str
    snapshot: str
    epoch: NonNegative
    trained_on: str
    dataset: str
    split: Split
    name: FileName


class Evaluate(PredictSplit, tag="evaluate"):
    """Compare the predictions with the targets of the records; see `digits.data.models.evaluation`."""


class MapEmbeddings(PredictSplit, tag="map-embeddings"):
    """Map a layer's activations for up to ``records`` records, evenly spaced; see `digits.data.models.embedding_map`.

    By default, ``layer`` is the last one before the output.
    """

    layer: Annotated[str, Meta(max_length=MAX_LAYER_NAME)] = ""
    records: MappedRecords = 2000


class ServeInference(Recipe, tag="serve-inference"):
    """Answer inference requests for the trained model in folder ``model``.

    Requests come as JSON lines over the Unix socket ``socket``, which the task
    creates. It exits after ``idle_seconds`` without a request. ``flops`` are the operations
    of the network for one image, if they are known.
    """

    model: str
    socket: str
    idle_seconds: NonNegative = 600.0
    flops: int | None = None


def task_name(recipe_type: type[Recipe]) -> str:
    """Return the value of ``task`` in recipes of the class ``recipe_type``."""
    return str(recipe_type.__struct_config__.tag)


def load(folder: Path, recipe_type: type[R]) -> R:
    """Load the recipe of ``recipe_type`` in a task's folder; raises UnreadableFile."""
    return read_json(folder / FILE_NAME, recipe_type, below=folder.parent)


class _Header(Struct):
    task: str = ""


def task_of(folder: Path) -> str:
    """Return the tag of the recipe in ``folder``, which names its task; raises UnreadableFile."""
    return read_json(folder / FILE_NAME, _Header, below=folder.parent).task
