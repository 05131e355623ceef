"""Fields of DIGITS in the forms of datasets: those with an effect, those without, and invalid ones."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from digits.kinds.forms.dataset import ImageDatasetForm
from tests.kinds import small_sources
from tests.kinds.dataset_forms import Forms
from tests.tfrecord_files import example, write_records

pytestmark = pytest.mark.usefixtures("request_in_progress")
GRADIENTS = {"train_image_count": "4"}


def form_of(kind: str, folder: Path, **fields: str) -> ImageDatasetForm[Any]:
    return Forms(kind, folder).form(**fields)


@pytest.fixture
def boxes(tmp_path: Path) -> dict[str, str]:
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(tmp_path / "a.png")
    (tmp_path / "boxes.csv").write_text("image,left,top,right,bottom,class\na.png,1,1,5,5,car\n")
    return {"train_image_folder": str(tmp_path), "train_label_folder": str(tmp_path / "boxes.csv")}


def test_fields_of_digits_set_those_with_other_names(tmp_path: Path, boxes: dict[str, str]) -> None:
    form = form_of("image-gradients", tmp_path, **GRADIENTS, dsopts_feature_encoding="jpg")
    assert form.validate() and form.recipe().encoding == "jpg" and not form.warnings()
    form.fill_recipe(form.recipe())
    assert (form.encoding.data, form["dsopts_feature_encoding"].data) == ("jpg", "")

    size = {"padding_image_width": "96", "padding_image_height": "48", "channel_conversion": "L"}
    form = form_of("image-object-detection", tmp_path, **boxes, **size)
    assert form.validate(), form.errors
    recipe = form.recipe()
    assert (recipe.width, recipe.height, recipe.channels) == (96, 48, 1)
    assert recipe.padding == (96, 48) and not form.warnings()
    for names in (("resize_image_width", "resize_image_height"), ("resize_width", "resize_height")):
        resized = dict(zip(names, ("32", "16"), strict=True))
        form = form_of("image-object-detection", tmp_path, **boxes, **size, **resized)
        assert form.validate(), form.errors
        recipe = form.recipe()
        assert (recipe.width, recipe.height, recipe.padding) == (32, 16, (96, 48))

    path = write_records(tmp_path / "a.tfrecord", [example(x=[0.5] * 4, y=1.0)] * 4)
    form = form_of("generic", tmp_path, record_train=str(path), dsopts_force_same_shape="0")
    assert form.validate() and form.recipe().resize and not form.warnings()


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("dsopts_backend", "lmdb", "records are stored in uncompressed TFRecord files"),
        ("dsopts_backend", "hdf5", "records are stored in uncompressed TFRecord files"),
        ("dsopts_label_encoding", "jpg", "targets that are images are stored as PNG files"),
        ("dsopts_force_same_shape", "0", "all images are resized to the same size"),
        ("dsopts_batch_size", "32", "all cores encode the records"),
        ("dsopts_num_threads", "4", "all cores encode the records"),
    ],
)
def test_fields_of_digits_without_effect_are_listed(
    tmp_path: Path, field: str, value: str, reason: str
) -> None:
    form = form_of("image-gradients", tmp_path, **GRADIENTS, **{field: value})
    assert form.validate()
    (warning,) = form.warnings()
    assert warning.startswith(f"{field}={value} is ignored: {reason}")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("dsopts_feature_encoding", "gif"),
        ("dsopts_label_encoding", "yes"),
        ("dsopts_backend", "sqlite"),
        ("dsopts_force_same_shape", "2"),
        ("dsopts_batch_size", "0"),
        ("dsopts_num_threads", "0"),
        ("dsopts_num_threads", "many"),
        ("channel_conversion", "bogus"),
    ],
)
def test_invalid_values_of_fields_of_digits_are_refused(tmp_path: Path, field: str, value: str) -> None:
    form = form_of("image-gradients", tmp_path, **GRADIENTS, **{field: value})
    assert not form.validate() and list(form.errors) == [field]


def test_an_encoding_that_the_kind_cannot_store_is_refused(tmp_path: Path, boxes: dict[str, str]) -> None:
    (tmp_path / "texts.csv").write_text("class,text\na,b\nc,d\n")
    texts = {"train_data_file": str(tmp_path / "texts.csv")}
    form = form_of("text-classification", tmp_path, **texts, dsopts_feature_encoding="jpg")
    assert not form.validate()
    assert form.errors == {"dsopts_feature_encoding": ["Records of this kind are stored as png or none."]}


@pytest.mark.parametrize("side", ["padding_image_width", "padding_image_height", "resize_image_width"])
@pytest.mark.parametrize("value", ["96", "0", "abc", "100000"])
def test_invalid_sizes_of_objects_name_the_field(
    tmp_path: Path, boxes: dict[str, str], side: str, value: str
) -> None:
    """A side alone is invalid, too."""
    form = form_of("image-object-detection", tmp_path, **boxes, **{side: value})
    assert not form.validate() and list(form.errors) == [side]


# Settings of recipes besides those of `small_sources`. Paths are relative to the folder of the test.
OPTIONS: dict[str, dict[str, Any]] = {
    # Text files are not divided.
    "text files": {"pct_val": 0, "pct_test": 0},
    "class folders": {"encoding": "jpg", "resize_mode": "half_crop"},
    "multi-label": {"label_columns": ["labels"], "layout": "list", "separator": "bar"},
    "regression": {"target_columns": ["size"], "delimiter": ",", "header": "yes", "image_column": "image"},
    "boxes": {"classes": ["cat", "dog"], "format": "csv", "val_min_box_size": 3, "padding": (96, 48)},
    "masks": {"colormap_file": "map.txt", "channels": 1},
    "random pairs": {"pairs": 77},
    "texts": {"alphabet": "abc é", "width": 77, "delimiter": ",", "header": "no", "labels_file": "lines.txt"},
}


@pytest.mark.parametrize("source", small_sources.EVERY)
def test_a_clone_is_filled_from_the_recipe(tmp_path: Path, source: str) -> None:
    recipe: Any = small_sources.EVERY[source](small_sources.write_images(tmp_path / "images"))
    (tmp_path / "map.txt").write_text("0 0 0\n255 255 255\n")
    (tmp_path / "lines.txt").write_text("a\nb\n")
    options = {"pct_val": 30.0, "pct_test": 20.0, "seed": 7, "max_unusable_percent": 2.5, "processes": None}
    for name, value in (options | OPTIONS.get(source, {})).items():
        setattr(recipe, name, str(tmp_path / value) if str(value).endswith(".txt") else value)
    forms = Forms(recipe.kind, tmp_path)
    for has_own in (False, small_sources.with_validation(deepcopy(recipe))):
        if has_own:
            small_sources.with_validation(recipe)
            recipe.pct_val = 0
        assert forms.clone(recipe) == recipe
        if recipe.pct_val:
            shown = forms.form()
            shown.fill_recipe(recipe)
            assert [shown[name].data for name in ("pct_val", "folder_pct_val") if name in shown] == [30]
