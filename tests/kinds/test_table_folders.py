"""The files of tables: separate splits, delimiters, and datasets of the Hugging Face Hub."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from digits.data.sources.plan import Progress
from digits.kinds.recipes import read_source
from tests.kinds.dataset_forms import Forms

# The fields of each kind for its tables, and the rows of the tables, which name the same files.
FORMS = {
    "image-regression": (("table_train", "table_val"), "image,size\n{}.png,1\n{}.png,2\n"),
    "image-multilabel": (("table_train", "table_val"), "image,labels\n{}.png,a\n{}.png,b\n"),
    "image-pairs": (("pair_source", "val_source"), "{0}.png,{1}.png,1\n{1}.png,{0}.png,0\n"),
}


@pytest.mark.parametrize("kind", FORMS)
def test_images_of_validation_are_beside_their_table(tmp_path: Path, kind: str) -> None:
    fields, text = FORMS[kind]
    forms = Forms(kind, tmp_path / "data")
    tables = dict(zip(fields, (_table(forms.data / name, text) for name in ("train", "val")), strict=True))
    plan = read_source(forms.create(**tables, resize_width=8, resize_height=8).recipe, Progress())
    for name, split in plan.splits.items():
        for place in range(len(split)):
            images = plan.read(split, place)
            assert images and all(image == (forms.data / name / "0.png").read_bytes() for image in images)


def _table(folder: Path, text: str) -> str:
    """Write a table and two equal images, which differ from those of other folders."""
    folder.mkdir()
    for number in range(2):
        Image.new("L", (8, 8), len(folder.name) * 20).save(folder / f"{number}.png")
    (folder / "table.csv").write_text(text.format(0, 1))
    return str(folder / "table.csv")


SCANS = {
    "image-regression": ("^", {"target_columns": "size"}, ["image (image)", "size (target)"]),
    "image-multilabel": ("^", {"layout": "list"}, ["image (image)", "size (labels)"]),
    "image-classification": ("^", {"method": "csv"}, ["image (image)", "size (label)"]),
}


@pytest.mark.parametrize("kind", SCANS)
def test_the_first_rows_show_the_columns_of_any_delimiter(tmp_path: Path, kind: str) -> None:
    delimiter, fields, head = SCANS[kind]
    forms, table = Forms(kind, tmp_path), tmp_path / "table.csv"
    rows = [[f"{number}.png", str(number)] for number in range(7)]
    table.write_text("\n".join(delimiter.join(row) for row in [["image", "size"], *rows]))
    fields = {"table_train": str(table), "delimiter": delimiter, **fields}
    found = forms.summary(**fields)
    assert (found.table_head, found.table) == (head, rows[:5])
    errors = forms.errors(**fields | {"delimiter": "ab"})
    assert errors["delimiter"] == ["Enter one character, or “tab”."]


@pytest.mark.parametrize("path", ["hub", "hub/data/train-00000-of-00002.parquet", "hub/data/train-*"])
def test_a_dataset_of_the_hub_becomes_a_dataset(tmp_path: Path, path: str) -> None:
    forms = Forms("image-regression", tmp_path / "data")
    folder = forms.data / "hub" / "data"
    folder.mkdir(parents=True)
    for number, name in enumerate(("train-00000-of-00002", "train-00001-of-00002", "test")):
        image = io.BytesIO()
        Image.new("L", (8, 8), number).save(image, "PNG")
        content = pa.table({"image": [image.getvalue()] * 4, "size": range(4 * number, 4 * number + 4)})
        pq.write_table(content, folder / f"{name}.parquet")
    fields = {"table_train": forms.data / path, "pct_val": 25, "delimiter": "tab", "header": "yes"}
    found = forms.summary(**fields)
    files = "2 files for training" + (", test.parquet for test." if path == "hub" else ".")
    assert (
        found.facts[0] == "8 rows with a number each: size." and files in found.facts and not found.problems
    )
    suggested = None if path == "hub" else "Found test.parquet for test"
    assert (found.suggestion.text.partition(",")[0] if found.suggestion else None) == suggested
    made = forms.create(**fields, resize_width=8, resize_height=8)
    assert made.counts == {"train": 6, "val": 2} | ({"test": 4} if path == "hub" else {})
    for record in made.records("train") + made.records("val"):
        (size,) = record.target(made.manifest.target)
        assert (record.as_pixels() == size // 4).all()


# The kind, the fields of its tables, and the rows of a table.
BESIDE = {
    "image-classification": ("table_{}", "image,label\n{0}.png,a\n{1}.png,b\n"),
    "image-regression": ("table_{}", "image,size\n{0}.png,1\n{1}.png,2\n"),
    "image-multilabel": ("table_{}", "image,labels\n{0}.png,a\n{1}.png,b\n"),
    "image-pairs": ("{}_source", "first,second,same\n{0}.png,{1}.png,1\n{1}.png,{0}.png,0\n"),
}


@pytest.mark.parametrize("kind", BESIDE)
def test_tables_of_other_splits_beside_the_table_are_used(tmp_path: Path, kind: str) -> None:
    field, text = BESIDE[kind]
    forms = Forms(kind, tmp_path / "data")
    for split, rows in (("train", 4), ("val", 2), ("test", 1)):
        for number in range(2 * rows):
            Image.new("RGB", (8, 8), (9, number, rows)).save(forms.data / f"{split}{number}.png")
        header, *lines = text.splitlines()
        names = [f"{split}{number}" for number in range(2 * rows)]
        pairs = zip(names[::2], names[1::2], strict=True)
        body = [line.format(*pair) for pair in pairs for line in lines]
        (forms.data / f"{split}.csv").write_text("\n".join([header, *body]))
    (forms.data / "extra_test.csv").write_text("other,columns\n1,2\n")
    name = "pair_source" if kind == "image-pairs" else field.format("train")
    fields = {name: forms.data / "train.csv", "method": "csv"}
    words = "val.csv for validation and test.csv for test, beside train.csv."
    script = forms.summary(**fields).suggestion
    assert script and (script.text, script.fields) == (f"Found {words}", {"beside": True})
    used = forms.summary(**fields, beside="y")
    assert used.suggestion and used.suggestion.text == f"Also used: {words}"
    assert (used.suggestion.action, used.suggestion.fields) == ("Leave out", {"beside": False})
    size = {"resize_width": 8, "resize_height": 8}
    records = {"train": 8, "val": 4, "test": 2}
    assert forms.create(**fields, **size, beside="y").counts == records
    own = {field.format("val"): forms.data / "test.csv"}
    entered = forms.summary(**fields, **own, beside="y").suggestion
    assert entered and entered.text == "Also used: test.csv for test, beside train.csv."
    (forms.data / "val.csv").write_text("image\nval0.png\n")
    only = forms.summary(**fields, beside="y").suggestion
    assert only and only.text == "Also used: test.csv for test, beside train.csv."
