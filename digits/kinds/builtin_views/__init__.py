"""The views of predictions that are always installed, under the names that they have in DIGITS 6.

`digits.kinds.predictions.view.PredictionView` describes a view; plugins add theirs in the same way.
"""

from __future__ import annotations

from digits.kinds.predictions.view import PredictionView

_IMAGES = ("image-processing", "generic", "image-segmentation", "image-gan")

BUILT_IN_VIEWS = (
    PredictionView("all-raw-data", "Raw data", "digits.kinds.builtin_views.raw_data"),
    PredictionView("image-image-output", "Image output", "digits.kinds.builtin_views.image_output", _IMAGES),
    PredictionView(
        "image-segmentation",
        "Image segmentation",
        "digits.kinds.builtin_views.segmentation",
        ("image-segmentation", "generic"),
    ),
    PredictionView(
        "image-bounding-boxes",
        "Bounding boxes",
        "digits.kinds.builtin_views.bounding_boxes",
        ("image-object-detection", "generic"),
    ),
    PredictionView(
        "image-gradients",
        "Gradients",
        "digits.kinds.builtin_views.gradients",
        ("image-gradients", "image-regression", "generic"),
    ),
    PredictionView(
        "text-classification",
        "Text classification",
        "digits.kinds.builtin_views.text",
        ("text-classification",),
    ),
    PredictionView("image-gan", "GAN", "digits.kinds.builtin_views.gan", ("generic", "image-gan")),
)
