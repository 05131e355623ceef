"""Groups of fields of the model form: augmentation, checkpoints and logging, devices and precision."""

from __future__ import annotations

import fnmatch
import re

from wtforms import Field, SelectField, StringField
from wtforms.validators import Length, Optional, ValidationError

from digits.core.model_job import DEVICE
from digits.core.recipe import Augment, EarlyStopping, FineTune, Train, Transformation
from digits.core.schema import LARGEST_WHOLE, Limits
from digits.kinds.form_fields import (
    MAX_LIST_CHARACTERS,
    NAME_LENGTH,
    Between,
    FlagField,
    JobForm,
    JoinedField,
    OptionalInteger,
    choices,
    number,
    plain,
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
STRATEGIES = choices(("mirrored", "First GPU"), ("central", "CPU"))
_COUNT = Limits(low=1, high=LARGEST_WHOLE)
_XLA_VALUES = {"auto": None, "on": True, "off": False}


# The field that turns each transformation on.
TRANSFORMATION_FIELDS: dict[Transformation, str] = {
    "mean": "use_mean",
    "crop_size": "crop_size",
    "flip": "aug_flip",
    "quad_rotation": "aug_quad_rot",
    "rotation": "aug_rot",
    "scale": "aug_scale",
    "noise": "aug_noise",
    "contrast": "aug_contrast",
    "whitening": "aug_whitening",
    "hsv": "aug_hsv_use",
    "pad_crop": "aug_pad_crop",
    "cutout": "aug_cutout",
    "mixup": "aug_mixup",
    "cutmix": "aug_cutmix",
    "randaugment": "aug_randaugment",
}


class AugmentationFields(JobForm):
    """Random augmentation of training images. Amounts are fractions of the full range unless a unit is given."""

    aug_flip = select("Flip", FLIPS, Augment, "flip")
    aug_quad_rot = select("90° rotation", QUARTER_TURNS, Augment, "quad_rotation")
    aug_rot = number("Rotation (±°)", Augment, "rotation")
    aug_scale = number("Zoom (standard deviation)", Augment, "scale")
    aug_noise = number("Noise (standard deviation)", Augment, "noise")
    aug_contrast = number("Contrast (relative change)", Augment, "contrast")
    aug_whitening = FlagField("Per-image standardization", default=False)
    aug_hsv_use = FlagField("Color jitter (HSV)", default=False)
    aug_hsv_h = number("Hue", Augment, "hsv_hue", 0.02)
    aug_hsv_s = number("Saturation", Augment, "hsv_saturation", 0.04)
    aug_hsv_v = number("Brightness", Augment, "hsv_value", 0.06)
    aug_pad_crop = whole("Pad and crop (pixels)", Augment, "pad_crop", 0)
    aug_cutout = whole("Cutout (pixels)", Augment, "cutout", 0)
    aug_mixup = number("MixUp (α)", Augment, "mixup")
    aug_cutmix = number("CutMix (α)", Augment, "cutmix")
    aug_randaugment = number("RandAugment (magnitude)", Augment, "randaugment")

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

    def fill_augmentation(self, augment: Augment) -> None:
        """The inverse of `augmentation`."""
        self.set(
            aug_flip=augment.flip,
            aug_quad_rot=augment.quad_rotation,
            aug_rot=plain(augment.rotation),
            aug_scale=plain(augment.scale),
            aug_noise=plain(augment.noise),
            aug_contrast=plain(augment.contrast),
            aug_whitening=augment.whitening,
            aug_hsv_use=bool(augment.hsv_hue or augment.hsv_saturation or augment.hsv_value),
            aug_pad_crop=augment.pad_crop,
            aug_cutout=augment.cutout,
            aug_mixup=plain(augment.mixup),
            aug_cutmix=plain(augment.cutmix),
            aug_randaugment=plain(augment.randaugment),
        )
        if self.aug_hsv_use.data:
            self.set(
                aug_hsv_h=plain(augment.hsv_hue),
                aug_hsv_s=plain(augment.hsv_saturation),
                aug_hsv_v=plain(augment.hsv_value),
            )


class RunFields(JobForm):
    """Snapshots to keep, early stopping, and logging for TensorBoard."""

    snapshots_kept = whole("Snapshots to keep", Train, "snapshots_kept")
    best_metric = StringField("Best snapshot", default="", validators=[Optional(), Length(max=64)])
    early_stopping_metric = StringField("Early stopping", default="", validators=[Optional(), Length(max=64)])
    early_stopping_patience = number("Patience (epochs)", EarlyStopping, "patience")
    freeze = StringField(
        "Freeze layers", default="", validators=[Optional(), Length(max=MAX_LIST_CHARACTERS)]
    )
    histograms = FlagField("Layer histograms", default=False)
    traces_interval = whole("Profile every N steps", Train, "traces_interval", 0)
    numerics_checks = FlagField("Detect NaN/Inf", default=False)
    gradient_metrics = FlagField("Gradient charts", default=False)

    def validate_freeze(self, field: Field) -> None:
        for pattern in self.frozen():
            # Translating many brackets takes quadratic time.
            if len(pattern) > NAME_LENGTH:
                raise ValidationError(f"A pattern may have at most {NAME_LENGTH} characters.")
            try:
                re.compile(fnmatch.translate(pattern))
            except re.error:
                raise ValidationError(f"“{pattern}” is not a pattern such as model/conv*.") from None

    def frozen(self) -> list[str]:
        return [part for part in re.split(r"[,\s]+", self.freeze.data or "") if part]

    def early_stopping(self) -> EarlyStopping | None:
        metric = (self.early_stopping_metric.data or "").strip()
        return EarlyStopping(metric=metric, patience=self.early_stopping_patience.data) if metric else None

    def fill_run(self, recipe: Train) -> None:
        """Fill in the fields of this group from ``recipe``."""
        stopping = recipe.early_stopping
        self.set(
            snapshots_kept=recipe.snapshots_kept,
            best_metric=recipe.best_metric or "",
            early_stopping_metric=stopping.metric if stopping else "",
            freeze=", ".join(recipe.freeze),
            histograms=recipe.histograms,
            traces_interval=recipe.traces_interval,
            numerics_checks=recipe.numerics_checks,
            gradient_metrics=recipe.gradient_metrics,
        )
        if stopping:
            self.early_stopping_patience.data = plain(stopping.patience)


class FineTuneFields(JobForm):
    """Initial weights of a standard network, and fine-tuning."""

    initial_weights = SelectField("Initial weights", choices=INITIAL_WEIGHTS, default="random")
    fine_tune = FlagField("Fine-tune", default=False)
    head_epochs = number("Epochs of the head", FineTune, "head_epochs")
    head_rate = number("Learning rate of the head", FineTune, "head_rate")
    trunk_factor = number("Trunk factor", FineTune, "trunk_factor")

    def fine_tuning(self) -> FineTune | None:
        if not self.fine_tune.data:
            return None
        return FineTune(
            head_epochs=self.head_epochs.data,
            head_rate=self.head_rate.data,
            trunk_factor=self.trunk_factor.data,
        )

    def fill_fine_tuning(self, fine_tune: FineTune | None) -> None:
        """The inverse of `fine_tuning`."""
        self.set(fine_tune=fine_tune is not None)
        if fine_tune:
            self.set(
                head_epochs=plain(fine_tune.head_epochs),
                head_rate=plain(fine_tune.head_rate),
                trunk_factor=plain(fine_tune.trunk_factor),
            )


class DeviceFields(JobForm):
    """Devices and precision of a training."""

    select_gpu = StringField("Device", default="next")
    select_gpus = JoinedField("GPUs", default="")
    select_gpus_list = StringField("GPUs", default="")
    select_gpu_count = OptionalInteger("Number of GPUs", validators=[Optional(), Between(_COUNT)])
    strategy = select("Weights location", STRATEGIES, Train, "strategy")
    gpu_memory_mb = whole("Memory limit per GPU (MiB)", Train, "gpu_memory_mb")
    precision = select("Precision", PRECISIONS, Train, "precision")
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

    def fill_devices(self, recipe: Train, device: str) -> None:
        """Fill in the fields of this group from ``recipe`` and the result of `device`."""
        kind, _, count = device.partition(":")
        is_list = kind not in ("cpu", "next")
        self.set(
            select_gpu="next" if is_list else kind,
            select_gpus=device if is_list else "",
            select_gpus_list="",
            select_gpu_count=int(count) if count else None,
            strategy=recipe.strategy,
            gpu_memory_mb=recipe.gpu_memory_mb,
            precision=recipe.precision,
            xla=next(name for name, value in _XLA_VALUES.items() if value is recipe.xla),
        )
