"""The form that creates models, and the recipes it yields: one for each pair of swept values."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Collection, Iterable
from typing import Any

from msgspec import Struct
from wtforms import (
    Field,
    Form,
    RadioField,
    SelectField,
    StringField,
    TextAreaField,
)
from wtforms.validators import InputRequired, Length, Optional, ValidationError

from digits.core import schedules, schema
from digits.core.compute import Compute
from digits.core.job import DeviceRequest
from digits.core.model_job import DEVICE, ModelJob, request_devices
from digits.core.recipe import (
    MAX_EPOCHS,
    MAX_METRIC_NAME,
    SOLVER_TITLES,
    Augment,
    EarlyStopping,
    FineTune,
    Solver,
    Train,
    Transformation,
)
from digits.core.schedules import MAX_STEPS, AnySchedule, Schedule
from digits.core.schema import LARGEST_WHOLE, Limits
from digits.data.models.pretrained import WeightsPlaces
from digits.kinds.advice.recommendation import TRANSFORMATION_FIELDS
from digits.kinds.forms.compute import ComputeFields, amount
from digits.kinds.forms.fields import (
    MAX_LIST_CHARACTERS,
    NAME_LENGTH,
    AllowedPath,
    Between,
    Binding,
    ChoiceField,
    FlagField,
    JobForm,
    JoinedField,
    NumberList,
    OptionalInteger,
    RequiredIf,
    TextField,
    WholeNumber,
    bindings_of,
    choices,
    common_first,
    flag,
    name_field,
    number,
    number_list,
    numbers_in,
    plain,
    select,
    whole,
)

SOLVERS = common_first(SOLVER_TITLES.items(), "ADAM", "ADAMW", "MOMENTUM", "RMSPROP")
# Usual initial settings of each solver. The other solvers use the rate of plain gradient descent.
USUAL = {
    solver: {name: schema.limits(Solver, name).default for name in ("learning_rate", "beta_2")}
    | {
        "ADAM": {"learning_rate": 0.001},
        "ADAMW": {"learning_rate": 0.001},
        "RMSPROP": {"learning_rate": 0.001},
        "LION": {"learning_rate": 0.0001, "beta_2": 0.99},
    }.get(solver, {})
    for solver, *_ in SOLVERS
}
# The fields for settings that only some solvers use.
SOLVER_FIELDS = {
    "momentum": ("MOMENTUM", "NESTEROV", "RMSPROP"),
    "rms_decay": ("RMSPROP",),
    "beta_1": ("ADAM", "ADAMW", "LION"),
    "beta_2": ("ADAM", "ADAMW", "LION"),
    "weight_decay": ("ADAMW", "LION"),
}

POLICY_CHOICES = common_first(
    ((name, schedules.TITLES[kind]) for name, kind in schedules.POLICIES.items()),
    *("cosine", "onecycle", "step", "fixed"),
)
MEANS = choices(("image", "Image"), ("pixel", "Per channel"), ("none", "None"))
METHODS = choices(
    ("standard", "Standard"),
    ("previous", "Previous"),
    ("pretrained", "Pretrained"),
    ("custom", "Custom"),
)
MAX_NETWORK_CHARACTERS = 1_000_000
MAX_SWEEP_JOBS = 50
_STEPS = Binding(schedules.Multistep, "values")
FLIPS = choices(("none", "None"), ("fliplr", "Horizontal"), ("flipud", "Vertical"), ("fliplrud", "Both"))
QUARTER_TURNS = choices(
    ("none", "None"), ("rot90", "90° left or right"), ("rot180", "180°"), ("rotall", "Any multiple of 90°")
)
BALANCES = choices(
    ("none", "None"),
    ("class_weights", "Class weights"),
    ("sampling", "Oversample rare classes"),
)
INITIAL_WEIGHTS = choices(("random", "Random"), ("imagenet", "ImageNet"), ("file", "File"))
PRECISIONS = choices(
    ("float32", "float32"), ("mixed_float16", "Mixed float16"), ("mixed_bfloat16", "Mixed bfloat16")
)
XLA = choices(("auto", "Automatic"), ("on", "On"), ("off", "Off"))
WEIGHTS_ON = choices(("first_gpu", "First GPU"), ("cpu", "CPU"))
_FLIP_WORDS = {
    "fliplr": "horizontal flip",
    "flipud": "vertical flip",
    "fliplrud": "horizontal and vertical flip",
}
_QUARTER_TURN_WORDS = {
    "rot90": "90° rotation left or right",
    "rot180": "180° rotation",
    "rotall": "rotation by multiples of 90°",
}
_HSV = ("hsv_hue", "hsv_saturation", "hsv_value")
_COUNT = Limits(low=0, high=LARGEST_WHOLE)
_XLA_VALUES = {"auto": None, "on": True, "off": False}


def metric_name(label: str, kind: type[Struct], name: str) -> TextField:
    """Return a field for the name of a metric, which may be empty."""
    validators = [Optional(), Length(max=MAX_METRIC_NAME)]
    return TextField(label, default="", validators=validators, binding=Binding(kind, name))


class AugmentationFields(JobForm):
    """Random augmentation of training images. Amounts are fractions of the full range unless a unit is given."""

    aug_flip = select("Flip", FLIPS, Augment, "flip", words=_FLIP_WORDS)
    aug_quad_rot = select("90° rotation", QUARTER_TURNS, Augment, "quad_rotation", words=_QUARTER_TURN_WORDS)
    aug_rot = number("Rotation (±°)", Augment, "rotation", words="rotation ±{:g}°")
    aug_scale = number("Zoom (standard deviation)", Augment, "scale", words="zoom {:g}")
    aug_noise = number("Noise (standard deviation)", Augment, "noise", words="noise {:g}")
    aug_contrast = number("Contrast (relative change)", Augment, "contrast", words="contrast {:g}")
    aug_hsv_use = FlagField("Color jitter (HSV)", default=False)
    aug_hsv_h = number("Hue", Augment, "hsv_hue", 0.02, words="hue {:g}")
    aug_hsv_s = number("Saturation", Augment, "hsv_saturation", 0.04, words="saturation {:g}")
    aug_hsv_v = number("Brightness", Augment, "hsv_value", 0.06, words="brightness {:g}")
    aug_mixup = number("MixUp (α)", Augment, "mixup", words="MixUp {:g}")
    aug_cutmix = number("CutMix (α)", Augment, "cutmix", words="CutMix {:g}")
    aug_randaugment = number("RandAugment (magnitude)", Augment, "randaugment", words="RandAugment {:g}")
    aug_pad_crop = whole("Pad and crop (pixels)", Augment, "pad_crop", 0, words="pad and crop {} px")
    aug_cutout = whole("Cutout (pixels)", Augment, "cutout", 0, words="cutout {} px")
    aug_whitening = flag("Per-image standardization", Augment, "whitening", "per-image standardization")

    def augmentation(self) -> Augment:
        unused = {} if self.aug_hsv_use.data else dict.fromkeys(_HSV, 0.0)
        return self.struct(Augment, **unused)

    def fill_augmentation(self, augment: Augment) -> None:
        """The inverse of `augmentation`."""
        self.fill_struct(augment)
        self.aug_hsv_use.data = any(getattr(augment, name) for name in _HSV)
        if not self.aug_hsv_use.data:
            for field in (self.aug_hsv_h, self.aug_hsv_s, self.aug_hsv_v):
                field.data = field.default


# In the order in which a description lists them.
AUGMENTATIONS = tuple(bindings_of(AugmentationFields).values())


class PatternsField(TextField):
    """Patterns of names, separated by spaces or commas; the setting is their list."""

    @property
    def setting(self) -> list[str]:
        return [part for part in re.split(r"[,\s]+", self.data or "") if part]

    def data_of(self, value: Any) -> str:
        return ", ".join(value)


# By default; the best one is kept, too.
SNAPSHOTS_KEPT = 5


class RunFields(JobForm):
    """Snapshots to keep, early stopping, and logging for TensorBoard."""

    snapshots_kept = whole("Snapshots to keep", Train, "snapshots_kept", SNAPSHOTS_KEPT)
    best_metric = metric_name("Best snapshot", Train, "best_metric")
    early_stopping_metric = metric_name("Early stopping", EarlyStopping, "metric")
    early_stopping_patience = number("Patience (epochs)", EarlyStopping, "patience")
    freeze = PatternsField(
        "Freeze layers",
        default="",
        validators=[Optional(), Length(max=MAX_LIST_CHARACTERS)],
        binding=Binding(Train, "freeze"),
    )
    histograms = flag("Layer histograms", Train, "histograms")
    traces_interval = whole("Profile every N steps", Train, "traces_interval", 0)
    numerics_checks = flag("Detect NaN/Inf", Train, "numerics_checks")
    gradient_metrics = flag("Gradient charts", Train, "gradient_metrics")

    def validate_freeze(self, field: PatternsField) -> None:
        for pattern in field.setting:
            # Translating many brackets takes quadratic time.
            if len(pattern) > NAME_LENGTH:
                raise ValidationError(f"A pattern may have at most {NAME_LENGTH} characters.")
            try:
                re.compile(fnmatch.translate(pattern))
            except re.error:
                raise ValidationError(f"“{pattern}” is not a pattern such as model/conv*.") from None

    def early_stopping(self) -> EarlyStopping | None:
        return self.struct(EarlyStopping) if self.early_stopping_metric.setting else None

    def fill_early_stopping(self, stopping: EarlyStopping | None) -> None:
        """The inverse of `early_stopping`."""
        self.early_stopping_metric.data = ""
        if stopping:
            self.fill_struct(stopping)


class FineTuneFields(JobForm):
    """Initial weights of a standard network, and fine-tuning."""

    initial_weights = SelectField("Initial weights", choices=INITIAL_WEIGHTS, default="random")
    fine_tune = FlagField("Fine-tune", default=False)
    head_epochs = number("Epochs of the head", FineTune, "head_epochs")
    head_rate = number("Learning rate of the head", FineTune, "head_rate")
    trunk_factor = number("Trunk factor", FineTune, "trunk_factor")

    def fine_tuning(self) -> FineTune | None:
        return self.struct(FineTune) if self.fine_tune.data else None

    def fill_fine_tuning(self, fine_tune: FineTune | None) -> None:
        """The inverse of `fine_tuning`."""
        self.set(fine_tune=fine_tune is not None)
        if fine_tune:
            self.fill_struct(fine_tune)


class XlaField(ChoiceField):
    """Whether XLA compiles the steps; with ``auto``, the setting is None: the device decides."""

    @property
    def setting(self) -> bool | None:
        return _XLA_VALUES[self.data]

    def data_of(self, value: bool | None) -> str:
        return next(name for name, known in _XLA_VALUES.items() if known is value)


class DeviceFields(ComputeFields):
    """Compute target, devices and precision of a training."""

    compute_workers = amount("workers", 1)
    averaging_interval = whole("Average every N steps", Train, "averaging_interval", 1)
    synchronized_batch_norm = flag("Synchronize batch normalization", Train, "synchronized_batch_norm")
    select_gpu = StringField("Device", default="next")
    select_gpus = JoinedField("GPUs", default="")
    select_gpus_list = StringField("GPUs", default="")
    select_gpu_count = OptionalInteger("Number of GPUs", validators=[Optional(), Between(_COUNT)])
    weights_on = select("Weights on", WEIGHTS_ON, Train, "weights_on")
    gpu_memory_mb = whole("Memory limit per GPU (MiB)", Train, "gpu_memory_mb")
    precision = select("Precision", PRECISIONS, Train, "precision")
    xla = XlaField("XLA compilation", choices=XLA, default="auto", binding=Binding(Train, "xla"))

    def validate_select_gpu(self, field: StringField) -> None:
        device = self.device()
        if not re.fullmatch(DEVICE, device, re.ASCII):
            raise ValidationError("Choose the CPU, the next free GPU, or GPUs by their numbers.")
        if not self.is_local and re.match(r"[0-9]", device):
            raise ValidationError("On a cluster, choose the CPU, or a number of GPUs for each worker.")
        if problem := self._request().indivisible:
            raise ValidationError(f"{problem} Choose a multiple of the number of workers.")

    def validate_synchronized_batch_norm(self, field: FlagField) -> None:
        if not field.data or not re.fullmatch(DEVICE, self.device(), re.ASCII):
            return
        request = self._request()
        if request.gpus_per_worker > 1:
            raise ValidationError(
                "The GPUs of one worker cannot be synchronized. Choose as many workers as GPUs."
            )
        if request.compute.workers == 1:
            return
        if self.xla.setting:
            raise ValidationError(
                "XLA cannot compile sums over workers. Set XLA compilation to automatic or off."
            )
        if self.averaging_interval.data not in (None, 1):
            raise ValidationError(
                "Workers that average every few steps train on their own. Average every step."
            )

    def _request(self) -> DeviceRequest:
        compute = Compute(target=self.compute_target.data, workers=max(1, self.compute_workers.data or 1))
        return request_devices(self.device(), compute)

    def device(self) -> str:
        """``cpu``, ``next`` (the next free GPU), ``next:N``, or GPU indexes joined by commas."""
        listed = self.select_gpus_list.data or self.select_gpus.data
        wanted = re.sub(r"\s", "", listed or self.select_gpu.data or "next").lower()
        count = self.select_gpu_count.data
        if wanted != "next" or count in (None, 1):
            return wanted
        return f"next:{count}" if count else "cpu"

    def fill_device(self, device: str) -> None:
        """The inverse of `device`."""
        kind, _, count = device.partition(":")
        is_list = kind not in ("cpu", "next")
        # On a cluster, the page has no other choice.
        none = 0 if kind == "cpu" and not self.is_local else None
        self.set(
            select_gpu="next" if is_list else kind,
            select_gpus=device if is_list else "",
            select_gpus_list="",
            select_gpu_count=int(count) if count else none,
        )


def _joined(values: Iterable[float]) -> str:
    return ", ".join(str(plain(value)) for value in values)


class Percentages(TextField):
    """Percentages, separated by commas; the setting is a tuple."""

    @property
    def setting(self) -> tuple[float, ...]:
        """Return the percentages; raises ValueError if they are invalid."""
        return tuple(numbers_in(self.data or "", most=MAX_STEPS))

    def data_of(self, value: Any) -> str:
        return _joined(value)


class AllowedWeights(AllowedPath):
    """Validate a path of weights below an allowed root: a file, a folder, or the prefix of a checkpoint's files."""

    def __init__(self) -> None:
        super().__init__("file")

    def __call__(self, form: Form, field: Field) -> None:
        path = field.data.strip()
        if os.path.isfile(f"{path}.index"):
            field.data = f"{path}.index"
            super().__call__(form, field)
            field.data = field.data.removesuffix(".index")
        elif os.path.isdir(path):
            AllowedPath("folder")(form, field)
        else:
            super().__call__(form, field)


class ModelForm(AugmentationFields, RunFields, FineTuneFields, DeviceFields):
    """A model for a dataset of any kind."""

    LONG_FIELDS = frozenset({"custom_network"})

    model_name = name_field("Model name", "Enter a name for the model.")
    dataset = SelectField("Dataset", choices=[], validators=[InputRequired("Choose a dataset.")])

    train_epochs = WholeNumber(
        "Epochs",
        default=schema.limits(Train, "epochs").default,
        validators=[
            InputRequired("Enter a number."),
            Between(Limits(low=1, high=MAX_EPOCHS), "Must be at least {low}, and at most {high}."),
        ],
        binding=Binding(Train, "epochs"),
    )
    snapshot_interval = number("Snapshot interval (epochs)", Train, "snapshot_interval")
    val_interval = number("Validation interval (epochs)", Train, "val_interval")
    random_seed = whole("Random seed", Train, "seed")
    batch_size = number_list("Batch size", int, Train, "batch_size")
    solver_type = select("Optimizer", SOLVERS, Solver, "type")
    rms_decay = number("RMS decay", Solver, "rms_decay")
    momentum = number("Momentum", Solver, "momentum")
    beta_1 = number("β₁", Solver, "beta_1")
    beta_2 = number("β₂", Solver, "beta_2")
    weight_decay = number("Weight decay", Solver, "weight_decay")
    batch_accumulation = whole("Gradient accumulation", Train, "batch_accumulation")
    learning_rate = number_list("Base learning rate", float, Solver, "learning_rate")
    lr_policy = SelectField("Learning-rate schedule", choices=POLICY_CHOICES, default="step")
    lr_step_size = number("Step size (%)", schedules.Step, "size")
    lr_step_gamma = number("Gamma", schedules.Step, "gamma")
    lr_multistep_values = Percentages("Steps (%)", default=_joined(_STEPS.limits.default), binding=_STEPS)
    lr_multistep_gamma = number("Gamma", schedules.Multistep, "gamma")
    lr_exp_gamma = number("Gamma", schedules.Exp, "gamma")
    lr_inv_gamma = number("Gamma", schedules.Inv, "gamma")
    lr_inv_power = number("Power", schedules.Inv, "power")
    lr_poly_power = number("Power", schedules.Poly, "power")
    lr_sigmoid_step = number("Step (%)", schedules.Sigmoid, "step")
    lr_sigmoid_gamma = number("Gamma", schedules.Sigmoid, "gamma")
    lr_cosine_final = number("Final factor", schedules.Cosine, "final")
    lr_onecycle_peak = number("Peak (%)", schedules.OneCycle, "peak")
    lr_onecycle_start = number("Initial factor", schedules.OneCycle, "start")
    lr_onecycle_final = number("Final factor", schedules.OneCycle, "final")
    lr_warmup = number("Warm-up (%)", Schedule, "warmup")

    use_mean = select("Mean subtraction", MEANS, Train, "mean")
    crop_size = whole("Random crop size", Train, "crop_size")
    shuffle = flag("Shuffle the training images", Train, "shuffle")
    balance = select("Class balancing", BALANCES, Train, "balance")

    method = SelectField("Network", choices=METHODS, default="standard")
    framework = SelectField("Framework", choices=choices(("tensorflow", "TensorFlow")), default="tensorflow")
    standard_networks = RadioField("Standard network", choices=[], default="lenet", validate_choice=False)
    previous_networks = RadioField(
        "Previous network", choices=[], validate_choice=False, validators=[RequiredIf(method="previous")]
    )
    pretrained_networks = RadioField(
        "Imported model", choices=[], validate_choice=False, validators=[RequiredIf(method="pretrained")]
    )
    custom_network = TextAreaField(
        "Custom network", validators=[RequiredIf(method="custom"), Length(max=MAX_NETWORK_CHARACTERS)]
    )
    custom_network_snapshot = StringField(
        "Pretrained weights", default="", validators=[Optional(), AllowedWeights()]
    )

    def validate_learning_rate(self, field: NumberList) -> None:
        if not field.data and not field.errors:
            raise ValidationError("Enter a learning rate.")
        jobs = len(field.data) * max(1, len(self.batch_size.data))
        if jobs > MAX_SWEEP_JOBS:
            raise ValidationError(
                f"These learning rates and batch sizes would create {jobs} models; the limit is {MAX_SWEEP_JOBS}. "
                "Enter fewer of them."
            )

    def validate_lr_multistep_values(self, field: Percentages) -> None:
        try:
            values = field.setting
        except ValueError as error:
            raise ValidationError(str(error)) from None
        if self.lr_policy.data == "multistep" and not values:
            raise ValidationError("Enter at least one percentage.")

    def chosen_model(self) -> Field:
        """Return the field with the id of the model whose network is used, or was customized."""
        return self.pretrained_networks if self.method.data == "pretrained" else self.previous_networks

    def policy(self) -> AnySchedule:
        """Return the learning-rate schedule. Raises ValueError if its fields are invalid."""
        name = self.lr_policy.data
        return schedules.from_settings(name, **self.settings_of(schedules.POLICIES[name]))

    def keep_transformations(self, offered: Collection[Transformation]) -> list[Field]:
        """Turn off all transformations that are not ``offered``; return the fields that this changed."""
        changed = []
        for name, field_name in TRANSFORMATION_FIELDS.items():
            field = self[field_name]
            off = "none" if name == "mean" else field.default
            if name in offered or field.data == off:
                continue
            field.data, field.raw_data = off, None
            changed.append(field)
        return changed

    def sweep(self) -> list[tuple[str, int | None, float]]:
        """Return a name, a batch size and a learning rate for each job that the form creates."""
        name = self.model_name.data.strip()
        sizes: list[int | None] = list(self.batch_size.data) or [None]
        rates = self.learning_rate.data
        jobs = []
        for size in sizes:
            for rate in rates:
                suffix = f" learning_rate:{rate:g}" if len(rates) > 1 else ""
                suffix += f" batch_size:{size}" if len(sizes) > 1 else ""
                jobs.append((name + suffix, size, rate))
        return jobs

    def scale_rates(self, factor: float) -> None:
        """Multiply the learning rates by ``factor``."""
        self.learning_rate.data = [float(f"{factor * rate:.6g}") for rate in self.learning_rate.data]
        self.head_rate.data = float(f"{factor * self.head_rate.data:.6g}")

    def recipe(
        self, dataset_folder: str, weights: str | None, size: int | None, rate: float, places: WeightsPlaces
    ) -> Train:
        """Return the recipe of the task, which finds ImageNet weights in ``places``; the form must be valid."""
        return self.struct(
            Train,
            dataset=dataset_folder,
            weights=weights,
            weights_folder=str(places.folder),
            weights_sources=[*places.sources],
            batch_size=size,
            solver=self.struct(Solver, learning_rate=rate),
            lr_policy=self.policy(),
            augment=self.augmentation(),
            early_stopping=self.early_stopping(),
            fine_tune=self.fine_tuning(),
        )

    def fill(self, job: ModelJob) -> None:
        """Fill in the configuration of another job, its current name and group, but not its network."""
        self.fill_names(job)
        self.set(dataset=job.dataset_id)
        self.fill_recipe(job.recipe)
        self.fill_compute(job.compute)
        self.fill_device(job.device)

    def fill_recipe(self, recipe: Train) -> None:
        """The inverse of `recipe`, for the fields that a recipe contains."""
        schedule = recipe.lr_policy
        self.lr_policy.data = schedule.__struct_config__.tag
        for struct in (recipe, recipe.solver, schedule):
            self.fill_struct(struct)
        self.fill_augmentation(recipe.augment)
        self.fill_early_stopping(recipe.early_stopping)
        self.fill_fine_tuning(recipe.fine_tune)
