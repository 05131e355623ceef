"""Label Studio: a JSON file (JSON or JSON-MIN) with the results of all tasks, in percent of the image."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from digits.data.sources.path_rules import ImageTree
from digits.data.sources.plan import count_of, naming_unreadable, read_bounded
from digits.data.tables.tables import IMAGE_COLUMNS, Faults, is_image
from digits.kinds.detection.annotations import AnnotatedImage, Annotations, declared_size
from digits.kinds.detection.formats.format import Format, Source
from digits.kinds.detection.formats.json_shapes import (
    ellipse,
    items,
    load,
    number,
    numbers,
    pairs,
    polygon,
    rectangle,
    report_unused,
    rotate,
)
from digits.kinds.detection.formats.label_files import InvalidAnnotation, naming
from digits.kinds.sources.shapes import Form, Placement, RunLengths, Shape, from_brush

MAX_BYTES = 512 << 20
_LABELS = ("rectanglelabels", "polygonlabels", "ellipselabels", "brushlabels", "labels")
_WORDS = re.compile(
    rb'"(original_width|(rectangle|polygon|ellipse|brush|keypoint)labels|from_name|lead_time)"'
)
_UNUSED = ("keypointlabels", "bitmasklabels", "vectorlabels", "choices")


class _Reader:
    """Reads the tasks of a file, and collects ``faults``, ``remarks`` and ``unused`` shapes."""

    def __init__(self, source: Source) -> None:
        self.path = source.labels
        self._tree = ImageTree(source.images)
        self.faults = Faults(source.labels, row="task")
        self.remarks: list[str] = []
        self.unused: Counter[str] = Counter()
        self._repeated = 0
        self._without = 0

    def images(self) -> Iterator[AnnotatedImage]:
        """Yield the image of each task; raises UnusableSource for a file in a different format."""
        tasks = _tasks(self.path)
        matches = self._tree.match(path for path in map(_image_of, tasks) if path)
        self.faults.notes = matches.remarks(self.path.name)
        for index, task in enumerate(tasks, 1):
            where = f"task {task.get('id', index)}"
            try:
                results = self._results(task)
                if results is None:
                    self._without += 1
                    continue
                path = _image_of(task)
                if not path:
                    raise InvalidAnnotation("no image")
                image = AnnotatedImage(matches.locate(path), [], is_relative=True)
                for item in results:
                    self._add(image, item, where)
            except ValueError as error:
                self.faults.add_place(where, str(error).removeprefix(f"{where}, "))
                continue
            self.faults.usable += 1
            yield image
        if self._repeated:
            self.remarks.append(
                f"{count_of(self._repeated, 'task')} with several annotations: the latest of each is used."
            )
        if self._without:
            self.remarks.append(f"{count_of(self._without, 'task')} without annotations: not used.")

    def _results(self, task: dict[str, Any]) -> list[dict[str, Any]] | None:
        """Return the results of the latest annotation; None if there is none."""
        if "data" not in task:  # JSON-MIN
            lists = [value for value in task.values() if isinstance(value, list)]
            return [item for results in lists for item in items(results)]
        done = [
            item
            for item in items(task.get("annotations") or task.get("completions"))
            if not item.get("was_cancelled")
        ]
        self._repeated += len(done) > 1
        latest = max(done, key=_time, default=None)
        return items(latest.get("result")) if latest else None

    def _add(self, image: AnnotatedImage, item: dict[str, Any], where: str) -> None:
        value = item.get("value", item)
        if not isinstance(value, dict):
            return
        if unused := [key for key in _UNUSED if value.get(key)]:
            self.unused[unused[0].removesuffix("labels")] += 1
            return
        labels: list[Any] = next((value[key] for key in _LABELS if isinstance(value.get(key), list)), [])
        size = declared_size(
            item.get("original_width", value.get("original_width")),
            item.get("original_height", value.get("original_height")),
        )
        image.declared = image.declared or size
        for label in labels:
            place = f"{where}, object {len(image.boxes) + 1}"
            if form := _form(value, size, place):
                image.boxes.append(Shape(str(label).strip(), form, place))


def _time(annotation: dict[str, Any]) -> str:
    return str(annotation.get("updated_at") or annotation.get("created_at") or "")


def _tasks(path: Path) -> list[dict[str, Any]]:
    with naming_unreadable(path):
        content = load(read_bounded(path, MAX_BYTES))
    return items([content] if isinstance(content, dict) and "data" in content else content)


def _image_of(task: dict[str, Any]) -> str:
    """Return the path or address of the image of a task, which is empty if there is none."""
    data = task.get("data", task)
    texts = (
        {key: value for key, value in items([data])[0].items() if isinstance(value, str)}
        if items([data])
        else {}
    )
    named = [texts[key] for key in IMAGE_COLUMNS if key in texts]
    values = [
        *named,
        *(value for value in texts.values() if is_image(value.partition("?")[0]) or "/data/" in value),
    ]
    return values[0] if values else ""


def _form(value: dict[str, Any], size: tuple[int, int] | None, where: str) -> Form | None:
    """Return the form of an object in fractions of the image, whose ``size`` rotations and masks require.

    Return None if it has no form.
    """
    width, height = size or (1, 1)
    to_fractions = Placement(1 / width, 1 / height, 1, 1)
    if "points" in value:
        points = [(x * width / 100, y * height / 100) for x, y in pairs(value["points"], where)]
        return polygon(points, where).moved(to_fractions)
    if "rle" in value:
        if not size:
            raise InvalidAnnotation(f"{where}: a mask without original_width and original_height")
        with naming(where):
            return RunLengths.of(from_brush(value["rle"], width, height)).moved(to_fractions)
    if "x" not in value:
        return None
    rotation = number(value.get("rotation") or 0, where)
    if rotation % 360 and not size:
        raise InvalidAnnotation(f"{where}: a rotated shape without original_width and original_height")
    if "radiusX" in value:
        x, y, across, down = numbers(value, ("x", "y", "radiusX", "radiusY"), where)
        corners = ellipse(
            x * width / 100,
            y * height / 100,
            across * width / 100,
            down * height / 100,
            math.radians(rotation),
        )
        return polygon(corners, where).moved(to_fractions)
    left, top, across, down = (
        found * side / 100
        for found, side in zip(
            numbers(value, ("x", "y", "width", "height"), where), (width, height) * 2, strict=True
        )
    )
    if not rotation % 360:
        return rectangle([(left, top), (left + across, top + down)], where).moved(to_fractions)
    # Label Studio rotates around the corner at the top left.
    corners = [(0.0, 0.0), (across, 0.0), (across, down), (0.0, down)]
    return polygon(rotate(corners, left, top, math.radians(rotation)), where).moved(to_fractions)


def _looks_like(head: bytes) -> bool:
    text = head.lstrip(b"\xef\xbb\xbf \r\n\t")
    return text.startswith((b"[", b'{"id"')) and bool(_WORDS.search(text))


def _open(source: Source) -> Annotations:
    reader = _Reader(source)
    images = report_unused(reader.images(), reader.unused, reader.remarks, source.needs_outlines)
    return Annotations(images, [], reader.remarks, faults=[reader.faults])


FORMAT = Format(
    "label-studio",
    "Label Studio",
    _open,
    (".json",),
    looks_like=_looks_like,
    words="Label Studio (JSON, JSON-MIN)",
)
