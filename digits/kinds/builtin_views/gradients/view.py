"""The direction of a gradient: an arrow over the image."""

from __future__ import annotations

from typing import Any

import numpy as np
from wtforms import Form, IntegerField, SelectField
from wtforms.validators import NumberRange

from digits.kinds.forms.fields import choices
from digits.kinds.predictions import rendering as prediction_rendering
from digits.kinds.predictions.rendering import Prediction

COLORS = {"red": "#e02424", "green": "#1a9850", "blue": "#2b6cb0"}
MAX_SIZE = 1000


class Options(Form):
    """The arrow."""

    arrow_color = SelectField(
        "Arrow color", choices=choices(*((name, name.capitalize()) for name in COLORS)), default="red"
    )
    arrow_size = IntegerField("Arrow size (%)", default=80, validators=[NumberRange(1, MAX_SIZE)])


class View(prediction_rendering.View):
    """Two numbers, the slopes in x and y, as an arrow."""

    Options = Options
    uses_picture = True

    def fits(self, prediction: Prediction) -> bool:
        return _slopes(prediction) is not None and prediction.picture is not None

    def context(self, prediction: Prediction, options: Form) -> dict[str, Any]:
        x, y = _slopes(prediction) or (0.0, 0.0)
        size = (options["arrow_size"].data or 0) / 80
        length = float(np.hypot(x, y)) or 1.0
        width = 8 * size
        points = [
            (50 + 100 * size * x, 50 + 100 * size * y),
            (50 - width * y / length, 50 + width * x / length),
            (50 + width * y / length, 50 - width * x / length),
        ]
        return {
            "x": x,
            "y": y,
            "points": " ".join(f"{left:.1f},{top:.1f}" for left, top in points),
            "color": COLORS[options["arrow_color"].data],
        }


def _slopes(prediction: Prediction) -> tuple[float, float] | None:
    """Return the slopes in x and y of the only two numbers that are predicted, else None."""
    outputs = [values.ravel() for values in prediction.outputs.values()]
    numbers = next((values for values in outputs if values.size == 2), None)
    if numbers is None and len(outputs) == 2 and all(values.size == 1 for values in outputs):
        numbers = np.concatenate(outputs)
    if numbers is None or not np.isfinite(numbers).all():
        return None
    return float(numbers[0]), float(numbers[1])
