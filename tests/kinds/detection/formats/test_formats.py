"""Annotations in all formats: the same boxes, detection of the format, and errors with file and line or id."""

from __future__ import annotations

import functools
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image

from digits.data.images.images import Geometry
from digits.data.sources.plan import Plan, Progress, Unusable, UnusableSource
from digits.data.targets.box_matching import IGNORED_BOX
from digits.kinds.detection import reader
from digits.kinds.detection.formats import kitti, voc, yolo
from digits.kinds.detection.formats.format import BoxTable
from digits.kinds.detection.formats.formats import detect, find_sources, open_annotations
from digits.kinds.detection.formats.label_files import InvalidAnnotation
from digits.kinds.detection.recipe import CreateDetection
from tests.kinds import annotation_files
from tests.kinds.annotation_files import Box

WIDTH, HEIGHT = 80, 40
# Two objects in a.png, one in b.png, none in c.png.
NAMES = ["cat", "dog"]
OBJECTS: dict[str, list[Any]] = {
    "a": [("cat", 10, 5, 30, 25), ("dog", 40, 20, 80, 40)],
    "b": [("dog", 0, 0, 8, 4)],
    "c": [],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in OBJECTS:
        (tmp_path / "images").mkdir(exist_ok=True)
        Image.new("L", (WIDTH, HEIGHT)).save(tmp_path / "images" / f"{name}.png")
    (tmp_path / "labels").mkdir()
    return tmp_path


def kitti_line(*box: Any) -> str:
    return annotation_files.kitti(box)


def voc_file(objects: list[Box], more: str = "") -> str:
    return annotation_files.voc(objects, "<filename>other.png</filename>", more)


def yolo_line(label: str, left: float, top: float, right: float, bottom: float) -> str:
    center = f"{(left + right) / 2 / WIDTH} {(top + bottom) / 2 / HEIGHT}"
    return f"{NAMES.index(label)} {center} {(right - left) / WIDTH} {(bottom - top) / HEIGHT}"


def write_files(folder: Path, ending: str, content: Callable[[list[Any]], str]) -> Path:
    for name, objects in OBJECTS.items():
        (folder / "labels" / f"{name}{ending}").write_text(content(objects))
    return folder / "labels"


def write_kitti(folder: Path) -> Path:
    return write_files(folder, ".txt", lambda objects: "\n".join(kitti_line(*item) for item in objects))


def write_voc(folder: Path) -> Path:
    return write_files(folder, ".xml", voc_file)


def write_yolo(folder: Path) -> Path:
    (folder / "data.yaml").write_text("train: images\nnames:\n  0: cat\n  1: 'dog'  # barks\nnc: 2\n")
    write_files(folder, ".txt", lambda objects: "\n".join(yolo_line(*item) for item in objects))
    (folder / "labels" / "c.txt").unlink()
    return folder / "labels"


def coco_file() -> dict[str, list[dict[str, object]]]:
    ids = {"cat": 7, "dog": 9}
    annotations = [
        {"image_id": name, "category_id": ids[label], "bbox": [left, top, right - left, bottom - top]}
        for name, objects in OBJECTS.items()
        for label, left, top, right, bottom in objects
    ]
    return {
        "images": [{"id": name, "file_name": f"{name}.png", "width": WIDTH} for name in OBJECTS],
        "annotations": [{"id": number, **item} for number, item in enumerate(annotations)],
        "categories": [{"id": number, "name": name} for name, number in ids.items()],
    }


def write_coco(folder: Path) -> Path:
    (folder / "labels.json").write_text(json.dumps(coco_file()))
    return folder / "labels.json"


def write_table(folder: Path, header: str, line: str) -> Path:
    """Write a CSV file with a line for each object, and one of empty cells for an image without objects."""
    lines = [header] if header else []
    for name, objects in OBJECTS.items():
        for label, left, top, right, bottom in objects or [("",) * 5]:
            sides = {"w": right - left, "h": bottom - top} if objects else {"w": "", "h": ""}
            edges = {"left": left, "top": top, "right": right, "bottom": bottom}
            lines.append(line.format(name=f"{name}.png", label=label, **edges, **sides))
    (folder / "boxes.csv").write_text("\n".join(lines))
    return folder / "boxes.csv"


TABLES = {
    "csv": ("filename;width;class;xmin;ymin;xmax;ymax", "{name};80;{label};{left};{top};{right};{bottom}"),
    "csv without header": ("", "{name},{left},{top},{right},{bottom},{label}"),
    "csv with sizes": ("x,y,w,h,label,file", "{left},{top},{w},{h},{label},{name}"),
}


def write_csv(folder: Path) -> Path:
    return write_table(folder, *TABLES["csv"])


def hub_line(name: str, objects: list[tuple[str, float, float, float, float]], is_listed: bool) -> str:
    """A line of ``metadata.jsonl``; with ``is_listed``, a list of objects instead of an object of lists."""
    boxes = [[left, top, right - left, bottom - top] for _, left, top, right, bottom in objects]
    labels = [label for label, *_ in objects]
    listed = [{"bbox": box, "category": label} for box, label in zip(boxes, labels, strict=True)]
    found = listed if is_listed else {"bbox": boxes, "categories": labels}
    return json.dumps({"file_name": f"{name}.png", "objects": found})


def write_json_lines(folder: Path) -> Path:
    path = folder / "images" / "metadata.jsonl"
    lines = [hub_line(name, objects, name == "b") for name, objects in OBJECTS.items()]
    path.write_text("\n\n".join(lines))
    return path


WRITERS: dict[str, Callable[[Path], Path]] = {
    "kitti": write_kitti,
    "voc": write_voc,
    "yolo": write_yolo,
    "coco": write_coco,
    "jsonl": write_json_lines,
    **{
        name: functools.partial(write_table, header=header, line=line)
        for name, (header, line) in TABLES.items()
    },
}


def plan(folder: Path, labels: Path, **options: object) -> Plan:
    recipe = CreateDetection(
        labels=str(labels),
        **{"images": str(folder / "images"), "pct_val": 0, **options},  # type: ignore[arg-type]
    )
    return reader.read(recipe, Progress())


def boxes_of(found: Plan, split: str = "train") -> dict[str, list[list[float]]]:
    part = found.splits[split]
    return {
        file: boxes.round(3).tolist() for file, boxes in sorted(zip(part.files, part.targets, strict=True))
    }


ALL = {"a.png": [[10, 5, 30, 25, 0], [40, 20, 80, 40, 1]], "b.png": [[0, 0, 8, 4, 1]], "c.png": []}


@pytest.mark.parametrize("name", WRITERS)
def test_all_formats_are_detected_and_contain_the_same_boxes(folder: Path, name: str) -> None:
    labels = WRITERS[name](folder)
    assert detect(labels).name == name.split()[0]
    # Cats and dogs are not default KITTI classes.
    found = plan(folder, labels, classes=["cat", "dog"])
    assert boxes_of(found) == ALL
    assert found.target.names == ["cat", "dog"] and found.target.shape == [2, 5]
    assert found.groups == ["cat", "dog", "no objects"]
    assert [warning for warning in found.warnings if "1 image has no objects: c.png" in warning]
    counts = found.counts(found.splits["train"], range(3))
    assert found.counted == ["cat", "dog"] and counts.tolist() == [1, 2]


SIX = ("class", "image", "left", "top", "width", "height")
PHOTO = {"image": "photo", "left": "gx", "top": "gy", "right": "ex", "bottom": "ey", "class": "sort"}


@pytest.mark.parametrize(
    ("text", "table"),
    [
        (
            "photo;gx;gy;ex;ey;sort\na.png;10;5;30;25;cat",
            BoxTable(**{f"{name}_column": column for name, column in PHOTO.items()}),
        ),
        # Chosen sides take precedence over edges; without a choice, they are those of the image.
        (
            "image,left,top,right,bottom,width,height,class\na.png,10,5,31,26,20,20,cat",
            BoxTable(width_column="width", height_column="height"),
        ),
        ("image,left,top,right,bottom,width,height,class\na.png,10,5,30,25,80,40,cat", BoxTable()),
        ("image;left;top;right;bottom;class\na.png;10,0;5;30,0;25,0;cat", BoxTable()),
        # The header, which resembles a path, is a choice, too.
        (
            "a.png,left,top,right,bottom,class\na.png,10,5,30,25,cat",
            BoxTable(image_column="a.png", header="yes"),
        ),
        (
            "cat|a.png|10|5|20|20|0,5",
            BoxTable(
                **{f"{name}_column": f"column {n}" for n, name in enumerate(SIX, 1)},
                delimiter="|",
                header="no",
            ),
        ),
    ],
)
def test_columns_of_csv_files_can_be_chosen(folder: Path, text: str, table: BoxTable) -> None:
    (folder / "boxes.csv").write_text(text)
    found = plan(folder, folder / "boxes.csv", table=table)
    assert boxes_of(found) == {"a.png": [[10, 5, 30, 25, 0]]} and found.target.names == ["cat"]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (BoxTable(left_column="gx"), "has no column “gx”"),
        (BoxTable(class_column="xmin"), "The column “xmin” is used for left and class"),
        (BoxTable(delimiter=";"), "has no column “image”"),
    ],
)
def test_columns_that_do_not_exist_or_repeat_are_refused(folder: Path, table: BoxTable, message: str) -> None:
    (folder / "boxes.csv").write_text("image,xmin,ymin,w,h,class\na.png,1,1,5,5,cat")
    with pytest.raises(UnusableSource, match=message):
        plan(folder, folder / "boxes.csv", table=table)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"objects": {"bbox": [[0, 0, 1, 1]], "categories": ["a"]}}', "path of the image is missing"),
        ('{"file_name": "../x.png"}', "outside the image folder"),
        ('{"file_name": "a.png", "objects": {"bbox": [[0, 0, 1, 1]], "categories": []}}', "same length"),
        ('{"file_name": "a.png", "objects": {"bbox": [[0, 0, 1]], "categories": ["a"]}}', "left, top, width"),
        ('{"file_name": "a.png", "objects": {"bbox": [["x", 0, 1, 1]], "categories": ["a"]}}', "object 1"),
        ('{"file_name": "a.png", "objects": {"bbox": [[0, 0, 1, 1]], "categories": [null]}}', "no class"),
        ('{"file_name": "a.png", "objects": 3}', "“objects” must have"),
        ('{"file_name": "a.png", "objects": [3]}', "“objects” must have"),
        ("{", "not a JSON object"),
    ],
)
def test_faults_of_json_lines_name_the_line(folder: Path, line: str, message: str) -> None:
    path = write_json_lines(folder)
    path.write_text(f"{path.read_text()}\n{line}")
    with pytest.raises(UnusableSource, match=message) as refusal:
        plan(folder, path)
    assert "line 6" in str(refusal.value)


def from_sources(found: dict[str, tuple[Path, Path]], **options: Any) -> CreateDetection:
    """Return the recipe for annotations that were found in a folder."""
    (images, labels), (val_images, val_labels) = found["train"], found.get("val", (None, None))
    return CreateDetection(
        images=str(images),
        labels=str(labels),
        val_images=val_images and str(val_images),
        val_labels=val_labels and str(val_labels),
        pct_val=0,
        **options,
    )


def image_bytes() -> bytes:
    file = io.BytesIO()
    Image.new("L", (WIDTH, HEIGHT)).save(file, "PNG")
    return file.getvalue()


def write_parquet(path: Path, names: Sequence[str], is_listed: bool = False, key: str = "category") -> Path:
    """Write the images ``names``; ``is_listed`` as in `hub_line`, with names instead of numbers of classes."""
    rows = []
    for name in names:
        objects = [
            {
                "id": number,
                "area": 1,
                "bbox": [float(left), float(top), float(right - left), float(bottom - top)],
                key: label if is_listed else ["dog", "cat"].index(label),
            }
            for number, (label, left, top, right, bottom) in enumerate(OBJECTS[name])
        ]
        rows.append(objects if is_listed else {item: [each[item] for each in objects] for item in objects[0]})
    images = [{"bytes": image_bytes(), "path": f"{name}.png"} for name in names]
    table = pa.table({"width": [WIDTH] * len(names), "image": images, "objects": rows})
    classes = {"names": ["dog", "cat"], "_type": "ClassLabel"}
    features = {"objects": {"feature": {"bbox": {}, key: classes}, "_type": "Sequence"}}
    about = {} if is_listed else {"huggingface": json.dumps({"info": {"features": features}})}
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table.replace_schema_metadata(about), path)
    return path


def test_parquet_shards_contain_the_images_of_each_split(folder: Path) -> None:
    for number, names in enumerate("ab"):
        write_parquet(folder / "hub" / f"train-0000{number}-of-00002.parquet", names)
    write_parquet(folder / "hub" / "validation-00000-of-00001.parquet", "ba")
    found = find_sources(folder / "hub")
    assert found["train"] == (folder / "hub", folder / "hub" / "train-00000-of-00002.parquet")
    assert detect(found["val"][1]).name == "parquet"
    planned = reader.read(from_sources(found, padding=(WIDTH, HEIGHT)), Progress())
    assert planned.target.names == ["dog", "cat"]
    a, b = [[10, 5, 30, 25, 1], [40, 20, 80, 40, 0]], [[0, 0, 8, 4, 0]]
    shards = [f"train-0000{number}-of-00002.parquet:0" for number in range(2)]
    assert boxes_of(planned) == dict(zip(shards, (a, b), strict=True))
    val = planned.splits["val"]
    assert [boxes.tolist() for boxes in val.targets] == [b, a]
    assert val.images.read(val.files[0]) == image_bytes()
    with pytest.raises(UnusableSource, match="several splits"):
        open_annotations(folder / "hub", folder / "hub", "auto")
    (folder / "hub" / shards[0][:-2]).unlink()
    with pytest.raises(UnusableSource, match=r"1 of 2 shards are missing: train-00000-of-00002\.parquet"):
        find_sources(folder / "hub")


def test_parquet_files_with_lists_of_objects(folder: Path) -> None:
    for name in "ab":
        write_parquet(folder / "hub" / "train" / f"000{name}.parquet", name, is_listed=True, key="label")
    planned = reader.read(from_sources(find_sources(folder / "hub")), Progress())
    assert planned.target.names == ["cat", "dog"]
    assert [len(boxes) for boxes in planned.splits["train"].targets] == [2, 1]
    table = pq.read_table(folder / "hub" / "train" / "000a.parquet")
    pq.write_table(table.rename_columns({"objects": "things"}), folder / "things.parquet")
    assert boxes_of(plan(folder, folder / "things.parquet"))["things.parquet:0"] == ALL["a.png"]
    for column, message in (("image", "no column of images"), ("objects", "no column of objects")):
        pq.write_table(table.drop_columns([column]), folder / "faulty.parquet")
        with pytest.raises(UnusableSource, match=f"faulty.parquet has {message}"):
            plan(folder, folder / "faulty.parquet")


def test_classes_are_chosen_and_ordered(folder: Path) -> None:
    found = plan(folder, write_voc(folder), classes=["Dog", "bird"])
    assert found.target.names == ["Dog"]
    assert boxes_of(found)["a.png"] == [[40, 20, 80, 40, 0]]
    assert any("1 object of other classes: cat" in warning for warning in found.warnings)


def test_kitti_has_default_classes_regions_to_ignore_and_small_boxes(folder: Path) -> None:
    lines = [
        kitti_line("DontCare", 1, 1, 9, 9),
        kitti_line("Truck", 0, 0, 30, 30),
        kitti_line("Pedestrian", 5, 5, 15, 35),
        kitti_line("Unicorn", 5, 5, 35, 35),
    ]
    for name in OBJECTS:
        (folder / "labels" / f"{name}.txt").write_text("\n".join(lines))
    found = plan(folder, folder / "labels", pct_val=33)
    assert found.target.names == ["truck", "person"]
    ignored = [[1, 1, 9, 9, IGNORED_BOX], [5, 5, 35, 35, IGNORED_BOX]]
    objects = [[0, 0, 30, 30, 0], [5, 5, 15, 35, 1]]
    assert all(sorted(boxes) == sorted(ignored + objects) for boxes in boxes_of(found).values())
    (boxes,) = boxes_of(found, "val").values()
    small = [*objects[1][:4], IGNORED_BOX]  # the pedestrian is 10 pixels wide
    assert sorted(boxes) == sorted([*ignored, objects[0], small])
    assert found.counts(found.splits["val"], [0]).tolist() == [1, 0]
    assert any(
        "6 objects marked difficult, crowd or don’t care" in text and "(dontcare, unicorn)" in text
        for text in found.warnings
    )
    assert "1 validation object smaller than 25 pixels: ignored." in found.warnings
    all_sizes = plan(folder, folder / "labels", pct_val=33, val_min_box_size=0)
    assert sorted(*boxes_of(all_sizes, "val").values()) == sorted(ignored + objects)


def test_types_unknown_to_kitti_are_named_if_there_are_no_others(folder: Path) -> None:
    for name in OBJECTS:
        (folder / "labels" / f"{name}.txt").write_text(kitti_line("Unicorn", 5, 5, 35, 35))
    with pytest.raises(UnusableSource, match=r"3 objects \(unicorn\) would be ignored") as caught:
        plan(folder, folder / "labels")
    assert "“Classes”" in caught.value.hint
    assert plan(folder, folder / "labels", classes=["unicorn"]).target.names == ["unicorn"]


def test_difficult_and_crowd_objects_are_ignored(folder: Path) -> None:
    for name, objects in OBJECTS.items():
        more = "<difficult>1</difficult>" if name == "b" else "<difficult>0</difficult>"
        (folder / "labels" / f"{name}.xml").write_text(voc_file(objects, more))
    expected = {**ALL, "b.png": [[*ALL["b.png"][0][:4], IGNORED_BOX]]}
    assert boxes_of(plan(folder, folder / "labels")) == expected
    crowd = coco_file()
    crowd["annotations"][2]["iscrowd"] = 1
    (folder / "crowd.json").write_text(json.dumps(crowd))
    found = plan(folder, folder / "crowd.json")
    assert boxes_of(found) == expected
    # Not a region to ignore for other classes.
    assert boxes_of(plan(folder, folder / "crowd.json", classes=["cat"]))["b.png"] == []
    split = found.splits["train"]
    features = found.features(
        split, split.files.index("b.png"), Geometry((WIDTH, HEIGHT), WIDTH, HEIGHT, "squash")
    )
    assert features["target/boxes"][:5] == [0, 0, 8, 4, IGNORED_BOX]
    assert features["image/object/class/label"] == []
    assert found.target.describe(split.targets[split.files.index("b.png")]) == "no objects"


def test_faulty_boxes_are_dropped_or_clipped_and_named_by_line(folder: Path) -> None:
    lines = [
        "image,left,top,right,bottom,class",
        "a.png,10,10,5,20,cat",
        "a.png,10,10,10,20,cat",
        "a.png,nan,10,20,20,cat",
        "b.png,100,10,120,20,cat",
        "b.png,70,-5,120,20,cat",
        "c.png,1,1,5,5,cat",
    ]
    (folder / "boxes.csv").write_text("\n".join(lines))
    found = plan(folder, folder / "boxes.csv")
    assert boxes_of(found) == {
        "a.png": [[5, 10, 10, 20, 0]],
        "b.png": [[70, 0, 80, 20, 0]],
        "c.png": [[1, 1, 5, 5, 0]],
    }
    exchanged = "1 box has left and right or top and bottom edges in the wrong order: exchanged (line 2)."
    assert f"boxes.csv: {exchanged}" in found.warnings
    dropped = "line 3: empty; line 4: not finite; line 5: outside the image"
    assert f"boxes.csv: 3 boxes cannot be used: {dropped}." in found.warnings
    assert any("1 box clipped to the image: line 6" in text for text in found.warnings)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("labels/a.txt", "Car 0 0 0 1 1 9 9", "a.txt, line 1: “Car” is not the number of a class"),
        ("labels/a.txt", "0 .5 .5 .5", "a.txt, line 1: 4 columns instead of 5"),
        ("labels/a.txt", "0.5 .5 .5 .5 .5", "a.txt, line 1: “0.5” is not the number of a class"),
        ("labels/a.txt", "Car 0 0 0 1 1 x 9 1 1 1 0 0 0 0", "a.txt, line 1: “x” is not a"),
        ("labels/a.txt", "0 .5 .5 .1 .1\n\n-1 .5 .5 .1 .1", "line 3: “-1” is not the number of a class"),
        ("labels/a.txt", "0 .5 .5 .1 .1\n2 .5 .5 .1 .1", "line 2: there is no class 2, only 0 to 1"),
        ("labels/a.xml", "<annotation><object></annotation>", "a.xml, line 1: mismatched tag"),
        ("labels/a.xml", voc_file([("cat", 1, 1, 2, 2)]).replace("<ymax>2</ymax>", ""), "object 1, ymax: “”"),
        ("labels/a.xml", "<!DOCTYPE a [<!ENTITY e 'x'>]><annotation/>", "document type declarations are not"),
        ("labels/a.xml", "<annotation>" + "<a>" * 50, "a.xml, line 1: more than 50 nested elements"),
        ("labels/a.xml", "<other/>", "<other> instead of <annotation>"),
        ("labels.json", "{}", "labels.json is not a COCO file: Object missing required field `images`"),
        ("labels.json", "{", "labels.json is not valid JSON"),
        ("boxes.csv", "image,left,top,right,top2,class\na.png,1,1,2,2,cat", "has no column “bottom”"),
        (
            "boxes.csv",
            "image,left,top,right,bottom,city\na.png,1,1,2,2,Rome\na.png,1,1,2,3,Oslo",
            "Choose one of city under “CSV columns”, or enter the only class under “Classes”",
        ),
        ("boxes.csv", "a.png,1,1,2,cat", "5 columns and no header"),
        ("boxes.csv", "a.png,1,1,2,x,cat", "line 1: “x” is not a number"),
        ("boxes.csv", "../none.png,1,1,2,2,cat", "line 1: “../none.png” is outside the image folder"),
        ("labels/notes.md", "text", "contains no annotations"),
        ("labels.pdf", "text", "format of labels.pdf is unknown"),
    ],
)
def test_errors_name_the_file_and_the_line(folder: Path, name: str, text: str, message: str) -> None:
    (folder / "classes.txt").write_text("cat\ndog\n")
    (folder / name).write_text(text)
    labels = folder / "labels" if name.startswith("labels/") else folder / name
    with pytest.raises(UnusableSource) as caught:
        plan(folder, labels)
    assert message in caught.value.sentences


def test_ids_of_coco_that_are_not_unique_are_refused(folder: Path) -> None:
    content = coco_file()
    content["images"][0]["id"] = "b"
    (folder / "labels.json").write_text(json.dumps(content))
    with pytest.raises(UnusableSource, match=r"labels\.json, image b: the id is not unique"):
        plan(folder, folder / "labels.json")


def test_files_without_a_counterpart_are_reported(folder: Path) -> None:
    labels = write_voc(folder)
    (labels / "a.xml").rename(labels / "z.xml")
    found = plan(folder, labels)
    assert sorted(boxes_of(found)) == ["b.png", "c.png"]
    assert any("1 file of annotations has no image: z.xml" in text for text in found.warnings)
    assert any("1 image without a file of annotations: not used (a.png)" in text for text in found.warnings)


def test_a_label_file_cannot_be_a_link_to_another_folder(folder: Path) -> None:
    labels = write_kitti(folder)
    (folder / "secret.txt").write_text("top secret")
    (labels / "a.txt").unlink()
    (labels / "a.txt").symlink_to(folder / "secret.txt")
    with pytest.raises(UnusableSource) as caught:
        plan(folder, labels, classes=["cat"])
    sentences = caught.value.sentences
    assert "a.txt" in sentences and "secret" not in sentences.replace("secret.txt", "")


EDGE = st.floats(-1e4, 1e4).map(lambda value: round(value, 3))


@example([("car", 0.0, 0.0, 1.0, 1.0)] * 60)  # more elements than may be nested
@given(objects=st.lists(st.tuples(st.sampled_from(["car", "tram"]), EDGE, EDGE, EDGE, EDGE), max_size=5))
def test_kitti_and_voc_return_what_was_written(objects: list[tuple[str, float, float, float, float]]) -> None:
    text = "\n".join(kitti_line(*item) for item in objects)
    for found in (kitti.parse(text.encode(), False), voc.parse(voc_file(objects).encode()).boxes):
        assert [(box.name, *astuple(box.bounds)) for box in found] == objects


@given(
    data=st.one_of(
        st.binary(max_size=200),
        st.text("<>/!&;ab 01.-\n[]\"'", max_size=200).map(str.encode),
        st.text(max_size=100).map(lambda text: f"<annotation><object>{text}</object></annotation>".encode()),
    )
)
def test_parsers_never_fail_in_another_way(data: bytes) -> None:
    parsers = (
        lambda data: kitti.parse(data, True),
        lambda data: voc.parse(data).boxes,
        lambda data: yolo.parse(data, {}),
    )
    for parse in parsers:
        try:
            boxes = parse(data)
        except InvalidAnnotation as error:
            assert str(error)
        else:
            assert all(box.name and box.where for box in boxes)


@given(
    data=st.recursive(
        st.none() | st.integers() | st.text(max_size=5), lambda item: st.lists(item, max_size=3)
    )
)
def test_any_json_is_a_coco_file_or_refused(tmp_path_factory: pytest.TempPathFactory, data: object) -> None:
    path = tmp_path_factory.mktemp("coco") / "a.json"
    path.write_text(json.dumps({"images": data, "annotations": [], "categories": []}))
    try:
        list(open_annotations(path, path.parent, "auto").images)
    except UnusableSource as error:
        assert "a.json" in error.sentences


def write_cvat(folder: Path) -> Path:
    path = folder / "annotations.xml"
    path.write_text(annotation_files.cvat((f"{name}.png", objects) for name, objects in OBJECTS.items()))
    return path


@pytest.mark.parametrize(
    ("write", "old", "new", "path", "reason", "kept"),
    [
        (write_kitti, "dog 0", "dog", "a.txt", "line 2: 14 columns instead of 15", "bc"),
        (write_voc, "<name>dog</name>", "<name>", "a.xml", "line 1: mismatched tag", "bc"),
        (write_yolo, "\n1 ", "\n7 ", "a.txt", "line 2: there is no class 7, only 0 to 1", "bc"),
        (write_cvat, "label='dog'", "", "annotations.xml, a.png", "box 2: no label", "bc"),
        (write_json_lines, ', "dog"]', ", null]", "metadata.jsonl, line 1", "object 2: no class", "bc"),
        # Other objects of the image are kept.
        (write_csv, "dog", "", "boxes.csv, line 3", "no class", "abc"),
    ],
)
def test_unusable_annotations_are_skipped_and_listed(
    folder: Path, write: Callable[[Path], Path], old: str, new: str, path: str, reason: str, kept: str
) -> None:
    labels = write(folder)
    file = next(labels.glob("a.*")) if labels.is_dir() else labels
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new, 1))
    found = plan(folder, labels, classes=["cat", "dog"], max_unusable_percent=50)
    is_image = kept == "bc"
    assert found.unusable == [Unusable(path, reason, "train", is_image=is_image)]
    assert sorted(boxes_of(found)) == [f"{name}.png" for name in kept]
    with pytest.raises(UnusableSource) as caught:
        plan(folder, labels, classes=["cat", "dog"])
    assert reason in caught.value.sentences and "Raise “Limit of unusable images”" in caught.value.hint
    limit = float(caught.value.remedy["max_unusable_percent"])
    assert boxes_of(plan(folder, labels, classes=["cat", "dog"], max_unusable_percent=limit)) == boxes_of(
        found
    )


def test_unusable_annotations_of_coco_are_skipped_and_their_images_kept(folder: Path) -> None:
    content = coco_file()
    first, second, third = content["annotations"]
    content["annotations"] += [{**first, "id": 7, "image_id": "z"}, {**second, "id": 8, "category_id": 99}]
    content["images"].append({"id": "d", "file_name": "/etc/passwd"})
    third["bbox"] = [1, 2]
    (folder / "labels.json").write_text(json.dumps(content))
    found = plan(folder, folder / "labels.json", max_unusable_percent=60)
    image, *others = found.unusable
    outside = Unusable("labels.json, image d", "“/etc/passwd” is outside the image folder", "train")
    assert image == outside and image.is_image
    assert {(item.path, item.reason, item.is_image) for item in others} == {
        ("labels.json, annotation 7", "image z does not exist", False),
        ("labels.json, annotation 8", "category 99 does not exist", False),
        (f"labels.json, annotation {third['id']}", "bbox has 2 numbers instead of four", False),
    }
    assert sorted(boxes_of(found)) == ["a.png", "b.png", "c.png"]
