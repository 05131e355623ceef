"""The choices of the model form: the newest datasets and models, and all others by searching."""

from __future__ import annotations

import re

import pytest

from digits.core.recipe import CreateDataset
from digits.core.status import Status
from digits.core.task import Task
from digits.kinds.classification.recipe import CreateClassification, FolderSplit
from digits.kinds.detection.recipe import CreateDetection
from digits.kinds.forms.fields import NAME_LENGTH
from digits.kinds.jobs import DatasetJob
from digits.kinds.standard_networks import every_network
from tests.site import Site

NEW = "/models/images/classification/new"
CREATE = "/models/images/classification.json"
FORM = "/models/images/classification/form"


@pytest.fixture(autouse=True)
def short_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("digits.web.models.form_choices.SHOWN_DATASETS", 2)
    monkeypatch.setattr("digits.web.models.form_choices.SHOWN_MODELS", 2)


def dataset(site: Site, name: str, status: Status = Status.DONE, recipe: CreateDataset | None = None) -> str:
    folder = site.services.store.new_folder()
    recipe = recipe or CreateClassification(train=FolderSplit(folder="/data"))
    task = Task(name="create", title="Create")
    for step in (Status.RUN, status):
        task.move(step)
    job = DatasetJob(id=folder.name, folder=folder, name=name, recipe=recipe, tasks=[task])
    job.update_status()
    site.services.store.add(job)
    return job.id


def datasets(page: str) -> list[str]:
    """Return the names offered in the dataset field."""
    field = re.search(r'<select[^>]* name="dataset".*?</select>', page, re.DOTALL)
    assert field is not None
    return re.findall(r"<option[^>]*>([^<]*)<", field[0])


def models(page: str) -> list[str]:
    """Return the ids of the previous models offered."""
    return re.findall(r'name="previous_networks" value="([^"]*)"', page)


def test_the_form_lists_the_newest_datasets_and_the_chosen_one(site: Site) -> None:
    oldest, *_ = [dataset(site, f"birds {number}") for number in range(4)]
    page = site.get(NEW).text
    assert datasets(page) == ["birds 3", "birds 2"]
    assert 'id="dataset-search"' in page
    assert datasets(site.get(f"{NEW}?dataset={oldest}").text) == ["birds 3", "birds 2", "birds 0"]


def test_a_short_list_needs_no_search(site: Site) -> None:
    dataset(site, "birds")
    site.finished_model(dataset(site, "fish"))
    page = site.get(NEW).text
    assert "dataset-search" not in page
    assert re.search(r'id="previous-search"[^>]* hidden>', page)


def test_the_name_of_a_model_is_suggested_before_any_script_runs(site: Site) -> None:
    dataset(site, "birds")
    name = re.search(r'<input[^>]* id="model_name"[^>]*>', site.get(NEW).text)
    assert name is not None
    assert "data-suggested" in name[0]
    network = re.search(r'value="(.+) on birds"', name[0])
    assert network and network[1] in {item.title for item in every_network().values()}
    dataset(site, "b" * NAME_LENGTH)
    longest = re.search(r'value="([^"]+ on b+)"', site.get(NEW).text)
    assert longest and len(longest[1]) == NAME_LENGTH


def test_a_search_finds_every_usable_dataset(site: Site) -> None:
    dataset(site, "Rainy birds")
    for number in range(3):
        dataset(site, f"sunny {number}")
    dataset(site, "rainy failure", Status.ERROR)
    found = site.post(FORM, dataset_search="RAINY").text
    assert datasets(found) == ["Rainy birds"] and "1 found" in found
    found = site.post(FORM, dataset_search="sunny").text
    assert datasets(found) == ["sunny 2", "sunny 1"] and "2 or more found" in found


def test_a_dataset_that_is_not_listed_can_be_chosen(site: Site) -> None:
    oldest, *_ = [dataset(site, f"birds {number}") for number in range(4)]
    fields = {"model_name": "net", "train_epochs": "1"}
    answer = site.post(CREATE, **fields, dataset=oldest)
    assert answer.status_code == 200 and answer.get_json()["dataset_id"] == oldest
    answer = site.post(CREATE, **fields, dataset=dataset(site, "failed", Status.ERROR))
    assert "dataset" in answer.get_json()["errors"]
    # A form with an error is shown again with the chosen dataset.
    page = site.client.post(
        CREATE.removesuffix(".json"), data={"dataset": oldest}, headers={"Accept": "text/html"}
    )
    assert page.status_code == 400 and datasets(page.text) == ["birds 3", "birds 2", "birds 0"]


def test_a_clone_keeps_a_dataset_that_is_not_listed(site: Site) -> None:
    oldest, *_ = [dataset(site, f"birds {number}") for number in range(4)]
    model = site.finished_model(oldest)
    assert "birds 0" in datasets(site.get(f"{NEW}?clone={model}").text)
    answer = site.post(CREATE, clone=model)
    assert answer.status_code == 200 and answer.get_json()["dataset_id"] == oldest


def test_a_clone_has_the_next_free_name_and_rates_times_a_factor(site: Site) -> None:
    birds = dataset(site, "birds")
    model = site.finished_model(birds)
    assert 'value="finished 2"' in site.get(f"{NEW}?clone={model}").text
    fields = {"dataset": birds, "learning_rate": "0.01", "train_epochs": "1"}
    second = site.post(CREATE, model_name="finished 2", **fields).get_json()["id"]
    page = site.get(f"{NEW}?clone={second}&rate_factor=0.1").text
    assert 'value="finished 3"' in page
    assert re.search(r'name="learning_rate"[^>]* value="0.001"', page)
    assert re.search(r'name="head_rate"[^>]* value="0.0003"', page)
    for factor in ("nan", "-1", "0", "a tenth"):
        assert site.get(f"{NEW}?clone={second}&rate_factor={factor}").status_code == 400


def test_the_form_lists_the_newest_models_that_fit_the_dataset(site: Site) -> None:
    parent = dataset(site, "birds")
    ids = [site.finished_model(parent) for _ in range(4)]
    fish = dataset(site, "fish")
    page = site.get(f"{NEW}?dataset={fish}").text
    assert models(page) == [ids[3], ids[2]]
    assert "Showing the newest 2 models" in page and "<bdi>birds</bdi> · <time" in page
    assert models(site.get(f"{NEW}?previous={ids[0]}").text) == [ids[0], ids[3], ids[2]]
    for path in (site.services.store.folder / ids[3]).glob("snapshot_1.*"):
        path.unlink()
    assert models(site.get(f"{NEW}?dataset={fish}").text) == [ids[2], ids[1]]
    boxes = dataset(site, "boxes", recipe=CreateDetection(images="/data", labels="/data"))
    assert models(site.get(f"{NEW}?dataset={boxes}").text) == []


def test_a_search_finds_every_model_and_keeps_the_chosen_one(site: Site) -> None:
    parent = dataset(site, "fish")
    fish = site.finished_model(parent)
    birds = [site.finished_model(dataset(site, "birds")) for _ in range(3)]
    fields = {"dataset": parent, "method": "previous"}
    found = site.post(FORM, **fields, previous_search="fish").text
    assert models(found) == [fish] and "1 found" in found
    found = site.post(FORM, **fields, previous_search="birds", previous_networks=fish).text
    assert models(found) == [fish, birds[2], birds[1]]
    assert re.search(rf'value="{fish}"[^>]* checked', found)
    assert models(site.post(FORM, **fields, previous_search="nothing").text) == []
