"""The form that creates models, and the recipes it yields: one for each pair of swept values."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from typing import Any

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
from digits.core.model_job import ModelJob
from digits.core.recipe import MAX_EPOCHS, SOLVER_TITLES, Solver, Train, Transformation
from digits.core.schedules import MAX_STEPS, AnySchedule, Schedule
from digits.core.schema import Limits
from digits.data.models.pretrained import WeightsPlaces
from digits.kinds.advice.recommendation import TRANSFORMATION_FIELDS
from digits.kinds.forms.fields import (
    AllowedPath,
    Between,
    Binding,
    NumberList,
    RequiredIf,
    TextField,
    WholeNumber,
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
from digits.web.models.form_fields import (
    BALANCES,
    AugmentationFields,
    DeviceFields,
    FineTuneFields,
    RunFields,
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
