"""An output as an image: the channels, their order and the conversion to pixels are options."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from wtforms import Form, SelectField

from digits.data.images import images
from digits.kinds.forms.fields import choices
from digits.kinds.predictions import rendering as prediction_rendering
from digits.kinds.predictions.rendering import Prediction, as_numbers, bad_option

_CHANNELS = (1, 3)
_MIN_SIDE = 2


class Options(Form):
    """How numbers become pixels."""

    channel_order = SelectField(
        "Channel order", choices=choices(("rgb", "RGB"), ("bgr", "BGR")), default="rgb"
    )
    data_order = SelectField("Data order", choices=choices(("hwc", "HWC"), ("chw", "CHW")), default="hwc")
    pixel_conversion = SelectField(
        "Pixel conversion", choices=choices(("normalize", "Normalize"), ("clip", "Clip")), default="normalize"
    )
    show_input = SelectField("Input", choices=choices(("no", "Hide"), ("yes", "Show")), default="no")


class View(prediction_rendering.View):
    """The first output that is an image of one or three channels."""

    Options = Options
    uses_picture = True

    def fits(self, prediction: Prediction) -> bool:
        return any(
            _pixels(values, order) is not None
            for values in prediction.outputs.values()
            for order in ("hwc", "chw")
        )

    def context(self, prediction: Prediction, options: Form) -> dict[str, Any]:
        order = options["data_order"].data
        for name, values in prediction.outputs.items():
            pixels = _pixels(values, order)
            if pixels is not None:
                return self._draw(name, pixels, prediction, options)
        raise bad_option(
            "data_order",
            f"No output has 1 or 3 channels in the order {order}.",
            [{"hwc": "chw", "chw": "hwc"}[order]],
        )

    def _draw(self, name: str, values: NDArray[Any], prediction: Prediction, options: Form) -> dict[str, Any]:
        numbers = as_numbers(values)
        is_stretched = options["pixel_conversion"].data == "normalize"
        pixels = (
            images.scale_to_pixels(numbers)
            if is_stretched
            else np.rint(numbers.clip(0, 255)).astype(np.uint8)
        )
        if options["channel_order"].data == "bgr":
            pixels = np.ascontiguousarray(pixels[:, :, ::-1])
        shows = options["show_input"].data == "yes" and prediction.picture is not None
        return {
            "name": name,
            "image": images.data_uri(images.encode(pixels, "png")),
            "width": pixels.shape[1],
            "height": pixels.shape[0],
            "low": float(numbers.min()),
            "high": float(numbers.max()),
            "input": prediction.picture["url"] if shows and prediction.picture else None,
        }


def _pixels(values: NDArray[Any], order: str) -> NDArray[Any] | None:
    """Return an output as [height, width, 1 or 3], or None if it is not an image in this ``order``."""
    if values.ndim == 2:
        values = values[:, :, None]
    elif values.ndim == 3 and order == "chw":
        values = values.transpose(1, 2, 0)
    is_image = values.ndim == 3 and values.shape[2] in _CHANNELS and min(values.shape[:2]) >= _MIN_SIDE
    return values if is_image else None
