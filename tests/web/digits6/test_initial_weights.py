"""The network and the initial weights of a model, by the fields of DIGITS 6."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from digits.core.model_job import ModelJob
from tests.site import Site
from tests.web.digits6.script import CLASSIFIER, Script

pytestmark = [pytest.mark.integration, pytest.mark.tensorflow]


def started_from(script: Script, dataset: str, **fields: Any) -> tuple[str, str | None]:
    """Create a model without training it; return its network and the path of its initial weights."""
    site = script.site
    job_id = script.model(dataset, **fields)
    site.post(f"/models/{job_id}/abort")
    site.wait_for_end(job_id)
    job = site.services.store.get(job_id, ModelJob)
    return job.network_text(), job.recipe.weights


def refusal(script: Script, dataset: str, **fields: Any) -> dict[str, list[str]]:
    wanted = {"model_name": "refused", "dataset": dataset, **fields}
    answer = script.site.client.post("/models/images/classification.json", data=wanted)
    assert answer.status_code == 400
    errors: dict[str, list[str]] = answer.get_json()["errors"]
    return errors


def customized(site: Site, **fields: Any) -> dict[str, Any]:
    answer = site.client.post("/models/customize?framework=tensorflow", data=fields)
    assert answer.status_code == 200
    body: dict[str, Any] = answer.get_json()
    return body


@pytest.fixture(scope="module")
def snapshot(site: Site, model: str) -> str:
    """The path of the weights of `model`."""
    return str(customized(site, network=model, snapshot_epoch=1)["snapshot"])


@pytest.fixture(scope="module")
def retrained(script: Script, dataset: str, model: str) -> str:
    """A model that was trained from the weights of `model`."""
    fields: dict[str, Any] = {"method": "previous", "previous_networks": model, f"{model}-snapshot": "1"}
    return script.finish(script.model(dataset, custom_network=None, **fields))


def test_the_weights_of_a_customized_network(site: Site, model: str, snapshot: str, retrained: str) -> None:
    assert snapshot.endswith("snapshot_1.ckpt") and model in snapshot
    assert customized(site, network=model) == {"network": CLASSIFIER, "snapshot": None}
    assert customized(site, network=model, snapshot_epoch=0)["snapshot"] is None
    assert customized(site, network=retrained, snapshot_epoch=-1)["snapshot"] == snapshot
    lenet = customized(site, network="lenet", snapshot_epoch=-1)
    assert "UserModel" in lenet["network"] and lenet["snapshot"] is None
    for wrong, status in (("-1", 400), ("7", 404), ("x", 400)):
        answer = site.client.post(f"/models/customize?network={model}", data={"snapshot_epoch": wrong})
        assert (answer.status_code, bool(answer.get_json()["error"]["message"])) == (status, True)


def test_a_file_of_weights_is_used_with_every_method(
    script: Script, dataset: str, model: str, snapshot: str
) -> None:
    file = {"custom_network_snapshot": snapshot}
    previous = {"method": "previous", "previous_networks": model, "custom_network": None}
    standard = {"method": "standard", "standard_networks": "lenet", "custom_network": None}
    for fields in ({}, previous, standard):
        assert started_from(script, dataset, **fields, **file)[1] == snapshot
        assert started_from(script, dataset, **fields)[1] is None


def test_two_sources_of_weights_are_refused(script: Script, dataset: str, model: str, snapshot: str) -> None:
    file = {"custom_network_snapshot": snapshot}
    previous: dict[str, Any] = {"method": "previous", "previous_networks": model, f"{model}-snapshot": "1"}
    standard = {"method": "standard", "standard_networks": "lenet", "initial_weights": "random"}
    for fields in (previous, standard):
        assert [*refusal(script, dataset, **fields, **file)] == ["custom_network_snapshot"]


def test_minus_one_means_the_weights_that_the_model_started_from(
    script: Script, dataset: str, model: str, snapshot: str, retrained: str
) -> None:
    fields: dict[str, Any] = {
        "method": "previous",
        "previous_networks": retrained,
        f"{retrained}-snapshot": "-1",
    }
    assert started_from(script, dataset, **fields) == (CLASSIFIER, snapshot)
    fields = {"method": "previous", "previous_networks": model, f"{model}-snapshot": "-1"}
    (message,) = refusal(script, dataset, **fields)["previous_networks"]
    assert "started from random weights" in message


def test_a_clone_starts_from_the_same_weights(
    script: Script, dataset: str, snapshot: str, retrained: str
) -> None:
    assert started_from(script, dataset, clone=retrained) == (CLASSIFIER, snapshot)


def test_an_imported_model_is_trained_from_its_weights(script: Script, dataset: str, model: str) -> None:
    site = script.site
    kept = script.create(f"/models/{model}/to_pretrained.json", {})
    fields: dict[str, Any] = {"method": "pretrained", "pretrained_networks": kept, "custom_network": None}
    network, weights = started_from(script, dataset, **fields)
    assert network == CLASSIFIER and weights and kept in weights
    assert started_from(script, dataset, **fields, **{f"{kept}-snapshot": "0"})[1] is None
    assert [*refusal(script, dataset, method="pretrained", pretrained_networks="foo")] == [
        "pretrained_networks"
    ]
    page = site.client.post(
        "/models/images/classification", data={"method": "pretrained", "pretrained_networks": kept}
    )
    assert page.status_code == 400 and f'name="previous_networks" value="{kept}" checked' in page.text

    answer = site.client.get(f"/pretrained_models/{kept}.json", follow_redirects=True)
    assert json.loads(answer.data)["id"] == kept
    assert site.get(f"/pretrained_models/{model}.json").status_code == 404
    assert site.client.delete(f"/pretrained_models/{model}").status_code == 404
    assert site.client.delete(f"/pretrained_models/{kept}").status_code == 200
    assert site.get(f"/models/{kept}").status_code == 404


def test_the_form_of_a_clone_selects_the_same_snapshot(script: Script, dataset: str) -> None:
    site = script.site
    source = script.finish(script.model(dataset, train_epochs=2, best_metric="loss"))
    other = 3 - site.json(f"/models/{source}.json")["best_epoch"]
    fields: dict[str, Any] = {"method": "previous", "previous_networks": source, f"{source}-snapshot": other}
    job_id = script.model(dataset, custom_network=None, **fields)
    site.post(f"/models/{job_id}/abort")
    page = site.client.get(f"/clone/{job_id}", follow_redirects=True).text
    choice = page.partition(f'name="{source}-snapshot"')[2].partition("</select>")[0]
    assert re.findall(r'value="([^"]*)" selected', choice) == [str(other)]
    site.wait_for_end(job_id)
