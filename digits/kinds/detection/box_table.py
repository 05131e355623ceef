"""CSV files with one box per line: the path of the image, the box in pixels, and the class.

A box has a left and a top edge, and a right and a bottom edge or a width and a height.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from digits.data.images import Size
from digits.data.sources import UnusableSource, count_of, listed, show
from digits.data.tables import MAX_TABLE_BYTES, Cells, Faults, TableFile, has_no_image, number_of, open_table
from digits.kinds.detection.annotations import AnnotatedImage, Annotations, declared_size
from digits.kinds.detection.format import BoxTable, Format, Source
from digits.kinds.run_length_tables import refuse_run_lengths
from digits.kinds.shapes import Rectangle, Shape

# Accepted names of the columns, in lowercase, by the field of the form and of `BoxTable`.
COLUMNS = {
    "image_column": (
        "image",
        "filename",
        "file_name",
        "file",
        "image_path",
        "path",
        "img",
        "image_id",
        "imageid",
    ),
    "left_column": ("left", "xmin", "x_min", "x1", "x0", "x"),
    "top_column": ("top", "ymin", "y_min", "y1", "y0", "y"),
    "right_column": ("right", "xmax", "x_max", "x2"),
    "bottom_column": ("bottom", "ymax", "y_max", "y2"),
    "width_column": ("width", "w"),
    "height_column": ("height", "h"),
    "class_column": (
        "class",
        "label",
        "name",
        "class_name",
        "category",
        "classname",
        "label_name",
        "labelname",
    ),
}
# The columns that can replace others.
_SIDES = {"right_column": "width_column", "bottom_column": "height_column"}
# Those of a file without a header, in their order.
_ORDER = ("image_column", "left_column", "top_column", "right_column", "bottom_column", "class_column")
Places = dict[str, int]
_Cells = tuple[float, float, float, float, str, Size | None] | tuple[()]


def _open(source: Source) -> Annotations:
    table = open_boxes(source.labels, source.table)
    places = find_columns(table, source.table)
    table.need_paths(places["image_column"])
    faults = Faults(source.labels, are_images=False)
    faults.notes = table.remarks
    stated = _stated_size(table, places)
    return Annotations(_images(table, source.images, places, stated, faults), faults=[faults])


def open_boxes(path: Path, settings: BoxTable, max_bytes: int = MAX_TABLE_BYTES) -> TableFile:
    """Open the first ``max_bytes`` of a table, whose columns may be unknown; raises UnusableSource."""
    return open_table(path, has_no_image, max_bytes, settings.dialect)


def role_of(field: str) -> str:
    """Return the value in the column of ``field``, such as ``left``."""
    return field.removesuffix("_column")


def find_columns(table: TableFile, settings: BoxTable) -> Places:
    """Return the places of the columns by field: those that are chosen, or else those with usual names.

    Boxes have a right edge or a width, and a bottom edge or a height. Raises UnusableSource.
    """
    chosen = {field: name for field in COLUMNS if (name := getattr(settings, field))}
    columns = _usual(table) | {field: table.place(name) for field, name in chosen.items()}
    for edge, side in _SIDES.items():
        if edge in columns and side in columns:
            # Unless chosen, a width or height beside two edges is that of the image.
            del columns[edge if side in chosen and edge not in chosen else side]
    for field in _ORDER:
        if field not in columns and _SIDES.get(field) not in columns:
            refuse_run_lengths(table)
            raise _missing(table, field)
    places = list(columns.values())
    repeated = next((place for place in places if places.count(place) > 1), None)
    if repeated is not None:
        fields = [role_of(field) for field, place in columns.items() if place == repeated]
        raise UnusableSource(
            f"The column “{show(table.columns[repeated])}” is used for {' and '.join(fields)}.",
            "Choose another column for one of them.",
        )
    return columns


def _usual(table: TableFile) -> Places:
    if _has_header(table):
        columns = [name.lower() for name in table.columns]
        places = {
            field: next((columns.index(name) for name in names if name in columns), None)
            for field, names in COLUMNS.items()
        }
        return {field: place for field, place in places.items() if place is not None}
    return {field: place for place, field in enumerate(_ORDER)} if len(table.columns) == len(_ORDER) else {}


def _stated_size(table: TableFile, places: Places) -> list[int]:
    """Return the places of the width and the height of the image, beside the edges of boxes; none without them."""
    usual = _usual(table)
    sides = [usual[field] for field in _SIDES.values() if field in usual]
    is_free = set(_SIDES) <= set(places) and not set(sides) & set(places.values())
    return sides if len(sides) == len(_SIDES) and is_free else []


def _has_header(table: TableFile) -> bool:
    return table.columns[0] != "column 1"


def _missing(table: TableFile, field: str) -> UnusableSource:
    name = show(table.path.name)
    if not _has_header(table):
        return UnusableSource(
            f"{name} has {count_of(len(table.columns), 'column')} and no header.",
            f"Choose “CSV columns”, or add a header with {', '.join(map(role_of, _ORDER))}.",
        )
    role, *others = COLUMNS[field]
    side = f", and no column “{role_of(_SIDES[field])}”" if field in _SIDES else ""
    return UnusableSource(
        f"{name} has no column “{role}”, which can also be called {', '.join(others)}{side}.",
        f"Choose one of {listed(table.columns)} under “CSV columns”.",
    )


def _parser(places: Places, stated: list[int], has_decimal_commas: bool) -> Callable[[Cells], _Cells]:
    def parse(cells: Cells) -> _Cells:
        texts = {field: cells[place] if place < len(cells) else "" for field, place in places.items()}
        name = texts["class_column"]
        edges = [field for field in places if field not in ("image_column", "class_column")]
        if not any(texts[field] for field in edges):
            return ()  # an image without objects
        numbers = {field: _number(texts[field], has_decimal_commas) for field in edges}
        if not name:
            raise ValueError("no class")
        left, top = numbers["left_column"], numbers["top_column"]
        right = numbers["right_column"] if "right_column" in numbers else left + numbers["width_column"]
        bottom = numbers["bottom_column"] if "bottom_column" in numbers else top + numbers["height_column"]
        return left, top, right, bottom, name, _size(cells, stated)

    return parse


def _size(cells: Cells, places: list[int]) -> Size | None:
    width, height = (
        (cells[place] if place < len(cells) else None for place in places) if places else (None, None)
    )
    return declared_size(width, height)


def _number(text: str, has_decimal_commas: bool) -> float:
    try:
        return number_of(text, has_decimal_commas=True) if has_decimal_commas else float(text)
    except ValueError:
        raise ValueError(f"“{show(text[:40])}” is not a number") from None


def _images(
    table: TableFile, root: Path, places: Places, stated: list[int], faults: Faults
) -> Iterator[AnnotatedImage]:
    images: dict[str, AnnotatedImage] = {}
    are_of_boxes = True
    has_commas = table.has_decimal_commas(
        place for field, place in places.items() if field not in ("image_column", "class_column")
    )
    for row in table.parse(root, places["image_column"], _parser(places, stated, has_commas)):
        if row.value is None:
            faults.add(row.line, row.fault)
            continue
        faults.usable += 1
        annotated = images.setdefault(row.file, AnnotatedImage(row.file, []))
        if row.value:
            left, top, right, bottom, name, size = row.value
            annotated.boxes.append(Shape(name, Rectangle(left, top, right, bottom), f"line {row.line}"))
            annotated.declared = size
            are_of_boxes &= size is None or max(abs(right - left - size[0]), abs(bottom - top - size[1])) <= 1
    for annotated in images.values():
        if are_of_boxes:
            annotated.declared = None
        yield annotated


FORMAT = Format("csv", "CSV", _open, (".csv", ".tsv", ".txt"))
