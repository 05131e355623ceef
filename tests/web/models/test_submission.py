"""What the form of models fills in after a change, and what it leaves as it was entered."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from werkzeug.datastructures import MultiDict

from digits.kinds.standard_networks import network
from digits.web.models.form_page import FormPage
from digits.web.models.network_settings import text_of
from digits.web.models.submission import EVERYTHING, Submission
from tests.site import Site, open_site, site_settings


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    opened = open_site(site_settings(tmp_path_factory.mktemp("submissions")))
    with opened.app.app_context():
        yield opened
    opened.close()


@pytest.fixture(scope="module")
def photos(site: Site) -> str:
    return site.wait_until_done(site.dataset(resize_width=64, resize_height=64))


def settings(name: str) -> dict[str, str]:
    """Return the settings of a standard network for as few images."""
    return network(name).values | network(name).few_images


def followed(dataset: str, own: str = "", **fields: str) -> Submission:
    """Return a form that has followed a change, the last one of ``own``."""
    shown = {"method": "standard", "standard_networks": "lenet", "head_epochs": "2", "model_name": ""}
    submission = Submission(MultiDict({"dataset": dataset, "own": own, **shown, **fields}))
    submission.follow()
    return submission


def test_everything_follows_the_recommendation(photos: str) -> None:
    submission = followed(photos)
    page = FormPage(submission)
    best, card = page.best, page.card()
    assert best and submission.form.standard_networks.data == best.network != "lenet"
    values = {name: text_of(submission.form[name]) for name in best.networks[best.network].settings}
    assert values == best.networks[best.network].settings
    assert (card.is_recommended, card.headline, card.advice) == (True, best.headline, "")


def test_what_was_entered_stays_and_is_marked(photos: str) -> None:
    submission = followed(photos, "batch_size,standard_networks", batch_size="6")
    form = submission.form
    assert (form.standard_networks.data, form.batch_size.data) == ("lenet", [6])
    assert form.learning_rate.data == [float(settings("lenet")["learning_rate"])]
    FormPage(submission).mark_edits()
    assert form.batch_size.recommended == settings("lenet")["batch_size"]
    assert [field.name for field in form if hasattr(field, "recommended")] == ["batch_size"]
    assert submission.own == ["batch_size", "standard_networks"]


def test_a_value_that_equals_the_recommended_one_is_not_an_entry(photos: str) -> None:
    best = FormPage(followed(photos)).best
    assert best
    rate = best.networks[best.network].settings["learning_rate"]
    assert followed(photos, "learning_rate", learning_rate=f"{rate}0").own == []


@pytest.mark.parametrize("text", ["many", "0,01", "-1"])
def test_text_that_is_not_valid_stays(photos: str, text: str) -> None:
    submission = followed(photos, "learning_rate,train_epochs", learning_rate=text, train_epochs=text)
    assert text in str(submission.form.learning_rate()) + str(submission.form.train_epochs())
    assert not submission.form.errors and FormPage(submission).outlook().rates == []


def test_the_source_of_weights_decides_whether_to_fine_tune(photos: str) -> None:
    chosen = {"standard_networks": "resnet50"}
    names = "standard_networks,initial_weights"
    form = followed(photos, names, **chosen, initial_weights="imagenet").form
    assert form.fine_tune.data and form.solver_type.data == "ADAM"
    form = followed(photos, names, **chosen, initial_weights="random").form
    assert (form.initial_weights.data, form.fine_tune.data) == ("random", False)
    form = followed(photos, f"{names},fine_tune", **chosen, initial_weights="imagenet").form
    assert (form.initial_weights.data, form.fine_tune.data) == ("imagenet", False)
    # A network without weights has no use for the choice.
    submission = followed(photos, names, initial_weights="imagenet")
    assert submission.form.initial_weights.data == "random" and "initial_weights" not in submission.own


def test_without_obtainable_weights_networks_are_trained_from_scratch(photos: str) -> None:
    card = FormPage(followed(photos, from_scratch="1")).card()
    assert card.headline.endswith("from scratch") and card.is_recommended


def test_a_network_that_cannot_be_used_is_replaced(photos: str) -> None:
    submission = followed(photos, "standard_networks", standard_networks="alexnet")
    best = FormPage(submission).best
    assert best and submission.form.standard_networks.data == best.network
    assert submission.own == []


def test_a_custom_network_has_the_defaults_or_the_settings_of_the_one_that_it_was_made_from(
    photos: str,
) -> None:
    assert followed(photos, "method", method="custom").form.solver_type.data == "SGD"
    form = followed(photos, "method", method="custom", customized="resnet32").form
    assert form.solver_type.data == settings("resnet32")["solver_type"] != "SGD"
    assert not form.fine_tune.data


def test_a_solver_has_its_usual_rate_unless_another_was_entered(photos: str) -> None:
    names = "standard_networks,solver_type"
    assert followed(photos, names, solver_type="LION").form.learning_rate.data == [0.0001]
    form = followed(photos, f"learning_rate,{names}", solver_type="LION", learning_rate="0.05").form
    assert (form.learning_rate.data, form.beta_2.data) == ([0.05], 0.99)


def test_a_copy_keeps_its_settings_until_the_recommendation_is_asked_for(photos: str) -> None:
    submission = followed(photos, EVERYTHING, train_epochs="7", model_name="Copy")
    form = submission.form
    assert (form.standard_networks.data, form.train_epochs.data, form.model_name.data) == ("lenet", 7, "Copy")
    assert FormPage(submission).card().advice


def test_gpus_and_other_devices_exclude_each_other(photos: str) -> None:
    both = {"select_gpu": "next", "select_gpus": "1"}
    assert followed(photos, "select_gpus", **both).form.device() == "1"
    assert followed(photos, "select_gpus,select_gpu", **both).form.device() == "next"
    assert followed(photos, "select_gpus").form.device() == "next"


def test_the_name_follows_the_network_until_one_is_entered(site: Site, photos: str) -> None:
    assert followed(photos, "standard_networks").form.model_name.data.startswith("LeNet on ")
    assert followed(photos, "method", method="custom").form.model_name.data.startswith("My network on ")
    own = followed(photos, "model_name,standard_networks", model_name="Mine")
    assert (own.form.model_name.data, own.names_itself) == ("Mine", False)
