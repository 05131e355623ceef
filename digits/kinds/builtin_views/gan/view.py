"""Images that a network generates from latent vectors: a grid, or an animation from one vector to the next."""

from __future__ import annotations

import io
from collections.abc import Sequence

from PIL import Image
from wtforms import Form, SelectField

from digits.data.images import data_uri, from_data_uri
from digits.kinds import prediction_rendering
from digits.kinds.form_fields import choices
from digits.kinds.prediction_rendering import Prediction

FRAME_MILLISECONDS = 120


class Options(Form):
    """What is drawn."""

    gan_view_task_id = SelectField(
        "Show",
        choices=choices(("grid", "A grid of images"), ("animation", "An animation between latent vectors")),
        default="grid",
    )


class View(prediction_rendering.View):
    """Generated images, which `digits.web.inference_views.generate` computes."""

    Options = Options

    def fits(self, prediction: Prediction) -> bool:
        return False  # networks that predict do not generate


def animation(frames: Sequence[str]) -> str:
    """Combine PNG data URIs into the data URI of a looping GIF."""
    pictures = [
        Image.open(io.BytesIO(from_data_uri(frame)), formats=["PNG"]).convert("RGB") for frame in frames
    ]
    file = io.BytesIO()
    pictures[0].save(
        file,
        "GIF",
        save_all=True,
        append_images=pictures[1:],
        duration=FRAME_MILLISECONDS,
        loop=0,
        optimize=False,
    )
    return data_uri(file.getvalue(), "image/gif")
