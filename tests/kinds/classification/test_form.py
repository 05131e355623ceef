"""The form of a dataset for image classification: folders, text files, CSV files and dataset folders on the server."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from tests.kinds.dataset_forms import APP, Forms, submitted
from tests.site import bars

SIZE = {"resize_width": 8, "resize_height": 8}
EIGHT_OF_EACH = [("left", 8), ("middle", 8), ("right", 8)]


@pytest.fixture
def forms(tmp_path: Path) -> Forms:
    return Forms("image-classification", tmp_path / "data")


@pytest.fixture
def folder(forms: Forms) -> Path:
    """Images of bars, with a text file, a labels file and a CSV file of them."""
    folder = bars(forms.data / "bars")
    paths = sorted(path.relative_to(folder) for path in folder.rglob("*.png"))
    classes = sorted({path.parts[0] for path in paths})
    (folder / "train.txt").write_text("".join(f"{path} {classes.index(path.parts[0])}\n" for path in paths))
    (folder / "labels.txt").write_text("".join(f"{name}\n" for name in classes))
    (folder / "table.csv").write_text(
        "image,label\n" + "".join(f"{path},{path.parts[0]}\n" for path in paths)
    )
    return folder


def test_text_files_become_a_dataset(forms: Forms, folder: Path) -> None:
    fields = {
        "method": "textfile",
        "textfile_use_local_files": "y",
        "textfile_local_train_images": folder / "train.txt",
        "textfile_local_labels_file": folder / "labels.txt",
    }
    found = forms.summary(**fields)
    assert found.facts[0] == "24 rows with the index of a class each." and found.bars == EIGHT_OF_EACH
    assert forms.create(**fields, **SIZE, textfile_shuffle=0).counts == {"train": 24}


def test_text_files_that_are_missing_are_named(forms: Forms) -> None:
    assert set(forms.errors(method="textfile")) == {"textfile_train_images", "textfile_labels_file"}
    outside = forms.errors(
        method="textfile",
        textfile_use_local_files="y",
        textfile_local_train_images="/etc/passwd",
        textfile_local_labels_file="",
    )
    assert set(outside) == {"textfile_local_train_images", "textfile_local_labels_file"}
    assert "outside the folders" in outside["textfile_local_train_images"][0]


def test_csv_fields_are_checked(forms: Forms, folder: Path) -> None:
    assert "or upload one" in forms.errors(method="csv")["table_train_file"][0]
    fields = {"method": "csv", "table_train": folder / "table.csv", "label_column": "kind"}
    assert "one character" in forms.errors(**fields, delimiter="::")["delimiter"][0]
    assert "no column “kind”" in forms.errors(**fields)["table_train_file"][0]


def test_tables_in_folders_of_their_own_keep_them(forms: Forms) -> None:
    rows = "image,label\n" + "".join(f"{name}/00.png,{name}\n" for name in ("left", "right"))
    for split in ("one", "two"):
        (bars(forms.data / split) / "table.csv").write_text(rows)
    tables = {"table_train": forms.data / "one" / "table.csv", "table_val": forms.data / "two" / "table.csv"}
    assert forms.create(method="csv", **tables, **SIZE).counts == {"train": 2, "val": 2}


def test_several_folders_become_a_dataset(forms: Forms) -> None:
    one, two = (str(bars(forms.data / name)) for name in ("one", "two"))
    facts = forms.summary(folder_train=one, folder_train_more=two).facts
    assert facts[0] == "48 images in 3 classes."
    for fields in (
        {"folder_train": [one, two]},
        {"folder_train": f"{one}\n{two}"},
        {"folder_train": one, "folder_train_more": f"{two}\r\n"},
    ):
        made = forms.create(**fields, **SIZE, folder_pct_val=0)
        assert made.recipe.train.folders == [one, two] and made.counts == {"train": 48}
    assert "does not exist" in forms.errors(folder_train=f"{one}\n{forms.data}/none")["folder_train"][0]


def test_links_to_images_outside_of_the_folder_are_named(forms: Forms) -> None:
    bars(forms.data / "all")
    for number, image in enumerate(sorted((forms.data / "all").glob("*/*.png"))):
        folder = forms.data / "links" / f"class{number % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.png").symlink_to(image)
    (message,) = forms.errors(method="folder", folder_train=forms.data / "links")["folder_train"]
    assert "No images found" in message and "links not followed, which lead" in message


def test_parquet_files_become_a_dataset(forms: Forms, folder: Path) -> None:
    paths = sorted(folder.rglob("*.png"))
    images = [{"bytes": path.read_bytes(), "path": path.name} for path in paths]
    (forms.data / "hub").mkdir()
    content = pa.table({"image": images, "label": [path.parent.name for path in paths]})
    pq.write_table(content, forms.data / "hub" / "train.parquet", row_group_size=5)
    fields = {"method": "huggingface", "dataset_folder": forms.data / "hub"}
    found = forms.summary(**fields)
    assert found.facts[:2] == ["Parquet: train.parquet for training.", "24 rows with a label each."]
    assert found.table_head == ["image (image)", "label (label)"]
    assert found.bars == EIGHT_OF_EACH
    twins = [forms.create(**fields, **SIZE, folder_pct_val=25, seed=3) for _ in range(2)]
    assert twins[0].counts == {"train": 18, "val": 6}
    assert twins[0].records() == twins[1].records() and twins[0].records("val") == twins[1].records("val")


@pytest.mark.parametrize(
    ("kind", "field", "columns"),
    [
        ("image-regression", "table_train", "angle"),
        ("image-multilabel", "table_train", "tag"),
        ("image-processing", "table_train", "target"),
        ("image-pairs", "pair_source", "other,label"),
    ],
)
def test_tables_of_absolute_paths_need_no_folder(tmp_path: Path, kind: str, field: str, columns: str) -> None:
    """The images are in one folder, and the table is in another one."""
    forms = Forms(kind, tmp_path / "data")
    folder = bars(forms.data / "bars")
    values = {"angle": "1.5", "tag": "dark", "target": f"{folder}/middle/00.png"}
    path = forms.data / "lists" / "table.csv"
    path.parent.mkdir()
    rows = (
        f"{folder}/left/0{n}.png,{values.get(columns) or f'{folder}/middle/0{n}.png,{n % 2}'}\n"
        for n in range(8)
    )
    path.write_text(f"image,{columns}\n" + "".join(rows))
    fields: dict[str, Any] = {"method": "csv", field: path}
    found = forms.summary(**fields)
    assert "8" in found.facts[0], found
    assert not [text for text in found.problems if not text.startswith("All training images")]
    made = forms.create(**fields, **SIZE)
    assert sum(made.counts.values()) == 8
    with APP.app_context():
        shown = forms.form()
        shown.fill_recipe(made.recipe)
        cloned = submitted(shown).values()
    assert str(path) in cloned and str(forms.data) not in cloned


def save(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 8)).save(path)


def test_classes_in_file_names_are_suggested_and_used(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for split, numbers in (("train", range(4)), ("val", range(4, 6))):
        for label in ("cat", "great_dane"):
            for number in numbers:
                save(data / split / f"{label}.{number}.jpg")
    save(data / "train" / "misc" / "cat_9.jpg")
    forms, fields = Forms("image-classification", data), {"folder_train": data / "train"}
    (error,) = forms.errors(**fields)["folder_train"]
    assert "has only “misc”" in error
    shutil.rmtree(data / "train" / "misc")
    (error,) = forms.errors(**fields)["folder_train"]
    assert "cat, great_dane" in error and "classes_from_names" in error
    suggestion = forms.summary(**fields).suggestion
    assert suggestion and suggestion.fields == {"classes_from_names": True}
    found = forms.summary(**fields, classes_from_names="y", beside="y")
    assert found.bars == [("cat", 4), ("great_dane", 4)] and found.splits == {"train": 8, "val": 4}
    save(data / "train" / "12.jpg")
    made = forms.plan(folder_train=data, classes_from_names="y")
    assert made.target.names == ["cat", "great_dane"]
    assert {name: sorted(split.files) for name, split in made.splits.items()} == {
        "train": [f"{label}.{number}.jpg" for label in ("cat", "great_dane") for number in range(4)],
        "val": [f"{label}.{number}.jpg" for label in ("cat", "great_dane") for number in range(4, 6)],
    }
    assert any("1 image ignored in" in warning for warning in made.warnings)


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        (
            "metadata.csv",
            "metadata.csv may list the images: choose the source “Hugging Face” (method=huggingface).",
        ),
        ("labels.csv", "labels.csv may list the images: choose the source “CSV files” (method=csv)."),
        (
            "notes.txt",
            "Put the images of each class into a folder of its own, or label them first: choose “Label images” on the "
            "home page.",
        ),
    ],
)
def test_a_folder_without_classes_is_refused_with_the_source_of_its_table(
    tmp_path: Path, name: str, advice: str
) -> None:
    forms = Forms("image-classification", tmp_path / "data")
    Image.new("RGB", (8, 8)).save(forms.data / "1.png")
    (forms.data / name).write_text("file_name,label\n1.png,a\n")
    (error,) = forms.errors(folder_train=forms.data)["folder_train"]
    assert error.endswith(f"{forms.data} has none, and 1 image directly in it. {advice}")
