"""The target of object detection: boxes, how they move when an image is resized, and how they are drawn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from msgspec.structs import asdict, replace
from numpy.typing import NDArray

from digits.core.results.augmentation_preview import Outline
from digits.data.images.conversion import Size
from digits.data.targets.box_matching import FALSE, IGNORED_BOX, IN_IGNORED, NO_BOX, match
from digits.data.targets.palette import IGNORED_COLOR, IGNORED_NAME, css_color
from digits.data.targets.target import DatasetFit, Feature, Features, Read, Target

if TYPE_CHECKING:
    from digits.data.images.images import Geometry

# In an image of a dataset.
MAX_OBJECTS = 2000
# An object is dropped if less than this fraction of its box remains in a cropped or augmented image.
SMALLEST_VISIBLE_SHARE = 0.25
# The colors of predicted objects that are found, missed or false, on any image.
FOUND_COLOR, MISSED_COLOR, FALSE_COLOR = "#22c55e", "#facc15", "#ef4444"
# Predicted objects with a lower score are not drawn.
_MIN_SCORE = 0.3

BoxArray = NDArray[np.float32]
_Numbers = Any  # an array of NumPy, or a tensor


class Boxes(Target, frozen=True, kw_only=True):
    """The objects of the image, float32 [most objects, 5].

    A row contains the left, top, right and bottom edge in pixels, and the index of the class. The class of a region
    to ignore is `IGNORED_BOX`: detections in it are neither right nor wrong. Empty rows are `NO_BOX`.
    """

    feature: Feature = "target/boxes"
    dtype: Literal["float32"] = "float32"
    spatial: Literal["boxes"] = "boxes"

    in_image = True
    noun = "class"

    @classmethod
    def of(cls, classes: list[str], most: int) -> Self:
        """Return the target for ``classes``, with at most ``most`` objects and regions to ignore in an image."""
        return cls(shape=[max(1, most), 5], names=classes)

    def __post_init__(self) -> None:
        """Raise ValueError for another shape, and without classes."""
        super().__post_init__()
        if len(self.shape) != 2:
            raise ValueError("target: boxes are float32 of rank 2")
        if self.shape[1] != 5 or not self.names:
            raise ValueError("target: boxes have 5 numbers each, and names of classes")

    @property
    def most_objects(self) -> int:
        return self.shape[0]

    @property
    def contained_names(self) -> list[str]:
        return self.names

    def contained(self, value: Any) -> NDArray[np.int64]:
        return np.flatnonzero(self.count(value))

    def count(self, value: Any) -> NDArray[np.int64]:
        """Return the number of objects of each class."""
        classes = np.asarray(value).reshape(-1, 5)[:, 4]
        known = classes[(classes >= 0) & (classes < len(self.names))].astype(np.int64)
        return np.bincount(known, minlength=len(self.names)).astype(np.int64)

    def grouping(self, value: Any) -> NDArray[np.int64]:
        return super().count(value)

    def encode(self, value: BoxArray, width: int, height: int) -> Features:
        """Return the target in pixels, and the features of other programs: the objects, from 0 to 1."""
        rows = np.full(self.shape, NO_BOX, np.float32)
        rows[: len(value)] = value
        objects = objects_in(value)
        edges = (objects[:, :4] / np.array([width, height] * 2)).tolist()
        classes = objects[:, 4].astype(int).tolist()
        return {
            self.feature: rows.ravel().tolist(),
            "image/object/bbox/xmin": [edge[0] for edge in edges],
            "image/object/bbox/ymin": [edge[1] for edge in edges],
            "image/object/bbox/xmax": [edge[2] for edge in edges],
            "image/object/bbox/ymax": [edge[3] for edge in edges],
            "image/object/class/label": classes,
            "image/object/class/text": [self.names[index].encode() for index in classes],
        }

    def resize(self, value: BoxArray, geometry: Geometry) -> BoxArray:
        """Return the boxes [objects, 5] of an image after it is resized, without objects that are mostly cropped."""
        value = value[value[:, 4] != NO_BOX]
        moved = geometry.move_boxes(value[:, :4])
        limits = np.array([geometry.width, geometry.height] * 2, np.float32)
        clipped = np.clip(moved, 0, limits)
        visible = are_visible(moved, clipped, value[:, 4])
        resized: BoxArray = np.concatenate([clipped, value[:, 4:]], axis=1)[visible].astype(np.float32)
        return resized

    def moved(self, value: BoxArray, places: Sequence[int]) -> BoxArray:
        moved = value.copy()
        moved[value[:, 4] >= 0, 4] = np.array(places)[objects_in(value)[:, 4].astype(int)]
        return moved

    def _fit_names(self, other: Target) -> DatasetFit:
        # The number of boxes in a record is that of the dataset.
        return replace(self, shape=other.shape)._fit_classes(other)

    def describe(self, value: Any) -> str:
        counts = self.count(value)
        if not counts.any():
            return "no objects"
        if len(self.names) == 1:
            return f"{counts[0]} box{'es' if counts[0] > 1 else ''}"
        return ", ".join(f"{count} {name}" for name, count in zip(self.names, counts, strict=True) if count)

    def outlines(self, boxes: Iterable[Sequence[float]], size: Size) -> list[Outline]:
        """Return how to draw ``boxes``, rows of edges and a class, on images of a ``size`` (width, height).

        Empty rows are omitted, and so is the name of the only class.
        """
        only = len(self.names) == 1
        styles = {
            index: ("" if only else name, css_color(color), False)
            for index, (name, color) in enumerate(zip(self.names, self.palette, strict=True))
        }
        styles[IGNORED_BOX] = (IGNORED_NAME, IGNORED_COLOR, True)
        return [outline(edges, size, *styles[int(index)]) for *edges, index in boxes if index != NO_BOX]

    def paint(self, pixels: NDArray[np.uint8], value: NDArray[Any]) -> NDArray[np.uint8]:
        painted = np.repeat(pixels, 3 // pixels.shape[2], axis=2)
        height, width, _ = painted.shape
        line = 1 + max(height, width) // 160
        objects = objects_in(np.asarray(value).reshape(-1, 5))
        edges = np.clip(np.rint(objects[:, :4]), 0, [width, height, width, height]).astype(int)
        for (left, top, right, bottom), index in zip(edges.tolist(), objects[:, 4].astype(int), strict=True):
            frame = painted[top:bottom, left:right]
            inside = frame[line:-line, line:-line].copy()
            frame[:] = self.palette[index]
            frame[line : line + len(inside), line : line + inside.shape[1]] = inside
        return painted

    def drawings(self, url: str, thumbnail: str, read: Read, size: Size) -> dict[str, Any]:
        return {"boxes": self.outlines(read().tolist(), size)}

    def compare(
        self, truth: Sequence[Outline], predicted: Any, url: str, size: Size, threshold: float
    ) -> dict[str, Any] | None:
        places = {name: place for place, name in enumerate(self.names)}
        sides = np.array([*size, *size]) / 100
        objects = np.array(
            [
                [
                    *(sides * (box.left, box.top, box.left + box.width, box.top + box.height)),
                    IGNORED_BOX if box.ignored else places.get(box.name, 0),
                ]
                for box in truth
            ],
            np.float32,
        ).reshape(-1, 5)
        detections = np.array(
            [[*each["box"], each["score"], places.get(each["label"], -1)] for each in predicted], np.float32
        ).reshape(-1, 6)
        matched = match(detections, objects)
        scores = np.full(len(objects), 0.0)
        scores[matched[matched >= 0]] = detections[matched >= 0, 4]
        drawn = [
            {
                **asdict(box),
                "color": MISSED_COLOR,
                "status": "missed",
                # The object is missed if only detections of higher scores count.
                "score": round(float(score), 4),
                "hidden": score >= threshold,
            }
            for box, score in zip(truth, scores, strict=True)
            if not box.ignored
        ]
        others = {FALSE: ("false", FALSE_COLOR), IN_IGNORED: ("ignored", IGNORED_COLOR)}
        for each, place in zip(predicted, matched.tolist(), strict=True):
            status, color = others.get(place, ("found", FOUND_COLOR))
            name = "" if len(self.names) == 1 else each["label"]
            words = f"{name} {100 * each['score']:.0f}%".strip()
            box = outline(each["box"], size, words, color, status == "ignored")
            is_hidden = each["score"] < threshold
            drawn.append({**asdict(box), "status": status, "score": each["score"], "hidden": is_hidden})
        return {"url": url, "boxes": drawn}

    def draw_prediction(self, predicted: Any, url: str, size: Size) -> dict[str, Any] | None:
        return {
            "url": url,
            "boxes": [
                outline(each["box"], size, f"{each['label']} {100 * each['score']:.0f}%", each["color"])
                for each in predicted
                if each["score"] >= _MIN_SCORE
            ],
        }


def outline(edges: Sequence[float], size: Size, name: str, color: str, ignored: bool = False) -> Outline:
    """Return how to draw a box with ``edges`` in pixels on an image of a ``size`` (width, height)."""
    left, top, right, bottom = (100 * edge / side for edge, side in zip(edges, (*size, *size), strict=True))
    return Outline(left, top, right - left, bottom - top, name, color, ignored)


def objects_in(boxes: BoxArray) -> BoxArray:
    """Return the rows that are objects: neither regions to ignore nor empty."""
    objects: BoxArray = boxes[boxes[:, 4] >= 0]
    return objects


def are_visible(edges: _Numbers, clipped: _Numbers, classes: _Numbers) -> _Numbers:
    """Return which boxes stay when their ``edges`` [..., 4] are ``clipped`` to an image, as arrays or tensors.

    These are the objects of which a large enough part is left, and all regions to ignore of which something is.
    """
    areas = _areas(clipped)
    return (areas > 0) & ((classes == IGNORED_BOX) | (areas >= SMALLEST_VISIBLE_SHARE * _areas(edges)))


def _areas(edges: _Numbers) -> _Numbers:
    return (edges[..., 2] - edges[..., 0]) * (edges[..., 3] - edges[..., 1])
