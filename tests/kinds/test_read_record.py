"""Models predict from the records of a dataset of their kind, and refuse other records with a reason."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from digits.core.recipe import CreateDataset
from digits.data import manifest as manifests
from digits.data.records.records import SplitReader
from digits.data.records.tfrecords import examples, parse_features
from digits.kinds import kind_named
from digits.kinds.generic.recipe import CreateGeneric
from digits.kinds.gradients.recipe import CreateGradients
from digits.kinds.text.characters import DEFAULT_ALPHABET
from digits.kinds.text.recipe import CreateText
from digits.kinds.views import Views, views_of
from tests.kinds import small_sources
from tests.kinds.dataset_forms import create
from tests.tfrecord_files import example, picture, write_records

SMALL: dict[str, Any] = {"processes": 1, "seed": 1, "pct_val": 0.0}


def _texts(folder: Path) -> CreateDataset:
    (folder / "texts.csv").write_text("a,hello there\nb,well well\n" * 4)
    size: dict[str, Any] = {"width": 14, "height": 1, "channels": 1}
    return CreateText(table=str(folder / "texts.csv"), alphabet=DEFAULT_ALPHABET, **SMALL, **size)


def _gradients(folder: Path) -> CreateDataset:
    settings: dict[str, Any] = {"width": 8, "height": 8, "channels": 1, "seed": 1, "processes": 1}
    return CreateGradients(train_images=4, val_images=0, **settings)


def _arrays(folder: Path) -> CreateDataset:
    path = write_records(folder / "a.tfrecord", [example(x=[0.5, 1.5, 2.0, -1.0], y=1.0)] * 4)
    size: dict[str, Any] = {"width": 4, "height": 1, "channels": 1, "shape": [1, 4, 1], "dtype": "float32"}
    return CreateGeneric(train=str(path), input_feature="x", **SMALL, **size)


def _images(folder: Path) -> CreateDataset:
    path = write_records(folder / "a.tfrecord", [example(photo=picture(size=(8, 6)), y=1.0)] * 4)
    size: dict[str, Any] = {"width": 8, "height": 6, "channels": 3, "shape": [6, 8, 3]}
    return CreateGeneric(train=str(path), input_feature="photo", **SMALL, **size)


SOURCES: dict[str, small_sources.Make] = small_sources.ALL | {
    "texts": _texts,
    "gradients": _gradients,
    "arrays of numbers": _arrays,
    "ready-made images": _images,
}


# Both encodings of images, and one of each form of input.
RECORDS = [(source, encoding) for source in ("csv", "auto-encoder") for encoding in ("png", "none")]
RECORDS += [
    (source, "png") for source in ("multi-label", "boxes", "image to image", "gradients", "ready-made images")
]
RECORDS += [
    (source, "none") for source in ("regression", "masks", "listed pairs", "texts", "arrays of numbers")
]


@pytest.mark.integration
@pytest.mark.parametrize(("source", "encoding"), RECORDS)
def test_the_records_of_a_dataset_are_its_inputs(tmp_path: Path, source: str, encoding: str) -> None:
    recipe: Any = SOURCES[source](small_sources.write_images(tmp_path / "images"))
    recipe.encoding = encoding
    create(recipe, tmp_path)
    manifest = manifests.load(tmp_path)
    split = manifest.splits["train"]
    views = views_of(kind_named(recipe.kind))
    (shard,) = split.shards
    with SplitReader(tmp_path, split) as reader:
        for number, (_, features) in enumerate(examples(tmp_path / shard)):
            found = views.read_record(recipe, features)
            expected = reader.read(number).as_array()
            assert np.array_equal(_pixels(found, manifest), expected)


def _pixels(found: Any, manifest: manifests.Manifest) -> Any:
    if not isinstance(found, bytes):
        assert found.dtype == manifest.dtype
        return found
    return np.asarray(Image.open(io.BytesIO(found))).reshape(manifest.shape)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("image-pairs", "it is not a pair of a dataset"),
        ("text-classification", "it is not a text of a dataset"),
        ("image-regression", "none of its features looks like an image"),
    ],
)
def test_records_of_other_programs_without_an_input_are_refused(kind: str, message: str) -> None:
    views: Views[Any] = views_of(kind_named(kind))
    with pytest.raises(ValueError, match=message):
        views.read_record(None, parse_features(example(y=1.0)))
