"""The most likely classes of a text, and the text as the network reads it."""

from __future__ import annotations

from typing import Any

from wtforms import Form, IntegerField
from wtforms.validators import NumberRange

from digits.kinds.predictions import rendering as prediction_rendering
from digits.kinds.predictions.rendering import Prediction
from digits.kinds.text.characters import Encoding

MAX_CLASSES = 1000


class Options(Form):
    """The number of classes."""

    max_classes = IntegerField("Classes", default=5, validators=[NumberRange(1, MAX_CLASSES)])


class View(prediction_rendering.View):
    """Classes with probabilities, and the decoded text."""

    Options = Options

    def fits(self, prediction: Prediction) -> bool:
        return prediction.pixels is not None

    def context(self, prediction: Prediction, options: Form) -> dict[str, Any]:
        recipe, pixels = prediction.recipe, prediction.pixels
        text = "" if pixels is None else Encoding(recipe.alphabet, recipe.width).decode(pixels)
        return {"text": text, "classes": prediction.all_predictions[: options["max_classes"].data]}
