"""Which of several compared models is best, and which are not distinguishable from it."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np
import pytest

from digits.data.models import evaluation as evaluations
from digits.data.models.comparison import holm
from digits.data.models.evaluation import Evaluation
from tests.site import Site

RECORDS = 100


def test_p_values_are_corrected_for_their_number() -> None:
    # The example of R's p.adjust for the method "holm".
    assert holm([0.01, 0.02, 0.03, 0.04]) == pytest.approx([0.04, 0.06, 0.06, 0.06])
    assert holm([0.04, 0.001, 0.6]) == pytest.approx([0.08, 0.003, 0.6])
    assert holm([0.7, 0.8]) == [1.0, 1.0] and holm([]) == []


@dataclass
class Models:
    """Models of a dataset, which were evaluated on the same records."""

    site: Site
    dataset: str

    def add(self, wrong: range, split: str = "val", content_hash: str = "same") -> str:
        """Add a model that is wrong about the records with the numbers in ``wrong``, and return its id."""
        site = self.site
        model = site.finished_model(self.dataset)
        right = np.isin(np.arange(RECORDS), wrong, invert=True)
        folder = site.services.store.folder / model / evaluations.FOLDER / f"snapshot_1-{split}"
        folder.mkdir(parents=True)
        result = Evaluation(
            name=folder.name,
            snapshot="snapshot_1.ckpt",
            epoch=1.0,
            dataset_id=self.dataset,
            content_hash=content_hash,
            split="val" if split == "val" else "test",
            records=RECORDS,
            total=RECORDS,
            seconds=1.0,
            predicting_seconds=1.0,
            metrics={"accuracy": float(right.mean()), "loss": 0.5},
            details={},
        )
        (folder / evaluations.FILE_NAME).write_bytes(msgspec.json.encode(result))
        scores = np.stack([right, ~right], axis=1).astype(np.float32)
        np.save(folder / evaluations.PREDICTIONS_FILE, scores)
        np.save(folder / evaluations.TARGETS_FILE, np.zeros(RECORDS, np.int64))
        np.save(folder / evaluations.ERRORS_FILE, 1 - scores[:, 0])
        return model


def test_models_that_are_not_distinguishable_from_the_best_are_named(site: Site) -> None:
    models = Models(site, site.dataset(dataset_name="photos"))
    good, equal, bad = (models.add(wrong) for wrong in (range(5), range(4, 12), range(10, 70)))
    other = models.add(range(50), content_hash="another")
    ids = ",".join([bad, equal, good, other])
    best = site.json(f"/models/compare.json?ids={ids}")["best"]
    assert (best["model"], best["split"], best["records"], best["metric"]) == (
        good,
        "val",
        RECORDS,
        "accuracy",
    )
    assert best["missing"] == [other]
    (second, third) = best["rivals"]
    assert (second["model"], second["is_certain"]) == (equal, False) and second["p_value"] > 0.05
    assert (third["model"], third["is_certain"]) == (bad, True) and third["p_value"] < 1e-6
    page = site.get(f"/models/compare?ids={ids}").text
    shown = page.split('id="overall"')[1].split("</div>")[0]
    labels = {model: f"“<bdi>finished ({model[-6:]})</bdi>”" for model in (good, equal, bad, other)}
    assert (
        f"{labels[good]} has the best accuracy, but {labels[equal]} is not distinguishable from it." in shown
    )
    assert f"On 100 validation images of “<bdi>photos</bdi>”: {labels[good]} 95.0%" in shown
    assert (
        "corrected for 2 comparisons (Holm)" in shown and f"Not evaluated on them: {labels[other]}." in shown
    )


def test_a_difference_that_only_one_test_finds_is_not_certain_among_several(site: Site) -> None:
    models = Models(site, site.dataset())
    # 1 against 8 records: a p-value of 0.039, above 5% in three comparisons.
    good, *others = (models.add(wrong) for wrong in (range(1), range(1, 9), range(11, 19), range(21, 29)))
    pair = site.json(f"/models/compare.json?ids={good},{others[0]}")
    assert pair["pair"]["is_certain"] and pair["pair"]["better"] == good and pair["best"] is None
    best = site.json(f"/models/compare.json?ids={','.join([*others, good])}")["best"]
    assert best["model"] == good and not any(each["is_certain"] for each in best["rivals"])
    worse = [models.add(wrong) for wrong in (range(40, 80), range(30, 90))]
    certain = site.get(f"/models/compare?ids={','.join([*worse, good])}").text
    assert f"finished ({good[-6:]})</bdi>” is the best of 3 models." in certain


def test_a_project_as_json_names_its_best_model(site: Site) -> None:
    models = Models(site, site.wait_until_done(site.dataset(dataset_name="photos")))
    empty = site.json(f"/projects/{models.dataset}.json")
    assert (empty["name"], empty["kind"], empty["metric"]) == ("photos", "image-classification", "accuracy")
    assert (empty["best"], empty["split"], empty["models"]) == (None, None, [])
    (version,) = empty["versions"]
    assert (version["id"], version["parent"], version["change"], version["models"]) == (
        models.dataset,
        None,
        0,
        0,
    )
    content = site.json(f"/datasets/{models.dataset}.json")["content_hash"]
    worse, best = (models.add(wrong, content_hash=content) for wrong in (range(40), range(2)))
    alone = site.finished_model(models.dataset)
    body = site.json(f"/projects/{models.dataset}.json")
    assert (body["dataset_id"], body["split"]) == (models.dataset, "val")
    assert [(each["id"], each["value"]) for each in body["models"]] == [
        (best, 0.98),
        (worse, 0.6),
        (alone, None),
    ]
    expected = {"model": best, "value": 0.98, "interval": None, "second": worse, "is_certain": True}
    assert body["best"] == expected and body["versions"][0]["models"] == 3
    accepted = site.client.get(f"/projects/{models.dataset}", headers={"Accept": "application/json"})
    assert accepted.get_json() == body
    page = site.get(f"/projects/{models.dataset}").text
    assert (
        "It is better than “<bdi>finished</bdi>”" in page
        and "Accuracy <b>98.0%</b> on 100 validation images" in page
    )
