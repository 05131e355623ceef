"""Place boxes on images as they are displayed, from what the annotations say about all images together.

Tools write boxes in pixels of another size than that of the image, in the pixels of a file that is displayed rotated,
in fractions where a format has pixels, and in pixels where it has fractions. A single image rarely shows
which; a whole set does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from digits.data.images.frames import TOLERANCE, Frame, Frames, common_factor, examples, words
from digits.data.images.images import Size, UnusableImage, upright_size_and_turn
from digits.data.sources.plan import UnusableSource, count_of, listed, show
from digits.data.tables.tables import Faults
from digits.kinds.detection.annotations import AnnotatedImage, Annotations
from digits.kinds.detection.formats.box_order import (
    LARGEST_FRACTION,
    UNITS,
    Order,
    are_inside,
    reorder,
    unit_of,
)
from digits.kinds.sources.shapes import Placement, Rectangle, RunLengths, Shape

# Objects that extend beyond the image have larger fractions, but not such.
_SMALLEST_PIXELS = 2.0
# In smaller images, pixels look like fractions.
_MIN_SIDE = 4
# Edges may be beyond the image by so much, because of rounding.
_ROUNDED = 1.01
# Some boxes extend beyond any image by mistake.
_MIN_STALE = 0.1


class Measured(NamedTuple):
    """An annotated image with its width and height as displayed, None if it cannot be read, and EXIF orientation."""

    image: AnnotatedImage
    size: Size | None
    turn: int = 1


def measure_images(annotations: Annotations, root: Path) -> Iterator[Measured]:
    """Yield the images of annotations, which may be files below ``root``, while they are read.

    Raises UnusableSource.
    """
    stored = annotations.stored
    for image in annotations.images:
        try:
            source = root / image.file if stored is None else stored.read(image.file)
            yield Measured(image, *upright_size_and_turn(source))
        except (UnusableImage, OSError):
            yield Measured(image, None)


def place_boxes(
    annotations: Annotations, measured: Sequence[Measured]
) -> list[tuple[AnnotatedImage, Size | None]]:
    """Return the images of ``annotations`` that were ``measured``, with boxes on the upright images, and their sizes.

    Add assumptions to the remarks of the annotations, and images whose boxes cannot be placed to their faults.
    """
    placement = _Placement()
    placement.order_edges(measured)
    readable = [item for item in measured if item.size and item.image.boxes]
    if len(annotations.orders) > 1:
        placement.find_order(readable, annotations.orders, annotations.needs_proof)
    for are_relative in (False, True):
        same = [item for item in readable if item.image.is_relative == are_relative]
        if not placement.find_scale(same):
            placement.find_units(same, are_relative)
    placement.find_frames(
        [
            _BoxFrame(image.file, image.declared, size, turn, image)
            for image, size, turn in readable
            if image.declared and size and id(image) not in placement.unusable
        ]
    )
    for image, size, _ in readable:
        if image.is_relative and size:
            _place(image, Placement(*size, *size))
    annotations.remarks += placement.remarks
    for faults in (placement.mixed, placement.misfits):
        if faults.count:
            faults.usable = len(measured) - faults.count
            annotations.faults.append(faults)
    return [(item.image, item.size) for item in measured if id(item.image) not in placement.unusable]


def trust_boxes(
    annotations: Annotations, measured: Sequence[Measured]
) -> list[tuple[AnnotatedImage, Size | None]]:
    """Return the images that were ``measured``, whose boxes are on the upright images, and their sizes.

    Add those that have another size than the annotations state to their faults.
    """
    faults = Faults(Path(), row="image", hint="Label them again, or restore the images.")
    kept = []
    for image, size, _ in measured:
        if size in (None, image.declared):
            kept.append((image, size))
        else:
            faults.add_place("", "the image has changed since it was labeled", show(image.file))
    if faults.count:
        faults.usable = len(kept)
        annotations.faults.append(faults)
    return kept


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

    def order_edges(self, measured: Sequence[Measured]) -> None:
        """Exchange left and right edges, and top and bottom edges, where they are in the wrong order."""
        exchanged = []
        for image, *_ in measured:
            for index, box in enumerate(image.boxes):
                if box.bounds.fault() == "reversed":
                    image.boxes[index] = _in_order(box)
                    exchanged.append(box.where)
        if exchanged:
            verb = "has" if len(exchanged) == 1 else "have"
            self.remarks.append(
                f"{count_of(len(exchanged), 'box')} {verb} left and right or top and bottom edges in the wrong order: "
                f"exchanged ({listed(exchanged)})."
            )

    def find_order(self, measured: Sequence[Measured], orders: Sequence[Order], needs_proof: bool) -> None:
        """Find the order of the numbers of all boxes, which were read in the first of ``orders``.

        Another one counts if some boxes would be beyond the image, unless it is the only one in which none is. Raises
        UnusableSource if several are possible and none is likely.
        """
        read = orders[0]
        sizes = [item.image.declared or item.size or (1, 1) for item in measured]
        boxes = {order: [reorder(item.image.boxes, read, order) for item in measured] for order in orders}
        largest = max((max(read.numbers(edges)) for of_image in boxes[read] for edges in of_image), default=0)
        is_fraction = largest <= LARGEST_FRACTION
        slack = 0.0 if is_fraction else TOLERANCE
        beyond = {
            order: sum(
                not are_inside(edges, (1, 1) if is_fraction else size, slack)
                for edges, size in zip(boxes[order], sizes, strict=True)
            )
            for order in orders
        }
        possible = [order for order in orders[1:] if not beyond[order]]
        is_likely = beyond[read] < max(_MIN_STALE * len(measured), 1)
        if not possible or (is_likely and not needs_proof):
            return
        if is_likely or len(possible) > 1:
            meanings = [*([read] if is_likely else []), *possible]
            raise UnusableSource(
                f"The four numbers of the boxes may be {' or '.join(each.value for each in meanings)}.",
                "Write them in columns called left, top, right and bottom, or left, top, width and height.",
            )
        (meant,) = possible
        for item in measured:
            item.image.boxes = [
                replace(box, form=meant.rectangle(read.numbers(box.form)))
                if isinstance(box.form, Rectangle)
                else box
                for box in item.image.boxes
            ]
        self.remarks.append(
            f"The boxes of {count_of(beyond[read], 'image')} would extend beyond the image: the numbers of all "
            f"boxes are used as {meant.value} instead of {read.value}."
        )

    def find_scale(self, measured: Sequence[Measured]) -> bool:
        """Recognize percent and thousandths of the image, and return whether there are any.

        Raises UnusableSource if they are possible but not clear.
        """
        sizes = [item.image.declared or item.size or (1, 1) for item in measured]
        boxes = [[box.bounds for box in item.image.boxes] for item in measured]
        unit, is_clear = unit_of(boxes, sizes, TOLERANCE)
        if not is_clear:
            raise UnusableSource(
                "The boxes may be in pixels of other images, or in parts of the images, such as percent.",
                "Write them in pixels of these images, or as fractions from 0 to 1.",
            )
        if unit > 1:
            for item in measured:
                _place(item.image, Placement(1 / unit, 1 / unit, 1, 1))
                item.image.is_relative = True
            self.remarks.append(
                f"The boxes of {count_of(len(measured), 'image')} are between 0 and {unit}: used as {UNITS[unit]} of "
                "the width and height."
            )
        return unit > 1

    def find_units(self, measured: Sequence[Measured], are_relative: bool) -> None:
        """Recognize fractions that should be pixels, and pixels that should be fractions, if they ``are_relative``."""
        fractions: list[Measured] = []
        pixels: list[Measured] = []
        others: list[Measured] = []
        for item in measured:
            units = _units(item)
            (fractions if units == "fractions" else pixels if units == "pixels" else others).append(item)
        if are_relative:
            self._find_pixels(fractions, pixels, others)
            return
        if not fractions and not pixels and others:
            largest = max(box.bounds.right for item in others for box in item.image.boxes)
            is_tiny = any(min(item.size or (0,)) < _MIN_SIDE for item in others)
            if largest <= LARGEST_FRACTION and not is_tiny:
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
                size = words(item.size)
                reason = f"its boxes are neither fractions nor pixels of the image ({size})"
                self._skip(self.mixed, item.image, reason)
        if len(inside) > len(fractions):
            self._convert(inside + others, is_relative=False)
            self._skip_mixed(fractions, "fractions", "pixels")
            self.remarks.append(
                f"The boxes of {count_of(len(inside), 'image')} are pixels instead of fractions: used as pixels."
            )
        else:
            self._skip_mixed(inside, "pixels", "fractions")

    def _skip_mixed(self, measured: Sequence[Measured], units: str, usual: str) -> None:
        for item in measured:
            reason = f"its boxes are {units}, but the usual ones of this source are {usual}"
            self._skip(self.mixed, item.image, reason)

    def _skip(self, faults: Faults, image: AnnotatedImage, reason: str) -> None:
        self.unusable.add(id(image))
        faults.add_place("", reason, show(image.file))

    @staticmethod
    def _convert(measured: Sequence[Measured], is_relative: bool) -> None:
        for item in measured:
            item.image.is_relative = is_relative

    def find_frames(self, box_frames: Sequence[_BoxFrame]) -> None:
        """Recognize boxes in the pixels of a file that is displayed rotated, and of an image of another size."""
        frames = Frames.of(box_frames)
        turned, also = frames.turned, frames.also_turned
        if turned and self._are_stale(turned):
            turned, also = [], []
        for item in turned + also:
            item.move(is_turned=True)
        if turned:
            what = (
                f", and so are those of {count_of(len(also), 'other image')} with an orientation"
                if also
                else ""
            )
            self.remarks.append(
                f"The boxes of {count_of(len(turned), 'image')} are in the pixels of the file, without its EXIF "
                f"orientation ({examples(turned)}): turned with the image{what}."
            )
        if frames.unclear and not also and (turned or not frames.upright):
            names = listed(item.file for item in frames.unclear)
            self.remarks.append(
                f"{count_of(len(frames.unclear), 'image')} with an EXIF orientation: boxes are used as those of the "
                f"upright image ({names})."
            )
        if frames.scaled and not self._are_stale(frames.scaled):
            self._scale(frames.scaled, is_turned=bool(turned) and not frames.upright)
        if frames.exchanged and not self._are_stale(frames.exchanged):
            self._refuse(frames.exchanged)

    def _are_stale(self, frames: Sequence[_BoxFrame]) -> bool:
        """Return whether boxes are beyond the stated sizes, but in the images; add a remark in this case."""
        beyond = sum(not _fit(item.image, item.stated) for item in frames)
        is_stale = beyond >= _MIN_STALE * len(frames) and all(_fit(item.image, item.size) for item in frames)
        if is_stale:
            self.remarks.append(
                f"The annotations of {count_of(len(frames), 'image')} state a wrong size ({examples(frames)}): not "
                "used, as the boxes fit the images."
            )
        return is_stale

    def _scale(self, frames: Sequence[_BoxFrame], is_turned: bool) -> None:
        """Scale the boxes of images of another size than the annotations state, if the factor is the same for all."""
        turned = [item.is_turned(is_turned) for item in frames]
        # Fractions do not depend on the size, except for those of masks.
        factors = [
            item.factor(turns)
            for item, turns in zip(frames, turned, strict=True)
            if not item.image.is_relative or _has_mask(item.image)
        ]
        factor = common_factor(factors)
        if factor is None:
            self._refuse(frames)
            return
        for item, turns in zip(frames, turned, strict=True):
            item.move(turns)
        if factors:
            self.remarks.append(
                f"{count_of(len(frames), 'image')} {'has' if len(frames) == 1 else 'have'} {factor:.3g} times the size "
                f"that the annotations state ({examples(frames)}): boxes are scaled"
                f"{', and turned with the image' if any(turned) else ''}."
            )

    def _refuse(self, frames: Sequence[_BoxFrame]) -> None:
        for item in frames:
            reason = f"it has {words(item.size)} pixels, but its annotations are for {words(item.stated)}"
            self._skip(self.misfits, item.image, reason)


@dataclass(frozen=True)
class _BoxFrame(Frame):
    """The size of an ``image`` that its annotations state, and its own."""

    image: AnnotatedImage

    def move(self, is_turned: bool) -> None:
        """Move the boxes from the stated size to the image; if it ``is_turned``, they are in the pixels of the file."""
        width, height = self.stored if is_turned else self.size
        across, down = width / self.stated[0], height / self.stated[1]
        if self.image.is_relative:
            across, down = width, height
        _place(self.image, Placement(across, down, width, height, self.turn if is_turned else 1))


def _has_mask(image: AnnotatedImage) -> bool:
    return any(isinstance(box.form, RunLengths) for box in image.boxes)


def _place(image: AnnotatedImage, placement: Placement) -> None:
    image.boxes = [box.moved(placement) for box in image.boxes]
    image.is_relative = False


def _in_order(box: Shape) -> Shape:
    edges = box.bounds
    (left, right), (top, bottom) = sorted((edges.left, edges.right)), sorted((edges.top, edges.bottom))
    return replace(box, form=Rectangle(left, top, right, bottom))


def _units(item: Measured) -> str:
    """Return ``fractions`` or ``pixels`` if the boxes of an image can only be this, else an empty string."""
    assert item.size is not None
    image = item.image
    if min(item.size) < _MIN_SIDE:
        return ""
    fractions = pixels = 0
    for edges in (box.bounds for box in image.boxes):
        high = max(edges.right, edges.bottom)
        if high > _SMALLEST_PIXELS:
            pixels += 1
        elif high <= LARGEST_FRACTION and (image.is_relative or not _is_whole(edges)):
            fractions += 1
    if pixels and fractions:
        return "" if image.is_relative else "pixels"
    return "pixels" if pixels else "fractions" if fractions else ""


def _is_whole(edges: Rectangle) -> bool:
    return all(float(edge).is_integer() for edge in (edges.left, edges.top, edges.right, edges.bottom))


def _fit(image: AnnotatedImage, size: Size) -> bool:
    """Return whether the boxes of an image do not extend beyond one of this size; fractions never do."""
    return image.is_relative or _are_inside(image.boxes, size)


def _are_inside(boxes: Sequence[Shape], size: Size | None) -> bool:
    """Return whether boxes, read as pixels, are in an image of this size, except for rounding."""
    assert size is not None
    width, height = (side * _ROUNDED + TOLERANCE for side in size)
    return all(
        edges.right <= width and edges.bottom <= height and min(edges.left, edges.top) >= -2 * TOLERANCE
        for edges in (box.bounds for box in boxes)
    )
