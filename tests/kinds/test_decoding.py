from __future__ import annotations

import os
import struct
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
from PIL import Image

from digits.core.errors import BadRequest
from digits.data.images.images import UnusableImage, load
from digits.kinds import decoding
from digits.kinds.decoding import Decoder, ReadInput, ResizedImage, SmallArray, SmallImage
from digits.kinds.gradients.recipe import Recipe
from tests.data.images.test_images import png

pytestmark = pytest.mark.integration  # most of these tests start the program that decodes


@pytest.fixture
def decoder() -> Iterator[Decoder]:
    decoder = Decoder()
    yield decoder
    decoder.close()
    assert programs() == []


def programs() -> list[psutil.Process]:
    return [
        child for child in psutil.Process().children() if "digits.kinds.decoding" in " ".join(child.cmdline())
    ]


def image(path: Path, width: int, height: int) -> str:
    Image.new("RGB", (width, height), (250, 120, 10)).save(path)
    return str(path)


def bomb(path: Path, side: int) -> str:
    """Create a small PNG file of ``side`` × ``side`` pixels."""
    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    path.write_bytes(png(head, zlib.compress(b"\0")))
    return str(path)


def test_images_are_reduced(decoder: Decoder, tmp_path: Path) -> None:
    for name, size in (("a.png", (1000, 500)), ("b.jpg", (2100, 4200))):
        picture = decoder.run(SmallImage(image(tmp_path / name, *size)))
        assert (picture.width, picture.height) == size
        assert max(load(picture.data, 3).shape) == 512
    np.save(tmp_path / "c.npy", np.zeros((600, 1200, 1), np.uint8))
    picture = decoder.run(SmallArray(str(tmp_path / "c.npy"), str(tmp_path)))
    assert (picture.width, picture.height) == (1200, 600) and load(picture.data, 1).shape == (256, 512, 1)
    shown = decoder.run(ResizedImage(str(tmp_path / "a.png"), 1, 30, 20, "squash", "png", 10**6))
    assert load(shown.data, 1).shape == (20, 30, 1)
    assert len(programs()) == 1, "the process answers several requests"


def test_unusable_files_are_explained(decoder: Decoder, tmp_path: Path) -> None:
    (tmp_path / "text.png").write_text("no image")
    os.mkfifo(tmp_path / "fifo.npy")
    np.save(tmp_path / "flat.npy", np.zeros(3, np.uint8))
    for request, reason in (
        (SmallImage(str(tmp_path / "text.png")), "not an image"),
        (SmallImage(bomb(tmp_path / "bomb.png", 60_000)), "more than the limit"),
        (SmallImage(str(tmp_path / "missing.png")), "No such file"),
        (SmallArray(str(tmp_path / "flat.npy"), str(tmp_path)), "cannot be read"),
        (SmallArray(str(tmp_path / "text.png"), str(tmp_path)), "cannot be read"),
        (SmallArray(str(tmp_path / "fifo.npy"), str(tmp_path)), "cannot be read"),
    ):
        with pytest.raises(UnusableImage, match=reason):
            decoder.run(request)


def test_the_setting_limits_the_pixels_of_an_image(
    decoder: Decoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DIGITS_MAX_IMAGE_PIXELS", "4999")
    with pytest.raises(UnusableImage, match="100×50 pixels is more than the limit of 4,999 pixels"):
        decoder.run(SmallImage(image(tmp_path / "a.png", 100, 50)))
    assert decoder.run(SmallImage(image(tmp_path / "b.png", 50, 50))).width == 50


def test_pages_show_dark_16_bit_images_brightly(decoder: Decoder, tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    Image.fromarray(np.full((4, 4), 4000, np.uint16)).save(path)
    assert load(decoder.run(SmallImage(str(path))).data, 1)[0, 0, 0] == 4000 >> 4


def test_input_of_a_kind_is_read(decoder: Decoder) -> None:
    recipe = Recipe(width=4, height=4)
    fields = {"gradient_x": "0.5", "gradient_y": "0"}
    pixels = decoder.run(ReadInput(recipe.kind, recipe.as_json(), fields)).as_array()
    assert pixels.shape == (4, 4, 1) and pixels.dtype == np.uint8
    assert decoder.run(ReadInput(recipe.kind, recipe.as_json(), {})).data == b""
    with pytest.raises(BadRequest) as caught:
        decoder.run(ReadInput(recipe.kind, recipe.as_json(), {"gradient_x": "steep", "gradient_y": "0"}))
    assert caught.value.message == "“gradient_x” must be a number from -0.5 to 0.5."


def test_killed_process_is_replaced(decoder: Decoder, tmp_path: Path) -> None:
    path = image(tmp_path / "a.png", 4, 4)
    decoder.run(SmallImage(path))
    (program,) = programs()
    program.kill()
    assert decoder.run(SmallImage(path)).width == 4
    (program,) = programs()
    program.suspend()
    killer = threading.Timer(0.1, program.kill)  # while the request is waiting for it
    killer.start()
    assert decoder.run(SmallImage(path)).width == 4
    killer.join()


def test_process_ends_when_it_is_idle(decoder: Decoder, tmp_path: Path) -> None:
    decoder.run(SmallImage(image(tmp_path / "a.png", 4, 4)))
    (program,) = programs()
    assert program.wait(20 * decoding.IDLE_SECONDS) == 0
