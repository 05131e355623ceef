"""What the built-in views draw of predictions, and the errors in their options."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from werkzeug.datastructures import MultiDict

from digits.core.errors import BadRequest
from digits.data.images import Geometry
from digits.data.target import TargetSpec
from digits.kinds import BUILT_IN_VIEWS, PredictionView
from digits.kinds.builtin_views.gan.view import animation
from digits.kinds.prediction_rendering import Prediction, check_options
from digits.kinds.text.characters import Encoding
from digits.kinds.text.recipe import CreateText

PICTURE = {"url": "data:image/png;base64,AA==", "width": 40, "height": 20}
MASKS = TargetSpec(
    feature="mask",
    dtype="int64",
    shape=[4, 4],
    names=["background", "cat", "dog"],
    spatial="mask",
)


def named(name: str) -> PredictionView:
    return next(view for view in BUILT_IN_VIEWS if view.name == name)


def draw(name: str, prediction: Prediction, **options: str) -> dict[str, Any]:
    view = named(name).load()
    assert view.fits(prediction)
    form = view.Options(MultiDict(options))
    check_options(form)
    found: dict[str, Any] = view.context(prediction, form)
    return found


def opened(uri: str) -> NDArray[Any]:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))))


def test_every_view_is_complete() -> None:
    assert [view.missing_files() for view in BUILT_IN_VIEWS] == [[]] * 7


def test_raw_data_have_statistics_of_finite_numbers() -> None:
    values = np.arange(300, dtype=np.float32)
    values[:2] = np.nan, np.inf
    (first, second) = draw(
        "all-raw-data",
        Prediction("generic", None, outputs={"a": values, "b": np.int32(7) * np.ones((), np.int32)}),
    )["outputs"]
    assert (first["shape"], first["dtype"], first["count"], first["not_finite"]) == ([300], "float32", 300, 2)
    assert (first["min"], first["max"], first["mean"]) == (2, 299, pytest.approx(150.5))
    assert first["values"][:3] == ["nan", "inf", 2.0] and len(first["values"]) == 200
    assert (second["shape"], second["values"]) == ([], [7.0])


def test_an_output_becomes_an_image_in_the_chosen_order() -> None:
    pixels = np.zeros((4, 6, 3), np.float32)
    pixels[..., 0] = 300
    pixels[..., 1] = -10
    shown = draw(
        "image-image-output", Prediction("generic", None, outputs={"y": pixels}), pixel_conversion="clip"
    )
    assert opened(shown["image"])[0, 0].tolist() == [255, 0, 0] and shown["input"] is None
    planes = Prediction("generic", None, outputs={"y": pixels.transpose(2, 0, 1)}, picture=PICTURE)
    shown = draw("image-image-output", planes, data_order="chw", channel_order="bgr", show_input="yes")
    assert opened(shown["image"])[0, 0].tolist() == [8, 0, 255] and shown["input"] == PICTURE["url"]
    assert (shown["low"], shown["high"], shown["width"], shown["height"]) == (-10, 300, 6, 4)
    with pytest.raises(BadRequest, match="“data_order”: No output has 1 or 3 channels"):
        draw("image-image-output", planes)
    view = named("image-image-output").load()
    assert not view.fits(Prediction("generic", None, outputs={"y": np.zeros(10, np.float32)}))


def test_classes_of_pixels_have_the_colors_of_the_chosen_map() -> None:
    scores = np.zeros((4, 4, 3), np.float32)
    scores[:, :2, 1] = 1
    scores[:, 2:, 2] = 1
    geometry = Geometry((40, 20), 4, 4, "squash")
    prediction = Prediction(
        "image-segmentation", None, outputs={"y": scores}, picture=PICTURE, geometry=geometry, target=MASKS
    )
    shown = draw("image-segmentation", prediction)
    assert [(item["name"], item["percent"]) for item in shown["classes"]] == [("cat", 50), ("dog", 50)]
    mask = opened(shown["mask"])
    assert mask.shape == (20, 40) and (mask[:, :20] == 1).all() and (mask[:, 20:] == 2).all()
    assert shown["chances"] is None
    paired = draw("image-segmentation", prediction, colormap="paired")["classes"]
    assert [item["color"] for item in paired] == ["#a6cee3", "#1f78b4"]
    assert draw("image-segmentation", prediction, colormap="none")["classes"][1]["color"] == "#ffffff"


@pytest.mark.parametrize(
    "scores", [np.full((2, 2, 1), 2.0), np.stack([np.zeros((2, 2)), np.full((2, 2), 2.0)], -1)]
)
def test_two_classes_have_probabilities(scores: NDArray[Any]) -> None:
    shown = draw("image-segmentation", Prediction("generic", None, outputs={"y": scores}))
    assert opened(shown["chances"]).tolist() == [[225, 225], [225, 225]]  # sigmoid of 2
    assert {item["index"]: item["percent"] for item in shown["classes"]} == {0: 0, 1: 100}


def test_boxes_are_counted_by_class() -> None:
    found = [
        {"label": label, "score": 0.9, "box": [0, 5, 20, 10], "color": "#ff0000"}
        for label in ("cat", "dog", "cat")
    ]
    shown = draw("image-bounding-boxes", Prediction("image-object-detection", found, picture=PICTURE))
    assert [(item["name"], item["count"]) for item in shown["classes"]] == [("cat", 2), ("dog", 1)]
    box = shown["boxes"][2]
    assert [box[edge] for edge in ("left", "top", "width", "height")] == [0, 25, 50, 25] and box["class"] == 0


@pytest.mark.parametrize(
    "outputs", [{"y": np.array([0.5, -0.25])}, {"x": np.array([0.5]), "y": np.array([-0.25])}]
)
def test_a_gradient_is_an_arrow(outputs: dict[str, Any]) -> None:
    prediction = Prediction("image-gradients", None, outputs=outputs, picture=PICTURE)
    shown = draw("image-gradients", prediction, arrow_color="green", arrow_size="40")
    assert (shown["x"], shown["y"], shown["color"]) == (0.5, -0.25, "#1a9850")
    assert shown["points"].startswith("75.0,37.5 ")
    assert draw("image-gradients", prediction)["points"].startswith("100.0,25.0 ")


def test_a_text_is_decoded() -> None:
    recipe = CreateText(table="a", alphabet="abc", width=8)
    pixels = Encoding("abc", 8).encode("cab?A")
    classes = [[str(number), 10.0] for number in range(10)]
    prediction = Prediction("text-classification", classes[:5], classes, pixels=pixels, recipe=recipe)
    shown = draw("text-classification", prediction, max_classes="7")
    assert shown["text"] == "cab a" and len(shown["classes"]) == 7
    assert len(draw("text-classification", prediction)["classes"]) == 5


def test_frames_become_an_animation() -> None:
    frames = []
    for level in (0, 120, 250):
        file = io.BytesIO()
        Image.new("L", (5, 4), level).save(file, "PNG")
        frames.append(f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}")
    gif = Image.open(io.BytesIO(base64.b64decode(animation(frames).partition(",")[2])))
    assert (gif.format, gif.size, gif.n_frames) == ("GIF", (5, 4), 3)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("view", "name", "value"),
    [
        ("image-image-output", "channel_order", "grb"),
        ("image-image-output", "data_order", "nhwc"),
        ("image-image-output", "pixel_conversion", "clamp"),
        ("image-image-output", "show_input", "1"),
        ("image-segmentation", "colormap", "jet"),
        ("image-gradients", "arrow_color", "pink"),
        ("image-gradients", "arrow_size", "0"),
        ("text-classification", "max_classes", "many"),
        ("text-classification", "max_classes", "0"),
        ("image-gan", "gan_view_task_id", "mnist_encoder"),
    ],
)
def test_a_wrong_option_is_named(view: str, name: str, value: str) -> None:
    with pytest.raises(BadRequest) as caught:
        check_options(named(view).load().Options(MultiDict({name: value})))
    assert caught.value.message.startswith(f"“{name}”: ")
