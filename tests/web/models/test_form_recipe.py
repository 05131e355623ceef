"""Forms have the limits of their recipe, and a form filled from a recipe yields the same recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs
from werkzeug.datastructures import MultiDict

from digits.core import schedules, schema
from digits.core.recipe import Augment, CreateDataset, EarlyStopping, FineTune, Solver, Train
from digits.data.databases.convert import OldDataset
from digits.data.models.pretrained import WeightsPlaces
from digits.kinds.classification.form import DatasetForm
from digits.kinds.classification.recipe import (
    CreateClassification,
    DatasetFolder,
    FolderSplit,
    ListedSplit,
    Tables,
    TextFiles,
)
from digits.kinds.forms.dataset import CHANNELS, ENCODINGS, RESIZE_MODES
from digits.kinds.forms.fields import Between, bindings_of
from digits.web.models.form import POLICY_CHOICES, ModelForm

pytestmark = pytest.mark.usefixtures("request_in_progress")
BINDINGS = bindings_of(ModelForm)
# These fields check the limits in their own ways.
LIMITED = {name for name, binding in BINDINGS.items() if binding.limits.high is not None} - {
    "train_epochs",
    "batch_size",
    "learning_rate",
}
# The form yields them otherwise, or lacks them.
UNBOUND = {
    "dataset", "network", "solver", "lr_policy", "weights", "weights_folder", "weights_sources", "fine_tune", "devices",
    "augment", "early_stopping", "resume",
}  # fmt: skip


def test_every_setting_of_a_training_has_a_field() -> None:
    kinds = (Train, Solver, Augment, EarlyStopping, FineTune, *schedules.POLICIES.values())
    settings = [(kind, name) for kind in kinds for name in kind.__struct_fields__]
    missing = [
        name
        for kind, name in settings
        if not any(issubclass(kind, item.kind) and item.name == name for item in BINDINGS.values())
    ]
    assert set(missing) == UNBOUND


@pytest.mark.parametrize("name", sorted(LIMITED))
def test_forms_and_recipes_enforce_the_limits_of_a_field(name: str) -> None:
    kind, field, _ = BINDINGS[name]
    limits = schema.limits(kind, field)
    assert limits.high is not None
    above = limits.high + 1
    form = ModelForm(MultiDict({name: str(above)}))
    (between,) = (check for check in form[name].validators if isinstance(check, Between))
    assert (between.min, between.max) == (limits.low, limits.high)
    assert not form[name].validate(form)
    hint = next(item.type for item in structs.fields(kind) if item.name == field)
    with pytest.raises(schema.Malformed):
        schema.convert(above, hint)
    assert schema.convert(limits.high, hint) == limits.high


@pytest.mark.parametrize(
    ("options", "kind", "name"),
    [
        (CHANNELS, CreateDataset, "channels"),
        (ENCODINGS, CreateDataset, "encoding"),
        (RESIZE_MODES, CreateDataset, "resize_mode"),
    ],
    ids=lambda item: item if isinstance(item, str) else "",
)
def test_a_form_offers_the_choices_of_the_recipe(options: list[Any], kind: type, name: str) -> None:
    assert {option.value for option in options} == {str(item) for item in schema.limits(kind, name).choices}


def test_the_form_of_a_model_offers_the_choices_of_the_recipe() -> None:
    form = ModelForm(None)
    for name, binding in BINDINGS.items():
        if binding.limits.choices:
            offered = {choice.value for choice in form[name].choices}
            assert offered == {str(item) for item in binding.limits.choices}, name


def test_a_form_offers_every_schedule() -> None:
    known = {kind.__struct_config__.tag for kind in get_args(schedules.AnySchedule)}
    assert {option.value for option in POLICY_CHOICES} == known == set(schedules.POLICIES)


# Values that a form can represent: those of a recipe, without fields that forms lack.


def numbers(kind: type, name: str) -> st.SearchStrategy[float]:
    limits = schema.limits(kind, name)
    assert limits.low is not None and limits.high is not None
    return st.floats(limits.low, limits.high) | st.sampled_from([float(limits.low), float(limits.high)])


def integers(kind: type, name: str) -> st.SearchStrategy[int]:
    limits = schema.limits(kind, name)
    assert limits.low is not None and limits.high is not None
    return st.integers(int(limits.low), int(limits.high))


def structs_of(kind: type, **others: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Generate instances of ``kind`` within its limits."""
    chosen: dict[str, st.SearchStrategy[Any]] = {}
    for field in structs.fields(kind):
        limits = schema.limits(kind, field.name)
        if limits.choices:
            chosen[field.name] = st.sampled_from(limits.choices)
        elif isinstance(limits.default, bool):
            chosen[field.name] = st.booleans()
        elif limits.low is not None:
            is_float = isinstance(limits.default, float)
            chosen[field.name] = (numbers if is_float else integers)(kind, field.name)
    return st.builds(kind, **{**chosen, **others})


PERCENTS = st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=8).map(tuple)
SCHEDULES = st.one_of(
    structs_of(kind, **({"values": PERCENTS} if kind is schedules.Multistep else {}))
    for kind in schedules.POLICIES.values()
)
METRICS = st.sampled_from(["accuracy", "loss", "my_metric"])
MODELS = structs_of(
    Train,
    dataset=st.just("/jobs/d"),
    epochs=st.integers(1, 1_000_000),
    batch_size=st.none() | integers(Train, "batch_size"),
    seed=st.none() | integers(Train, "seed"),
    solver=structs_of(Solver),
    lr_policy=SCHEDULES,
    weights=st.none() | st.just("/data/w.ckpt"),
    weights_folder=st.just("/data/weights"),
    weights_sources=st.just(["/data/more"]),
    crop_size=st.none() | integers(Train, "crop_size"),
    augment=structs_of(Augment),
    xla=st.none() | st.booleans(),
    gpu_memory_mb=st.none() | integers(Train, "gpu_memory_mb"),
    snapshots_kept=st.none() | integers(Train, "snapshots_kept"),
    best_metric=st.none() | METRICS,
    early_stopping=st.none() | structs_of(EarlyStopping, metric=METRICS),
    freeze=st.lists(st.sampled_from(["conv*", "fc/weights", "*/biases"]), max_size=3),
    resume=st.just(False),
)
DEVICES = st.sampled_from(["cpu", "next", "next:3", "0", "0,2"])


def read_back(form: ModelForm, recipe: Train) -> Train:
    ((_, size, rate),) = form.sweep()
    places = WeightsPlaces(Path("/data/weights"), ["/data/more"])
    return form.recipe(recipe.dataset, recipe.weights, size, rate, places)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(recipe=MODELS, device=DEVICES)
def test_a_model_form_filled_from_a_recipe_yields_the_same_recipe(recipe: Train, device: str) -> None:
    form = ModelForm(None)
    form.model_name.data = "m"
    form.fill_recipe(recipe)
    form.fill_device(device)
    again = read_back(form, recipe)
    assert again == recipe and form.device() == device
    # Saving and loading preserves the recipe.
    assert schema.decode(msgspec.json.encode(again), Train) == recipe
    other = ModelForm(None)
    other.fill_recipe(again)
    other.fill_device(form.device())
    other.model_name.data = "m"
    assert {field.name: field.data for field in other} == {field.name: field.data for field in form}


SPLITS = structs_of(
    FolderSplit,
    folder=st.sampled_from(["/data/a", "/data/b c"]),
    max_per_class=st.none() | integers(FolderSplit, "max_per_class"),
)
DATASETS = structs_of(
    CreateClassification,
    train=SPLITS,
    val=st.none() | SPLITS,
    test=st.none() | SPLITS,
    pct_val=st.integers(0, 100),
    pct_test=st.integers(0, 100),
    sample=st.none(),
    processes=st.none(),
)


@pytest.mark.parametrize(
    "source",
    [
        TextFiles(
            train=ListedSplit(file="/d/a.txt", folder="/d"),
            test=ListedSplit(file="/d/b.txt", folder="/e"),
            labels="/d/labels.txt",
            shuffle=False,
        ),
        Tables(
            train=ListedSplit(file="/d/a.csv", folder="/d/images"),
            val=ListedSplit(file="/d/b.csv", folder="/d/images"),
            image_column="file",
            label_column="kind",
            delimiter="\t",
            header="no",
        ),
        DatasetFolder(folder="/d", image_column="picture", label_column="kind"),
    ],
)
def test_a_form_filled_from_a_recipe_has_its_source(source: Any) -> None:
    form = DatasetForm(None)
    form.fill_recipe(CreateClassification(files=source, pct_val=10, seed=5))
    recipe = form.recipe()
    assert (recipe.files, recipe.train, recipe.seed) == (source, None, 5)


def test_a_form_filled_from_a_recipe_has_its_databases() -> None:
    database = OldDataset(train="/d", val="/e", test="/f", labels="/labels.txt")
    form = DatasetForm(None)
    form.fill_recipe(CreateClassification(database=database, pct_val=10, seed=5))
    recipe = form.recipe()
    assert (recipe.database, recipe.files, recipe.train, recipe.seed) == (database, None, None, 5)


@settings(max_examples=60, deadline=None)
@given(recipe=DATASETS)
def test_a_dataset_form_filled_from_a_recipe_yields_the_same_recipe(recipe: CreateClassification) -> None:
    form = DatasetForm(None)
    form.fill_recipe(recipe)
    again = form.recipe()
    used = structs.replace(
        recipe,
        pct_val=0 if recipe.val else recipe.pct_val,
        pct_test=0 if recipe.test else recipe.pct_test,
    )
    assert again == used
    other = DatasetForm(None)
    other.fill_recipe(again)
    assert {field.name: field.data for field in other} == {field.name: field.data for field in form}
