"""Features of records: descriptions, guesses, images in every form, and classes."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from digits.data.images.images import UnusableImage
from digits.data.records.features import (
    ClassFeature,
    ImageFeature,
    ValueRange,
    describe_features,
    guess_image,
    guess_label,
)
from digits.data.records.tfrecords import parse_features
from tests.tfrecord_files import colored, example, picture, ramps

RAMP = ramps(1)[0]


def features(**values: Any) -> Any:
    return parse_features(example(**values))


def pixels(data: bytes) -> np.ndarray[Any, Any]:
    return np.asarray(Image.open(io.BytesIO(data)))


def test_features_are_described_with_examples() -> None:
    found = describe_features(parse_features(colored(1)[0]))
    shown = {item.name: (item.type, item.length, item.example) for item in found}
    assert shown == {
        "image/class/label": ("int64", 1, "0"),
        "image/class/text": ("bytes", 1, "red"),
        "image/encoded": ("bytes", 1, "PNG, 8×6 pixels"),
        "image/format": ("bytes", 1, "png"),
        "image/height": ("int64", 1, "6"),
        "image/width": ("int64", 1, "8"),
    }
    assert found[2].image == picture()
    others = describe_features(features(a=[0.5] * 9, b=b"\xff\0" * 20, c=[b"one", b"two"], d=b"\xff\xd8\xff"))
    assert [item.example for item in others[:3]] == [", ".join(["0.5"] * 8) + ", …", "40 bytes", "one, …"]
    assert others[3].example.startswith("damaged image")


ENCODED = {"image__encoded": picture(), "image__class__label": 3, "image__height": 6}
RAW = {"image_raw": RAMP.tobytes(), "height": 8, "width": 8, "depth": 1, "label": 3}
NO_SHAPE = "50 values, which are not an image file, and no features with the image shape"


@pytest.mark.parametrize(
    ("values", "image", "label"),
    [
        (ENCODED, "image/encoded", "image/class/label"),
        ({"image": picture(), "label": 3, "id": 7}, "image", "label"),
        (RAW, "image_raw", "label"),
        ({"photo": picture(form="JPEG"), "kind": b"cat", "bits": b"\xff\xfe"}, "photo", "kind"),
        ({"thumb": picture(), "image": picture(), "class": b"cat", "filename": b"a.png"}, "image", "class"),
        ({"x": [0.5] * 784, "y": 3}, "x", "y"),
        ({"x": [1] * 12, "y": [1, 2]}, "", ""),
        ({"image": picture(), "score": 0.5, "first": 1, "second": 2}, "image", ""),
    ],
)
def test_the_image_and_the_label_are_guessed(values: dict[str, Any], image: str, label: str) -> None:
    found = features(**values)
    assert guess_image(found) == image
    assert guess_label(found, image) == label


@pytest.mark.parametrize(
    ("values", "shape"),
    [
        ({"image": RAMP.tobytes()}, ()),
        ({"image": RAMP.tobytes(), "height": 8, "width": 8}, ()),
        ({"image": RAMP.tobytes(), "image__rows": 8, "image__cols": 8, "image__depth": 1}, ()),
        ({"image": RAMP.tobytes()}, (8, 8, 1)),
        ({"image": [int(value) for value in RAMP.ravel()]}, ()),
        ({"image": [float(value) / 255 for value in RAMP.ravel()]}, ()),
        ({"image": [float(value) / 127.5 - 1 for value in RAMP.ravel()]}, ()),
        ({"image": [float(value) for value in RAMP.ravel()]}, (8, 8)),
    ],
)
def test_raw_images_have_the_same_pixels_in_every_form(
    values: dict[str, Any], shape: tuple[int, ...]
) -> None:
    # The range follows from all records.
    found, darkest = features(**values), features(image=[-1.0 if min(values["image"]) < 0 else 0.0])
    seen = ValueRange()
    seen.add(found, "image")
    if not isinstance(values["image"], bytes):
        seen.add(darkest, "image")
    image = seen.scale(ImageFeature.of("image", found, shape))
    assert not image.is_file
    assert np.array_equal(pixels(image.encoded(found)), RAMP)


def test_numbers_of_another_range_are_scaled_to_it() -> None:
    found = features(image=[float(value) for value in np.linspace(-3, 5, 64)])
    seen = ValueRange()
    seen.add(found, "image")
    image = seen.scale(ImageFeature.of("image", found))
    values = pixels(image.encoded(found)).ravel()
    assert (image.low, image.high) == (-3.0, 5.0) and values[0] == 0 and values[-1] == 255
    with pytest.raises(UnusableImage, match=r"“image” has values from -4 to 5, not -3 to 5"):
        image.encoded(features(image=[-4.0] + [5.0] * 63))
    with pytest.raises(ValueError, match="NaN or infinity"):
        seen.add(features(image=[float("nan")]), "image")


@pytest.mark.parametrize(
    ("values", "shape", "message"),
    [
        ({"other": 1}, (), "no feature “image”"),
        ({"image": [picture(), picture()]}, (), "“image” contains 2 images"),
        ({"image": b"\0" * 50}, (), NO_SHAPE),
        ({"image": b"\0" * 50}, (5, 5, 3), "50 values, not 5×5×3"),
        ({"image": b"\0" * 50, "height": 6, "width": 8}, (), "50 values, not 6×8×1"),
        ({"image": b"\0" * 50, "height": 5, "width": 5, "channels": 2}, (), "2 channels, not 1 or 3"),
    ],
)
def test_unusable_images_have_a_reason(values: dict[str, Any], shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(UnusableImage, match=message):
        ImageFeature("image", is_file=False, shape=shape).encoded(features(**values))


def test_classes_are_texts_numbers_or_names_of_numbers() -> None:
    assert ClassFeature("label").read(features(label=b" cat ")) == "cat"
    assert ClassFeature("label").read(features(label=b"\xff\n")) == "\\xff"
    assert ClassFeature("label").read(features(label=7)) == "7"
    assert ClassFeature("label", ["cat", "dog"]).read(features(label=1)) == "dog"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"other": 1}, "no feature “label”; its features are other"),
        ({"label": [1, 2]}, "“label” has 2 values, not one"),
        ({"label": 0.5}, "“label” is float32 instead of integers or strings"),
        ({"label": b" "}, "“label” is bytes, but int64 in earlier records"),
        ({"label": 2}, "the class 2 is none of the named ones, 0 to 1"),
        ({"label": -1}, "the class -1 is none of the named ones"),
    ],
)
def test_unusable_classes_have_a_reason(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match="“label” is empty"):
        ClassFeature("label").read(features(label=b" "))
    label = ClassFeature("label", ["cat", "dog"])
    label.read(features(label=0))
    with pytest.raises(ValueError, match=message):
        label.read(features(**values))
