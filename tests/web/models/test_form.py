"""The model form's limits on numbers and on the size of a sweep."""

from __future__ import annotations

import pytest

from digits.web.models.form import MAX_SWEEP_JOBS
from tests.site import Site
from tests.web.trained import shared_site

site = shared_site

CREATE = "/models/images/classification.json"
DRAW = "/models/visualize-lr"


@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "1e999", "9" * 4000, "9" * 5000, "-1e300"])
@pytest.mark.parametrize(
    "field",
    ["learning_rate", "batch_size", "train_epochs", "snapshot_interval", "val_interval", "random_seed", "lr_step_gamma",
     "lr_inv_power", "weight_decay", "crop_size", "traces_interval", "lr_multistep_values", "early_stopping_patience"],
)  # fmt: skip
def test_invalid_and_excessive_numbers_are_named(site: Site, field: str, number: str) -> None:
    answer = site.post(CREATE, **{field: number})
    assert answer.status_code == 400 and field in answer.get_json()["errors"]
    page = site.client.post(
        CREATE.removesuffix(".json"), data={field: number}, headers={"Accept": "text/html"}
    )
    assert page.status_code == 400


@pytest.mark.parametrize(
    "field", ["select_gpus_list", "select_gpu", "lr_multistep_values", "learning_rate", "freeze"]
)
def test_fields_that_are_too_long_are_named(site: Site, field: str) -> None:
    answer = site.post(CREATE, **{field: "1, " * 100_000})
    assert answer.status_code == 400 and any(
        "characters long" in text for text in answer.get_json()["errors"][field]
    )


def test_a_sweep_of_too_many_models_is_refused(site: Site) -> None:
    fields = {"learning_rate": ",".join(["0.1"] * 30), "batch_size": "1,2,3,4,5", "model_name": "x"}
    (message,) = site.post(CREATE, **fields).get_json()["errors"]["learning_rate"]
    assert "150 models" in message and str(MAX_SWEEP_JOBS) in message
    fields["batch_size"] = "1"
    assert "learning_rate" not in site.post(CREATE, **fields).get_json()["errors"]
    assert site.json("/index.json")["models"] == []


def test_a_curve_is_returned_for_each_rate_of_a_sweep(site: Site) -> None:
    columns = site.post(DRAW, learning_rate="0.1,0.01", lr_policy="exp").get_json()["data"]["columns"]
    assert [len(column) for column in columns] == [102, 102]
    assert columns[0][1] == 0.1 and columns[1][1:] == pytest.approx([rate / 10 for rate in columns[0][1:]])


@pytest.mark.parametrize(
    "fields",
    [{"learning_rate": ",".join(["0.1"] * 20_000)}, {"learning_rate": "nan"}, {"lr_policy": "exp", "lr_exp_gamma": "inf"},
     {"lr_policy": "multistep", "lr_multistep_values": "1," * 1000}, {"lr_policy": "step", "lr_step_size": "nan"}],
)  # fmt: skip
def test_an_invalid_schedule_has_no_curve(site: Site, fields: dict[str, str]) -> None:
    assert site.post(DRAW, **fields).status_code == 400


def test_limits_are_written_in_full(site: Site) -> None:
    fields = {"random_seed": 2**32, "learning_rate": "1e19", "snapshots_kept": 0, "lr_warmup": 101}
    errors = site.post(CREATE, **fields).get_json()["errors"]
    assert {name: errors[name] for name in fields} == {
        "random_seed": ["Must be between 0 and 4,294,967,295."],
        "learning_rate": ["Must be at most 1,000,000,000,000,000,000."],
        "snapshots_kept": ["Must be between 1 and 2,147,483,647."],
        "lr_warmup": ["Must be between 0 and 100."],
    }
    accepted = {"random_seed": 0xCAFEBABE, "learning_rate": "1e15"}
    errors = site.post(CREATE, **accepted).get_json()["errors"]
    assert not errors.keys() & accepted.keys()
