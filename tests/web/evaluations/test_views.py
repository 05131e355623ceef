"""Evaluations of trained models over HTTP: the task, the pages, and the records behind the numbers."""

from __future__ import annotations

import html
import json
import re
import shutil
from typing import Any

import numpy as np
import pytest

from digits.core.job import DeviceRequest
from digits.core.model_job import ModelJob
from digits.data.models import evaluation as evaluations
from digits.kinds import kind_named
from digits.kinds.advice.verdict import ClassScore, Verdict
from digits.kinds.jobs import DatasetJob
from digits.kinds.views import ACCURACY
from digits.runtime.executors.executor import place
from digits.web.evaluations import model_result
from digits.web.jobs import serializers
from tests.site import Site, bars
from tests.web.trained import WHOLE_BATCHES, Finished, shared_site, train, wait_for_evaluation

pytestmark = [pytest.mark.integration, pytest.mark.tensorflow]

SITE = {"evaluations": True}
site = shared_site


@pytest.fixture(scope="module")
def dataset(site: Site, finished: Finished) -> str:
    return finished.dataset(site, folder_pct_test=25)


@pytest.fixture(scope="module")
def model(site: Site, dataset: str) -> str:
    job_id = train(site, dataset)
    wait_for_evaluation(site, job_id, 2)
    return job_id


def test_a_model_has_a_verdict_in_words_and_the_environment_of_its_training(
    site: Site, dataset: str, model: str
) -> None:
    body = site.json(f"/models/{model}/evaluation.json")
    best = body["evaluations"][0]
    assert f" on {best['records']} test images (95% interval " in body["verdict"]
    manifest = site.services.store.get(dataset, DatasetJob).manifest()
    environment = site.json(f"/models/{model}.json")["environment"]
    assert manifest and environment["Dataset hash"] == manifest.content_hash
    assert environment["TensorFlow"].startswith("2.") and int(environment["Seed"]) >= 0
    page = site.get(f"/models/{model}").text
    assert all(
        f"<dt>{title}</dt><dd>{html.escape(value)}</dd>" in page for title, value in environment.items()
    )


def folder_of(site: Site, job_id: str) -> Any:
    return site.services.store.folder / job_id


def test_a_training_ends_with_evaluations_of_the_test_and_the_validation_split(
    site: Site, dataset: str, model: str
) -> None:
    tested, found = site.json(f"/models/{model}/evaluation.json")["evaluations"]
    assert (tested["name"], tested["split"]) == ("snapshot_1-test", "test")
    manifest = site.services.store.get(dataset, DatasetJob).manifest()
    assert manifest
    split = manifest.splits["val"]
    assert (found["name"], found["split"], found["records"]) == ("snapshot_1-val", "val", split.count)
    matrix = np.array(found["confusion_matrix"])
    assert matrix.sum(axis=1).tolist() == split.counts
    assert found["metrics"]["accuracy"] == pytest.approx(np.trace(matrix) / matrix.sum())
    interval = found["intervals"]["accuracy"]
    assert interval["method"] == "Wilson"
    assert interval["low"] <= found["metrics"]["accuracy"] <= interval["high"]
    predictions, targets, errors = (
        evaluations.load_array(folder_of(site, model), "snapshot_1-val", name)
        for name in (evaluations.PREDICTIONS_FILE, evaluations.TARGETS_FILE, evaluations.ERRORS_FILE)
    )
    assert predictions.shape == (split.count, 3) and predictions.sum(axis=1) == pytest.approx(1)
    assert errors == pytest.approx(1 - predictions[np.arange(len(targets)), targets], abs=1e-6)
    recalls = [item["recall"] for item in found["details"]["classes"]]
    assert recalls == pytest.approx((np.diag(matrix) / matrix.sum(axis=1)).tolist())
    # The validation of the training is of the same snapshot.
    losses = site.json(f"/models/{model}/metrics.json")["val"]["values"]["loss"]
    assert found["metrics"]["log_loss"] == pytest.approx(losses[-1], rel=1e-3)


def test_the_page_of_the_model_shows_the_result_on_the_test_split_first(
    site: Site, dataset: str, model: str
) -> None:
    tested = site.json(f"/models/{model}/evaluation.json")["evaluations"][0]
    page = site.get(f"/models/{model}").text
    shown = page[page.index('id="result"') : page.index('class="tiles model-tiles"')]
    assert f"Accuracy on {tested['records']} test images" in shown
    assert ACCURACY.format(tested["metrics"]["accuracy"]) in shown and "95% interval" in shown
    assert shown.count("button-primary") == 1 and "Confusion matrix" in shown
    wrong = tested["records"] - np.trace(np.array(tested["confusion_matrix"]))
    assert shown.count("<figure>") == min(wrong, 6)
    assert "· partial" not in page
    # One that was not evaluated has only the training's validation, or none.
    assert 'class="panel result"' not in site.get(f"/models/{site.finished_model(dataset)}").text


def test_a_training_that_was_too_short_continues_with_one_click(
    site: Site, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = Verdict("fair", "Still improving", "", "train_longer", "Train longer")
    monkeypatch.setattr(model_result, "judge", lambda outcome: short)
    page = site.get(f"/models/{model}").text
    (form,) = re.findall(rf'<form method="post" action="/models/{model}/resume">(.*?)</form>', page)
    assert 'name="more_epochs" value="5"' in form and "Train 5 more epochs</button>" in form


def test_images_of_the_weakest_class_are_added_to_the_dataset(
    site: Site, dataset: str, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = site.services.store.get(dataset, DatasetJob).manifest()
    assert manifest
    name = manifest.target.names[-1]
    few = Verdict("fair", "Fair", "", "more_images", f"Get more images of “{name}”")
    weak = ClassScore(name, 0.2, 0.9, "recall")
    monkeypatch.setattr(model_result, "judge", lambda outcome: few)
    monkeypatch.setattr(model_result, "_weakest", lambda *_: weak)
    page = site.get(f"/models/{model}").text
    assert f'href="/datasets/{dataset}/add?class={name}"' in page
    form = site.get(f"/datasets/{dataset}/add?class={name}").text
    assert re.search(rf'<option selected value="{name}"|<option value="{name}" selected', form)


def test_each_cell_of_the_matrix_opens_its_images(site: Site, model: str) -> None:
    page = site.get(f"/models/{model}/evaluation").text
    assert "Confusion matrix" in page and "Worst mistakes" in page
    cells = re.findall(r'<td class="is-(?:right|wrong)"[^>]*><a href="([^"]+)"[^>]*>([\d,]+)</a>', page)
    found, _ = site.json(f"/models/{model}/evaluation.json")["evaluations"]
    matrix = np.array(found["confusion_matrix"])
    assert len(cells) == np.count_nonzero(matrix)
    for url, count in cells:
        explored = site.get(html.unescape(url)).text
        assert explored.count("<figcaption>") == int(count), url
    address = html.unescape(cells[0][0]).replace("/explore?", "/explore.json?").split("&label")[0]
    assert site.get(f"{address}&predicted=2").status_code == 200
    refused = site.get(f"{address}&predicted=3")
    assert refused.status_code == 404
    assert refused.get_json()["error"]["message"] == "This dataset has no class 3."
    wrong = site.json(f"{address}&wrong=1")
    assert wrong["total"] == matrix.sum() - np.trace(matrix)
    assert all(record["suggested_label"] != record["label"] for record in wrong["records"])
    suspect = site.json(f"{address}&wrong=suspect")
    assert suspect["total"] == found["details"]["suspects"]
    assert all(record["confidence"] >= 0.95 for record in suspect["records"])
    sorted_page = site.get(f"/models/{model}/evaluation?order=errors&unit=percent").text
    assert "in percent of the row" in sorted_page


def test_any_snapshot_split_and_dataset_can_be_evaluated(
    site: Site, dataset: str, model: str, finished: Finished
) -> None:
    answer = site.post(f"/models/{model}/evaluation", split="test", snapshot_epoch="-1")
    assert answer.status_code == 302
    names = {item["name"] for item in wait_for_evaluation(site, model, 2)["evaluations"]}
    assert names == {"snapshot_1-val", "snapshot_1-test"}
    other = finished.dataset(site, folder_pct_val=50)
    site.post(f"/models/{model}/evaluation", dataset=other, split="val")
    found = wait_for_evaluation(site, model, 3)["evaluations"]
    assert {item["dataset_id"] for item in found} == {dataset, other}
    page = site.get(f"/models/{model}").text
    panel = page[page.index('id="evaluation"') : page.index('id="evaluate-form"')]
    assert panel.count("/evaluation?name=") == 3
    # The images of a deleted dataset are not shown, but the numbers are.
    site.client.delete(f"/datasets/{other}")
    page = site.get(f"/models/{model}/evaluation?name=snapshot_1-{other}-val").text
    assert "deleted or changed" in page and "Accuracy" in page


def test_evaluations_wait_for_each_other_and_are_stopped_one_by_one(
    site: Site, dataset: str, finished: Finished
) -> None:
    model = finished.model(site, dataset)
    site.evaluate(model)
    address = f"/models/{model}/evaluation"
    slot = place(site.services.executor.ledger, DeviceRequest("evaluation"))
    assert slot is not None
    try:
        assert site.post(f"{address}.json", split="train").status_code == 202
        started = site.client.post(address, data={"split": "test"}, headers={"X-Requested-With": "fetch"})
        assert started.status_code == 202
        body = site.json(f"{address}.json")
        assert body["state"] == "running" and [(task["title"], task["state"]) for task in body["tasks"]] == [
            ("Epoch 1, training", "waiting"),
            ("Epoch 1, test", "waiting"),
        ]
        again = site.client.post(address, data={"split": "test"}, headers={"X-Requested-With": "fetch"})
        assert (
            again.status_code == 409 and "already running or waiting" in again.get_json()["error"]["message"]
        )
        page = site.get(f"/models/{model}").text
        assert page.count(f'action="{address}/stop"') == 2
        assert site.post(f"{address}/stop", name="snapshot_1-train").status_code == 302
        assert site.post(f"{address}/stop.json", name="snapshot_1-train").status_code == 409
    finally:
        site.services.executor.ledger.release(slot)
    names = {item["name"] for item in wait_for_evaluation(site, model, 2)["evaluations"]}
    assert names == {"snapshot_1-val", "snapshot_1-test"}


def test_two_models_are_compared_on_the_same_images(
    site: Site, dataset: str, model: str, finished: Finished
) -> None:
    better = finished.model(site, dataset, train_epochs=12, learning_rate=0.05)
    pair = f"first={model}&second={better}"
    assert "Evaluate both on the validation images" in site.get(f"/models/compare?{pair}").text
    for _ in range(2):  # nothing is left to do the second time
        started = site.post(f"/models/compare/evaluation?{pair}", dataset=dataset)
        assert started.status_code == 302 and "/models/compare?" in started.location
        site.wait(lambda: site.json(f"/models/{better}/evaluation.json")["state"] != "running")
    assert len(site.json(f"/models/{better}/evaluation.json")["evaluations"]) == 1
    body = site.json(f"/models/compare.json?{pair}")
    accuracies = [metrics["accuracy"] for metrics in body["pair"]["metrics"]]
    counts = body["pair"]["counts"]
    total = sum(counts.values())
    assert counts["fixed"] - counts["broken"] == pytest.approx(total * (accuracies[1] - accuracies[0]))
    assert 0 <= body["pair"]["p_value"] <= 1
    lead = counts["fixed"] - counts["broken"]
    assert body["pair"]["better"] == (None if lead == 0 else better if lead > 0 else model)
    different = {item["name"]: item["values"] for item in body["settings"]}
    assert different["solver.learning_rate"] == ["0.02", "0.05"] and "dataset" not in different
    page = site.get(f"/models/compare?{pair}").text
    (curves,) = re.findall(r'id="comparison-data">(.*?)</script>', page)
    assert [curve["titles"]["accuracy"] for curve in json.loads(curves)] == ["Accuracy", "Accuracy"]
    assert (
        f"{total} validation images of “<bdi>" in page
        and "different datasets" not in page
        and ">Learning rate<" in page
        and page.count("<figcaption>") == total - counts["both_right"]
    )
    assert f'value="{model}"' in site.get(f"/models/{better}").text  # offered on its page
    alone = site.finished_model(dataset)
    assert "No common evaluation" in site.get(f"/models/compare?first={model}&second={alone}").text
    assert site.json(f"/models/compare.json?first={model}&second={alone}")["pair"] is None
    assert site.get(f"/models/compare?first={model}&second={model}").status_code == 400
    assert site.get("/models/compare").status_code in (400, 404)


def test_the_groups_of_compared_images_open_in_explore(site: Site, dataset: str, model: str) -> None:
    body, page = site.compare_with_worse(model, dataset)
    counts = body["counts"]
    assert counts["fixed"] > 0 and body["classes"][0]["fixed"] + body["classes"][0]["both_wrong"] > 0
    links = re.findall(r'<a [^>]*href="([^"#]+&amp;outcome=[^"#]+)"[^>]*>([\d,]+)[ <]', page)
    assert len(links) > sum(count > 0 for count in counts.values())  # those of the classes too
    for url, count in links:
        found = site.json(html.unescape(url).replace("/explore?", "/explore.json?"))
        assert found["total"] == int(count), url
    (fixed,) = {html.unescape(url) for url, _ in links if url.endswith("outcome=fixed")}
    explored = site.get(fixed).text
    assert " is right, " in explored and " is wrong" in explored
    shown = re.findall(r'outcome=fixed#(record-\w+-\d+)"', page)
    assert shown and set(shown) <= set(re.findall(r'id="(record-\w+-\d+)"', explored))
    assert site.get(fixed.replace("=fixed", "=other")).status_code == 400
    assert site.get(fixed.replace("compare=", "compare=x")).status_code == 404
    assert site.get(fixed.replace("=fixed", "=worsened")).status_code == 200


def test_several_models_are_compared(site: Site, dataset: str, model: str) -> None:
    others = [site.finished_model(dataset) for _ in range(2)]
    ids = ",".join([model, *others])
    body = site.json(f"/models/compare.json?ids={ids}")
    trained, other, _ = body["models"]
    assert (trained["id"], trained["name"], other["id"]) == (model, "judged", others[0])
    manual = 2 * 16 * 16 * 3 * 3  # a multiplication and an addition for each weight
    assert manual <= trained["flops"] < 1.2 * manual
    assert trained["parameters"] == 16 * 16 * 3 * 3 + 3 and trained["milliseconds"] > 0
    assert trained["metrics"]["loss"] > 0 and trained["epoch"] == 1
    assert (other["flops"], other["peak_memory"], other["metrics"]) == (
        None,
        None,
        {"loss": 0.05, "accuracy": 0.5},
    )
    assert body["pair"] is None
    different = {item["name"]: item["values"] for item in body["settings"]}
    assert different["network"] == ["source code 1", "source code 2", "source code 2"]
    page = site.get(f"/models/compare?ids={ids}").text
    assert "Comparison of 3 models" in page and "No common evaluation" in page
    assert page.count("/metrics.json") == 3
    stranger = site.finished_model(site.dataset(dataset_name="strange"))
    mixed = site.get(f"/models/compare?ids={model},{stranger}").text
    assert "trained on different datasets" in mixed and "<b>" not in mixed.split('id="facts-title"')[1]
    # A form without scripts repeats the argument, and the two to compare in detail can be chosen.
    query = f"ids={model}&ids={others[0]}&ids={others[1]}&first={others[1]}&second={others[0]}"
    assert site.get(f"/models/compare?{query}").status_code == 200
    assert (
        site.get(f"/models/compare?ids={ids}&first={model}&second=20200101-000000-abcdef").status_code == 400
    )
    assert site.get(f"/models/compare?ids={model}").status_code == 400
    many = ",".join(f"20200101-000000-{number:06}" for number in range(11))
    assert "Choose 2 to 10 different models." in site.get(f"/models/compare?ids={many}").text
    assert site.get(f"/models/compare?ids={model},20200101-000000-abcdef").status_code == 404


@pytest.mark.parametrize(
    ("fields", "status", "message"),
    [
        ({"snapshot_epoch": "7"}, 404, "no snapshot of epoch 7"),
        ({"snapshot_epoch": "one"}, 400, "not an epoch"),
        ({"split": "everything"}, 400, "no split called"),
        ({"dataset": "20200101-000000-abcdef"}, 404, ""),
    ],
)
def test_requests_that_cannot_be_evaluated_are_refused(
    site: Site, model: str, fields: dict[str, str], status: int, message: str
) -> None:
    answer = site.client.post(
        f"/models/{model}/evaluation", data=fields, headers={"Accept": "application/json"}
    )
    assert answer.status_code == status
    assert message in answer.get_json()["error"]["message"]


def test_records_of_another_kind_are_neither_evaluated_nor_mapped(
    site: Site, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serializers, "data_kind", lambda job: kind_named("image-segmentation"))
    for action in ("evaluation", "embeddings"):
        answer = site.client.post(f"/models/{model}/{action}", headers={"Accept": "application/json"})
        assert answer.status_code == 400
        assert "is a dataset for image classification, but" in answer.get_json()["error"]["message"]


def renamed_bars(site: Site, **names: str) -> str:
    """Create a dataset of larger images of bars in folders with other ``names``, and return its id."""
    folder = site.data / "-".join(names.values())
    for old, new in names.items():
        shutil.copytree(bars(site.data / "bars") / old, folder / new)
    job_id = site.dataset(folder_train=str(folder), resize_width=20, resize_height=20, folder_pct_val=50)
    assert site.wait_for_end(job_id) == "Done"
    return job_id


def test_records_of_another_size_and_with_other_classes_are_evaluated(site: Site, model: str) -> None:
    first, second, third = sorted(path.name for path in bars(site.data / "bars").iterdir())
    other = renamed_bars(site, **{third: f"a {third}", first: first})
    answer = site.client.post(
        f"/models/{model}/evaluation",
        data={"dataset": other, "split": "val"},
        headers={"Accept": "application/json"},
    )
    assert answer.status_code == 202
    name = f"snapshot_1-{other}-val"

    def found() -> Any:
        results = site.json(f"/models/{model}/evaluation.json")["evaluations"]
        return next((item for item in results if item["name"] == name), None)

    result = site.wait(found)
    manifest = site.services.store.get(other, DatasetJob).manifest()
    assert manifest
    counts = dict(zip(manifest.target.names, manifest.splits["val"].counts, strict=True))
    assert result["classes"] == [first, second, third] and result["lacking"] == [f"a {third}"]
    assert result["excluded"] == counts[f"a {third}"]
    matrix = np.array(result["confusion_matrix"])
    assert matrix.sum(axis=1).tolist() == [counts[first], 0, 0]
    page = site.get(f"/models/{model}/evaluation?name={name}").text
    assert f"of classes that the model lacks (a {third})." in page and "Click a number" not in page
    explore = f"/datasets/images/classification/explore.json?job_id={other}&evaluation={model}/{name}"
    assert site.json(f"{explore}&wrong=1")["total"] == counts[first] - matrix[0, 0]
    assert site.get(f"{explore}&predicted=0").status_code == 404


def test_a_dataset_without_classes_of_the_model_is_refused(site: Site, model: str) -> None:
    names = sorted(path.name for path in bars(site.data / "bars").iterdir())
    other = renamed_bars(site, **{name: f"no {name}" for name in names})
    answer = site.client.post(
        f"/models/{model}/evaluation",
        data={"dataset": other, "split": "val"},
        headers={"Accept": "application/json"},
    )
    assert answer.status_code == 400
    reason = f"it has none of the model&#39;s classes ({', '.join(names)})"
    assert html.unescape(reason) in answer.get_json()["error"]["message"]
    assert re.search(
        rf'<option value="{other}" disabled>.*: {re.escape(reason)}</option>',
        site.get(f"/models/{model}").text,
    )


def test_a_damaged_result_is_left_out(site: Site, dataset: str, finished: Finished) -> None:
    job_id = finished.model(site, dataset, WHOLE_BATCHES)  # accepts only the batch size of the training
    assert site.evaluate(job_id)[0]["records"]
    folder = evaluations.folder_of(folder_of(site, job_id), "snapshot_1-val")
    (folder / evaluations.PREDICTIONS_FILE).unlink()
    assert site.get(f"/models/{job_id}/evaluation").status_code == 200
    (folder / evaluations.FILE_NAME).write_text("{")
    assert site.get(f"/models/{job_id}/evaluation").status_code == 404
    assert site.json(f"/models/{job_id}/evaluation.json")["evaluations"] == []
    shutil.rmtree(folder)
    assert site.get(f"/models/{job_id}/evaluation?name=../../x").status_code == 404
    job = site.services.store.get(job_id, ModelJob)
    for path in job.folder.glob("snapshot_1.ckpt*"):
        path.unlink()
    answer = site.client.post(f"/models/{job_id}/evaluation", headers={"Accept": "application/json"})
    assert answer.status_code == 400 and "no snapshot" in answer.get_json()["error"]["message"]
