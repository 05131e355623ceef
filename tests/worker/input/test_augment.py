"""Each augmentation of training images separately, with its distribution, on small images."""

from __future__ import annotations

import colorsys
import json
from typing import Any, get_args

import numpy as np
import pytest

from digits.core import schema
from digits.core.recipe import Augment, Flip, QuadRotation
from digits.worker.failure import UserFault
from tests.worker.lazily import affine, augment, tf

ALL = {
    "flip": "fliplrud",
    "quad_rotation": "rotall",
    "rotation": 20,
    "scale": 0.1,
    "noise": 0.05,
    "contrast": 0.3,
    "whitening": True,
    "hsv_hue": 0.1,
    "hsv_saturation": 0.2,
    "hsv_value": 0.1,
    "pad_crop": 2,
    "cutout": 3,
    "mixup": 0.4,
    "cutmix": 1.0,
    "randaugment": 0.5,
}


def numbered(count: int, height: int, width: int, channels: int = 1) -> np.ndarray:
    """Return images whose pixels all differ, as far as a byte allows."""
    image = np.arange(height * width * channels, dtype=np.uint8).reshape(height, width, channels)
    return np.repeat(image[None], count, axis=0)


def flat(count: int, color: tuple[int, ...], side: int = 8) -> np.ndarray:
    return np.broadcast_to(np.uint8(color), (count, side, side, len(color))).copy()


def _moved(images: np.ndarray, settings: dict[str, Any], seed: tuple[int, int] = (1, 2)) -> Any:
    chosen = Augment(**settings)
    draws = augment.Draws(tf.constant(seed), tf.constant(len(images)))
    moved, inside = augment.augment_geometry(tf.constant(images), chosen, draws)
    return moved.numpy(), None if inside is None else inside.numpy()


def _colored(images: np.ndarray, settings: dict[str, Any], seed: tuple[int, int] = (1, 2)) -> np.ndarray:
    draws = augment.Draws(tf.constant(seed), tf.constant(len(images)))
    pixels = tf.constant(images, tf.float32)
    return augment.augment_colors(pixels, Augment(**settings), draws).numpy()


def _blended(images: np.ndarray, settings: dict[str, Any], seed: tuple[int, int] = (1, 2)) -> Any:
    draws = augment.Draws(tf.constant(seed), tf.constant(len(images)))
    chosen = Augment(**settings)
    blended, share = augment.blend(tf.constant(images, tf.float32), chosen, draws)
    return blended.numpy(), None if share is None else share.numpy()


# Geometry


def _without(images: np.ndarray) -> Any:
    return _moved(images, {}), _colored(images, {}), _blended(images, {})


def test_defaults_change_nothing(in_child: Any) -> None:
    images = numbered(4, 5, 7, 3)
    (moved, inside), colored, (blended, share) = in_child(_without, images)
    assert inside is None and share is None
    for result in (moved, colored, blended):
        assert np.array_equal(result, images)


@pytest.mark.parametrize(
    ("flip", "axes"), [("fliplr", [(), (1,)]), ("flipud", [(), (0,)]), ("fliplrud", [(), (0,), (1,), (0, 1)])]
)
def test_flips(in_child: Any, flip: str, axes: list[tuple[int, ...]]) -> None:
    images = numbered(400, 4, 6, 2)
    moved, inside = in_child(_moved, images, {"flip": flip})
    assert moved.dtype == np.uint8 and inside is None
    _assert_even_share(moved, [np.flip(images[0], which) for which in axes])


@pytest.mark.parametrize(
    ("quads", "turns"), [("rot90", [0, 1, 3]), ("rot180", [0, 2]), ("rotall", [0, 1, 2, 3])]
)
def test_quarter_turns(in_child: Any, quads: str, turns: list[int]) -> None:
    images = numbered(400, 5, 5, 2)
    moved, _ = in_child(_moved, images, {"quad_rotation": quads})
    _assert_even_share(moved, [np.rot90(images[0], turn) for turn in turns])


def _assert_even_share(moved: np.ndarray, expected: list[np.ndarray]) -> None:
    counts = [sum(np.array_equal(image, one) for image in moved) for one in expected]
    assert sum(counts) == len(moved)
    assert min(counts) > 0.7 * len(moved) / len(expected)


def test_pad_and_crop(in_child: Any) -> None:
    images = numbered(300, 6, 8)
    moved, inside = in_child(_moved, images, {"pad_crop": 2})
    shifts = set()
    padded = np.pad(images[0].astype(int) + 1, ((2, 2), (2, 2), (0, 0)))  # 0 is outside
    for image, within in zip(moved, inside, strict=True):
        found = np.where(within > 0, image.astype(int) + 1, 0)
        fits = [
            (top, left)
            for top in range(5)
            for left in range(5)
            if np.array_equal(found, padded[top : top + 6, left : left + 8])
        ]
        assert len(fits) == 1
        shifts.update(fits)
    assert len(shifts) == 25


@pytest.mark.parametrize(
    "settings",
    [
        {"flip": "fliplrud"},
        {"quad_rotation": "rotall"},
        {"quad_rotation": "rot180", "flip": "fliplr", "pad_crop": 3},
        {"quad_rotation": "rotall", "flip": "fliplrud", "pad_crop": 2},
    ],
)
def test_the_warp_matches_moving_whole_pixels(in_child: Any, settings: dict[str, Any]) -> None:
    images = numbered(60, 7, 7, 3)
    moved, inside = in_child(_moved, images, settings)
    # The standard deviation is too small for float32: every zoom factor is exactly 1, yet the warp is used.
    warped, warped_inside = in_child(_moved, images, {**settings, "scale": 1e-9})
    assert warped.dtype == np.float32
    assert np.array_equal(warped, moved)
    assert np.array_equal(warped_inside, np.ones((60, 7, 7, 1)) if inside is None else inside)


def _turned(images: np.ndarray, degrees: list[float], zooms: list[float]) -> Any:
    matrix = augment.rotation_matrix(tf.constant(np.radians(degrees), tf.float32), tf.constant(zooms))
    turning = affine.AffineMap(matrix, tf.zeros([len(images), 2]), *images.shape[1:3])
    return [part.numpy() for part in turning.warp(tf.constant(images))]


def test_a_known_angle_and_zoom(in_child: Any) -> None:
    mark = np.zeros((4, 9, 9, 1), np.uint8)
    mark[:, 4, 6] = 200  # right of the center
    warped, inside = in_child(_turned, mark, [90.0, -90.0, 45.0, 0.0], [1.0, 1.0, 1.0, 2.0])
    assert warped[0, 2, 4, 0] == pytest.approx(200, abs=0.01)  # above
    assert warped[1, 6, 4, 0] == pytest.approx(200, abs=0.01)  # below
    corner = warped[2, :4, 5:, 0]
    assert corner.sum() == pytest.approx(200, rel=0.35) and corner.sum() == warped[2].sum()
    assert warped[3, 4, 8, 0] == 200  # twice as far
    assert inside[0].all() and inside[3].all()
    assert not inside[2, 0, 0] and inside[2, 0, 4]


def test_rotation_reaches_but_never_exceeds_the_angle(in_child: Any) -> None:
    images = np.zeros((200, 41, 41, 1), np.uint8)
    images[:, 20, 20:] = 255  # a line from the center to the right
    warped, _ = in_child(_moved, images, {"rotation": 30})
    down = (warped[..., 0] * (20 - np.arange(41))[None, :, None]).sum((1, 2))
    right = (warped[..., 0] * (np.arange(41) - 20)[None, None, :]).sum((1, 2))
    angles = np.degrees(np.arctan2(down, right))
    assert np.abs(angles).max() < 30.5
    assert angles.min() < -27 and angles.max() > 27
    assert angles.std() == pytest.approx(30 / np.sqrt(3), rel=0.15)


def test_zoom_has_the_given_standard_deviation(in_child: Any) -> None:
    images = np.zeros((300, 41, 41, 1), np.uint8)
    images[:, 14:27, 14:27] = 255
    warped, _ = in_child(_moved, images, {"scale": 0.1})
    sides = np.sqrt(warped.sum((1, 2, 3)) / 255) / 13
    assert sides.mean() == pytest.approx(1, abs=0.03)
    assert sides.std() == pytest.approx(0.095, rel=0.2)
    assert sides.min() > 0.75 and sides.max() < 1.25


# Colors


def test_noise_is_a_fraction_of_the_full_range(in_child: Any) -> None:
    noisy = in_child(_colored, flat(40, (128,), 16), {"noise": 0.1}) - 128
    assert noisy.std() == pytest.approx(25.5, rel=0.03)
    assert abs(noisy.mean()) < 1
    assert np.abs(np.corrcoef(noisy[0].ravel(), noisy[1].ravel())[0, 1]) < 0.3


def test_contrast_scales_differences_from_the_image_mean(in_child: Any) -> None:
    images = flat(200, (100, 50, 120), 4)
    images[:, :2] += 20
    changed = in_child(_colored, images, {"contrast": 0.5})
    assert np.allclose(changed.mean((1, 2)), [110, 60, 130], atol=1e-3)
    factors = (changed[:, 0, 0] - changed[:, 3, 0]) / 20
    assert np.allclose(factors, factors[:, :1], atol=1e-4)
    assert 0.5 <= factors.min() < 0.55 and 1.45 < factors.max() <= 1.5


def test_hue_wraps_around(in_child: Any) -> None:
    red = in_child(_colored, flat(300, (255, 0, 0), 1), {"hsv_hue": 0.5}).reshape(-1, 3)
    hues = np.array([colorsys.rgb_to_hsv(*pixel) for pixel in red / 255])
    assert np.allclose(hues[:, 1:], 1, atol=1e-3)
    assert np.histogram(hues[:, 0], 10, (0, 1))[0].min() > 10
    little = in_child(_colored, flat(300, (255, 0, 0), 1), {"hsv_hue": 0.1}).reshape(-1, 3)
    assert little[:, 0].min() == pytest.approx(255, abs=0.01)
    assert 140 < little[:, 1:].max() <= 255 * 0.6 + 0.1  # a tenth of the color wheel from red


def test_saturation_and_value(in_child: Any) -> None:
    pixels = in_child(_colored, flat(300, (200, 100, 100), 1), {"hsv_saturation": 0.4}).reshape(-1, 3)
    assert np.allclose(pixels[:, 0], 200, atol=0.01)
    saturation = 1 - pixels[:, 1] / 200
    assert 0.3 <= saturation.min() + 1e-5 < 0.32 and 0.68 < saturation.max() < 0.7 + 1e-5
    gray = in_child(_colored, flat(300, (100,), 2), {"hsv_value": 0.2})
    assert np.ptp(gray, axis=(1, 2, 3)).max() == 0
    assert 49 <= gray.min() + 1e-3 < 54 and 146 < gray.max() < 151 + 1e-3


def test_gray_images_have_no_hue(in_child: Any) -> None:
    gray = numbered(5, 4, 4)
    settings = {"hsv_hue": 0.5, "hsv_saturation": 1}
    assert np.array_equal(in_child(_colored, gray, settings), gray)
    settings["hsv_value"] = 0.1
    colors = in_child(_colored, flat(9, (90, 90, 90)), settings)
    assert np.allclose(colors, in_child(_colored, flat(9, (90,)), settings), atol=1e-3)


# Blends


def test_cutout_squares_are_placed_anywhere(in_child: Any) -> None:
    images = np.ones((300, 10, 12, 3), np.uint8)
    blended, share = in_child(_blended, images, {"cutout": 4})
    assert share is None
    missing = (blended == 0).all(-1)
    assert ((blended == 0).any(-1) == missing).all()
    areas = missing.sum((1, 2))
    assert areas.max() == 16 and areas.min() >= 4
    for image in missing[areas == 16]:
        rows, columns = np.flatnonzero(image.any(1)), np.flatnonzero(image.any(0))
        assert np.ptp(rows) == np.ptp(columns) == 3
    assert missing.any(0).all()


def test_mixup_blends_with_the_previous_image(in_child: Any) -> None:
    images = flat(200, (0,), 2).astype(np.float32) + np.arange(200)[:, None, None, None]
    blended, share = in_child(_blended, images, {"mixup": 0.2})
    expected = images[:, 0, 0, 0] * share + np.roll(images[:, 0, 0, 0], 1) * (1 - share)
    assert np.allclose(blended[:, 1, 1, 0], expected, atol=1e-3)
    assert share.mean() == pytest.approx(0.5, abs=0.1)
    assert share.std() == pytest.approx(np.sqrt(1 / (4 * 1.4)), rel=0.15)  # of Beta(0.2, 0.2)


def test_cutmix_pastes_a_patch_of_the_previous_image(in_child: Any) -> None:
    images = np.broadcast_to(np.arange(100.0)[:, None, None, None], (100, 16, 16, 1))
    blended, share = in_child(_blended, images, {"cutmix": 1.0})
    own = blended == images
    assert (own | (blended == np.roll(images, 1, 0))).all()
    assert np.allclose(own.mean((1, 2, 3)), share, atol=1e-5)
    assert share.min() < 0.3 and share.max() > 0.9


def test_mixup_and_cutmix_divide_the_images(in_child: Any) -> None:
    images = np.broadcast_to(np.arange(200.0)[:, None, None, None], (200, 8, 8, 1))
    blended, _ = in_child(_blended, images, {"mixup": 1.0, "cutmix": 1.0})
    pasted = ((blended == images) | (blended == np.roll(images, 1, 0))).all((1, 2, 3))
    assert 60 < pasted.sum() < 140


# RandAugment


def _operations() -> Any:
    draws = augment.Draws(tf.constant([1, 2]), tf.constant(2000))
    return {name: draws.is_chosen(name).numpy() for name in augment.OPERATIONS}


def test_randaugment_chooses_operations_uniformly(in_child: Any) -> None:
    chosen = in_child(_operations)
    assert sum(chosen.values()).min() >= 1 and sum(chosen.values()).max() == 2
    for name, images in chosen.items():
        assert 0.8 < images.mean() / (1 - (11 / 12) ** 2) < 1.2, name


def test_randaugment_with_a_small_magnitude_changes_little(in_child: Any) -> None:
    noise = np.random.default_rng(3)
    images = noise.integers(0, 256, (60, 16, 16, 3), np.uint8)
    images[:, 0, 0], images[:, 0, 1] = 0, 255  # nothing to stretch
    for magnitude, smallest, largest in ((1e-6, 0, 0.3), (0.5, 5, 60), (1.0, 10, 90)):
        moved, _ = in_child(_moved, images, {"randaugment": magnitude})
        changed = in_child(_colored, moved, {"randaugment": magnitude})
        assert changed.shape == images.shape and changed.min() >= 0 and changed.max() <= 255
        assert smallest <= np.abs(changed - images).mean() <= largest


def _operations_of_color() -> Any:
    ramp = tf.reshape(tf.range(256, dtype=tf.float32), [1, 16, 16, 1])
    half = tf.constant([0.5])
    return (
        augment.posterize(ramp, tf.constant([1.0])).numpy().ravel(),
        augment.solarize(ramp, half).numpy().ravel(),
        augment.autocontrast(ramp / 2 + 10, tf.constant([True])).numpy().ravel(),
        augment.autocontrast(ramp * 0 + 10, tf.constant([True])).numpy().ravel(),
    )


def test_color_operations(in_child: Any) -> None:
    posterized, solarized, stretched, flat_one = in_child(_operations_of_color)
    ramp = np.arange(256)
    assert np.array_equal(posterized, ramp // 16 * 16)
    assert np.array_equal(solarized, np.where(ramp > 127.5, 255 - ramp, ramp))
    assert np.allclose(stretched, ramp, atol=1e-3)
    assert (flat_one == 10).all()


# All augmentations together


def _everything(channels: int, seed: tuple[int, int]) -> Any:
    images = np.random.default_rng(1).integers(0, 256, (9, 12, 12, channels), np.uint8)
    moved, inside = _moved(images, ALL, seed)
    colored = _colored(moved, ALL, seed)
    blended, share = _blended(colored, ALL, seed)
    return moved, inside, colored, blended, share


@pytest.mark.parametrize("channels", [1, 3])
def test_the_same_seed_gives_the_same_images(in_child: Any, channels: int) -> None:
    first = in_child(_everything, channels, (3, 4))
    again = in_child(_everything, channels, (3, 4))
    other_step = in_child(_everything, channels, (3, 5))
    other_seed = in_child(_everything, channels, (4, 4))
    for one, same, later, stranger in zip(first, again, other_step, other_seed, strict=True):
        assert np.array_equal(one, same)
        assert not np.array_equal(one, later) and not np.array_equal(one, stranger)


def _golden() -> Any:
    images = numbered(3, 2, 2)
    settings = {"flip": "fliplrud", "pad_crop": 1}
    return _moved(images, settings, (7, 11))[0][..., 0].tolist(), _colored(
        flat(2, (100, 150, 200), 1), {"hsv_hue": 0.1, "noise": 0.02}, (7, 11)
    ).round(1).tolist()


def test_a_seed_still_gives_the_recorded_images(in_child: Any) -> None:
    moved, colored = in_child(_golden)
    assert moved == [[[2, 3], [0, 1]], [[0, 0], [2, 2]], [[3, 3], [3, 3]]]
    assert np.allclose(colored, [[[[97.4, 179.8, 201.4]]], [[[97.7, 149.5, 200.0]]]], atol=0.11)


def _compiled() -> Any:
    images = np.random.default_rng(1).integers(0, 256, (6, 12, 12, 3), np.uint8)
    chosen = Augment(**{**ALL, "noise": 0})
    # XLA draws different numbers for the same seed, so pass both the same numbers.
    numbers = np.random.default_rng(2).random((len(augment.ROWS), 6), np.float32)

    def whole(pixels: tf.Tensor, numbers: tf.Tensor) -> Any:
        draws = augment.Draws(tf.constant([1, 2]), tf.shape(pixels)[0])
        draws.numbers = numbers
        moved, inside = augment.augment_geometry(pixels, chosen, draws)
        colored = augment.augment_colors(moved, chosen, draws) * inside
        return augment.blend(augment.standardize(colored), chosen, draws)

    values = [tf.function(whole, jit_compile=jit)(images, numbers) for jit in (False, True)]
    return [[part.numpy() for part in value] for value in values]


def test_xla_computes_the_same_images(in_child: Any) -> None:
    plain, compiled = in_child(_compiled)
    # A pixel at a threshold may end up on either side.
    assert np.isclose(plain[0], compiled[0], atol=0.02).mean() > 0.99
    assert np.allclose(plain[1], compiled[1], atol=1e-5)


# Errors


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"flips": "none"}, "unknown field `flips`"),
        ({"flip": "sideways"}, r"Invalid enum value 'sideways' - at `\$.flip`"),
        ({"quad_rotation": "rot45"}, r"\$.quad_rotation"),
        ({"noise": -0.1}, r"Expected `float` >= 0.0 - at `\$.noise`"),
        ({"rotation": "far"}, r"Expected `float`, got `str` - at `\$.rotation`"),
        ({"scale": float("nan")}, "malformed"),
        ({"mixup": 10.5}, r"Expected `float` <= 10.0 - at `\$.mixup`"),
        ({"noise": None}, r"Expected `float`, got `null` - at `\$.noise`"),
    ],
)
def test_invalid_settings_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        schema.decode(json.dumps(settings).encode(), Augment)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (Augment(pad_crop=100), "pad_crop is 100 pixels, more than"),
        (Augment(quad_rotation="rot90"), "20×10 pixels"),
    ],
)
def test_settings_incompatible_with_the_images_are_refused(
    tensorflow: None, settings: Augment, words: str
) -> None:
    with pytest.raises(UserFault, match=words):
        augment.check(settings, (10, 20, 3))


def test_every_setting_is_tested(tensorflow: None) -> None:
    augment.check(schema.convert(ALL, Augment), (12, 12, 3))
    assert set(ALL) == set(Augment.__struct_fields__)


def _any_settings(tries: int) -> list[str]:
    """Return the errors of random combinations of settings."""
    chance = np.random.default_rng(5)
    faults = []
    for number in range(tries):
        side, channels = int(chance.integers(1, 9)), int(chance.choice([1, 3]))
        settings = {
            name: chance.choice(get_args(Flip if name == "flip" else QuadRotation))
            if isinstance(value, str)
            else bool(value)
            if isinstance(value, bool)
            else int(chance.integers(0, min(side, value) + 1))
            if name in ("pad_crop", "cutout")
            else float(chance.choice([0, value * 0.01, value]))
            for name, value in ALL.items()
        }
        images = chance.integers(0, 256, (3, side, side, channels), np.uint8)
        chosen = Augment(**settings)
        draws = augment.Draws(tf.constant([number, 1]), tf.constant(3))
        moved, inside = augment.augment_geometry(tf.constant(images), chosen, draws)
        colored = augment.augment_colors(tf.cast(moved, tf.float32), chosen, draws).numpy()
        blended, share = augment.blend(augment.standardize(colored), chosen, draws)
        is_sound = (
            moved.shape == colored.shape == blended.shape == images.shape
            and blended.dtype == np.float32
            and colored.min() >= 0
            and colored.max() <= 255
            and bool(np.isfinite(blended).all())
            and (inside is None or set(np.unique(inside)) <= {0, 1})
            and (share is None or bool(((share.numpy() >= 0) & (share.numpy() <= 1)).all()))
        )
        faults += [] if is_sound else [f"{settings} at {images.shape}"]
    return faults


@pytest.mark.parametrize("tries", [6, pytest.param(40, marks=pytest.mark.nightly)])
def test_any_combination_of_settings_yields_valid_images(in_child: Any, tries: int) -> None:
    assert in_child(_any_settings, tries) == []
