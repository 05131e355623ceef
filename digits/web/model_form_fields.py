"""Groups of the model form's fields: how images are changed, how a run goes, on what it runs."""

from __future__ import annotations

import fnmatch
import re

from wtforms import BooleanField, Field, SelectField, StringField
from wtforms.validators import InputRequired, Length, Optional, ValidationError

from digits.core.model_job import DEVICE
from digits.core.recipe import Augment, EarlyStopping
from digits.kinds.form_fields import (
    LARGEST_NUMBER,
    LARGEST_WHOLE,
    MAX_LIST_CHARACTERS,
    Between,
    DecimalField,
    JobForm,
    JoinedField,
    OptionalInteger,
    choices,
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
PRECISIONS = choices(
    ("float32", "float32"), ("mixed_float16", "Mixed float16"), ("mixed_bfloat16", "Mixed bfloat16")
)
XLA = choices(("auto", "Automatic"), ("on", "On"), ("off", "Off"))
STRATEGIES = choices(("mirrored", "First GPU"), ("central", "CPU"))
_XLA_VALUES = {"auto": None, "on": True, "off": False}


def number(label: str, default: float | None, least: float = 0.0, most: float | None = None) -> DecimalField:
    """A number that must be given, from ``least`` to ``most``."""
    check = _between(least, most, LARGEST_NUMBER)
    return DecimalField(label, default=default, validators=[InputRequired("Enter a number."), check])


def whole(label: str, least: int = 0, most: int | None = None, default: int | None = None) -> OptionalInteger:
    """A whole number that may be left out."""
    check = _between(least, most, LARGEST_WHOLE)
    return OptionalInteger(label, default=default, validators=[Optional(), check])


def _between(least: float, most: float | None, largest: float) -> Between:
    """Require a finite number from ``least`` to ``most``, or to ``largest`` if ``most`` is None."""
    if most is None:
        return Between(min=least, max=largest, message=f"Must be between {least:g} and {largest:g}.")
    return Between(min=least, max=most, message=f"Must be between {least:g} and {most:g}.")


class AugmentationFields(JobForm):
    """Random changes of the training images. Amounts are parts of the full range unless a unit is told."""

    aug_flip = SelectField("Flip", choices=FLIPS, default="none")
    aug_quad_rot = SelectField("90° rotation", choices=QUARTER_TURNS, default="none")
    aug_rot = number("Rotation (±°)", 0, 0, 180)
    aug_scale = number("Zoom (standard deviation)", 0, 0, 1)
    aug_noise = number("Noise (standard deviation)", 0, 0, 1)
    aug_contrast = number("Contrast (relative change)", 0, 0, 5)
    aug_whitening = BooleanField("Per-image standardization", default=False)
    aug_hsv_use = BooleanField("Color jitter (HSV)", default=False)
    aug_hsv_h = number("Hue", 0.02, 0, 0.5)
    aug_hsv_s = number("Saturation", 0.04, 0, 0.5)
    aug_hsv_v = number("Brightness", 0.06, 0, 0.5)
    aug_pad_crop = whole("Pad and crop (pixels)", 0, 256, 0)
    aug_cutout = whole("Cutout (pixels)", 0, 1024, 0)
    aug_mixup = number("MixUp (α)", 0, 0, 10)
    aug_cutmix = number("CutMix (α)", 0, 0, 10)
    aug_randaugment = number("RandAugment (magnitude)", 0, 0, 1)

    def augmentation(self) -> Augment:
        shifts = bool(self.aug_hsv_use.data)
        return Augment(
            flip=self.aug_flip.data,
            quad_rotation=self.aug_quad_rot.data,
            rotation=self.aug_rot.data,
            scale=self.aug_scale.data,
            noise=self.aug_noise.data,
            contrast=self.aug_contrast.data,
            whitening=bool(self.aug_whitening.data),
            hsv_hue=self.aug_hsv_h.data if shifts else 0,
            hsv_saturation=self.aug_hsv_s.data if shifts else 0,
            hsv_value=self.aug_hsv_v.data if shifts else 0,
            pad_crop=self.aug_pad_crop.data or 0,
            cutout=self.aug_cutout.data or 0,
            mixup=self.aug_mixup.data,
            cutmix=self.aug_cutmix.data,
            randaugment=self.aug_randaugment.data,
        )


class RunFields(JobForm):
    """How a run is watched over: what is kept of it, when it stops, what TensorBoard gets."""

    snapshots_kept = whole("Snapshots to keep", 1)
    best_metric = StringField("Best snapshot", default="", validators=[Optional(), Length(max=64)])
    early_stopping_metric = StringField("Early stopping", default="", validators=[Optional(), Length(max=64)])
    early_stopping_patience = number("Patience (epochs)", 5)
    freeze = StringField(
        "Freeze layers", default="", validators=[Optional(), Length(max=MAX_LIST_CHARACTERS)]
    )
    histograms = BooleanField("Layer histograms", default=False)
    traces_interval = whole("Profile every N steps", 0, default=0)
    numerics_checks = BooleanField("Detect NaN/Inf", default=False)

    def validate_freeze(self, field: Field) -> None:
        for pattern in self.frozen():
            try:
                re.compile(fnmatch.translate(pattern))
            except re.error:
                raise ValidationError(f"“{pattern}” is not a pattern such as model/conv*.") from None

    def frozen(self) -> list[str]:
        return [part for part in re.split(r"[,\s]+", self.freeze.data or "") if part]

    def early_stopping(self) -> EarlyStopping | None:
        metric = (self.early_stopping_metric.data or "").strip()
        return EarlyStopping(metric=metric, patience=self.early_stopping_patience.data) if metric else None


class DeviceFields(JobForm):
    """What a run runs on, and in which precision."""

    select_gpu = StringField("Device", default="next")
    select_gpus = JoinedField("GPUs", default="")
    select_gpus_list = StringField("GPUs", default="")
    select_gpu_count = whole("Number of GPUs", 1)
    strategy = SelectField("Weights location", choices=STRATEGIES, default="mirrored")
    gpu_memory_mb = whole("Memory limit per GPU (MiB)", 64)
    precision = SelectField("Precision", choices=PRECISIONS, default="float32")
    xla = SelectField("XLA compilation", choices=XLA, default="auto")

    def validate_select_gpu(self, field: StringField) -> None:
        if not re.fullmatch(DEVICE, self.device(), re.ASCII):
            raise ValidationError("Choose the CPU, the next free GPU, or GPUs by their numbers.")

    def device(self) -> str:
        """``cpu``, ``next`` (the next free GPU), ``next:N``, or GPU indexes joined by commas."""
        listed = self.select_gpus_list.data or self.select_gpus.data
        wanted = re.sub(r"\s", "", listed or self.select_gpu.data or "next").lower()
        count = self.select_gpu_count.data or 1
        return f"next:{count}" if wanted == "next" and count > 1 else wanted

    def uses_xla(self) -> bool | None:
        return _XLA_VALUES[self.xla.data]
