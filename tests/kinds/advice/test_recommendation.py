"""The recommendation for a new model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from digits.core.recipe import TRANSFORMATIONS
from digits.data.models.pretrained_catalog import CATALOG
from digits.kinds import kind_named
from digits.kinds.advice.recommendation import (
    RULES,
    TRANSFORMATION_FIELDS,
    Facts,
    Recommendation,
    Resources,
    adapt,
    facts_of,
    fine_tuning,
    fine_tuning_any,
    recommend,
)
from digits.kinds.classification.recipe import CreateClassification, FolderSplit
from digits.kinds.forms.fields import bindings_of
from digits.kinds.jobs import DatasetJob
from digits.kinds.standard_networks import network, networks
from digits.web.models.form import ModelForm

ROOT = Path(__file__).parents[3]
NOTHING = Resources()
RESNET = Resources(weights={"resnet50": "at hand", "mobilenetv3": "unknown"})
ALL = Resources(weights=dict.fromkeys(CATALOG, "unknown"))
GPU = Resources("gpu", weights=dict.fromkeys(CATALOG, "at hand"))
CLASSES, LABELS = "image-classification", "image-multilabel"

CASES: list[tuple[str, str, tuple[int, int, int], int | None, Resources]] = [
    ("digits", CLASSES, (28, 28, 1), 60_000, NOTHING),
    ("CIFAR-10", CLASSES, (32, 32, 3), 45_000, ALL),
    ("a thousand small images", CLASSES, (32, 32, 3), 750, ALL),
    ("a panorama", CLASSES, (300, 20, 3), 750, ALL),
    ("X-ray images", CLASSES, (256, 256, 1), 750, ALL),
    ("30 photos", CLASSES, (224, 224, 3), 30, ALL),
    ("500 photos, ResNet-50 at hand", CLASSES, (64, 64, 3), 500, RESNET),
    ("500 photos, on a GPU", CLASSES, (256, 256, 3), 500, GPU),
    ("20,000 photos", CLASSES, (256, 256, 3), 20_000, ALL),
    ("500 photos, no weights", CLASSES, (256, 256, 3), 500, NOTHING),
    ("500 small photos, no weights", CLASSES, (64, 64, 3), 500, NOTHING),
    ("photos, not counted yet", CLASSES, (256, 256, 3), None, ALL),
    ("photos with labels", LABELS, (256, 256, 3), 500, ALL),
    ("small images with labels", LABELS, (32, 32, 3), 500, ALL),
    ("a number", "image-regression", (128, 128, 3), 2000, ALL),
    ("boxes", "image-object-detection", (256, 256, 3), 30, ALL),
    ("12 masks", "image-segmentation", (256, 256, 3), 9, ALL),
    ("40 masks, ResNet-50 at hand", "image-segmentation", (256, 256, 3), 30, RESNET),
    ("1,000 masks", "image-segmentation", (256, 256, 3), 1000, ALL),
    ("40 masks, no weights", "image-segmentation", (256, 256, 3), 30, NOTHING),
    ("40 small masks", "image-segmentation", (32, 32, 3), 30, ALL),
    ("boxes in 3,000 X-ray images", "image-object-detection", (256, 256, 1), 3000, RESNET),
    ("boxes, no weights", "image-object-detection", (256, 256, 3), 30, NOTHING),
    ("target images", "image-processing", (64, 64, 3), 300, NOTHING),
    ("pairs", "image-pairs", (28, 28, 1), 300, NOTHING),
    ("texts", "text-classification", (1024, 1, 1), 300, NOTHING),
    ("images to imitate", "image-gan", (64, 64, 3), 300, NOTHING),
    ("gradients", "image-gradients", (32, 32, 1), 300, NOTHING),
    ("records", "generic", (28, 28, 1), 300, NOTHING),
]
# The recommendations expected for CASES. To update them, copy the table that the test prints.
TABLE = Path(__file__).with_name("recommendations.txt")


def test_the_table_of_recommendations() -> None:
    rows = [_row(*case) for case in CASES]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    table = "".join(f"{line.rstrip()}\n" for line in lines)
    assert table == TABLE.read_text(), f"\n{table}"


def _row(
    name: str, kind: str, shape: tuple[int, int, int], count: int | None, resources: Resources
) -> list[str]:
    best = recommend(Facts(kind, *shape, images={} if count is None else {"train": count}), resources)
    assert best
    settings = {"initial_weights": "", "crop_size": "", **best.settings}
    words = "batch {batch_size}, {train_epochs} epochs, {solver_type} {learning_rate}".format(**settings)
    return [name, best.network, settings["initial_weights"], words]


def test_the_documentation_contains_the_tables() -> None:
    for name, rows in (("standard-networks", _documented_rules()), ("fine-tuning", _documented_epochs())):
        table = "".join(f"{row}\n" for row in rows)
        assert table in (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8"), f"\n{table}"


def _documented_epochs() -> Iterator[str]:
    yield "| Training images | Epochs of the head | Epochs of all layers | Epochs between validations |"
    yield "|---|---|---|---|"
    for count in (30, 100, 300, 1000, 3000, 10_000):
        tuned = fine_tuning(Facts(CLASSES, 224, 224, 3, images={"train": count}))
        head, whole = int(tuned["head_epochs"]), int(tuned["train_epochs"])
        yield f"| {count:,} | {head} | {whole - head} | {tuned['val_interval']} |"


def _documented_rules() -> Iterator[str]:
    yield "| Dataset | Images | Network: the first one that can be used |"
    yield "|---|---|---|"
    for rule in RULES:
        kinds = ", ".join(kind_named(name).title for name in rule.kinds) or "All others"
        titles = ", ".join(network(name).title for name in rule.networks) or "the first one for the kind"
        yield f"| {kinds} | {rule.name} | {titles}{', from ImageNet weights' if rule.pretrained else ''} |"


def test_each_rule_gives_its_reason_in_one_sentence() -> None:
    facts = Facts(CLASSES, 64, 48, 3, images={"train": 1234})
    for rule in RULES:
        sentence = rule.reason.format(images="1,234 color images", size="64×48", network="ResNet-50")
        assert sentence.endswith(".") and ". " not in sentence
    assert _recommend(facts, RESNET).reason.startswith("1,234 color images of 64×48 pixels: ResNet-32")
    photos = _recommend(Facts(CLASSES, 64, 64, 3, images={"train": 1234}), RESNET)
    assert photos.reason.startswith("1,234 color images: fine-tuning ResNet-50 is usually")


def test_the_reason_says_that_only_other_weights_are_at_hand() -> None:
    photos = Facts(CLASSES, 256, 256, 3)
    resources = Resources(weights=dict.fromkeys(CATALOG, "unknown") | {"resnet50": "at hand"})
    why = "Its weights are on this server; those of EfficientNet-Lite0, the first choice, are not."
    assert _recommend(photos, resources).reason.endswith(why)
    counted = Facts(CLASSES, 256, 256, 3, images={"train": 500, "val": 100})
    assert _recommend(counted, resources).reason.endswith("about 5 times as long as with these.")
    for others in (ALL, GPU, NOTHING):
        assert "first choice" not in _recommend(photos, others).reason


@pytest.mark.parametrize(
    ("facts", "resources", "good"),
    [
        (Facts(CLASSES, 28, 28, 1), ALL, "lenet resnet32 efficientnetlite"),
        (Facts(CLASSES, 16, 16, 3), ALL, "resnet32 lenet efficientnetlite"),
        (Facts(CLASSES, 256, 256, 3), ALL, "efficientnetlite mobilenetv3 efficientnetv2 resnet50"),
        (Facts(CLASSES, 256, 256, 3), GPU, "convnext efficientnetv2 resnet50 efficientnetlite"),
        (Facts("image-segmentation", 256, 256, 3), ALL, "segmenter segmenter_resnet50 unet"),
        (Facts("image-processing", 64, 64, 3), NOTHING, "dncnn"),
        (Facts("text-classification", 32, 32, 1), NOTHING, "textcnn"),
        (Facts("generic", 32, 32, 3), NOTHING, "regression autoencoder gan"),
    ],
)
def test_good_networks_for_the_images_come_first(facts: Facts, resources: Resources, good: str) -> None:
    resources = replace(resources, unusable={"vit": "Not installed."})
    assert _recommend(facts, resources).good == tuple(good.split())


@pytest.mark.parametrize("kind", [CLASSES, LABELS, "image-object-detection", "image-segmentation"])
@pytest.mark.parametrize("resources", [NOTHING, ALL, GPU])
def test_classes_that_differ_by_side_are_not_flipped(kind: str, resources: Resources) -> None:
    sides = Facts(kind, 256, 256, 3, {"train": 500}, ["left hand", "right hand"])
    others = Facts(kind, 256, 256, 3, {"train": 500}, ["hand", "left foot"])
    for name in ("", *networks([kind])):
        for tuned in (None, False):
            best, usual = (recommend(facts, resources, name, tuned) for facts in (sides, others))
            assert best and usual
            assert best.settings.get("aug_flip", "none") == "none"
            assert "No horizontal flips: a mirrored “left hand” would look like “right hand”." in best.reason
            assert "flips" not in usual.reason
    assert fine_tuning_any(sides)["aug_flip"] == "none"
    assert fine_tuning_any(others)["aug_flip"] == "fliplr"


def test_weights_to_download_are_announced() -> None:
    photos = Facts(CLASSES, 256, 256, 3)
    assert _recommend(photos, ALL).download == CATALOG["efficientnetlite"].full.megabytes
    assert _recommend(photos, GPU).download == _recommend(photos, NOTHING).download == 0


def test_networks_that_cannot_be_used_are_refused() -> None:
    resources = Resources(unusable={"vit": "Not installed."})
    refusals = _recommend(Facts(CLASSES, 64, 48, 3), resources).refusals
    assert refusals == {
        "alexnet": "Requires images of at least 67×67 pixels; these have 64×48.",
        "vit": "Not installed.",
    }
    odd = _recommend(Facts("image-gan", 30, 32, 3), NOTHING).refusals
    assert odd == {"gan": "Requires images whose sides are multiples of 4 pixels; these have 30×32."}
    tiny = _recommend(Facts("image-object-detection", 8, 8, 3), NOTHING)
    assert tiny.network == "detector" and "detector" in tiny.refusals


def test_a_chosen_network_gets_the_settings_of_its_rule() -> None:
    photos = Facts(CLASSES, 256, 256, 3, images={"train": 500})
    tuned = recommend(photos, ALL, "resnet50")
    assert tuned and tuned.settings == _recommend(photos, RESNET).settings
    random = recommend(photos, ALL, "resnet50", fine_tune=False)
    assert random and random.settings.items() >= network("resnet50").few_images.items()
    many = recommend(Facts(CLASSES, 256, 256, 3, images={"train": 50_000}), ALL, "resnet50", fine_tune=False)
    assert many and many.settings == network("resnet50").values
    small = recommend(Facts(CLASSES, 32, 32, 3), ALL, "resnet50", fine_tune=True)
    assert small and small.settings["initial_weights"] == "imagenet" and small.settings["fine_tune"] == "true"
    lenet = recommend(photos, ALL, "lenet")
    assert lenet and "fine_tune" not in lenet.settings


@pytest.mark.parametrize(
    ("kind", "network"),
    [(CLASSES, "resnet50"), ("image-segmentation", "segmenter"), ("image-object-detection", "fpn")],
)
def test_any_network_is_fine_tuned_with_the_settings_of_its_kind(kind: str, network: str) -> None:
    facts = Facts(kind, 256, 256, 3, images={"train": 30, "val": 30})
    best = recommend(facts, ALL, network)
    assert best
    assert fine_tuning_any(facts).items() <= best.settings.items()
    # Other networks have no layers with these names.
    assert "freeze" not in fine_tuning_any(facts)


def test_fine_tune_leaves_out_what_the_kind_does_not_offer() -> None:
    assert "aug_flip" not in fine_tuning_any(Facts("image-gradients", 64, 64, 3))


@pytest.mark.parametrize(("images", "epochs", "every"), [(30, 200, 10), (1000, 63, 1), (9_000, 30, 1)])
def test_training_from_scratch_takes_enough_steps(images: int, epochs: int, every: int) -> None:
    facts = Facts(CLASSES, 32, 32, 3, images={"train": images})
    settings = _recommend(facts, NOTHING).settings
    assert settings["train_epochs"] == str(epochs)
    assert settings["val_interval"] == settings["snapshot_interval"] == str(every)


def test_early_stopping_needs_enough_validation_images() -> None:
    photos = Facts(CLASSES, 256, 256, 3, images={"train": 60, "val": 19})
    assert "early_stopping_metric" not in _recommend(photos, ALL).settings
    photos = Facts(CLASSES, 256, 256, 3, images={"train": 60, "val": 20})
    assert "early_stopping_metric" in _recommend(photos, ALL).settings


def test_a_kind_without_networks_has_no_recommendation() -> None:
    assert recommend(Facts("sounds", 28, 28, 1), NOTHING) is None


@pytest.mark.parametrize(
    ("name", "size", "crop_size", "padding"),
    [
        ("resnet32", (32, 32), "", "4"),
        ("resnet32", (31, 40), "", "0"),
        ("resnet32", (8, 8), "", "0"),
        ("mobilenetv3", (256, 256), "224", "0"),
        ("mobilenetv3", (256, 224), "", "0"),
        ("regression", (64, 64), "", "4"),
        ("regression", (31, 31), "", "0"),
    ],
)
def test_settings_suit_the_size_of_the_images(
    name: str, size: tuple[int, int], crop_size: str, padding: str
) -> None:
    settings = adapt(network(name).values, Facts("image-regression", *size, 3))
    assert (settings.get("crop_size", ""), settings.get("aug_pad_crop", "0")) == (crop_size, padding)
    assert settings["learning_rate"] == network(name).values["learning_rate"]


def test_no_network_shifts_or_flips_gradients() -> None:
    """Their targets are the slopes of the image, which other transformations change."""
    facts = Facts("image-gradients", 64, 64, 3)
    for name in networks(["image-gradients"]):
        settings = adapt(network(name).values, facts)
        assert not {"aug_pad_crop", "aug_flip", "crop_size"} & set(settings)
    assert adapt(network("regression").values, facts)["use_mean"] == "pixel"  # this is offered


def test_recommended_settings_for_regression_do_not_flip() -> None:
    """The target may be a position or an angle."""
    assert "aug_flip" not in network("regression").values


@pytest.mark.parametrize("name", ["unet", "segmenter"])
def test_segmentation_keeps_flips_and_contrast(name: str) -> None:
    settings = adapt(network(name).values, Facts("image-segmentation", 128, 128, 3))
    assert (settings["aug_flip"], settings["aug_contrast"]) == ("fliplr", "0.2")


def test_the_form_has_the_fields_of_the_transformations() -> None:
    bound = {binding.name: name for name, binding in bindings_of(ModelForm).items()}
    known = {name: bound.get(name, "aug_hsv_use") for name in TRANSFORMATIONS}
    assert known == TRANSFORMATION_FIELDS


def test_an_unfinished_dataset_has_facts(tmp_path: Path) -> None:
    recipe = CreateClassification(train=FolderSplit(folder="a"), width=20, height=30)
    dataset = DatasetJob.create(tmp_path, name="sizes", recipe=recipe)
    unknown = facts_of(dataset)
    assert unknown == Facts(CLASSES, 20, 30, 3, classes=None)
    assert _recommend(unknown, ALL).settings["aug_flip"] == "none"  # the classes might be left and right
    dataset.tasks[0].state.counts = {
        "train": {"labels": ["a", "b"], "counts": [3, 4]},
        "val": {"labels": ["a", "b"], "counts": [1, 0]},
    }
    images = {"train": 7, "val": 1}
    assert facts_of(dataset) == Facts(CLASSES, 20, 30, 3, images=images, classes=("a", "b"))
    assert _recommend(facts_of(dataset), ALL).settings["aug_flip"] == "fliplr"


def _recommend(facts: Facts, resources: Resources, **options: Any) -> Recommendation:
    best = recommend(facts, resources, **options)
    assert best
    return best
