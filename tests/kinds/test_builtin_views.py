"""What the built-in views draw of predictions, and the errors in their options."""

from __future__ import annotations

import base64
import io
import pickle
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from werkzeug.datastructures import MultiDict

from digits.core.errors import BadRequest
from digits.data.data_roots import Roots
from digits.data.images.images import Geometry
from digits.data.targets.mask import Mask
from digits.data.targets.numbers import Numbers
from digits.kinds import BUILT_IN_VIEWS, PredictionView
from digits.kinds.builtin_views.gan.view import animation
from digits.kinds.generic.recipe import CreateGeneric
from digits.kinds.predictions.rendering import Prediction, check_options
from digits.kinds.text.characters import Encoding
from digits.kinds.text.recipe import CreateText

PICTURE = {"url": "data:image/png;base64,AA==", "width": 40, "height": 20}
MASKS = Mask.of(["background", "cat", "dog"], 4, 4)


def named(name: str) -> PredictionView:
    return next(view for view in BUILT_IN_VIEWS if view.name == name)


def draw(name: str, prediction: Prediction, **options: str) -> dict[str, Any]:
    view = named(name).load()
    assert view.fits(prediction)
    form = view.Options(MultiDict(options), meta={"data_roots": Roots([Path("/")])})
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


def test_boxes_of_other_networks_are_rows_of_numbers() -> None:
    target = Numbers.of(["cat", "dog"])
    geometry = Geometry((40, 20), 20, 20, "squash")  # half as wide for the network
    rows = np.array([[0, 5, 10, 10, 0.5], [0, 0, 5, 5, 0.0], [5, 5, 10, 10, 0.75]], np.float32)
    numbered = np.column_stack([rows, [1, 0, 7]]).astype(np.float32)
    for outputs, classes in (
        ({"car": rows, "bus": rows[:1]}, [("car", 2), ("bus", 1)]),
        ({"output": numbered, "scores": np.zeros(5)}, [("class 7", 1), ("dog", 1)]),
    ):
        prediction = Prediction(
            "generic", {}, outputs=outputs, picture=PICTURE, geometry=geometry, target=target
        )
        assert named("image-bounding-boxes").is_for("generic")
        shown = draw("image-bounding-boxes", prediction)
        assert [(item["name"], item["count"]) for item in shown["classes"]] == classes
        box = shown["boxes"][0]
        assert [box[edge] for edge in ("left", "top", "width", "height")] == [25, 25, 25, 25]
        assert box["score"] == 0.75
    without = Prediction("generic", {}, outputs={"y": np.zeros((3, 4))}, picture=PICTURE)
    assert not named("image-bounding-boxes").load().fits(without)


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
    gif = Image.open(io.BytesIO(animation(frames)))
    assert (gif.format, gif.size, gif.n_frames) == ("GIF", (5, 4), 3)  # type: ignore[attr-defined]


def encoded(latent: list[float], pixels: NDArray[np.uint8]) -> Prediction:
    """The prediction of an encoder that generates ``pixels`` from ``latent``, as values from 0 to 1."""
    output = np.concatenate([latent, pixels.ravel() / 255]).astype(np.float32)
    return Prediction("generic", None, outputs={"z_and_image": output}, picture=PICTURE, pixels=pixels)


PIXELS = np.arange(48, dtype=np.uint8).reshape(4, 4, 3) * 5


@pytest.mark.parametrize(
    ("pixels", "task"),
    [
        (PIXELS, {}),
        (PIXELS[:, :, :1], {"gan_view_task_id": "mnist_encoder"}),
        (PIXELS, {"gan_view_task_id": "celeba_encoder"}),
    ],
)
def test_the_output_of_an_encoder_is_a_latent_vector_and_a_reconstruction(
    pixels: NDArray[np.uint8], task: dict[str, str]
) -> None:
    drawn = draw("image-gan", encoded([0.5, -1.0, 2.0], pixels), **task)
    assert drawn["latent"] == [0.5, -1.0, 2.0] and drawn["input"] == PICTURE["url"]
    found = opened(drawn["output"]).reshape(pixels.shape).astype(int)
    low, high = int(pixels.min()), int(pixels.max())
    assert np.abs(found - (pixels.astype(int) - low) * 255 / (high - low)).max() <= 1
    assert "attributes" not in drawn


def test_other_outputs_are_not_those_of_an_encoder() -> None:
    recipe = CreateGeneric(train="records", width=4, height=4)
    geometry = Geometry((40, 20), 4, 4, "squash")
    from_file = replace(encoded([1.0, 2.0], PIXELS), pixels=None, recipe=recipe, geometry=geometry)
    assert draw("image-gan", from_file)["latent"] == [1.0, 2.0]  # an image file has the shape of the records
    only_image = encoded([], PIXELS)
    for prediction in (
        only_image,
        replace(only_image, outputs={"logits": np.zeros(10, np.float32)}),
        replace(encoded([1.0], PIXELS), pixels=None),
        encoded([1.0], np.zeros((4, 4, 2), np.uint8)),
    ):
        assert not named("image-gan").load().fits(prediction)


def test_attributes_are_sorted_by_projection(tmp_path: Path) -> None:
    table = tmp_path / "vectors.csv"
    table.write_text("Smiling,3,0\n\nHat,0,-4\nBald,0,0\nYoung,1,1\nMale,-1,0\nBangs,2,1\n")
    options = {"gan_view_task_id": "attributes", "attributes_file": str(table)}
    found = draw("image-gan", encoded([2.0, -1.0], PIXELS), **options)["attributes"]
    assert [attribute["name"] for attribute in found] == ["Smiling", "Bangs", "Hat", "Young", "Bald"]
    expected = [2.0, 3 / 5**0.5, 1.0, 0.5**0.5, 0.0]
    assert [attribute["score"] for attribute in found] == pytest.approx(expected)


@pytest.mark.parametrize(("count", "first"), [(40, "5_o_Clock_Shadow"), (3, "Attribute 1")])
def test_attributes_of_an_array(count: int, first: str, tmp_path: Path) -> None:
    vectors = np.zeros((count, 2))
    vectors[0] = 1, 1
    np.save(tmp_path / "vectors.npy", vectors)
    options = {"gan_view_task_id": "attributes", "attributes_file": str(tmp_path / "vectors.npy")}
    found = draw("image-gan", encoded([2.0, 1.0], PIXELS), **options)["attributes"]
    assert found[0] == {"name": first, "score": pytest.approx(3 / 2**0.5)}
    assert len(found) == min(count, 5)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"Smiling,1,2\nHat,1\n", "line 2: 1 numbers, the first line has 2"),
        ("a.csv", b"Smiling,1,x\n", "line 1: “x” is not a number; expected a name and numbers"),
        ("a.csv", b"Smiling,1,nan\n", "line 1: “nan” is not a number; expected a name and numbers"),
        ("a.csv", b"Smiling,1\n", "its vectors have 1 numbers, but the network requires 2"),
        ("a.csv", b"", "it must contain 1 to 1,000 vectors"),
        ("a.csv", b"x,1,2\n" * 1001, "it must contain 1 to 1,000 vectors"),
        ("a.pkl", pickle.dumps(np.ones((40, 2))), "it is neither a CSV file nor a NumPy array (.npy)"),
        ("a.npy", b"\x93NUMPY", "it is not an array of numbers"),
        ("a.npy", pickle.dumps([1]), "it is not an array of numbers"),
    ],
)
def test_damaged_attribute_vectors_are_refused(
    name: str, content: bytes, message: str, tmp_path: Path
) -> None:
    with pytest.raises(BadRequest, match="Enter the path"):
        draw("image-gan", encoded([2.0, 1.0], PIXELS), gan_view_task_id="attributes")
    (tmp_path / name).write_bytes(content)
    options = {"gan_view_task_id": "attributes", "attributes_file": str(tmp_path / name)}
    with pytest.raises(BadRequest) as caught:
        draw("image-gan", encoded([2.0, 1.0], PIXELS), **options)
    assert caught.value.message.startswith(f"“attributes_file”: {name}: {message}")


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
        ("image-gan", "gan_view_task_id", "grid"),
        ("image-gan", "attributes_file", "/nowhere/vectors.csv"),
    ],
)
def test_a_wrong_option_is_named(view: str, name: str, value: str) -> None:
    with pytest.raises(BadRequest) as caught:
        options = named(view).load().Options
        check_options(options(MultiDict({name: value}), meta={"data_roots": Roots([Path("/usr")])}))
    assert caught.value.message.startswith(f"“{name}”: ")


def test_the_statistics_of_a_large_output_take_little_memory() -> None:
    values = np.random.default_rng(0).normal(size=(1000, 2000)).astype(np.float32)
    values[500] = np.nan
    finite = values[np.isfinite(values)].astype(np.float64)
    tracemalloc.start()
    try:
        (output,) = draw("all-raw-data", Prediction("generic", None, outputs={"y": values}))["outputs"]
        assert tracemalloc.get_traced_memory()[1] < values.nbytes
    finally:
        tracemalloc.stop()
    assert output["not_finite"] == 2000
    assert output["min"] == finite.min() and output["max"] == finite.max()
    assert output["mean"] == pytest.approx(finite.mean()) and output["std"] == pytest.approx(finite.std())
