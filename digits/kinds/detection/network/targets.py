"""Predictions of objects: boxes with scores and classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from digits.data.images.images import Geometry
from digits.data.targets.box_matching import count_detections
from digits.data.targets.palette import css_color
from digits.kinds.network import targets
from digits.kinds.network.targets import LossLabels, UnsuitableOutput

# Left, top, right, bottom, score, class.
COLUMNS = 6
MIN_SCORE = 0.05


def select_boxes(outputs: Any) -> tf.Tensor | None:
    """Select the boxes, float32 [N, K, 6], from all outputs of a network; None if there are none.

    In a dict, ``boxes`` takes precedence over other tensors of this shape.
    """
    if isinstance(outputs, dict):
        names = sorted(outputs, key=lambda name: name != "boxes")
        return _first(outputs[name] for name in names)
    if isinstance(outputs, (list, tuple)):
        return _first(outputs)
    if outputs is None:
        return None
    tensor = tf.convert_to_tensor(outputs)
    is_suitable = tensor.shape.rank == 3 and tensor.shape[2] == COLUMNS
    return tf.cast(tensor, tf.float32) if is_suitable else None


def _first(outputs: Any) -> tf.Tensor | None:
    return next((boxes for boxes in map(select_boxes, outputs) if boxes is not None), None)


class Targets(targets.Targets):
    """The detected objects, the highest score first."""

    output_hint = "Return a row of left, top, right, bottom, score and class for each detected object."

    def predict(self, outputs: Any) -> tf.Tensor:
        """The boxes, float32 [N, K, 6], in pixels of the network's input: left, top, right, bottom, score, class."""
        boxes = select_boxes(outputs)
        return super().predict(outputs) if boxes is None else boxes

    def check(self, columns: int, loss: LossLabels | None) -> None:
        """Raise UnsuitableOutput if the loss does not depend on the boxes."""
        if loss is not None and not loss.is_used:
            raise UnsuitableOutput(
                "The network’s loss does not depend on the boxes of the dataset.",
                "Only networks trained for object detection can make predictions.",
            )

    def remark(self, shape: Sequence[int | None]) -> str:
        most = self.target.most_objects
        if not shape or shape[0] is None or shape[0] >= most:
            return ""
        return (
            f"The network returns at most {shape[0]:,} detections for an image, but images of the dataset have up to "
            f"{most:,} objects: the metrics count all others as missed. Return more, for example with "
            f"digits.decode_boxes(…, count={count_detections(most)})."
        )

    def accepts(self, shape: Sequence[int]) -> bool:
        return len(shape) == 2 and shape[1] == COLUMNS

    @property
    def suitable_output(self) -> str:
        return f"[N, K, {COLUMNS}]"

    def agreement(self, predicted: NDArray[Any], others: NDArray[Any]) -> float:
        """The fraction of images whose best object has the same class, in boxes with an IoU over 0.5."""
        one, other = predicted[:, 0], others[:, 0]
        same = (one[:, 5] == other[:, 5]) & (_iou(one[:, :4], other[:, :4]) > 0.5)
        return float(np.mean(same))

    def align(self, output: NDArray[Any], other: NDArray[Any]) -> NDArray[Any]:
        """Order boxes [N, K, 6] like those of ``output``: the order of equal scores depends on rounding.

        So does the choice among boxes with the lowest score of the list, of which only the scores are compared.
        """
        if output.ndim != 3 or output.shape != other.shape or output.shape[2] != COLUMNS:
            return other
        return np.stack([_aligned(*pair) for pair in zip(output, other, strict=True)])

    def example(self, output: str) -> list[str]:
        return [
            f'boxes = [row for row in outputs["{output}"][0].tolist() if row[4] > 0.3]',
            "print([(labels[int(label)], score, box) for *box, score, label in boxes])",
        ]

    def describe(self, predicted: NDArray[Any], top: int, geometry: Geometry) -> list[dict[str, Any]]:
        """The detected objects in pixels of the user's image, with scores from 0 to 1 and colors of their classes."""
        finite = predicted[np.isfinite(predicted).all(axis=1)]
        classes = finite[:, 5].astype(int)
        known = (finite[:, 4] >= MIN_SCORE) & (classes >= 0) & (classes < self.target.outputs)
        rows = finite[known]
        rows = rows[np.argsort(-rows[:, 4], kind="stable")]
        limits = np.array(geometry.size * 2, np.float32)
        boxes = np.clip(geometry.restore_boxes(rows[:, :4]), 0, limits)
        colors = [css_color(color) for color in self.target.palette]
        return [
            {
                "label": self.target.names[place],
                "score": round(float(score), 4),
                "box": [round(float(edge), 2) for edge in box],
                "color": colors[place],
            }
            for box, score, place in zip(boxes, rows[:, 4], rows[:, 5].astype(int), strict=True)
            if box[2] > box[0] and box[3] > box[1]
        ]


def _iou(one: NDArray[Any], other: NDArray[Any]) -> NDArray[Any]:
    """Return the intersection over union of boxes [N, 4], row by row; 1 for equal boxes."""
    sides = np.maximum(0, np.minimum(one[:, 2:], other[:, 2:]) - np.maximum(one[:, :2], other[:, :2]))
    areas = [np.prod(np.maximum(0, boxes[:, 2:] - boxes[:, :2]), axis=1) for boxes in (one, other)]
    shared = np.prod(sides, axis=1)
    union = areas[0] + areas[1] - shared
    return np.where((one == other).all(axis=1), 1.0, shared / np.maximum(union, 1e-12))


def _aligned(rows: NDArray[Any], others: NDArray[Any]) -> NDArray[Any]:
    """Order the boxes ``others`` [K, 6] like the most similar ones in ``rows`` [K, 6]."""
    size = np.maximum(np.abs(rows).max(axis=0), 1e-12)
    apart = np.abs((rows[:, None] - others[None]) / size).max(axis=2)
    order = np.full(len(rows), -1)
    # Boxes with the best match choose first.
    for place in np.argsort(apart.min(axis=1), kind="stable"):
        order[place] = apart[place].argmin()
        apart[:, order[place]] = np.inf
    aligned: NDArray[Any] = others[order]
    at_the_end = rows[:, 4] <= rows[:, 4].min() + 1e-4 * size[4]
    scores = aligned[:, 4].copy()
    aligned[at_the_end] = rows[at_the_end]
    aligned[:, 4] = scores
    return aligned
