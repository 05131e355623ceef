"""Boxes of objects: how they move when an image is resized, and the features of a record that describe them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from digits.data.images import Geometry
from digits.data.records import Features
from digits.data.target import IGNORED_BOX, NO_BOX, SMALLEST_VISIBLE_SHARE, TargetSpec

Boxes = NDArray[np.float32]
_Numbers = Any  # an array of NumPy, or a tensor


def objects_in(boxes: Boxes) -> Boxes:
    """Return the rows that are objects: neither regions to ignore nor empty."""
    found: Boxes = boxes[boxes[:, 4] >= 0]
    return found


def resize_boxes(boxes: Boxes, geometry: Geometry) -> Boxes:
    """Return the boxes [objects, 5] of an image after it is resized, without objects that are mostly cropped."""
    moved = geometry.move_boxes(boxes[:, :4])
    limits = np.array([geometry.width, geometry.height] * 2, np.float32)
    clipped = np.clip(moved, 0, limits)
    visible = are_visible(moved, clipped, boxes[:, 4])
    kept: Boxes = np.concatenate([clipped, boxes[:, 4:]], axis=1)[visible].astype(np.float32)
    return kept


def are_visible(edges: _Numbers, clipped: _Numbers, classes: _Numbers) -> _Numbers:
    """Return which boxes stay when their ``edges`` [..., 4] are ``clipped`` to an image, as arrays or tensors.

    These are the objects of which a large enough part is left, and all regions to ignore of which something is.
    """
    areas = _areas(clipped)
    return (areas > 0) & ((classes == IGNORED_BOX) | (areas >= SMALLEST_VISIBLE_SHARE * _areas(edges)))


def box_features(boxes: Boxes, spec: TargetSpec, width: int, height: int) -> Features:
    """Return the features of a record of ``width`` × ``height`` pixels.

    They are the target ``spec``, in pixels, and those of other programs: the objects, from 0 to 1.
    """
    rows = np.full(spec.shape, NO_BOX, np.float32)
    rows[: len(boxes)] = boxes
    objects = objects_in(boxes)
    edges = (objects[:, :4] / np.array([width, height] * 2)).tolist()
    classes = objects[:, 4].astype(int).tolist()
    return {
        spec.feature: rows.ravel().tolist(),
        "image/object/bbox/xmin": [edge[0] for edge in edges],
        "image/object/bbox/ymin": [edge[1] for edge in edges],
        "image/object/bbox/xmax": [edge[2] for edge in edges],
        "image/object/bbox/ymax": [edge[3] for edge in edges],
        "image/object/class/label": classes,
        "image/object/class/text": [spec.names[place].encode() for place in classes],
    }


def _areas(edges: _Numbers) -> _Numbers:
    return (edges[..., 2] - edges[..., 0]) * (edges[..., 3] - edges[..., 1])
