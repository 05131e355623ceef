"""The predictions for the same records in each epoch."""

from __future__ import annotations

import io

import pytest

from tests.site import Site
from tests.web.trained import Finished, copy_job, shared_site

pytestmark = [pytest.mark.integration, pytest.mark.tensorflow]
site = shared_site


@pytest.fixture(scope="module")
def dataset(site: Site, finished: Finished) -> str:
    return finished.dataset(site, folder_pct_val=75)


@pytest.fixture(scope="module")
def model(site: Site, dataset: str, finished: Finished) -> str:
    return finished.model(site, dataset, train_epochs=3, learning_rate=0.1)


def test_each_snapshot_predicts_the_same_records(site: Site, model: str) -> None:
    found = site.json(f"/models/{model}/epoch-predictions.json")
    assert (found["split"], found["records"]) == ("val", list(range(14)))
    assert [item["epoch"] for item in found["epochs"]] == ["1", "2", "3"]
    for epoch in found["epochs"]:
        answers = [
            site.post(
                "/models/images/classification/classify_one.json",
                job_id=model,
                record=f"val/{place}",
                snapshot_epoch=epoch["epoch"],
            ).get_json()["predictions"][0]
            for place in (0, 9)
        ]
        for (name, percent), place in zip(answers, (0, 9), strict=True):
            assert epoch["predictions"][place][0] == [name, pytest.approx(percent, abs=0.01)]
    assert len({str(item["predictions"]) for item in found["epochs"]}) == 3


def test_the_part_of_the_page_marks_wrong_predictions(site: Site, model: str) -> None:
    found = site.json(f"/models/{model}/epoch-predictions.json?first=4")
    part = site.get(f"/models/{model}/epoch-predictions?first=4").text
    assert "<html" not in part and part.count("<figure>") == 3 * 14
    assert part.count("right:") + part.count("wrong:") == 3 * 14
    assert f"first={(found['records'][-1] + 1) % 18}" in part
    assert "epoch-predictions" in site.get(f"/models/{model}").text


@pytest.mark.parametrize("first", ["18", "-1", "x", "9" * 30])
def test_records_that_do_not_exist_are_refused(site: Site, model: str, first: str) -> None:
    answer = site.get(f"/models/{model}/epoch-predictions.json?first={first}")
    assert answer.status_code == 400 and "“first”" in answer.get_json()["error"]["message"]


def test_a_damaged_snapshot_is_left_out(site: Site, dataset: str, model: str) -> None:
    model = copy_job(site, site.services.store.folder / model, dataset)
    path = site.services.store.folder / model / "snapshot_2.ckpt.index"
    path.write_bytes(path.read_bytes()[:20])
    found = site.json(f"/models/{model}/epoch-predictions.json")
    assert [item["epoch"] for item in found["epochs"]] == ["1", "3"]


def test_a_deleted_dataset_is_explained(site: Site, model: str) -> None:
    archive = site.get(f"/models/{model}/download.zip").data
    imported = site.client.post(
        "/pretrained_models/upload_archive", data={"archive": (io.BytesIO(archive), "model.zip")}
    ).get_json()["id"]
    answer = site.get(f"/models/{imported}/epoch-predictions.json")
    assert answer.status_code == 404 and "dataset" in answer.get_json()["error"]["message"]
