"""Title, summary and settings of the standard networks in the form."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from flask import Flask
from werkzeug.datastructures import MultiDict

from digits.core import schedules
from digits.core.errors import NotFound
from digits.data.models.pretrained import WeightsPlaces
from digits.kinds import standard_networks
from digits.web.models.form import ModelForm
from digits.web.models.network_lint import lint

ROOT = Path(__file__).parents[2]
DOCUMENTED = (ROOT / "docs" / "standard-networks.md").read_text(encoding="utf-8")

TEXT = """# Title: when to use it: often,
# and why.
#
# Made for pictures.
# Good settings: many.
#
# paper: Somebody, 2020,
# paper: “Title”.
# settings: solver_type=ADAM learning_rate=0.001
# settings: lr_multistep_values=50,85
# kinds: classification regression
# smallest: 12

# settings: not=these
"""


def test_the_leading_comment_describes_the_network():
    network = standard_networks.read("some", TEXT)
    assert network.id == "some"
    assert network.title == "Title"
    assert network.summary == "When to use it: often, and why."
    assert network.settings == "Made for pictures. Good settings: many."
    assert network.values == {"solver_type": "ADAM", "learning_rate": "0.001", "lr_multistep_values": "50,85"}
    assert network.kinds == ("classification", "regression")
    assert network.paper == "Somebody, 2020, “Title”."
    assert network.smallest == 12
    assert network.text == TEXT


@pytest.mark.parametrize(
    ("title", "words"),
    [
        ("ResNet-50", "ResNet-50"),
        ("Small object detector", "the small object detector"),
        ("U-Net with ResNet-50", "the U-Net with ResNet-50"),
    ],
)
def test_a_title_is_put_in_words(title: str, words: str):
    assert standard_networks.read("some", f"# {title}: often.").in_words == words


def test_a_network_without_a_comment_is_titled_by_its_file_name():
    network = standard_networks.read("some", "class UserModel(Tower): ...\n")
    assert (network.title, network.summary, network.settings) == ("some", "", "")
    assert network.values == {}
    assert network.kinds == ()


def test_every_network_file_is_listed():
    folder = Path(standard_networks.__file__).resolve().parents[1] / "networks"
    files = {path.stem for path in folder.glob("*.py")} - {"__init__", "template"}
    assert set(standard_networks.every_network()) == files


def test_only_networks_for_the_kind_of_dataset_are_offered():
    offered = standard_networks.networks(["image-classification"])
    assert next(iter(offered)) == "lenet"
    assert {"alexnet", "resnet50", "autoencoder", "gan"} <= set(offered)
    assert not {"unet", "regression", "multilabel", "detector", "siamese"} & set(offered)
    segmenters = ["unet", "segmenter", "segmenter_resnet50"]
    assert list(standard_networks.networks(["image-segmentation"])) == segmenters
    assert standard_networks.network("unet").title == "U-Net"


def test_the_unets_with_a_pretrained_encoder_differ_only_in_the_encoder() -> None:
    """Each file is complete, because the form shows it as a network to customize."""
    one, other = (standard_networks.network(name) for name in ("segmenter", "segmenter_resnet50"))
    codes = [item.text[item.text.index("from keras") :] for item in (one, other)]
    assert codes[0].replace(one.pretrained, other.pretrained) == codes[1]


@pytest.mark.parametrize("kind", ["image-regression", "image-multilabel"])
def test_networks_for_classification_are_offered_for_numbers_and_labels(kind: str) -> None:
    unsuitable = {"autoencoder", "gan"}  # they use no labels
    assert set(standard_networks.networks(["image-classification"])) - unsuitable <= set(
        standard_networks.networks([kind])
    )


def test_the_initial_network_in_the_editor_has_no_errors():
    assert "class UserModel(Tower):" in standard_networks.template()
    assert lint(standard_networks.template()) == []


def test_an_unknown_network_is_not_found():
    with pytest.raises(NotFound, match="resnet-9000"):
        standard_networks.network("resnet-9000")


@pytest.mark.parametrize("name", standard_networks.every_network())
def test_a_network_reports_its_description_and_settings(name):
    network = standard_networks.network(name)
    assert network.summary
    assert f"| {network.title} | `{name}` |" in DOCUMENTED
    assert network.settings.startswith("Designed for ")
    assert "Recommended settings" in network.settings
    assert {"solver_type", "learning_rate", "lr_policy", "train_epochs", "batch_size"} <= set(network.values)
    assert network.kinds
    assert lint(network.text) == []


def test_a_network_names_the_package_that_is_not_installed() -> None:
    network = standard_networks.read("some", "# Some: a network.\n# requires: no_such_package digits[some]\n")
    assert network.missing == "Not installed: run pip install 'digits[some]' on the server."
    assert not standard_networks.network("lenet").missing
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    vit = standard_networks.network("vit")
    assert (vit.package, vit.requirement) == ("keras_hub", "digits[vit]") and "vit" in extras


@pytest.mark.parametrize("name", standard_networks.every_network())
def test_the_form_accepts_the_recommended_settings_of_a_network(name):
    values = standard_networks.network(name).values
    application = Flask(__name__)
    application.config["WTF_CSRF_ENABLED"] = False
    with application.test_request_context():
        form = ModelForm(MultiDict({"model_name": "model", "dataset": "", **values}))
        form.validate()
        assert set(values) <= {field.name for field in form}
        assert not set(values) & set(form.errors), form.errors
        (size,), (rate,) = form.batch_size.data, form.learning_rate.data
        recipe = form.recipe("", None, size, rate, WeightsPlaces(Path("weights")))
    assert recipe.epochs == int(values["train_epochs"])
    assert recipe.batch_size == int(values["batch_size"])
    assert recipe.solver.type == values["solver_type"]
    assert recipe.solver.learning_rate == float(values["learning_rate"])
    assert isinstance(recipe.lr_policy, schedules.POLICIES[values["lr_policy"]])
    assert recipe.mean == values["use_mean"]
