"""The form that makes a model, and the recipes it yields: one for each swept pair of numbers."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from wtforms import (
    BooleanField,
    FloatField,
    IntegerField,
    RadioField,
    SelectField,
    StringField,
    TextAreaField,
)
from wtforms.validators import DataRequired, InputRequired, Length, NumberRange, Optional, ValidationError

from digits.forms import NAME_LENGTH, Each, JobForm, NotYet, NumberList, OptionalInteger, RequiredIf, choices
from digits.model.lr_policy import WARM_UP
from digits.recipe import Solver, Train

SOLVERS = choices(
    ("SGD", "Stochastic gradient descent"),
    ("MOMENTUM", "Momentum (0.9)"),
    ("NESTEROV", "Nesterov momentum (0.9)"),
    ("ADAM", "Adam"),
    ("ADAGRAD", "AdaGrad"),
    ("ADAGRADDA", "AdaGrad DA"),
    ("ADADELTA", "AdaDelta"),
    ("RMSPROP", "RMSProp"),
    ("FTRL", "FTRL"),
)
POLICY_TITLES = {
    "fixed": "Fixed",
    "step": "Step down",
    "multistep": "Step down at chosen points",
    "exp": "Exponential decay",
    "inv": "Inverse decay",
    "poly": "Polynomial decay",
    "sigmoid": "Sigmoid decay",
    "cosine": "Cosine decay",
    "onecycle": "One cycle",
}
MEANS = choices(("image", "Mean image"), ("pixel", "Mean pixel"), ("none", "Nothing"))
METHODS = choices(
    ("standard", "Standard"),
    ("previous", "Previous"),
    ("pretrained", "Pretrained"),
    ("custom", "Custom"),
)
MAX_NETWORK_CHARACTERS = 1_000_000
_DEVICE = re.compile(r"cpu|next|\d+(,\d+)*")


def _number(label: str, default: float | None, least: float = 0.0, most: float | None = None) -> FloatField:
    message = f"Must be at least {least:g}." if most is None else f"Must be between {least:g} and {most:g}."
    check = NumberRange(min=least, max=most, message=message)
    return FloatField(label, default=default, validators=[InputRequired("Give a number."), check])


def _not_yet(label: str, field: type, default: Any, *accepted: Any, **arguments: Any) -> Any:
    return field(label, default=default, validators=[Optional(), NotYet(default, *accepted)], **arguments)


class ModelForm(JobForm):
    """A model for image classification."""

    model_name = StringField(
        "Model name", validators=[DataRequired("Give the model a name."), Length(max=NAME_LENGTH)]
    )
    dataset = SelectField("Dataset", choices=[], validators=[InputRequired("Choose a dataset.")])

    train_epochs = IntegerField(
        "Training epochs",
        default=30,
        validators=[InputRequired("Give a number."), NumberRange(min=1, message="Must be at least 1.")],
    )
    snapshot_interval = _number("Snapshot interval (epochs)", 1)
    val_interval = _number("Validation interval (epochs)", 1)
    random_seed = OptionalInteger(
        "Random seed", validators=[Optional(), NumberRange(min=0, message="Must be at least 0.")]
    )
    batch_size = NumberList("Batch size", int, validators=[Each(1)], default=[])
    solver_type = SelectField("Solver", choices=SOLVERS, default="SGD")
    rms_decay = _number("RMS decay", 0.99, 0, 1)
    momentum = _number("Momentum", 0.9, 0, 1)
    learning_rate = NumberList("Learning rate", float, validators=[Each(0)], default=[0.01])
    lr_policy = SelectField("Policy", choices=choices(*POLICY_TITLES.items()), default="step")
    lr_step_size = _number("Step size (%)", 33)
    lr_step_gamma = _number("Gamma", 0.1)
    lr_multistep_values = StringField("Steps (%)", default="50,85")
    lr_multistep_gamma = _number("Gamma", 0.5)
    lr_exp_gamma = _number("Gamma", 0.95)
    lr_inv_gamma = _number("Gamma", 0.1)
    lr_inv_power = _number("Power", 0.5)
    lr_poly_power = _number("Power", 3)
    lr_sigmoid_step = _number("Step (%)", 50)
    lr_sigmoid_gamma = _number("Gamma", 0.1)
    lr_cosine_final = _number("Final part of the rate", 0, 0, 1)
    lr_onecycle_peak = _number("Peak (%)", 30, 0, 100)
    lr_onecycle_start = _number("First part of the rate", 0.04, 0, 1)
    lr_onecycle_final = _number("Final part of the rate", 0.0001, 0, 1)
    lr_warmup = _number("Warm-up (%)", 0, 0, 100)

    use_mean = SelectField("Subtract mean", choices=MEANS, default="image")
    crop_size = OptionalInteger(
        "Crop size", validators=[Optional(), NumberRange(min=1, message="Must be at least 1.")]
    )
    shuffle = BooleanField("Shuffle the training images", default=True)

    method = SelectField(
        "Network", choices=METHODS, default="standard", validators=[NotYet("standard", "previous", "custom")]
    )
    framework = SelectField("Framework", choices=choices(("tensorflow", "TensorFlow")), default="tensorflow")
    standard_networks = RadioField("Standard network", choices=[], default="lenet", validate_choice=False)
    previous_networks = RadioField(
        "Previous network", choices=[], validate_choice=False, validators=[RequiredIf(method="previous")]
    )
    custom_network = TextAreaField(
        "Custom network", validators=[RequiredIf(method="custom"), Length(max=MAX_NETWORK_CHARACTERS)]
    )
    custom_network_snapshot = _not_yet("Pretrained weights", StringField, "", None)

    select_gpu = StringField("Device", default="next")
    select_gpus = StringField("GPUs", default="")
    select_gpus_list = StringField("GPUs", default="")
    select_gpu_count = _not_yet("Number of GPUs", OptionalInteger, 1, None)

    # Names of DIGITS whose work this version does not do: asking for it is an error, not silence.
    traces_interval = _not_yet("Tracing interval (steps)", OptionalInteger, 0, None)
    batch_accumulation = _not_yet("Batch accumulation", OptionalInteger, None, 1)
    aug_flip = _not_yet("Flipping", StringField, "none", "")
    aug_quad_rot = _not_yet("Quadrilateral rotation", StringField, "none", "")
    aug_rot = _not_yet("Rotation (± degrees)", OptionalInteger, 0, None)
    aug_scale = _not_yet("Rescale (standard deviation)", FloatField, 0.0, None)
    aug_noise = _not_yet("Noise (standard deviation)", FloatField, 0.0, None)
    aug_contrast = _not_yet("Contrast (factor)", FloatField, 0.0, None)
    aug_whitening = _not_yet("Whitening", BooleanField, False)
    aug_hsv_use = _not_yet("HSV shifting", BooleanField, False)

    def validate_learning_rate(self, field: NumberList) -> None:
        if not field.data and not field.errors:
            raise ValidationError("Give a learning rate.")

    def validate_lr_multistep_values(self, field: StringField) -> None:
        try:
            values = _percents(field.data)
        except ValueError:
            raise ValidationError("Give percentages, separated by commas.") from None
        if self.lr_policy.data == "multistep" and not values:
            raise ValidationError("Give at least one percentage.")

    def validate_select_gpu(self, field: StringField) -> None:
        if not _DEVICE.fullmatch(self.device()):
            raise ValidationError("Choose the CPU, the next free GPU, or GPUs by their numbers.")

    def device(self) -> str:
        """``cpu``, ``next`` or GPU indexes joined by commas."""
        listed = self.select_gpus_list.data or self.select_gpus.data
        return re.sub(r"\s", "", listed or self.select_gpu.data or "next").lower()

    def policy(self) -> dict[str, Any]:
        """The learning-rate policy as `digits.model.lr_policy` takes it. Raises ValueError."""
        name = self.lr_policy.data
        prefix = f"lr_{name}_"
        settings = {
            field.name.removeprefix(prefix): field.data for field in self if field.name.startswith(prefix)
        }
        if name == "multistep":
            settings["values"] = _percents(settings["values"])
        if self.lr_warmup.data:
            settings[WARM_UP] = self.lr_warmup.data
        return {"policy": name, **settings}

    def sweep(self) -> list[tuple[str, int | None, float]]:
        """A name, a batch size and a learning rate for every job that the form asks for."""
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

    def recipe(self, dataset_folder: str, weights: str | None, size: int | None, rate: float) -> Train:
        """What the task is to do; the form has been validated."""
        solver = Solver(
            type=self.solver_type.data,
            learning_rate=rate,
            momentum=self.momentum.data,
            rms_decay=self.rms_decay.data,
        )
        return Train(
            dataset=dataset_folder,
            epochs=self.train_epochs.data,
            batch_size=size,
            snapshot_interval=self.snapshot_interval.data,
            val_interval=self.val_interval.data,
            seed=self.random_seed.data,
            solver=dataclasses.asdict(solver),
            lr_policy=self.policy(),
            weights=weights,
            mean=self.use_mean.data,
            crop_size=self.crop_size.data,
            shuffle=self.shuffle.data,
        )


def _percents(text: str | None) -> list[float]:
    return [float(part) for part in (text or "").split(",") if part.strip()]
