"""Groups of fields of the model form: augmentation, snapshots and logging, devices and precision."""

from __future__ import annotations

import fnmatch
import re
from typing import Any

from msgspec import Struct
from wtforms import SelectField, StringField
from wtforms.validators import Length, Optional, ValidationError

from digits.core.compute import Compute
from digits.core.job import DeviceRequest
from digits.core.model_job import DEVICE, request_devices
from digits.core.recipe import MAX_METRIC_NAME, Augment, EarlyStopping, FineTune, Train
from digits.core.schema import LARGEST_WHOLE, Limits
from digits.kinds.forms.compute import ComputeFields, amount
from digits.kinds.forms.fields import (
    MAX_LIST_CHARACTERS,
    NAME_LENGTH,
    Between,
    Binding,
    ChoiceField,
    FlagField,
    JobForm,
    JoinedField,
    OptionalInteger,
    TextField,
    bindings_of,
    choices,
    flag,
    number,
    select,
    whole,
)

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
