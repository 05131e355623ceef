"""The form that creates models, and the recipes it yields: one for each pair of swept values."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterable

import msgspec
from wtforms import (
    Field,
    Form,
    IntegerField,
    RadioField,
    SelectField,
    StringField,
    TextAreaField,
)
from wtforms.validators import DataRequired, InputRequired, Length, Optional, ValidationError

from digits.core import schedules, schema
from digits.core.model_job import ModelJob
from digits.core.recipe import MAX_EPOCHS, Solver, Train, Transformation
from digits.core.schedules import MAX_STEPS, AnySchedule, Schedule
from digits.core.schema import Limits
from digits.kinds.form_fields import (
    NAME_LENGTH,
    OWN_DIRECTION,
    AllowedPath,
    Between,
    FlagField,
    NumberList,
    RequiredIf,
    choices,
    number,
    numbers_in,
    plain,
    select,
    whole,
)
from digits.web.models.form_fields import (
    BALANCES,
    TRANSFORMATION_FIELDS,
    AugmentationFields,
    DeviceFields,
    FineTuneFields,
    RunFields,
)

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
POLICY_TITLES = schedules.TITLES
POLICY_CHOICES = choices(*((name, POLICY_TITLES[kind]) for name, kind in schedules.POLICIES.items()))
MEANS = choices(("image", "Image"), ("pixel", "Per channel"), ("none", "None"))
METHODS = choices(
    ("standard", "Standard"),
    ("previous", "Previous"),
    ("pretrained", "Pretrained"),
    ("custom", "Custom"),
)
MAX_NETWORK_CHARACTERS = 1_000_000
MAX_SWEEP_JOBS = 50


_STEPS = schema.limits(schedules.Multistep, "values").default
_RATE = schema.limits(Solver, "learning_rate")


def _joined(values: Iterable[float]) -> str:
    return ", ".join(str(plain(value)) for value in values)


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

    model_name = StringField(
        "Model name",
        validators=[DataRequired("Enter a name for the model."), Length(max=NAME_LENGTH)],
        render_kw=OWN_DIRECTION,
    )
    dataset = SelectField("Dataset", choices=[], validators=[InputRequired("Choose a dataset.")])

    train_epochs = IntegerField(
        "Training epochs",
        default=schema.limits(Train, "epochs").default,
        validators=[
            InputRequired("Enter a number."),
            Between(Limits(low=1, high=MAX_EPOCHS), "Must be at least {low}, and at most {high}."),
        ],
    )
    snapshot_interval = number("Snapshot interval (epochs)", Train, "snapshot_interval")
    val_interval = number("Validation interval (epochs)", Train, "val_interval")
    random_seed = whole("Random seed", Train, "seed")
    batch_size = NumberList("Batch size", int, schema.limits(Train, "batch_size"), default=[])
    solver_type = select("Optimizer", SOLVERS, Solver, "type")
    rms_decay = number("RMS decay", Solver, "rms_decay")
    momentum = number("Momentum", Solver, "momentum")
    beta_1 = number("β₁", Solver, "beta_1")
    beta_2 = number("β₂", Solver, "beta_2")
    weight_decay = number("Weight decay", Solver, "weight_decay")
    batch_accumulation = whole("Gradient accumulation", Train, "batch_accumulation")
    learning_rate = NumberList("Base learning rate", float, _RATE, default=[_RATE.default])
    lr_policy = SelectField("Learning-rate schedule", choices=POLICY_CHOICES, default="step")
    lr_step_size = number("Step size (%)", schedules.Step, "size")
    lr_step_gamma = number("Gamma", schedules.Step, "gamma")
    lr_multistep_values = StringField("Steps (%)", default=_joined(_STEPS))
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
    shuffle = FlagField("Shuffle the training images", default=True)
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

    def validate_lr_multistep_values(self, field: StringField) -> None:
        try:
            values = numbers_in(field.data or "", most=MAX_STEPS)
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
        prefix = f"lr_{name}_"
        settings = {
            field.name.removeprefix(prefix): field.data for field in self if field.name.startswith(prefix)
        }
        if name == "multistep":
            settings["values"] = numbers_in(settings["values"] or "")
        return schedules.from_settings(name, **settings, warmup=self.lr_warmup.data)

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

    def recipe(self, dataset_folder: str, weights: str | None, size: int | None, rate: float) -> Train:
        """Return the recipe of the task; the form must be valid."""
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
            solver=solver,
            lr_policy=self.policy(),
            weights=weights,
            fine_tune=self.fine_tuning(),
            mean=self.use_mean.data,
            crop_size=self.crop_size.data,
            shuffle=self.shuffle.data,
            batch_accumulation=self.batch_accumulation.data or 1,
            augment=self.augmentation(),
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
            gradient_metrics=self.gradient_metrics.data,
        )

    def fill(self, job: ModelJob) -> None:
        """Fill in the configuration of another job, its current name and group, but not its network."""
        self.fill_names(job)
        self.set(dataset=job.dataset_id)
        self.fill_recipe(job.recipe)
        self.fill_devices(job.recipe, job.device)

    def fill_recipe(self, recipe: Train) -> None:
        """The inverse of `recipe`, for the fields that a recipe contains."""
        solver, schedule = recipe.solver, recipe.lr_policy
        self.set(
            train_epochs=math.ceil(recipe.epochs),
            snapshot_interval=plain(recipe.snapshot_interval),
            val_interval=plain(recipe.val_interval),
            random_seed=recipe.seed,
            batch_size=[recipe.batch_size] if recipe.batch_size else [],
            solver_type=solver.type,
            rms_decay=plain(solver.rms_decay),
            momentum=plain(solver.momentum),
            beta_1=plain(solver.beta_1),
            beta_2=plain(solver.beta_2),
            weight_decay=plain(solver.weight_decay),
            batch_accumulation=recipe.batch_accumulation if recipe.batch_accumulation > 1 else None,
            learning_rate=[plain(solver.learning_rate)],
            use_mean=recipe.mean,
            crop_size=recipe.crop_size,
            shuffle=recipe.shuffle,
            balance=recipe.balance,
            lr_warmup=plain(schedule.warmup),
        )
        self._fill_policy(schedule)
        self.fill_augmentation(recipe.augment)
        self.fill_run(recipe)
        self.fill_fine_tuning(recipe.fine_tune)

    def _fill_policy(self, schedule: Schedule) -> None:
        settings = msgspec.to_builtins(schedule)
        name = self.lr_policy.data = settings.pop("policy")
        del settings["warmup"]
        for setting, value in settings.items():
            self[f"lr_{name}_{setting}"].data = _joined(value) if setting == "values" else plain(value)
