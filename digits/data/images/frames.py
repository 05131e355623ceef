"""Compare the size that something was drawn for, such as a box or a mask, with that of its image.

They differ if a tool ignores the EXIF orientation of an image, or if the image was resized later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from digits.data.images.images import Size
from digits.data.sources.plan import show

# Sizes may differ by this number of pixels, because of rounding.
TOLERANCE = 1
_FIRST_QUARTER_TURN = 5
_MAX_EXAMPLES = 3


@dataclass(frozen=True)
class Frame:
    """An image ``file`` of this ``size`` (width, height) as displayed, and the size ``stated`` for what is drawn.

    ``turn`` is the EXIF orientation of the image, from 1 to 8.
    """

    file: str
    stated: Size
    size: Size
    turn: int

    @property
    def has_quarter_turn(self) -> bool:
        """Whether the sides in the file are exchanged."""
        return self.turn >= _FIRST_QUARTER_TURN

    @property
    def stored(self) -> Size:
        """The width and height in the file."""
        width, height = self.size
        return (height, width) if self.has_quarter_turn else (width, height)

    def factor(self, is_turned: bool) -> tuple[float, float] | None:
        """Return the limits of the factor from the stated size to that in the file, if it ``is_turned``, or displayed.

        Sides are rounded. Return None if no factor fits.
        """
        sides = zip(self.stored if is_turned else self.size, self.stated, strict=True)
        limits = [((side - TOLERANCE) / stated, (side + TOLERANCE) / stated) for side, stated in sides]
        low, high = max(low for low, _ in limits), min(high for _, high in limits)
        return (low, high) if low <= high else None

    def is_turned(self, default: bool) -> bool:
        """Return whether another size refers to the file; ``default`` for an orientation that does not show it."""
        if self.has_quarter_turn:
            fits_upright, fits_file = (self.factor(is_turned) is not None for is_turned in (False, True))
            if fits_upright != fits_file:
                return fits_file
        return default and self.turn > 1


AnyFrame = TypeVar("AnyFrame", bound=Frame)


class Frames(NamedTuple, Generic[AnyFrame]):
    """Frames by what they refer to.

    ``turned`` are drawn on the pixels of the file, ``upright`` are not though the orientation exchanges the sides, and
    ``unclear`` have an orientation that keeps the sides. The others have another size: that of the image with
    ``exchanged`` sides, or any (``scaled``).
    """

    turned: list[AnyFrame]
    upright: list[AnyFrame]
    unclear: list[AnyFrame]
    scaled: list[AnyFrame]
    exchanged: list[AnyFrame]

    @classmethod
    def of(cls, found: Sequence[AnyFrame], tolerance: int = TOLERANCE) -> Frames[AnyFrame]:
        """Sort frames, without those of the same size and no orientation."""
        frames = cls([], [], [], [], [])
        for item in found:
            is_same = _are_equal(item.stated, item.size, tolerance)
            if item.turn == 1 and is_same:
                continue
            is_exchanged = _are_equal(item.stated, (item.size[1], item.size[0]), tolerance)
            if item.has_quarter_turn and is_same != is_exchanged:
                (frames.upright if is_same else frames.turned).append(item)
            elif is_same:
                frames.unclear.append(item)
            else:
                (frames.exchanged if is_exchanged else frames.scaled).append(item)
        return frames

    @property
    def also_turned(self) -> list[AnyFrame]:
        """Those that are unclear, if all the others with an orientation refer to the file."""
        return self.unclear if self.turned and not self.upright else []


def common_factor(factors: Sequence[tuple[float, float] | None]) -> float | None:
    """Return the factor in all limits; None if there is none."""
    known = [limits for limits in factors if limits]
    if len(known) < len(factors):
        return None
    low = max((low for low, _ in known), default=1.0)
    high = min((high for _, high in known), default=1.0)
    return (low + high) / 2 if low <= high else None


def examples(frames: Sequence[Frame]) -> str:
    """Return the names and both sizes of the first few images."""
    first = [
        f"{show(item.file)}: {words(item.size)} instead of {words(item.stated)}"
        for item in frames[:_MAX_EXAMPLES]
    ]
    more = len(frames) - len(first)
    return ", ".join(first) + (f" and {more:,} more" if more else "")


def words(size: Size) -> str:
    return f"{size[0]}×{size[1]}"


def _are_equal(one: Size, other: Size, tolerance: int) -> bool:
    return max(abs(one[0] - other[0]), abs(one[1] - other[1])) <= tolerance
