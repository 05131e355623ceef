"""The names of the classes of YOLO sets."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from digits.data.sources.plan import Progress, UnusableSource
from digits.kinds.detection.class_names import find_names, read_names, read_yaml
from digits.kinds.detection.recipe import CreateDetection
from digits.kinds.recipes import read_source
from tests.kinds.dataset_forms import Forms
from tests.kinds.detection.formats.test_yolo import SIZE, write

NAMES = {0: "cat", 1: "dog"}


def two_classes(folder: str, count: int = 4) -> dict[str, str]:
    return {f"{folder}/{number}.txt": f"{number % 2} .5 .5 .5 .5\n" for number in range(count)}


def forms_of(root: Path) -> Forms:
    return Forms("image-object-detection", root)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("names: [cat, 'big dog', \"x, y\", it's]", ["cat", "big dog", "x, y", "it's"]),
        ("nc: 3\nnames:\n- cat # small\n- big dog\n- 'dog #2'\npath: .", ["cat", "big dog", "dog #2"]),
        ('names:\n  0: cat\n  1: big dog\n  2: "x, y"\n', ["cat", "big dog", "x, y"]),
        ("names: [\n  'cat', 'big dog',\n  'cat [old]' ]", ["cat", "big dog", "cat [old]"]),
        ("names: {0: 'a, b', 1: \"c: d\"}\n", ["a, b", "c: d"]),
        (
            "names: [no, yes, on, 1.0, null, ~, 2020-01-01, 0x1F]",
            "no yes on 1.0 null ~ 2020-01-01 0x1F".split(),
        ),
        ("\ufefftrain: x\r\nnames:\r\n- cat\r\n- dög\r\n", ["cat", "dög"]),
        ("# names: [wrong]\nnames:\n    - cat\nother: !!python/object:os.system [x]\n", ["cat"]),
        ("names: {cat: 0, dog: 1}\n", ["cat", "dog"]),
    ],
)
def test_yaml(tmp_path: Path, text: str, names: list[str]) -> None:
    path = tmp_path / "set.yaml"
    path.write_bytes(text.encode())
    assert list(read_names(path).values()) == names


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("names: [a", "a.yaml, line 1, cannot be read"),
        ("a: &a [x]\nnames: *a", "aliases are not supported"),
        ("names: " + "[" * 30, "more than 20 nested values"),
        ("names:\n  x: [a]", "neither a list of names nor an object"),
        ("names: {123456: a}", "neither a list of names nor an object"),
        ("names: cat", "neither a list of names nor an object"),
        ("nc: 2", "a.yaml has no names of classes"),
        ("names: [a\x01]", "cannot be read"),
        (r'names: ["a\ud83d"]', "half of a character"),
    ],
)
def test_invalid_yaml(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(UnusableSource) as caught:
        read_names(tmp_path / "a.yaml")
    assert message in caught.value.sentences


@given(text=st.text(max_size=100))
def test_any_yaml_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.mktemp("yaml") / "a.yaml"
    path.write_bytes(("names:" + text).encode("utf-8", "replace"))
    try:
        assert all(isinstance(name, str) for name in read_names(path).values())
        read_yaml(path)
    except UnusableSource as error:
        assert "a.yaml" in error.sentences


DARKNET = {
    "obj.data": "classes = 2\nnames = data/obj.names\n",
    "obj.names": "cat\ndog\n",
    "coco.names": "person\n",
}


@pytest.mark.parametrize(
    "files",
    [
        {"my set.yml": "names: [cat, dog]"},
        {"voc.names": "cat\ndog\n"},
        {"labels/classes.txt": "cat\ndog\n\n"},
        {"labels/Classes.txt": "\ufeffcat\r\ndog\r\n"},
        {"labels/_darknet.labels": "cat\ndog"},
        {"labels/inner/classes.txt": "cat\ndog\n"},
        DARKNET,
        {"data.yaml": "names: obj.names", "obj.names": "cat\ndog\n"},
        {"data.yaml": "nc: 2\n", "hyp.yaml": "lr0: &a 0.1\nlrf: *a\n", "labels/classes.txt": "cat\ndog\n"},
        {"data.yaml": "names: {0: cat, 1: dog, 2: bird}", "labels/classes.txt": "cat\ndog\n"},
    ],
)
def test_files(tmp_path: Path, files: dict[str, str]) -> None:
    root = write(tmp_path / "data", two_classes("labels"))
    for name, text in files.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    made = forms_of(root).create(train_image_folder=root, pct_val=0, **SIZE)
    assert made.manifest.target.names == ["cat", "dog"]
    assert any(remark.startswith("The names of the classes are those in ") for remark in made.remarks)
    # Without the form, as for remote sets.
    recipe = CreateDetection(images=str(root / "images"), labels=str(root / "labels"), pct_val=0)
    assert read_source(recipe, Progress()).target.names == ["cat", "dog"]


def labeled(root: Path, files: dict[str, str]) -> Path:
    """Write images with labels, and further ``files``."""
    write(root, two_classes("labels"))
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


CATEGORIES = '{"categories": [{"id": 1, "name": "dog"}, {"id": 0, "name": "cat"}], "info": {}}'


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *(
            (name, "cat\ndog\n")
            for name in ("classes.txt", "labels.txt", "obj.names", "class_names.txt", "names.txt")
        ),
        *(("classes.txt", text) for text in ("0: cat\n1: dog\n", "0 cat\n1 dog", "1. dog\n0. cat")),
        ("data.yaml", "names: [cat, dog]\n"),
        ("notes.json", CATEGORIES),
        ("classes.json", '["cat", "dog"]'),
        ("label_map.json", '{"0": "cat", "1": "dog"}'),
        ("_classes.csv", "Pixel Value, Class\n0, cat\n1, dog\n"),
    ],
)
@pytest.mark.parametrize("place", ["", "images/", "labels/", "images/inner/"])
def test_names_beside_in_and_above_the_folders(tmp_path: Path, place: str, name: str, text: str) -> None:
    forms = forms_of(labeled(tmp_path / "set", {f"{place}{name}": text}))
    made = forms.plan(train_image_folder=forms.data, pct_val=0, **SIZE)
    assert made.target.names == ["cat", "dog"] and len(made.splits["train"]) == 4 and not made.unusable
    assert forms.filled(train_image_folder=forms.data, **SIZE)[0].warnings() == [
        f"The names of the classes are those in {name}."
    ]


@pytest.mark.parametrize(
    "text", ["1.png\n2.png\n", "0 0.5 0.5 0.1 0.1\n", '{"images": 3}', "", "0 cat\n5 dog\n2 fox\n", "[["]
)
@pytest.mark.parametrize("name", ["labels.txt", "classes.json", "_classes.csv"])
def test_other_contents_are_no_names(tmp_path: Path, name: str, text: str) -> None:
    root = labeled(tmp_path / "set", {f"images/{name}": text})
    found = find_names(root / "labels", root / "images")
    assert (
        not found or (name == "labels.txt" and "fox" in text) or (name == "labels.txt" and text[:1] in "{[")
    )


def test_numbers_from_1(tmp_path: Path) -> None:
    root = write(tmp_path / "data", {"labels/1.txt": "1 .5 .5 .5 .5", "labels/2.txt": "2 .5 .5 .5 .5"})
    (root / "data.yaml").write_text("names:\n  1: cat\n  2: dog\n")
    found = forms_of(root).plan(train_image_folder=root, pct_val=0, **SIZE)
    assert found.target.names == ["cat", "dog"]
    (root / "labels" / "1.txt").write_text("0 .5 .5 .5 .5")
    with pytest.raises(UnusableSource) as caught:
        forms_of(root).plan(train_image_folder=root, pct_val=0, **SIZE)
    assert "1.txt, line 1: there is no class 0, only 1 to 2" in caught.value.sentences


def by_hand(root: Path) -> dict[str, Path]:
    return {
        f"{split}_{part}_folder": root / name / f"{part}s"
        for split, name in (("train", "train"), ("val", "valid"))
        for part in ("image", "label")
    }


def test_a_file_above_the_folders(tmp_path: Path) -> None:
    root = write(tmp_path / "data", two_classes("train/labels") | two_classes("valid/labels"))
    (root / "data.yaml").write_text("train: ../train/images\nval: ../valid/images\nnames: ['cat', 'dog']\n")
    made = forms_of(root).create(**by_hand(root), **SIZE)
    assert made.manifest.target.names == ["cat", "dog"] and made.counts == {"train": 4, "val": 4}
    made = forms_of(root).create(train_image_folder=root / "train", pct_val=0, **SIZE)
    assert made.manifest.target.names == ["cat", "dog"]
    assert "The names of the classes are those in data.yaml." in made.remarks


def test_files_of_other_sets_do_not_count(tmp_path: Path) -> None:
    root = write(tmp_path / "data" / "a" / "b", two_classes("labels"))
    (root / "classes.txt").write_text("cat\ndog\n")
    (tmp_path / "data" / "coco.yaml").write_text("train: coco/images\nnames: [person, car]\n")
    forms = forms_of(tmp_path / "data")
    found = forms.plan(train_image_folder=root, pct_val=0, **SIZE)
    assert found.target.names == ["cat", "dog"]
    # It refers to this set.
    (tmp_path / "data" / "coco.yaml").write_text("path: a/b\ntrain: images\nnames: [person, car]\n")
    assert list(forms.errors(train_image_folder=root, **SIZE)) == ["class_names_file"]


def test_files_outside_the_roots_are_not_read(tmp_path: Path) -> None:
    root = write(tmp_path / "x" / "data", two_classes("train/labels"))
    (tmp_path / "x" / "data.yaml").write_text("names: [secret, hidden]\n")
    (tmp_path / "x" / "secret.names").write_text("secret\nhidden\n")
    (root / "link.names").symlink_to(tmp_path / "x" / "secret.names")
    found = forms_of(root).plan(train_image_folder=root / "train", pct_val=0, **SIZE)
    assert found.target.names == ["class 0", "class 1"]
    assert list(
        forms_of(root).errors(train_image_folder=root, class_names_file=tmp_path / "x" / "data.yaml")
    ) == ["class_names_file"]
    assert not find_names(root / "train" / "labels", root / "train" / "images")


def test_files_that_differ_are_a_question(tmp_path: Path) -> None:
    root = write(tmp_path / "data", two_classes("labels"))
    (root / "data.yaml").write_text("names: [cat, dog]\n")
    (root / "labels" / "classes.txt").write_text("dog\ncat\n")
    forms = forms_of(root)
    errors = forms.errors(train_image_folder=root, **SIZE)
    assert list(errors) == ["class_names_file"]
    files = f"{root}/labels/classes.txt (dog, cat) and {root}/data.yaml (cat, dog)"
    assert files in errors["class_names_file"][0]
    suggestion = forms.summary(train_image_folder=root).suggestion
    assert suggestion and "labels/classes.txt (dog, cat) and data.yaml (cat, dog)" in suggestion.text
    assert suggestion.action == "Use labels/classes.txt"
    found = forms.plan(train_image_folder=root, **suggestion.fields, pct_val=0, **SIZE)
    assert found.target.names == ["dog", "cat"]
    found = forms.plan(train_image_folder=root, class_names_file=root / "data.yaml", pct_val=0, **SIZE)
    assert found.target.names == ["cat", "dog"]
    recipe = CreateDetection(images=str(root / "images"), labels=str(root / "labels"), pct_val=0)
    with pytest.raises(UnusableSource, match="different names"):
        read_source(recipe, Progress())


def test_each_split_may_have_its_own_file(tmp_path: Path) -> None:
    root = write(tmp_path / "data", two_classes("train/labels") | two_classes("valid/labels"))
    (root / "train" / "labels" / "classes.txt").write_text("cat\ndog\n")
    (root / "valid" / "labels" / "classes.txt").write_text("dog\ncat\n")
    found = forms_of(root).plan(**by_hand(root), **SIZE)
    assert found.target.names == ["cat", "dog"]
    labels = {
        name: dict(zip(split.files, (boxes[0][4] for boxes in split.targets), strict=True))
        for name, split in found.splits.items()
    }
    assert labels["train"]["0.png"] == labels["val"]["1.png"] == 0


def test_classes_without_names(tmp_path: Path) -> None:
    root = write(tmp_path / "data", two_classes("train/labels") | two_classes("valid/labels"))
    (root / "data.yaml").write_text("train: x\nnc: 2\n")
    forms = forms_of(root)
    found = forms.plan(**by_hand(root), **SIZE)
    assert found.target.names == ["class 0", "class 1"]
    assert sum("The classes have no names" in warning for warning in found.warnings) == 1
    assert any("no names" in problem for problem in forms.summary(train_image_folder=root).problems)
    found = forms.plan(**by_hand(root), custom_classes="cat, dog", **SIZE)
    assert found.target.names == ["cat", "dog"]
    assert "labels: The classes have no names, only numbers: 0 is “cat”, and so on." in found.warnings
    assert forms.plan(**by_hand(root), custom_classes="class 1", **SIZE).target.names == ["class 1"]


def test_equal_names_are_one_class(tmp_path: Path) -> None:
    root = write(tmp_path / "data", two_classes("labels"))
    (root / "data.yaml").write_text("names: [cat, cat]")
    found = forms_of(root).plan(train_image_folder=root, pct_val=0, **SIZE)
    assert found.target.names == ["cat"]
    assert "labels: Several class numbers have the same name: cat. They are one class." in found.warnings
