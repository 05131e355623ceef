"""Files of annotations, from the names of images and their objects: the class and the left, top, right, bottom edge."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import count, zip_longest

Box = tuple[str, float, float, float, float]
Images = Iterable[tuple[str, Sequence[Box]]]
Sizes = Iterable[tuple[int, int]]
_EDGES = ("xmin", "ymin", "xmax", "ymax")


def _sides(box: Box) -> list[float]:
    _, left, top, right, bottom = box
    return [left, top, right - left, bottom - top]


def coco(images: Images, sizes: Sizes = ()) -> str:
    """Return a COCO file; the images have the ``sizes`` in their order."""
    entries, numbers = list(images), count()
    classes = sorted({label for _, boxes in entries for label, *_ in boxes})
    content = {
        "images": [
            {"id": number, "file_name": name} | dict(zip(("width", "height"), size, strict=False))
            for number, ((name, _), size) in enumerate(zip_longest(entries, sizes, fillvalue=()))
        ],
        "annotations": [
            {
                "id": next(numbers),
                "image_id": number,
                "category_id": classes.index(box[0]),
                "bbox": _sides(box),
            }
            for number, (_, boxes) in enumerate(entries)
            for box in boxes
        ],
        "categories": [{"id": number, "name": name} for number, name in enumerate(classes)],
    }
    return json.dumps(content)


def cvat(images: Images, sizes: Sizes = ()) -> str:
    """Return a file of CVAT for images."""
    box = "<box label='{}' xtl='{}' ytl='{}' xbr='{}' ybr='{}'/>"
    found = ""
    for (name, boxes), size in zip_longest(images, sizes, fillvalue=()):
        stated = " width='{}' height='{}'".format(*size) if size else ""
        found += f'<image name="{name}"{stated}>{"".join(box.format(*each) for each in boxes)}</image>'
    return f"<annotations>{found}</annotations>"


def json_lines(images: Images) -> str:
    """Return JSON Lines as on the Hugging Face Hub."""
    return "\n".join(
        json.dumps(
            {
                "file_name": name,
                "objects": {"bbox": list(map(_sides, boxes)), "categories": [label for label, *_ in boxes]},
            }
        )
        for name, boxes in images
    )


def voc(boxes: Iterable[Box], head: str = "", more: str = "") -> str:
    """Return a Pascal VOC file with the elements ``head``, and ``more`` in each object."""
    objects = ""
    for label, *edges in boxes:
        corners = "".join(f"<{name}>{edge}</{name}>" for name, edge in zip(_EDGES, edges, strict=True))
        objects += f"<object><name>{label}</name>{more}<bndbox>{corners}</bndbox></object>"
    return f"<annotation>{head}{objects}</annotation>"


def kitti(*boxes: Box) -> str:
    """Return a KITTI file."""
    lines = (f"{label} 0 0 0 {' '.join(map(str, edges))} 1 1 1 0 0 0 0" for label, *edges in boxes)
    return "\n".join(lines)
