"""The form that makes a model, and the recipes it yields: one for each swept pair of numbers."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

from wtforms import (
    BooleanField,
    Field,
    Form,
    IntegerField,
    RadioField,
    SelectField,
    StringField,
    TextAreaField,
)
from wtforms.validators import DataRequired, InputRequired, Length, Optional, ValidationError

from digits.core.recipe import Solver, Train
from digits.core.schedules import WARM_UP
from digits.kinds.dataset_form import MAX_SIDE_PIXELS
from digits.kinds.form_fields import (
    NAME_LENGTH,
    OWN_DIRECTION,
    AllowedPath,
    Between,
    Each,
    NotYet,
    NumberList,
    RequiredIf,
    choices,
    numbers_in,
)
from digits.web.model_form_fields import BALANCES, AugmentationFields, DeviceFields, RunFields, number, whole

SOLVERS = choices(
    ("SGD", "SGD"),
    ("MOMENTUM", "SGD with momentum"),
    ("NESTEROV", "SGD with Nesterov momentum"),
    ("ADAM", "Adam"),
    ("ADAMW", "AdamW"),
    ("LION", "Lion"),
    ("ADAGRAD", "AdaGrad"),
    ("ADAGRADDA", "AdaGrad dual averaging"),
    ("ADADELTA", "AdaDelta"),
    ("RMSPROP", "RMSProp"),
    ("FTRL", "FTRL"),
)
SOLVER_TITLES = {choice.value: choice.label for choice in SOLVERS}
# What a solver is usually begun with. The rate of the others is that of plain gradient descent.
USUAL = {
    solver: {"learning_rate": 0.01, "beta_2": 0.999}
    | {
        "ADAM": {"learning_rate": 0.001},
        "ADAMW": {"learning_rate": 0.001},
        "RMSPROP": {"learning_rate": 0.001},
        "LION": {"learning_rate": 0.0001, "beta_2": 0.99},
    }.get(solver, {})
    for solver, *_ in SOLVERS
}
POLICY_TITLES = {
    "fixed": "Fixed",
    "step": "Step decay",
    "multistep": "Multi-step decay",
    "exp": "Exponential decay",
    "inv": "Inverse decay",
    "poly": "Polynomial decay",
    "sigmoid": "Sigmoid decay",
    "cosine": "Cosine decay",
    "onecycle": "One cycle",
}
MEANS = choices(("image", "Image"), ("pixel", "Per channel"), ("none", "None"))
METHODS = choices(
    ("standard", "Standard"),
    ("previous", "Previous"),
    ("pretrained", "Pretrained"),
    ("custom", "Custom"),
)
MAX_NETWORK_CHARACTERS = 1_000_000
MAX_EPOCHS = 1_000_000
MAX_SWEEP_JOBS = 50
MAX_STEPS = 100


class AllowedWeights(AllowedPath):
    """The text names weights below an allowed root: a file, a folder, or the prefix of a checkpoint's files."""

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


class ModelForm(AugmentationFields, RunFields, DeviceFields):
    """A model for image classification."""

    LONG_FIELDS = frozenset({"custom_network"})

    model_name = StringField(
        "Model name",
        validators=[DataRequired("Enter a name for the model."), Length(max=NAME_LENGTH)],
        render_kw=OWN_DIRECTION,
    )
    dataset = SelectField("Dataset", choices=[], validators=[InputRequired("Choose a dataset.")])

    train_epochs = IntegerField(
        "Training epochs",
        default=30,
        validators=[
            InputRequired("Enter a number."),
            Between(min=1, max=MAX_EPOCHS, message=f"Must be at least 1, and at most {MAX_EPOCHS:,}."),
        ],
    )
    snapshot_interval = number("Snapshot interval (epochs)", 1)
    val_interval = number("Validation interval (epochs)", 1)
    random_seed = whole("Random seed")
    batch_size = NumberList("Batch size", int, validators=[Each(1)], default=[])
    solver_type = SelectField("Optimizer", choices=SOLVERS, default="SGD")
    rms_decay = number("RMS decay", 0.99, 0, 1)
    momentum = number("Momentum", 0.9, 0, 1)
    beta_1 = number("β₁", 0.9, 0, 1)
    beta_2 = number("β₂", 0.999, 0, 1)
    weight_decay = number("Weight decay", 0.004)
    batch_accumulation = whole("Gradient accumulation", 1)
    learning_rate = NumberList("Base learning rate", float, validators=[Each(0)], default=[0.01])
    lr_policy = SelectField("Learning-rate schedule", choices=choices(*POLICY_TITLES.items()), default="step")
    lr_step_size = number("Step size (%)", 33)
    lr_step_gamma = number("Gamma", 0.1)
    lr_multistep_values = StringField("Steps (%)", default="50,85")
    lr_multistep_gamma = number("Gamma", 0.5)
    lr_exp_gamma = number("Gamma", 0.95)
    lr_inv_gamma = number("Gamma", 0.1)
    lr_inv_power = number("Power", 0.5)
    lr_poly_power = number("Power", 3)
    lr_sigmoid_step = number("Step (%)", 50)
    lr_sigmoid_gamma = number("Gamma", 0.1)
    lr_cosine_final = number("Final factor", 0, 0, 1)
    lr_onecycle_peak = number("Peak (%)", 30, 0, 100)
    lr_onecycle_start = number("Initial factor", 0.04, 0, 1)
    lr_onecycle_final = number("Final factor", 0.0001, 0, 1)
    lr_warmup = number("Warm-up (%)", 0, 0, 100)

    use_mean = SelectField("Mean subtraction", choices=MEANS, default="image")
    crop_size = whole("Random crop size", 1, MAX_SIDE_PIXELS)
    shuffle = BooleanField("Shuffle the training images", default=True)
    balance = SelectField("Class balancing", choices=BALANCES, default="none")

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

    def validate_lr_multistep_values(self, field: StringField) -> None:
        try:
            values = numbers_in(field.data or "", most=MAX_STEPS)
        except ValueError as error:
            raise ValidationError(str(error)) from None
        if self.lr_policy.data == "multistep" and not values:
            raise ValidationError("Enter at least one percentage.")

    def policy(self) -> dict[str, Any]:
        """The learning-rate policy as `digits.core.schedules` takes it. Raises ValueError."""
        name = self.lr_policy.data
        prefix = f"lr_{name}_"
        settings = {
            field.name.removeprefix(prefix): field.data for field in self if field.name.startswith(prefix)
        }
        if name == "multistep":
            settings["values"] = numbers_in(settings["values"] or "")
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
            beta_1=self.beta_1.data,
            beta_2=self.beta_2.data,
            weight_decay=self.weight_decay.data,
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
            batch_accumulation=self.batch_accumulation.data or 1,
            augment=dataclasses.asdict(self.augmentation()),
            balance=self.balance.data,
            precision=self.precision.data,
            xla=self.uses_xla(),
            strategy=self.strategy.data,
            gpu_memory_mb=self.gpu_memory_mb.data,
            snapshots_kept=self.snapshots_kept.data,
            best_metric=(self.best_metric.data or "").strip() or None,
            early_stopping=self.early_stopping(),
            freeze=self.frozen(),
            histograms=self.histograms.data,
            traces_interval=self.traces_interval.data or 0,
            numerics_checks=self.numerics_checks.data,
        )
