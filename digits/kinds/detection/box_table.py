"""CSV files with one box per line: the path of the image, the edges in pixels, and the class."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from digits.data.sources import UnusableSource, count_of, listed, show
from digits.data.tables import MAX_TABLE_BYTES, Cells, TableFile, first_lines, is_image, open_table
from digits.kinds.detection.annotations import AnnotatedImage, Annotations, Box

# Accepted names of the columns, in lowercase. Without a header, the columns are in this order.
COLUMNS = {
    "image": ("image", "filename", "file_name", "file", "image_path", "path", "img", "image_id"),
    "left": ("left", "xmin", "x_min", "x1", "x0"),
    "top": ("top", "ymin", "y_min", "y1", "y0"),
    "right": ("right", "xmax", "x_max", "x2"),
    "bottom": ("bottom", "ymax", "y_max", "y2"),
    "class": ("class", "label", "name", "class_name", "category", "classname"),
}
_Cells = tuple[float, float, float, float, str] | tuple[()]


def read(path: Path, root: Path) -> Annotations:
    """Read a table whose images are below ``root``, a real path; raises UnusableSource."""
    table = open_table(path, _is_header, MAX_TABLE_BYTES)
    places = _places(table)
    table.need_paths(places[0])
    return Annotations("CSV", _images(table, root, places[0], _parser(places[1:])))


def _is_header(cells: Cells) -> bool:
    return not any(map(is_image, cells))


def _places(table: TableFile) -> list[int]:
    if table.columns[0] == "column 1":
        if len(table.columns) != len(COLUMNS):
            raise UnusableSource(
                f"{show(table.path.name)} has {count_of(len(table.columns), 'column')} and no header.",
                f"Add a header with the columns {', '.join(COLUMNS)}.",
            )
        return list(range(len(COLUMNS)))
    columns = [name.lower() for name in table.columns]
    places = []
    for name, usual in COLUMNS.items():
        found = [columns.index(word) for word in usual if word in columns]
        if not found:
            raise UnusableSource(
                f"{show(table.path.name)} has no column “{name}”, which can also be called {', '.join(usual[1:])}.",
                f"Its columns are {listed(table.columns)}.",
            )
        places.append(found[0])
    return places


def _parser(places: list[int]) -> Callable[[Cells], _Cells]:
    def parse(cells: Cells) -> _Cells:
        texts = [cells[place] if place < len(cells) else "" for place in places]
        if not any(texts[:4]):
            return ()  # an image without objects
        left, top, right, bottom = map(_number, texts[:4])
        if not texts[4]:
            raise ValueError("no class")
        return left, top, right, bottom, texts[4]

    return parse


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"“{show(text[:40])}” is not a number") from None


def _images(
    table: TableFile, root: Path, image: int, parse: Callable[[Cells], _Cells]
) -> Iterator[AnnotatedImage]:
    found: dict[str, AnnotatedImage] = {}
    faults = []
    for row in table.parse(root, image, parse):
        if row.value is None:
            faults.append(f"line {row.line}: {row.fault}")
            continue
        annotated = found.setdefault(row.file, AnnotatedImage(row.file, []))
        if row.value:
            annotated.boxes.append(Box(*row.value, f"line {row.line}"))
    if faults:
        raise UnusableSource(
            f"{count_of(len(faults), 'line')} of {show(table.path.name)} cannot be used: {first_lines(faults)}.",
            "Correct or remove them.",
        )
    yield from found.values()
