"""Drawing over images: masks, boxes and arrows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from PIL import Image, ImageDraw

from digits.core.augmentation_preview import Outline
from digits.data.image_limits import open_limited


def draw_over(
    image: Image.Image,
    *,
    mask: bytes | None = None,
    boxes: Iterable[Outline] = (),
    arrow: Sequence[float] = (),
) -> Image.Image:
    """Return a copy of ``image`` in RGB with a half transparent ``mask``, a PNG file, and with ``boxes``.

    An ``arrow`` is a line from the center toward (x, y), fractions of the sides from -0.5 to 0.5.
    """
    drawn = image.convert("RGB")
    width, height = drawn.size
    if mask is not None:
        with open_limited(mask, ["PNG"]) as file:
            layer = file.convert("RGBA").resize(drawn.size, Image.Resampling.NEAREST)
        drawn.paste(layer, mask=layer.getchannel("A").point(lambda alpha: alpha // 2))
    draw = ImageDraw.Draw(drawn)
    for box in boxes:
        left, top = box.left * width / 100, box.top * height / 100
        right, bottom = left + box.width * width / 100, top + box.height * height / 100
        draw.rectangle((left, top, max(left, right), max(top, bottom)), outline=box.color, width=2)
    if arrow:
        center = (width / 2, height / 2)
        draw.line((center, (center[0] + arrow[0] * width, center[1] + arrow[1] * height)), "#e02020", 2)
    return drawn
