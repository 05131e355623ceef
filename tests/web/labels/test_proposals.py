"""Proposals of a model: made by a task, shown for open training images, accepted, taken back, and compared."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from msgspec import structs
from PIL import Image

from digits.core.model_job import ModelJob
from digits.kinds.advice.verdict import Verdict
from digits.kinds.jobs import DatasetJob
from digits.kinds.labeling.images import ListedImage
from digits.kinds.labeling.job import LabelsJob
from digits.kinds.labeling.ordering import BATCH, CANDIDATES, diverse_order, uncertain_order
from digits.web.evaluations import model_result
from digits.web.labels.actions import SAMPLE
from digits.web.models.retraining import epochs_again
from tests.labels import create, frozen, image, mask_of, rows_of, save
from tests.site import Site, bars
from tests.web.trained import shared_site, train, wait_for_evaluation

pytestmark = pytest.mark.integration
site = shared_site
NAMES = ("left", "middle", "right")


def labels_of_bars(site: Site, kind: str = "classification", classes: str = "\n".join(NAMES)) -> str:
    return create(site, kind, folder=str(bars(site.data / "bars", each=16)), classes=classes)


def propose(site: Site, job: str, model: str) -> dict[str, Any]:
    answer = site.client.post(f"/labels/{job}/predictions.json", json={"model": model})
    assert answer.status_code == 202, answer.get_json()

    def is_done() -> Any:
        body = site.json(f"/labels/{job}/predictions.json")
        assert body["state"] != "failed", body["error"]
        return body if body["state"] == "done" else None

    found: dict[str, Any] = site.wait(is_done)
    return found


@pytest.fixture(scope="module")
def labeled(site: Site) -> tuple[str, str]:
    """Labels of which each third image is open, and a model that was trained on the others and evaluated."""
    job = labels_of_bars(site)
    for row in rows_of(site, job):
        if row["n"] % 3:
            label = NAMES.index(row["path"].split("/")[0])
            assert save(site, job, row["n"], 0, f"first-{row['n']}", label=label).status_code == 200
    model = train(site, frozen(site, job, "first"), train_epochs=8, model_name="judged on first")
    answer = site.post(f"/models/{model}/evaluation.json", split="val")
    assert answer.status_code == 202, answer.get_json()
    wait_for_evaluation(site, model)
    return job, model


@pytest.fixture(scope="module")
def proposed(site: Site, labeled: tuple[str, str]) -> str:
    job, model = labeled
    body = propose(site, job, model)
    assert body["images"] == len(rows_of(site, job)) and body["run"] == "judged on first"
    return job


def test_open_training_images_have_proposals_and_no_others(site: Site, proposed: str) -> None:
    for row in rows_of(site, proposed):
        found = image(site, proposed, row["n"]).get("predicted")
        assert bool(found) == (row["state"] == "none" and row["split"] == "train"), row
        if found:
            assert found["label"] == NAMES.index(row["path"].split("/")[0])
            assert 0.3 < found["score"] <= 1 and 0 <= found["uncertainty"] <= 1
    page = site.get(f"/labels/{proposed}?state=none&split=train").text
    assert page.count("Proposed: ") == page.count("/thumbnail") > 0
    assert "Proposed: " not in site.get(f"/labels/{proposed}?state=none&split=val").text


def test_images_are_compared_with_the_weights_on_the_server_if_these_can_be_used(
    site: Site, labeled: tuple[str, str]
) -> None:
    weights = site.services.settings.weights_dir / "efficientnetlite.h5"
    weights.parent.mkdir(exist_ok=True)
    weights.write_bytes(b"damaged")
    job = labels_of_bars(site)
    propose(site, job, labeled[1])
    weights.unlink()
    logs = [path.read_text() for path in site.services.store.get(job, LabelsJob).folder.glob("*/output.log")]
    assert [text.count("Images are compared without a network") for text in logs] == [1, 1]
    assert len(site.json(f"/labels/{job}/next.json?client=a&count=20")["images"]) == 20


def test_proposals_are_seen_before_they_are_accepted_and_taken_back_together(
    site: Site, proposed: str
) -> None:
    accept = f"/labels/{proposed}/accept.json"
    asked = {"threshold": 0.01, "dry_run": True}
    sample = site.client.post(accept, json=asked).get_json()
    open_ones = {row["n"] for row in rows_of(site, proposed, state="none", split="train")}
    assert sample["count"] == len(open_ones) and {*sample["sample"]} <= open_ones
    assert len(sample["sample"]) == min(SAMPLE, len(open_ones))
    page = site.get(f"/labels/{proposed}?score=1").text
    assert f"Accept {sample['count']} proposals" in page

    cursor = site.json(f"/labels/{proposed}.json")["cursor"]
    for threshold in (0, -1, 2, "x", None):
        assert site.client.post(accept, json={"threshold": threshold}).status_code == 400
    assert site.json(f"/labels/{proposed}.json")["cursor"] == cursor

    accepted = site.client.post(accept, json={"threshold": 0.01}).get_json()
    assert accepted["count"] == len(open_ones)
    assert not rows_of(site, proposed, state="none", split="train")
    # Somebody corrects one of them: it stays.
    corrected = min(open_ones)
    assert save(site, proposed, corrected, 1, "mine", label=0).status_code == 200
    undone = site.client.post(f"/labels/{proposed}/accept/undo.json", json={"batch": accepted["batch"]})
    assert undone.get_json()["count"] == len(open_ones) - 1
    assert {row["n"] for row in rows_of(site, proposed, state="unlabeled")} == open_ones - {corrected}
    assert image(site, proposed, corrected)["label"] == 0
    history = site.json(f"/labels/{proposed}/images/{max(open_ones)}/history.json")
    assert [entry["state"] for entry in history["entries"]] == ["unlabeled", "labeled"]
    assert [*history["models"]] == [history["entries"][1]["source"].split("/")[0]]


def test_a_run_that_has_not_begun_leaves_the_proposals_of_the_one_before(
    site: Site, proposed: str, labeled: tuple[str, str]
) -> None:
    before = site.json(f"/labels/{proposed}/predictions.json")["images"]
    sent = {"model": labeled[1]}
    assert site.client.post(f"/labels/{proposed}/predictions.json", json=sent).status_code == 202
    refused = site.client.post(f"/labels/{proposed}/predictions.json", json=sent)
    assert refused.status_code == 409 and "already running" in refused.get_json()["error"]["message"]
    site.wait(lambda: site.json(f"/labels/{proposed}/predictions.json")["state"] == "done")
    assert site.json(f"/labels/{proposed}/predictions.json")["images"] == before


def test_labels_that_the_model_doubts_are_found(site: Site, proposed: str) -> None:
    row = next(row for row in rows_of(site, proposed, state="labeled") if row["path"].startswith("right"))
    assert save(site, proposed, row["n"], row["rev"], "wrong", label=0).status_code == 200
    page = site.get(f"/labels/{proposed}?differs=1").text
    assert f"/images/{row['n']}/thumbnail" in page and "right" in page


def test_images_are_found_by_author_model_and_score(
    site: Site, proposed: str, labeled: tuple[str, str]
) -> None:
    def found(**query: Any) -> set[int]:
        return {row["n"] for row in rows_of(site, proposed, **query)}

    images = found()
    sure = found(above=60)
    assert images == sure | found(below=60) and not sure & found(below=60)
    assert found(above=0) == images and not found(above=60, below=60)
    finished = [row for row in rows_of(site, proposed) if row["state"] == "labeled"]
    right = next(row for row in finished if row["path"].startswith("right"))
    answer = {"state": "labeled", "edit": "doubted", "proposed": True, "label": 0, "rev": right["rev"]}
    address = f"/labels/{proposed}/images/{right['n']}.json?username=ada"
    assert site.client.post(address, json=answer).status_code == 200
    assert found(by="ada") == found(model=labeled[1], by="ada") == {right["n"]}
    assert found(label=0, differs=1, by="ada") == {right["n"]} and not found(label=1, by="ada")
    assert not found(by="nobody") and not found(model="none")
    page = site.get(f"/labels/{proposed}?by=ada&above=0&model={labeled[1]}").text
    assert f"/images/{right['n']}/thumbnail" in page and page.count("/thumbnail") == 1
    assert site.client.get(f"/labels/{proposed}/images.json?above=101").status_code == 400


def test_a_model_is_trained_again_on_all_labels(site: Site, labeled: tuple[str, str]) -> None:
    job, model = labeled
    answer = site.client.post(f"/labels/{job}/train.json", json={"model": model})
    assert answer.status_code == 200, answer.get_json()
    again = answer.get_json()
    name = site.json(f"/datasets/{again['dataset']}.json")["name"]
    assert name != "first" and again["name"] == f"judged on {name}"
    page = site.get(f"/labels/{job}").text
    assert f'data-watch="{again["id"]}"' in page and "is being trained" in page
    site.wait_until_done(again["id"])
    dataset = site.json(f"/datasets/{again['dataset']}.json")
    assert dataset["frozen"]["cursor"] == site.json(f"/labels/{job}.json")["cursor"]
    assert dataset["CreateDbTasks"][0]["image_width"] == 16
    made, before = (site.services.store.get(each, ModelJob) for each in (again["id"], model))
    assert made.recipe.weights and made.recipe.weights.startswith(str(before.folder))
    assert made.network_text() == before.network_text()
    assert made.recipe.solver == before.recipe.solver and made.recipe.epochs == before.recipe.epochs
    assert "Predict the rest" in site.get(f"/labels/{job}").text
    for other in ("", "20200101-000000-000000"):
        assert site.client.post(f"/labels/{job}/train.json", json={"model": other}).status_code == 404
    regression = labels_of_bars(site, "regression", "angle")
    refused = site.client.post(f"/labels/{regression}/train.json", json={"model": model})
    assert refused.status_code == 400 and "was not trained on" in refused.get_json()["error"]["message"]


def test_a_model_that_cannot_be_trained_again_leaves_no_dataset_behind(
    site: Site, labeled: tuple[str, str]
) -> None:
    job, model = labeled
    store = site.services.store
    trained = store.get(model, ModelJob)
    compute, datasets = trained.compute, len(store.all(DatasetJob))
    store.edit(trained, compute=structs.replace(compute, target="cluster"))
    try:
        refused = site.client.post(f"/labels/{job}/train.json", json={"model": model})
    finally:
        store.edit(trained, compute=compute)
    assert refused.status_code == 400
    assert (
        "cannot be trained again with its settings: Not a valid choice"
        in refused.get_json()["error"]["message"]
    )
    assert len(store.all(DatasetJob)) == datasets


@pytest.mark.parametrize(
    ("epochs", "share", "again"), [(94, 60 / 560, 17), (94, 0.5, 47), (8, 0.1, 8), (30, 1, 30), (0.5, 1, 1)]
)
def test_training_again_takes_as_many_steps_on_more_images(epochs: float, share: float, again: int) -> None:
    assert epochs_again(epochs, share) == again


def test_the_page_shows_what_labels_gained(site: Site, labeled: tuple[str, str]) -> None:
    job, model = labeled
    for number, row in enumerate(rows_of(site, job, state="labeled")[:5]):
        taken = save(site, job, row["n"], row["rev"], f"again{number}", state="unlabeled")
        again = {"seconds": 2.0 + number, "proposed": True, "label": 1}
        assert save(site, job, row["n"], taken.get_json()["rev"], f"new{number}", **again).status_code == 200
    page = site.get(f"/labels/{job}").text
    assert "What labeling gained" in page and "4.0 s per image with a proposal" in page
    assert f'href="/models/{model}"' in page and "Accuracy over labeled images" in page


def test_a_model_that_lacks_images_leads_to_the_labels(
    site: Site, labeled: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    job, model = labeled
    few = Verdict("fair", "Fair", "", "more_images", "Get more images")
    monkeypatch.setattr(model_result, "judge", lambda outcome: few)
    page = site.get(f"/models/{model}").text
    button = r'<a class="button[^"]*" href="([^"]+)">(?:(?!</a>).)*Label more images</span></a>'
    assert re.findall(button, page, re.S) == [f"/labels/{job}"]


def test_a_model_of_another_kind_is_refused(site: Site, labeled: tuple[str, str]) -> None:
    other = labels_of_bars(site, "regression", "angle")
    answer = site.client.post(f"/labels/{other}/predictions.json", json={"model": labeled[1]})
    assert answer.status_code == 400 and "does not predict" in answer.get_json()["error"]["message"]


def test_masks_are_proposed_with_the_classes_of_the_labels(site: Site) -> None:
    job = labels_of_bars(site, "segmentation", "bar")
    for row in rows_of(site, job):
        if row["n"] % 3:
            left = 5 * NAMES.index(row["path"].split("/")[0])
            pixels = np.zeros((16, 16), np.uint8)
            pixels[:, left : left + 5] = 1
            assert save(site, job, row["n"], 0, f"m{row['n']}", mask=mask_of(pixels)).status_code == 200
    answer = site.client.post(
        f"/labels/{job}/datasets.json", json={"name": "masks", "width": 16, "height": 16}
    )
    dataset = site.wait_until_done(answer.get_json()["id"])
    settings = {"method": "standard", "standard_networks": "unet", "train_epochs": 2, "batch_size": 4}
    propose(site, job, site.train("images/segmentation", dataset, learning_rate=0.003, **settings))
    row = rows_of(site, job, state="none", split="train")[0]
    found = image(site, job, row["n"])["predicted"]
    assert 0 < found["uncertainty"] < 1 and found["score"] == pytest.approx(
        1 - found["uncertainty"], abs=1e-6
    )
    answer = site.get(f"/labels/{job}/images/{row['n']}/mask?proposed=1")
    (path := site.data / "mask.png").write_bytes(answer.data)
    mask = Image.open(path)
    assert mask.mode == "L" and mask.size == (16, 16) and {*np.unique(np.asarray(mask))} <= {0, 1}
    accepted = site.client.post(f"/labels/{job}/accept.json", json={"threshold": 0.001}).get_json()
    assert accepted["count"] > 0
    assert site.get(f"/labels/{job}/images/{row['n']}/mask").data == answer.data


def listed(count: int) -> list[ListedImage]:
    splits = ("train", "train", "train", "val")
    return [
        ListedImage(path=f"{n}.png", split=splits[n % 4], set=n - n % 2 if n % 4 < 2 else n, digest="0")
        for n in range(count)
    ]


def test_the_first_images_are_different_and_others_come_evenly_among_them() -> None:
    images = listed(400)
    random = np.random.default_rng(0)
    groups = np.arange(400) % BATCH
    looks = (random.normal(0, 2, (400, 63)) + 100 * np.eye(63)[groups]).astype(np.int8)
    order = diverse_order(images, looks, 7, lambda numbers: None)
    assert sorted(order.tolist()) == list(range(400))
    train = [number for number in order if images[number].split == "train"]
    assert len({groups[number] for number in train[:BATCH]}) >= BATCH * 0.6
    held_out = [place for place, number in enumerate(order) if images[number].split == "val"]
    assert np.diff(held_out).max() <= 5
    assert order.tolist() == diverse_order(images, looks, 7, lambda numbers: None).tolist()


def test_the_first_images_differ_in_their_features() -> None:
    images = listed(400)
    groups = np.random.default_rng(0).permutation(400) % BATCH
    seen = np.eye(BATCH, dtype=np.float32)[groups]
    order = diverse_order(images, np.zeros((400, 63), np.int8), 7, seen.__getitem__)
    assert sorted(order.tolist()) == list(range(400))
    train = [number for number in order if images[number].split == "train"]
    first, second = ({groups[number] for number in train[start : start + BATCH]} for start in (0, BATCH))
    assert min(len(first), len(second)) >= BATCH * 0.7


def test_uncertain_images_come_first_and_near_duplicates_do_not() -> None:
    images = listed(400)
    uncertainty = np.linspace(1, 0, 400, dtype=np.float32)
    looks = np.random.default_rng(1).integers(-127, 128, (400, 63)).astype(np.int8)
    order = uncertain_order(images, looks, uncertainty, 3, lambda numbers: None)
    assert sorted(order.tolist()) == list(range(400))
    train = [int(number) for number in order if images[number].split == "train"]
    first = train[:100]
    sets = [images[number].set for number in first]
    assert len(sets) == len({*sets})
    # A batch is chosen from the most uncertain ones, one of each set.
    firsts = sorted({images[number].set for number in train})[: CANDIDATES * BATCH]
    assert {images[number].set for number in first[:BATCH]} <= {*firsts}


def test_uncertain_images_differ_in_their_features() -> None:
    images = listed(1000)
    uncertainty = np.linspace(1, 0, 1000, dtype=np.float32)
    groups = np.random.default_rng(0).permutation(1000) % BATCH
    seen, looks = np.eye(BATCH, dtype=np.float32)[groups], np.zeros((1000, 63), np.int8)
    order = uncertain_order(images, looks, uncertainty, 3, seen.__getitem__)
    assert sorted(order.tolist()) == list(range(1000))
    train = [int(number) for number in order if images[number].split == "train"]
    assert len({groups[number] for number in train[:50]}) >= BATCH * 0.9
    # Those of the highest uncertainty come early nevertheless, and near-duplicates at the end.
    assert np.mean(train[:50]) < np.mean(train[50:300])
    sets = [images[number].set for number in train[:400]]
    assert len(sets) == len({*sets})
