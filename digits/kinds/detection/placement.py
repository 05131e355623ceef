"""Place boxes on images as they are displayed, from what the annotations say about all images together.

Tools write boxes in pixels of another size than that of the image, in the pixels of a file that is displayed rotated,
in fractions where a format has pixels, and in pixels where it has fractions. One image cannot tell; a whole set can.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from digits.data.images import Size, UnusableImage, upright_size_and_turn, upright_size_and_turn_of
from digits.data.sources import count_of, listed, show
from digits.data.tables import Faults
from digits.kinds.detection.annotations import AnnotatedImage, Annotations, Box

# Fractions may exceed the image slightly, because of rounding.
_LARGEST_FRACTION = 1.1
# Objects that extend beyond the image have larger fractions, but not such.
_SMALLEST_PIXELS = 2.0
# In smaller images, pixels and fractions cannot be told apart.
_MIN_SIDE = 4
# Sizes may differ by this number of pixels, because of rounding.
_TOLERANCE = 1
_ROUNDED = 1.01
_FIRST_QUARTER_TURN = 5
# Some boxes extend beyond any image by mistake.
_MIN_STALE = 0.1


class Measured(NamedTuple):
    """An annotated image with its width and height as displayed, None if it cannot be read, and EXIF orientation."""

    image: AnnotatedImage
    size: Size | None
    turn: int = 1

    @property
    def stored(self) -> Size:
        """The width and height in the file."""
        assert self.size is not None
        width, height = self.size
        return (height, width) if self.turn >= _FIRST_QUARTER_TURN else (width, height)

    def example(self) -> str:
        """Return the name and both sizes, for messages."""
        assert self.size is not None and self.image.declared is not None
        return f"{show(self.image.file)}: {_words(self.size)} instead of {_words(self.image.declared)}"


def measure_images(annotations: Annotations, root: Path) -> Iterator[Measured]:
    """Yield the images of annotations, which may be files below ``root``, while they are read.

    Raises UnusableSource.
    """
    stored = annotations.stored
    for image in annotations.images:
        try:
            if stored is not None:
                yield Measured(image, *upright_size_and_turn_of(stored.read(image.file)))
            else:
                yield Measured(image, *upright_size_and_turn(root / image.file))
        except (UnusableImage, OSError):
            yield Measured(image, None)


def place_boxes(
    annotations: Annotations, found: Sequence[Measured]
) -> list[tuple[AnnotatedImage, Size | None]]:
    """Return the images of ``annotations`` that were ``found``, with boxes on the upright images, and their sizes.

    What is assumed is added to the remarks of the annotations, and images whose boxes cannot be placed to their faults.
    """
    placement = _Placement()
    placement.order_edges(found)
    readable = [item for item in found if item.size and item.image.boxes]
    for are_relative in (False, True):
        same = [item for item in readable if item.image.boxes[0].is_relative == are_relative]
        placement.find_units(same, are_relative)
    placement.find_frames([item for item in readable if item.image.declared])
    annotations.remarks += placement.remarks
    for faults in (placement.mixed, placement.misfits):
        if faults.count:
            faults.usable = len(found) - faults.count
            annotations.faults.append(faults)
    return [(item.image, item.size) for item in found if id(item.image) not in placement.unusable]


@dataclass
class _Placement:
    """Changes the boxes of images, and collects ``remarks`` about that. ``unusable`` are the ids of images to skip."""

    remarks: list[str] = field(default_factory=list)
    unusable: set[int] = field(default_factory=set)
    mixed: Faults = field(
        default_factory=lambda: Faults(
            Path(),
            row="image",
            hint="Write the boxes of all images in pixels, or those of all images as fractions.",
        )
    )
    misfits: Faults = field(
        default_factory=lambda: Faults(
            Path(),
            row="image",
            hint="Choose the images that were annotated. If the boxes fit these images, remove the sizes from the "
            "annotations.",
        )
    )

    def order_edges(self, found: Sequence[Measured]) -> None:
        """Exchange left and right edges, and top and bottom edges, where they are in the wrong order."""
        exchanged = []
        for image, *_ in found:
            for place, box in enumerate(image.boxes):
                if box.right < box.left or box.bottom < box.top:
                    image.boxes[place] = _between(box, box.left, box.top, box.right, box.bottom)
                    exchanged.append(box.where)
        if exchanged:
            verb = "has" if len(exchanged) == 1 else "have"
            self.remarks.append(
                f"{count_of(len(exchanged), 'box')} {verb} left and right or top and bottom edges in the wrong order: "
                f"exchanged ({listed(exchanged)})."
            )

    def find_units(self, found: Sequence[Measured], are_relative: bool) -> None:
        """Recognize fractions that should be pixels, and pixels that should be fractions, if they ``are_relative``."""
        fractions: list[Measured] = []
        pixels: list[Measured] = []
        others: list[Measured] = []
        for item in found:
            units = _units(item)
            (fractions if units == "fractions" else pixels if units == "pixels" else others).append(item)
        if are_relative:
            self._find_pixels(fractions, pixels, others)
            return
        if not fractions and not pixels and others:
            largest = max(box.right for item in others for box in item.image.boxes)
            is_tiny = any(min(item.size or (0,)) < _MIN_SIDE for item in others)
            if largest <= _LARGEST_FRACTION and not is_tiny:
                fractions = others
        if len(fractions) > len(pixels):
            self._convert(fractions + others, is_relative=True)
            self._skip_mixed(pixels, "pixels", "fractions")
            self.remarks.append(
                f"The boxes of {count_of(len(fractions), 'image')} are between 0 and 1: used as fractions of the width "
                "and height instead of pixels."
            )
        else:
            self._skip_mixed(fractions, "fractions", "pixels")

    def _find_pixels(
        self, fractions: Sequence[Measured], pixels: list[Measured], others: list[Measured]
    ) -> None:
        inside = [item for item in pixels if _are_inside(item.image.boxes, item.size)]
        for item in pixels:
            if not any(item is other for other in inside):
                assert item.size is not None
                size = _words(item.size)
                self._skip(
                    self.mixed, item, f"its boxes are neither fractions nor pixels of the image ({size})"
                )
        if len(inside) > len(fractions):
            self._convert(inside + others, is_relative=False)
            self._skip_mixed(fractions, "fractions", "pixels")
            self.remarks.append(
                f"The boxes of {count_of(len(inside), 'image')} are pixels instead of fractions: used as pixels."
            )
        else:
            self._skip_mixed(inside, "pixels", "fractions")

    def _skip_mixed(self, found: Sequence[Measured], units: str, usual: str) -> None:
        for item in found:
            self._skip(
                self.mixed, item, f"its boxes are {units}, but the usual ones of this source are {usual}"
            )

    def _skip(self, faults: Faults, item: Measured, reason: str) -> None:
        self.unusable.add(id(item.image))
        faults.add_place("", reason, show(item.image.file))

    @staticmethod
    def _convert(found: Sequence[Measured], is_relative: bool) -> None:
        for item in found:
            item.image.boxes = [replace(box, is_relative=is_relative) for box in item.image.boxes]

    def find_frames(self, found: Sequence[Measured]) -> None:
        """Recognize boxes in the pixels of a file that is displayed rotated, and of an image of another size."""
        usable = [item for item in found if id(item.image) not in self.unusable]
        turned, upright, unclear, scaled, exchanged = _by_frame(usable)
        if turned and self._are_stale(turned):
            turned = []
        also = unclear if turned and not upright else []
        for item in turned + also:
            _move(item, is_turned=True)
        if turned:
            what = (
                f", and so are those of {count_of(len(also), 'other image')} with an orientation"
                if also
                else ""
            )
            self.remarks.append(
                f"The boxes of {count_of(len(turned), 'image')} are in the pixels of the file, without its EXIF "
                f"orientation ({_examples(turned)}): turned with the image{what}."
            )
        if unclear and not also and (turned or not upright):
            names = listed(item.image.file for item in unclear)
            self.remarks.append(
                f"{count_of(len(unclear), 'image')} with an EXIF orientation: boxes are used as those of the upright "
                f"image ({names})."
            )
        if scaled and not self._are_stale(scaled):
            self._scale(scaled, is_turned=bool(turned) and not upright)
        if exchanged and not self._are_stale(exchanged):
            self._refuse(exchanged)

    def _are_stale(self, found: Sequence[Measured]) -> bool:
        """Return whether boxes are beyond the stated sizes, but in the images; add a remark in this case."""
        beyond = sum(not _fits(item.image.boxes, item.image.declared) for item in found)
        is_stale = beyond >= _MIN_STALE * len(found) and all(
            _fits(item.image.boxes, item.size) for item in found
        )
        if is_stale:
            self.remarks.append(
                f"The annotations of {count_of(len(found), 'image')} state a wrong size ({_examples(found)}): not "
                "used, as the boxes fit the images."
            )
        return is_stale

    def _scale(self, found: Sequence[Measured], is_turned: bool) -> None:
        """Scale the boxes of images of another size than the annotations state, if the factor is the same for all."""
        frames = {id(item): _is_in_file(item, is_turned) for item in found}
        # Fractions do not depend on the size.
        factors = [
            _factor(item.image.declared, item.stored if frames[id(item)] else item.size)
            for item in found
            if not item.image.boxes[0].is_relative
        ]
        lowest = max((low for low, _ in filter(None, factors)), default=1.0)
        highest = min((high for _, high in filter(None, factors)), default=1.0)
        if not all(factors) or lowest > highest:
            self._refuse(found)
            return
        for item in found:
            _move(item, is_turned=frames[id(item)])
        if factors:
            self.remarks.append(
                f"{count_of(len(found), 'image')} {'has' if len(found) == 1 else 'have'} "
                f"{(lowest + highest) / 2:.3g} times the size that the annotations state ({_examples(found)}): boxes "
                f"are scaled{', and turned with the image' if any(frames.values()) else ''}."
            )

    def _refuse(self, found: Sequence[Measured]) -> None:
        for item in found:
            assert item.size is not None and item.image.declared is not None
            self._skip(
                self.misfits,
                item,
                f"it has {_words(item.size)} pixels, but its annotations are for {_words(item.image.declared)}",
            )


class _Frames(NamedTuple):
    """Images by what their boxes refer to.

    ``turned`` are in the pixels of the file, ``upright`` are not though the orientation exchanges the sides, and
    ``unclear`` have an orientation that keeps the sides. The others have another size than stated: that of the image
    with ``exchanged`` sides, or any (``scaled``).
    """

    turned: list[Measured]
    upright: list[Measured]
    unclear: list[Measured]
    scaled: list[Measured]
    exchanged: list[Measured]


def _by_frame(found: Sequence[Measured]) -> _Frames:
    frames = _Frames([], [], [], [], [])
    for item in found:
        assert item.size is not None and item.image.declared is not None
        width, height = item.size
        is_same = _are_equal(item.image.declared, item.size)
        if item.turn == 1 and is_same:
            continue
        is_exchanged = _are_equal(item.image.declared, (height, width))
        if item.turn >= _FIRST_QUARTER_TURN and is_same != is_exchanged:
            (frames.upright if is_same else frames.turned).append(item)
        elif is_same:
            frames.unclear.append(item)
        else:
            (frames.exchanged if is_exchanged else frames.scaled).append(item)
    return frames


def _is_in_file(item: Measured, is_default: bool) -> bool:
    """Return whether boxes of another size are in the pixels of the file, as is the default if this is unclear."""
    if item.turn >= _FIRST_QUARTER_TURN:
        is_upright, is_turned = (
            _factor(item.image.declared, size) is not None for size in (item.size, item.stored)
        )
        if is_upright != is_turned:
            return is_turned
    return is_default and item.turn > 1


def _move(item: Measured, is_turned: bool) -> None:
    """Move the boxes from the stated size to the image; if it ``is_turned``, they are in the pixels of the file."""
    assert item.size is not None and item.image.declared is not None
    width, height = item.stored if is_turned else item.size
    stated_width, stated_height = item.image.declared
    turn = _TURNS[item.turn] if is_turned else _TURNS[1]

    def moved(box: Box) -> Box:
        across, down = (width, height) if box.is_relative else (width / stated_width, height / stated_height)
        left, top = turn(box.left * across, box.top * down, width, height)
        right, bottom = turn(box.right * across, box.bottom * down, width, height)
        return replace(_between(box, left, top, right, bottom), is_relative=False)

    item.image.boxes = [moved(box) for box in item.image.boxes]


# From a point in the file of this width and height to the upright image, by EXIF orientation.
_TURNS: dict[int, Callable[[float, float, float, float], tuple[float, float]]] = {
    1: lambda x, y, width, height: (x, y),
    2: lambda x, y, width, height: (width - x, y),
    3: lambda x, y, width, height: (width - x, height - y),
    4: lambda x, y, width, height: (x, height - y),
    5: lambda x, y, width, height: (y, x),
    6: lambda x, y, width, height: (height - y, x),
    7: lambda x, y, width, height: (height - y, width - x),
    8: lambda x, y, width, height: (y, width - x),
}


def _between(box: Box, x: float, y: float, other_x: float, other_y: float) -> Box:
    return replace(
        box, left=min(x, other_x), top=min(y, other_y), right=max(x, other_x), bottom=max(y, other_y)
    )


def _units(item: Measured) -> str:
    """Return ``fractions`` or ``pixels`` if the boxes of an image can only be this, else an empty string."""
    assert item.size is not None
    boxes = item.image.boxes
    if min(item.size) < _MIN_SIDE:
        return ""
    fractions = pixels = 0
    for box in boxes:
        high = box.right if box.right > box.bottom else box.bottom
        if high > _SMALLEST_PIXELS:
            pixels += 1
        elif high <= _LARGEST_FRACTION and (box.is_relative or not _is_whole(box)):
            fractions += 1
    if pixels and fractions:
        return "" if boxes[0].is_relative else "pixels"
    return "pixels" if pixels else "fractions" if fractions else ""


def _is_whole(box: Box) -> bool:
    return all(float(edge).is_integer() for edge in (box.left, box.top, box.right, box.bottom))


def _fits(boxes: Sequence[Box], size: Size | None) -> bool:
    """Return whether boxes do not extend beyond an image of this size; fractions never do."""
    return boxes[0].is_relative or _are_inside(boxes, size)


def _are_inside(boxes: Sequence[Box], size: Size | None) -> bool:
    """Return whether boxes, read as pixels, are in an image of this size, except for rounding."""
    assert size is not None
    width, height = (side * _ROUNDED + _TOLERANCE for side in size)
    return all(
        box.right <= width and box.bottom <= height and min(box.left, box.top) >= -2 * _TOLERANCE
        for box in boxes
    )


def _are_equal(one: Size, other: Size) -> bool:
    return max(abs(one[0] - other[0]), abs(one[1] - other[1])) <= _TOLERANCE


def _factor(stated: Size | None, size: Size | None) -> tuple[float, float] | None:
    """Return the limits of the factor between two sizes, given that sides are rounded; None if there is none."""
    assert stated and size
    low = max((side - _TOLERANCE) / old for side, old in zip(size, stated, strict=True))
    high = min((side + _TOLERANCE) / old for side, old in zip(size, stated, strict=True))
    return (low, high) if low <= high else None


def _examples(found: Sequence[Measured]) -> str:
    return listed(item.example() for item in found)


def _words(size: Size) -> str:
    return f"{size[0]}×{size[1]}"
