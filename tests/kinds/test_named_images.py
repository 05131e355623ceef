"""No reader gives a label to an image that the source does not name: random folders, lists and annotation files.

`_named` decides without the code of the readers what a path can mean. ``DIGITS_EXAMPLES`` sets the number of sources
for each reader.
"""

from __future__ import annotations

import json
import os
import tempfile
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from digits.data.sources.plan import UnusableSource
from digits.data.sources.target_images import match
from digits.kinds.classification import listing
from digits.kinds.classification.recipe import ListedSplit, Tables
from digits.kinds.detection.formats.formats import open_annotations
from digits.kinds.sources.split_lists import divide
from tests.kinds.annotation_files import Box, Images, coco, cvat, json_lines, voc
from tests.kinds.tables import one_file

ENDINGS = (".png", ".jpg")
COMPOSED, DECOMPOSED = "\xe9", "e\u0301"
FOLDERS = (
    "",
    "",
    "a",
    "b",
    "a/b",
    "b/a",
    "images",
    "images/a",
    "labels/b",
    "train",
    "val",
    "val/a",
    f"{COMPOSED}/a",
)
NAMES = ("0", "0", "1", "2", "00", "01", "x", "X", "0_m", "m_0", "x_m", COMPOSED, DECOMPOSED)
USUAL = {"images", "labels"}

paths = st.builds(
    lambda folder, name, ending: f"{folder}/{name}{ending}".removeprefix("/"),
    st.sampled_from(FOLDERS),
    st.sampled_from(NAMES),
    st.sampled_from(ENDINGS),
)


def _windows(path: str) -> str:
    return path if "://" in path else path.replace("/", "\\")


@dataclass(frozen=True)
class Source:
    """The ``images`` below a folder, and the ``paths`` that a list of them contains."""

    root: str
    images: Sequence[str]
    paths: Sequence[str]


@st.composite
def sources(draw: DrawFn, are_files: bool = False) -> Source:
    """Draw a source; most paths are changed in the same way, and some of their images are missing.

    With ``are_files``, paths can be those of files in a folder.
    """
    images = draw(st.lists(paths, min_size=1, max_size=7, unique=True))
    named = draw(st.lists(st.sampled_from(images) | paths, min_size=1, max_size=7, unique=True))
    prefixes = (
        "",
        "",
        "a/",
        "data/",
        "b/a/",
        *(() if are_files else ("C:\\d\\", "/data/", "../", "https://h.com/x/")),
    )
    changes = [
        st.sampled_from(prefixes).map(lambda prefix: lambda path: path if ":" in path else prefix + path),
        st.integers(1, 3).map(lambda count: lambda path: "/".join(path.split("/")[-count:])),
        st.just(lambda path: os.path.splitext(path)[0]),
        st.just(lambda path: os.path.splitext(path)[0] + ".jpg"),
        st.just(str.upper),
        st.sampled_from(("NFC", "NFD")).map(lambda form: lambda path: unicodedata.normalize(form, path)),
        st.just(lambda path: path.replace("a/", "c/", 1)),
        st.just(lambda path: path.lstrip("0") or path),
        *(() if are_files else (st.just(_windows),)),
    ]
    change = draw(st.lists(st.one_of(changes), max_size=3))
    other = draw(st.lists(st.one_of(changes), max_size=1))
    written = []
    for path in named:
        for apply in other if draw(st.integers(0, 9)) == 0 else change:
            path = apply(path)
        written.append(path)
    root = draw(st.sampled_from(("set", "a", "train", "images")))
    return Source(root, images, list(dict.fromkeys(written)))


Labels = list[tuple[str, int]]
Reader = Callable[[Path, Path, Source], Labels]


def _table(root: Path, folder: Path, source: Source) -> Labels:
    path = folder / "list.csv"
    rows = [f'"{path}",c{number}' for number, path in enumerate(source.paths)]
    path.write_text("\n".join(["image,label", *rows]))
    return _rows_of(path, root)


def _rows_of(path: Path, root: Path) -> Labels:
    settings = Tables(train=ListedSplit(file=str(path), folder=str(root)), header="yes")
    rows = listing.open_labels(one_file(path, root), settings).rows
    return [(row.file, int(row.value[1:])) for row in rows if row.value is not None]


def _text(root: Path, folder: Path, source: Source) -> Labels:
    path = folder / "list.txt"
    path.write_text("".join(f"{path} {number}\n" for number, path in enumerate(source.paths)))
    names = [f"c{number}" for number in range(len(source.paths))]
    rows = listing.text_rows(path, root, names, [])
    return [(row.file, int(row.value[1:])) for row in rows if row.value is not None]


def _json_rows(root: Path, folder: Path, source: Source) -> Labels:
    path = folder / "list.jsonl"
    lines = ({"file_name": path, "label": f"c{number}"} for number, path in enumerate(source.paths))
    path.write_text("\n".join(map(json.dumps, lines)))
    return _rows_of(path, root)


def _boxes(labels: Path, root: Path, form: str, classes: Sequence[str] = ()) -> Labels:
    annotations = open_annotations(labels, root, form, classes)
    return [
        (image.file, int(box.name.removeprefix("class ").removeprefix("c")))
        for image in annotations.images
        for box in image.boxes
    ]


def _entries(source: Source) -> list[tuple[str, list[Box]]]:
    return [(path, [(f"c{number}", 1, 1, 3, 3)]) for number, path in enumerate(source.paths)]


def _written(name: str, form: str, write: Callable[[Images], str]) -> Reader:
    def read_file(root: Path, folder: Path, source: Source) -> Labels:
        (folder / name).write_text(write(_entries(source)))
        return _boxes(folder / name, root, form)

    return read_file


def _vgg(root: Path, folder: Path, source: Source) -> Labels:
    shape = {"name": "rect", "x": 1, "y": 1, "width": 2, "height": 2}
    content = {
        path: {
            "filename": path,
            "regions": [{"shape_attributes": shape, "region_attributes": {"class": f"c{number}"}}],
        }
        for number, path in enumerate(source.paths)
    }
    (folder / "labels.json").write_text(json.dumps(content))
    return _boxes(folder / "labels.json", root, "vgg")


def _label_studio(root: Path, folder: Path, source: Source) -> Labels:
    def result(number: int) -> dict[str, object]:
        edges = {"x": 10, "y": 10, "width": 20, "height": 20, "rectanglelabels": [f"c{number}"]}
        return {"value": edges, "original_width": 10, "original_height": 10}

    content = [
        {"id": number, "data": {"image": path}, "annotations": [{"result": [result(number)]}]}
        for number, path in enumerate(source.paths)
    ]
    (folder / "labels.json").write_text(json.dumps(content))
    return _boxes(folder / "labels.json", root, "label-studio")


def _files(ending: str, form: str, content: Callable[[int, str], str]) -> Reader:
    def read_files(root: Path, folder: Path, source: Source) -> Labels:
        for number, path in enumerate(source.paths):
            file = folder / "files" / f"{path}{ending}"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content(number, path))
        return _boxes(folder / "files", root, form, ["c"] if form == "kitti" else [])

    return read_files


def _voc(number: int, name: str = "") -> str:
    return voc([(f"c{number}", 1, 1, 2, 2)], f"<filename>{name}</filename>")


def _labelme(number: int, name: str = "") -> str:
    shape = {"label": f"c{number}", "points": [[1, 1], [3, 3]], "shape_type": "rectangle"}
    return json.dumps({"shapes": [shape], "imagePath": name, "imageWidth": 10, "imageHeight": 10})


def _named_voc(root: Path, folder: Path, source: Source) -> Labels:
    (folder / "files").mkdir()
    for number, path in enumerate(source.paths):
        (folder / "files" / f"{'q' * (number + 1)}.xml").write_text(_voc(number, path))
    return _boxes(folder / "files", root, "voc")


def _masks(root: Path, folder: Path, source: Source) -> Labels:
    names = [path if path.lower().endswith(ENDINGS) else f"{path}.png" for path in source.paths]
    found = match(source.images, names)
    return [] if found.unclear else [(image, names.index(mask)) for image, mask in found.names]


def _lists(root: Path, folder: Path, source: Source) -> Labels:
    """Return the images that the second half of the paths, a list, makes those of a split."""
    labels = []
    half = len(source.paths) // 2
    for name, part in (("train", source.paths[:half]), ("val", source.paths[half:])):
        (folder / f"{name}.txt").write_text("\n".join(part))
    lists = {"val": str(folder / "val.txt")} | ({"train": str(folder / "train.txt")} if half else {})
    found = divide(lists, root, source.images, [])
    for place in found["val"]:
        file = source.images[place]
        # Of the paths that can mean the image, most likely the one that is most like it.
        numbers = sorted(
            range(half, len(source.paths)), key=lambda number: _unlike(source.paths[number], file)
        )
        labels.append((file, numbers[0]))
    return labels


READERS: Mapping[str, Reader] = {
    "table": _table,
    "text file": _text,
    "JSON Lines of labels": _json_rows,
    "COCO": _written("labels.json", "coco", coco),
    "CVAT": _written("labels.xml", "cvat", cvat),
    "VGG": _vgg,
    "Label Studio": _label_studio,
    "JSON Lines": _written("labels.jsonl", "jsonl", json_lines),
    "VOC with names": _named_voc,
    "split lists": _lists,
}
# Annotations that are called like the images.
FILES: Mapping[str, Reader] = {
    "YOLO": _files(".txt", "yolo", lambda number, _: f"{number} 0.5 0.5 0.2 0.2\n"),
    "KITTI": _files(".txt", "kitti", lambda number, _: f"c{number} 0 0 0 1 1 2 2 0 0 0 0 0 0 0\n"),
    "VOC": _files(".xml", "voc", lambda number, _: _voc(number)),
    "LabelMe": _files(".json", "labelme", lambda number, _: _labelme(number)),
    "masks": _masks,
}


def _fold(text: str) -> str:
    return unicodedata.normalize("NFC", text).casefold()


def _parts(path: str) -> list[str]:
    """Return the folders and the name of a path, in one case and one form of Unicode."""
    path = (urlsplit(path).path if "://" in path else path).replace("\\", "/").removeprefix("C:")
    return [_fold(part) for part in path.split("/") if part]


def _stem(name: str) -> str:
    return os.path.splitext(name)[0] if name.endswith(ENDINGS) else name


def _difference(path: str, image: str, ignored: frozenset[str] = frozenset()) -> tuple[list[str], list[str]]:
    """Return the folders of both up to those that they have in common at the end."""
    one, other = ([part for part in _parts(item)[:-1] if part not in ignored] for item in (path, image))
    while one and other and one[-1] == other[-1]:
        one.pop()
        other.pop()
    return one, other


def _unlike(path: str, image: str) -> tuple[bool, bool, bool, int]:
    """Return how much ``path`` differs from that of ``image``, in names first."""
    without, below = _difference(path, image)
    differ = _parts(path)[-1] != _parts(image)[-1]
    return not _named(path, image), path != image, differ, len(without) + len(below)


def _names_agree(path: str, image: str) -> bool:
    one, other = (_stem(_parts(item)[-1]) for item in (path, image))
    are_equal_numbers = one.isdecimal() and other.isdecimal() and int(one) == int(other)
    return one in other or other in one or are_equal_numbers or one.lstrip("0") == other.lstrip("0")


def _named(path: str, image: str, ignored: frozenset[str] = frozenset()) -> bool:
    """Return whether ``path`` can mean ``image``: one path is the end of the other one, or folders agree."""
    without, below = _difference(path, image, ignored)
    folders = [part for part in _parts(path)[:-1] if part not in ignored]
    return _names_agree(path, image) and (not without or not below or len(without) < len(folders))


def check(
    source: Source,
    labels: Labels,
    ignored: frozenset[str] = frozenset(),
    are_files: bool = False,
    may_be_flat: bool = False,
) -> None:
    """Check that the images have the labels of their paths, by one rule, and each the label of one path.

    Paths of label files, which ``are_files``, need not have the endings of the images. The images of masks in folders
    ``may_be_flat``.
    """
    pairs = [(source.paths[number], image) for image, number in labels if image in source.images]
    event(f"{min(len(pairs), 3)} labels")
    for path, image in pairs:
        assert _named(path, image) or _named(path, image, ignored), (path, image, source)
        if path in source.images:
            # The endings of masks do not matter.
            assert image == path or (may_be_flat and _stem(image) == _stem(path)), (path, image, source)
    for image in {image for _, image in pairs}:
        names = {tuple(_parts(path)) for path, other in pairs if other == image}
        assert len(names) == 1, (image, names, source)
    # Of all paths, not only of those with images.
    are_flat = all(len(_parts(path)) == 1 for path in source.paths)
    are_flat |= may_be_flat and not any("/" in image for image in source.images)
    rules = []
    for dropped in (frozenset[str](), ignored):
        differences = [_difference(path, image, dropped) for path, image in pairs]
        rules.append({(tuple(one), tuple(other)) for one, other in differences if one or other})
    assert are_flat or min(map(len, rules)) <= 1, (rules, source)
    are_whole = {_parts(path)[-1] == _parts(image)[-1] for path, image in pairs}
    assert are_files or len(are_whole) <= 1, (pairs, source)


def read_labels(reader: Reader, source: Source) -> Labels:
    """Return the labels of the images; a source that is refused gives none."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(os.path.realpath(folder), source.root)
        for image in source.images:
            (root / image).parent.mkdir(parents=True, exist_ok=True)
            (root / image).touch()
        own = root.parent / "annotations of them"
        own.mkdir()
        try:
            return reader(root, own, source)
        except UnusableSource as error:
            event(type(error).__name__)
            return []


@pytest.mark.parametrize("name", READERS)
@given(source=sources())
def test_listed_labels_belong_to_the_images_that_they_name(name: str, source: Source) -> None:
    check(source, read_labels(READERS[name], source))


@pytest.mark.parametrize("name", FILES)
@given(source=sources(are_files=True))
def test_files_of_labels_belong_to_the_images_that_they_name(name: str, source: Source) -> None:
    labels = read_labels(FILES[name], source)
    ignored = frozenset(USUAL if name != "masks" else ())
    check(source, labels, ignored, are_files=True, may_be_flat=name == "masks")
