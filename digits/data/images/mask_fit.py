"""Fit masks to images of another size: of files that are displayed rotated, and masks at a fraction of the size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from PIL import Image

from digits.data.images.conversion import TRANSPOSITIONS
from digits.data.images.frames import Frame, Frames, common_factor, examples
from digits.data.images.images import Size, UnusableImage, upright_size_and_turn
from digits.data.sources.plan import ImageFolder, ImageSource, count_of, listed


def turned(mask: Image.Image, turn: int) -> Image.Image:
    """Return a mask of the file as one of the upright image, given its EXIF orientation."""
    return mask.transpose(TRANSPOSITIONS[turn]) if turn in TRANSPOSITIONS else mask


def frame_of(source: ImageSource, name: str, mask: Image.Image) -> Frame:
    """Return the sizes of the image ``name`` and of its mask; raises UnusableImage and OSError."""
    stored = source.root / name if isinstance(source, ImageFolder) else source.read(name)
    size, turn = upright_size_and_turn(stored)
    return Frame(name, mask.size, size, turn)


@dataclass(frozen=True)
class MaskFit:
    """How a mask becomes as large as its image: it is turned by an EXIF orientation, and scaled if it ``scales``."""

    turn: int = 1
    scales: bool = False

    def check(self, mask: Size, image: Size) -> None:
        """Raise UnusableImage with both sizes if a mask of this size does not fit the image."""
        frame = Frame("", mask, image, self.turn)
        is_turned = self.turn > 1
        size = frame.stored if is_turned else image
        if mask != size and not (self.scales and frame.factor(is_turned)):
            raise UnusableImage(f"it has {mask[0]}×{mask[1]} pixels, but the image has {image[0]}×{image[1]}")

    def apply(self, mask: Image.Image, image: Size) -> Image.Image:
        """Return the mask in the size of the image, without interpolation."""
        mask = turned(mask, self.turn)
        return mask if mask.size == image else mask.resize(image, Image.Resampling.NEAREST)


@dataclass
class MaskFits:
    """How to fit the masks of a set to their images, the same for all masks; ``notes`` describe it."""

    scales: bool = False
    turns: bool = False
    notes: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, known: Sequence[Frame]) -> Self:
        """Compare masks with their images."""
        fits = cls()
        frames = Frames.of(known, tolerance=0)
        if frames.turned:
            also = frames.also_turned
            fits.turns = bool(also) or not frames.upright
            what = (
                f", and so are those of {count_of(len(also), 'other image')} with an orientation"
                if also
                else ""
            )
            fits.notes.append(
                f"The masks of {count_of(len(frames.turned), 'image')} fit the file, without its EXIF orientation "
                f"({examples(frames.turned)}): turned with the image{what}."
            )
        elif frames.unclear and not frames.upright:
            fits.notes.append(
                f"{count_of(len(frames.unclear), 'image')} with an EXIF orientation: masks are used as those of the "
                f"upright image ({listed(item.file for item in frames.unclear)})."
            )
        # Few masks of another size are those of other images.
        if 2 * len(frames.scaled) > len(known):
            factor = common_factor([item.factor(item.is_turned(fits.turns)) for item in frames.scaled])
            if factor is not None:
                fits.scales = True
                fits.notes.append(
                    f"{count_of(len(frames.scaled), 'image')} {'has' if len(frames.scaled) == 1 else 'have'} "
                    f"{factor:.3g} times the size of the mask ({examples(frames.scaled)}): masks are scaled."
                )
        return fits

    def turn(self, frame: Frame) -> int:
        """Return the EXIF orientation by which a mask is turned."""
        if frame.has_quarter_turn and frame.stated in (frame.size, frame.stored):
            is_turned = frame.stated == frame.stored if frame.size != frame.stored else self.turns
        else:
            is_turned = frame.is_turned(self.turns)
        return frame.turn if is_turned else 1

    def fits(self, frame: Frame) -> bool:
        """Return whether a mask can be used."""
        try:
            MaskFit(self.turn(frame), self.scales).check(frame.stated, frame.size)
        except UnusableImage:
            return False
        return True
