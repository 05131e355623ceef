"""CSV files with one box per line: the path of the image, the box, and the class.

A box has a left and a top edge, and a right and a bottom edge or a width and a height, which can also be around a
center; or it is a list of four numbers in one cell. Without a column of classes, all boxes are of one class.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from digits.data.images.images import Size
from digits.data.sources.plan import Progress, UnusableSource, count_of, listed, show
from digits.data.tables.columns import Column
from digits.data.tables.contents import refuse_contents, refuse_run_lengths
from digits.data.tables.split_columns import find_split_columns
from digits.data.tables.tables import (
    MAX_HEADER_BYTES,
    MAX_TABLE_BYTES,
    Cells,
    Faults,
    TableFile,
    has_no_image,
    number_of,
    open_table,
)
from digits.kinds.detection.annotations import AnnotatedImage, Annotations, declared_size
from digits.kinds.detection.formats.box_order import SIDES, Numbers, Order
from digits.kinds.detection.formats.format import BoxTable, Format, Source
from digits.kinds.sources.shapes import Rectangle, Shape
from digits.kinds.sources.tables import SHOWN_ROWS

# Names of the columns of centers, in lowercase.
_CENTERS = (
    ("x_center", "xcenter", "center_x", "x_centre", "cx", "xc"),
    ("y_center", "ycenter", "center_y", "y_centre", "cy", "yc"),
)
# Names of the columns of lists of four numbers, in lowercase without signs, and the order of the numbers in some.
_BOX_NAMES: dict[str, tuple[Order, ...]] = {
    **dict.fromkeys(
        ("bbox", "box", "boundingbox", "rect", "rectangle", "region", "coordinates", "bboxes", "boxes"),
        SIDES[:2],
    ),
    **dict.fromkeys(("xywh", "ltwh"), (Order.SIDES,)),
    **dict.fromkeys(("xyxy", "ltrb"), (Order.EDGES,)),
    **dict.fromkeys(("cxcywh", "xcycwh"), (Order.CENTERS,)),
}
_CLASS = "object"
_LISTED = re.compile(r"[\[({]?\s*([^\[\](){}]*?)\s*[\])}]?")
# Accepted names of the columns, in lowercase, by the field of the form and of `BoxTable`.
COLUMNS = {
    "image_column": tuple("image filename file_name file image_path path img image_id imageid".split()),
    "left_column": ("left", "xmin", "x_min", "x1", "x0", "x", *_CENTERS[0]),
    "top_column": ("top", "ymin", "y_min", "y1", "y0", "y", *_CENTERS[1]),
    "right_column": ("right", "xmax", "x_max", "x2"),
    "bottom_column": ("bottom", "ymax", "y_max", "y2"),
    "width_column": ("width", "w"),
    "height_column": ("height", "h"),
    "class_column": tuple(
        (
            "class label name class_name category classname label_name labelname labels category_name cls "
            "class_id classid label_id category_id"
        ).split()
    ),
}
# The columns that can replace others.
_SIDES = {"right_column": "width_column", "bottom_column": "height_column"}
# Those of a file without a header, in their order.
_ORDER = ("image_column", "left_column", "top_column", "right_column", "bottom_column", "class_column")
Places = dict[str, int]
_Cells = tuple[Rectangle, str, Size | None] | tuple[()]
_SAMPLE_ROWS = 200
_NUMBERS = 4


def _open(source: Source) -> Annotations:
    table = open_boxes(source.labels, source.table)
    places = find_columns(table, source.table)
    table.need_paths(places["image_column"])
    faults = Faults(source.labels, are_images=False)
    stated = _stated_size(table, places)
    used = {*places.values(), *stated}
    columns = table.survey(place for place in range(len(table.columns)) if place not in used)
    table.splits = find_split_columns(table.columns, columns)
    only = _only_class(table, places, source.classes, columns)
    orders = _orders(table, places)
    faults.notes = table.remarks
    images = _images(table, source.images, _parser(table, places, stated, orders[0], only), places, faults)
    needs_proof = "box_column" in places and len(orders) > 1
    note = table.splits.remark if table.splits else ""
    return Annotations(images, faults=[faults], orders=orders, needs_proof=needs_proof, split_note=note)


def show_rows(path: Path, settings: BoxTable, progress: Progress) -> None:
    """Report the first rows with the values in their columns, which may be unknown, and offer the columns.

    Raises UnusableSource.
    """
    table = open_boxes(path, settings, MAX_HEADER_BYTES)
    try:
        places = find_columns(table, settings)
    except UnusableSource:
        places = {}
    roles = {place: role_of(field) for field, place in places.items()}
    progress.show_rows(table.columns, table.first_rows(SHOWN_ROWS), roles)
    for field in COLUMNS:
        progress.offer(field, [("", "Automatic"), *((name, show(name)) for name in table.columns)])


def _only_class(
    table: TableFile, places: Places, classes: Sequence[str], others: Mapping[int, Column]
) -> str:
    """Return the class of all boxes of a table without a column of classes, which is the only one of ``classes``.

    Raises UnusableSource if one of the ``others`` can be the column of classes.
    """
    if "class_column" in places:
        return ""
    if len(classes) != 1:
        splits = table.splits.places if table.splits else []
        possible = [
            table.columns[place]
            for place, column in others.items()
            if place not in splits
            and column.values is not None
            and len(column.values) > 1
            and not column.are_numbers
        ]
        if possible:
            raise UnusableSource(
                f"{show(table.path.name)} has no column of classes with a usual name, such as “class” or “label”.",
                f"Choose one of {listed(possible)} under “CSV columns”, or enter the only class under “Classes”.",
            )
    only = classes[0] if len(classes) == 1 else _CLASS
    table.remarks.append(f"Without a column of classes, all boxes are of one class, “{only}”.")
    return only


def _orders(table: TableFile, places: Places) -> tuple[Order, ...]:
    """Return the orders that the four numbers of a box can have, the first one in which they are read."""
    if "box_column" in places:
        return _BOX_NAMES.get(_plain(table.columns[places["box_column"]]), SIDES[:2])
    if "right_column" in places or "bottom_column" in places:
        return (Order.EDGES,)
    name = table.columns[places["left_column"]].lower()
    return (Order.CENTERS,) if name in _CENTERS[0] else SIDES


def _plain(name: str) -> str:
    return re.sub(r"[-_. ]", "", name.lower())


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
    if "left_column" not in columns:
        refuse_run_lengths(table)
    if "left_column" not in columns and (boxes := _column_of_boxes(table)) is not None:
        columns = {field: columns[field] for field in ("image_column", "class_column") if field in columns}
        columns["box_column"] = boxes
    for field in _ORDER[:1] if "box_column" in columns else _ORDER[:-1]:
        if field not in columns and _SIDES.get(field) not in columns:
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


def _column_of_boxes(table: TableFile) -> int | None:
    """Return the place of a column with four numbers in each cell; None if there is no such column."""
    rows = table.first_rows(_SAMPLE_ROWS)
    found = []
    for place, name in enumerate(table.columns):
        cells = [row[place] for row in rows if place < len(row) and row[place]]
        if cells and all(len(_numbers_in(cell)) == _NUMBERS for cell in cells):
            found.append((_plain(name) not in _BOX_NAMES, place))
    return min(found)[1] if found else None


def _numbers_in(cell: str) -> list[float]:
    """Return the numbers in a list in brackets, or between spaces or commas; none if there are other words."""
    listed_words = _LISTED.fullmatch(cell)
    words = re.split(r"[,;\s]+", listed_words[1]) if listed_words else []
    try:
        return [float(word.strip("'\"")) for word in words]
    except ValueError:
        return []


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
    is_free = "box_column" in places or set(_SIDES) <= set(places)
    is_free = is_free and not set(sides) & set(places.values())
    return sides if len(sides) == len(_SIDES) and is_free else []


def _has_header(table: TableFile) -> bool:
    return table.columns[0] != "column 1"


def _missing(table: TableFile, field: str) -> UnusableSource:
    """Return the error for a column that is missing; raises another one if the table contains something else."""
    refuse_contents(table, range(len(table.columns)))
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


def _parser(
    table: TableFile, places: Places, stated: list[int], order: Order, only: str
) -> Callable[[Cells], _Cells]:
    """Return the function that reads the edges, the class and the size of the image in a row."""
    edges = [field for field in (*COLUMNS, "box_column") if field in places][1:]
    edges = [field for field in edges if field != "class_column"]
    has_commas = table.has_decimal_commas(places[field] for field in edges if field != "box_column")

    def numbers_of(texts: dict[str, str]) -> Numbers:
        if "box_column" in texts:
            found = _numbers_in(texts["box_column"])
            if len(found) != _NUMBERS:
                raise ValueError(f"“{show(texts['box_column'][:80])}” is not a list of four numbers")
            return found[0], found[1], found[2], found[3]
        edge = {field: _number(texts[field], has_commas) for field in edges}
        x, y = edge["left_column"], edge["top_column"]
        width, height = edge.get("width_column", 0.0), edge.get("height_column", 0.0)
        if order is Order.EDGES:  # also for a width beside a bottom edge, or a height beside a right edge
            return x, y, edge.get("right_column", x + width), edge.get("bottom_column", y + height)
        return x, y, width, height

    def parse(cells: Cells) -> _Cells:
        texts = {field: cells[place] if place < len(cells) else "" for field, place in places.items()}
        if not any(texts[field] for field in edges):
            return ()  # an image without objects
        numbers = numbers_of(texts)
        name = only or texts["class_column"]
        if not name:
            raise ValueError("no class")
        return order.rectangle(numbers), name, _size(cells, stated)

    return parse


def _size(cells: Cells, places: list[int]) -> Size | None:
    return declared_size(
        *(cells[place] if place < len(cells) else None for place in places or (len(cells),) * 2)
    )


def _number(text: str, has_decimal_commas: bool) -> float:
    try:
        return number_of(text, has_decimal_commas=True) if has_decimal_commas else float(text)
    except ValueError:
        raise ValueError(f"“{show(text[:40])}” is not a number") from None


def _images(
    table: TableFile, root: Path, parse: Callable[[Cells], _Cells], places: Places, faults: Faults
) -> Iterator[AnnotatedImage]:
    images: dict[str, AnnotatedImage] = {}
    are_of_boxes = True
    for row in table.parse(root, places["image_column"], parse):
        if row.value is None:
            faults.add(row.line, row.fault)
            continue
        faults.usable += 1
        annotated = images.setdefault(row.file, AnnotatedImage(row.file, [], split=row.split))
        if annotated.split != row.split:
            raise UnusableSource(
                f"{show(table.path.name)}, {row.place}: {show(row.file)} is in the splits {annotated.split} and "
                f"{row.split}.",
                "Write one split for each image.",
            )
        if row.value:
            edges, name, size = row.value
            annotated.boxes.append(Shape(name, edges, f"line {row.line}"))
            annotated.declared = size
            width, height = edges.right - edges.left, edges.bottom - edges.top
            are_of_boxes &= size is None or max(abs(width - size[0]), abs(height - size[1])) <= 1
    for annotated in images.values():
        if are_of_boxes:
            annotated.declared = None
        yield annotated


FORMAT = Format("csv", "CSV", _open, (".csv", ".tsv", ".txt"))
