"""Images: every supported format, files with a wrong format, and resizing."""

from __future__ import annotations

import io
import math
import os
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cykooz_resizer import CpuExtensions, FilterType, ImageData, PixelType, ResizeAlg, ResizeOptions, Resizer
from hypothesis import assume, given
from hypothesis import strategies as st
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from digits.data.images import images, jpeg
from digits.data.images.images import UnusableImage

FORMATS = ["PNG", "JPEG", "BMP", "PPM", "GIF", "TIFF", "WEBP"]


def saved(image: Image.Image, format: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


def gradient(width: int, height: int, channels: int) -> images.Pixels:
    """A smooth image that differs in every direction and channel."""
    down, across = np.mgrid[0:height, 0:width]
    planes = [across * 200 // width, down * 200 // height, (across + down) * 200 // (width + height)]
    return np.stack(planes[:channels], axis=-1).astype(np.uint8)


def png_of_zeros(width: int, height: int) -> bytes:
    """A gray PNG whose height is a multiple of 100, compressed in repeating blocks."""
    compressor = zlib.compressobj(1, wbits=-zlib.MAX_WBITS)
    rows = compressor.compress(bytes((width + 1) * 100)) + compressor.flush(zlib.Z_FULL_FLUSH)
    checksum = (width + 1) * height % 65521 << 16 | 1  # Adler-32 of that many zeros
    pixels = b"\x78\x01" + rows * (height // 100) + compressor.flush() + struct.pack(">I", checksum)
    return png(struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0), pixels)


def png(header: bytes, pixels: bytes) -> bytes:
    """A PNG file of a header and compressed pixels."""
    data = b"\x89PNG\r\n\x1a\n"
    for name, part in ((b"IHDR", header), (b"IDAT", pixels), (b"IEND", b"")):
        data += struct.pack(">I", len(part)) + name + part + struct.pack(">I", zlib.crc32(name + part))
    return data


def tiff_of(bands: int, photometric: int, extra: list[int], values: Any = np.uint8) -> bytes:
    """A TIFF file of 4×2 pixels, with one row of all bands after the other."""
    pixels = np.arange(8 * bands, dtype=values).tobytes()
    bits = 8 * np.dtype(values).itemsize
    lists = {258: [bits] * bands, 338: extra, 339: [3 if np.dtype(values).kind == "f" else 1] * bands}
    numbers = {256: 4, 257: 2, 259: 1, 262: photometric, 273: 8, 277: bands, 278: 2, 279: len(pixels), 284: 1}
    tags, more = [], b""
    for tag in sorted({*numbers, *(tag for tag, items in lists.items() if items)}):
        items = lists.get(tag) or [numbers[tag]]
        packed = struct.pack(f"<{len(items)}H", *items)
        if len(packed) > 4:
            packed, more = struct.pack("<I", 8 + len(pixels) + len(more)), more + packed
        tags.append(struct.pack("<HHI", tag, 3, len(items)) + packed.ljust(4, b"\0"))
    head = struct.pack("<2sHI", b"II", 42, 8 + len(pixels) + len(more)) + pixels + more
    return head + struct.pack("<H", len(tags)) + b"".join(tags) + bytes(4)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("format", ["PNG", "BMP", "PPM", "TIFF"])
def test_lossless_formats_keep_their_pixels(format: str, channels: int) -> None:
    pixels = gradient(13, 7, channels)
    loaded = images.load(saved(images.as_image(pixels), format), channels)
    assert loaded.dtype == np.uint8
    assert np.array_equal(loaded, pixels)


@pytest.mark.parametrize("format", ["JPEG", "WEBP", "GIF"])
def test_lossy_formats_stay_close(format: str) -> None:
    pixels = gradient(32, 24, 3)
    loaded = images.load(saved(images.as_image(pixels), format), 3)
    assert loaded.shape == (24, 32, 3)
    assert np.abs(loaded.astype(int) - pixels).mean() < 8


def test_paths_files_and_bytes_are_sources(tmp_path: Path) -> None:
    data = saved(images.as_image(gradient(4, 4, 1)), "PNG")
    path = tmp_path / os.fsdecode(b"caf\xe9.png")
    path.write_bytes(data)
    assert np.array_equal(images.load(path, 1), images.load(data, 1))
    assert np.array_equal(images.load(io.BytesIO(data), 1), images.load(str(path), 1))


def row(mode: str, *values: Any, palette: list[int] | None = None) -> Image.Image:
    """An image of one row."""
    image = Image.new(mode, (len(values), 1))
    if palette:
        image.putpalette(palette)
    for place, value in enumerate(values):
        image.putpixel((place, 0), value)
    return image


WIDE = Image.fromarray(np.array([[0, 255, 256, 0x1234, 0xFFFF]], np.uint16))
HIGH_BYTES = [[0], [0], [1], [0x12], [0xFF]]
RED_AND_BLUE = row("P", 0, 1, palette=[255, 0, 0, 0, 0, 255])


@pytest.mark.parametrize(
    ("data", "channels", "expected"),
    [
        (saved(row("L", 90, 90), "PNG"), 3, [[90, 90, 90]] * 2),
        (saved(row("RGB", (255, 0, 0)), "PNG"), 1, [[76]]),
        # Pixels of 16 bits keep their high byte, and those of one bit become black and white.
        *((saved(WIDE, form), 1, HIGH_BYTES) for form in ("PNG", "TIFF", "PPM")),
        (saved(row("1", 0, 1), "PNG"), 1, [[0], [255]]),
        # Transparency is composited over white.
        (saved(row("RGBA", (0, 0, 0, 255), (0, 0, 0, 0), (0, 0, 0, 128)), "PNG"), 1, [[0], [255], [127]]),
        (saved(row("LA", (0, 255), (0, 0), (0, 128)), "PNG"), 1, [[0], [255], [127]]),
        (saved(RED_AND_BLUE, "PNG", transparency=b"\xff\x00"), 3, [[255, 0, 0], [255, 255, 255]]),
        (saved(row("L", 7, 8), "PNG", transparency=8), 1, [[7], [255]]),
    ],
)
def test_pixels_of_all_modes_are_converted(data: bytes, channels: int, expected: list[list[int]]) -> None:
    loaded = images.load(data, channels)
    assert loaded.tolist() == [expected] and loaded.dtype == np.uint8


@pytest.mark.parametrize(
    ("mode", "value", "reason"),
    [
        ("F", 1.5, "from 0 to 1 only, but range from 1.5 to 1.5"),
        ("F", -0.5, "range from -0.5 to -0.5"),
        ("F", math.nan, "from 0 to 1 only"),
        ("I", 1 << 20, "16 bits"),
    ],
)
def test_pixels_without_a_brightness_are_refused(mode: str, value: float, reason: str) -> None:
    with pytest.raises(UnusableImage, match=reason):
        images.load(saved(Image.new(mode, (2, 2), value), "TIFF"), 1)


def test_floating_point_pixels_from_0_to_1_are_scaled() -> None:
    values = np.array([[-1e-3, 0.25, 0.5, 1.001]], np.float32)
    picture = images.open_picture(saved(Image.fromarray(values), "TIFF"), 1)
    assert picture.pixels[..., 0].tolist() == [[0, 64, 128, 255]] and picture.mode == "F"


@pytest.mark.parametrize(
    ("largest", "used"), [(0, 8), (255, 8), (256, 10), (1023, 10), (4095, 12), (9000, 14), (30000, 16)]
)
def test_16_bit_values_are_stretched_from_the_bits_that_they_use(largest: int, used: int) -> None:
    data = saved(Image.fromarray(np.array([[0, largest // 2, largest]], np.uint16)), "PNG")
    expected = [0, (largest // 2) >> (used - 8), largest >> (used - 8)]
    for bits in (None, used):
        picture = images.open_picture(data, 1, bits=bits)
        assert picture.pixels[0, :, 0].tolist() == expected and picture.bits == used
    assert images.load(data, 1)[0, 2, 0] == largest >> 8


def test_16_bit_values_beyond_the_given_bits_are_white() -> None:
    data = saved(Image.fromarray(np.array([[100, 5000, 65535]], np.uint16)), "TIFF")
    picture = images.open_picture(data, 3, bits=12)
    assert picture.pixels[0, :, 0].tolist() == [6, 255, 255] and picture.bits == 16


@pytest.mark.parametrize(("color", "channels"), [(2, 3), (4, 2), (6, 4)])
def test_16_bit_colors_are_stretched(color: int, channels: int) -> None:
    values = np.zeros((2, 3, channels), ">u2")
    values[..., 0] = 4095
    if channels != 3:
        values[..., -1] = 0xFFFF  # opaque
    rows = b"".join(b"\0" + row.tobytes() for row in values)
    data = png(struct.pack(">IIBBBBB", 3, 2, 16, color, 0, 0, 0), zlib.compress(rows))
    expected = [255, 255, 255] if channels == 2 else [255, 0, 0]
    picture = images.open_picture(data, 3, bits=None)
    assert picture.pixels.tolist() == [[expected] * 3] * 2 and picture.bits == 12
    assert images.load(data, 3)[0, 0].tolist() == [value * 15 // 255 for value in expected]


def test_16_bit_colors_in_tiff_files_that_would_be_black_are_refused() -> None:
    ifd = [(256, 3, 1), (257, 3, 1), (258, 3, 8), (259, 3, 1), (262, 3, 2), (273, 4, 200), (277, 3, 3)]
    ifd += [(278, 3, 1), (279, 4, 6)]
    entries = b"".join(
        struct.pack("<HHII", tag, kind, 3 if tag == 258 else 1, 180 if tag == 258 else value)
        for tag, kind, value in ifd
    )
    head = b"II*\0" + struct.pack("<IH", 8, len(ifd)) + entries + bytes(4)
    for value, is_usable in ((4095, False), (40000, True)):
        data = head.ljust(180, b"\0") + struct.pack("<3H", 16, 16, 16)
        data = data.ljust(200, b"\0") + struct.pack("<3H", value, 0, 0)
        if is_usable:
            assert images.load(data, 3).tolist() == [[[value >> 8, 0, 0]]]
        else:
            with pytest.raises(UnusableImage, match="convert it to PNG"):
                images.load(data, 3)


def test_cmyk_becomes_rgb() -> None:
    image = Image.new("CMYK", (8, 8), (0, 255, 255, 0))
    red, green, blue = images.load(saved(image, "JPEG", quality=100), 3)[4, 4]
    assert (red > 240, green < 15, blue < 15) == (True, True, True)


@pytest.mark.parametrize(
    ("format", "orientation"), list(zip(["PNG", "JPEG", "TIFF", "WEBP"] * 2, range(1, 9), strict=True))
)
def test_exif_orientation_is_applied(format: str, orientation: int) -> None:
    upright = np.zeros((16, 32), np.uint8)
    upright[:8, :16] = 255  # a white corner at the top left
    as_stored = {
        1: upright,
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: upright.T,
        6: np.rot90(upright),
        7: upright[::-1, ::-1].T,
        8: np.rot90(upright, -1),
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = saved(Image.fromarray(np.ascontiguousarray(as_stored)), format, exif=exif)
    loaded = images.load(data, 1)[:, :, 0]
    assert loaded.shape == upright.shape
    assert np.abs(loaded.astype(int) - upright).max() < 40


def test_the_first_frame_of_an_animation_is_used() -> None:
    frames = [Image.new("L", (3, 3), value) for value in (10, 200)]
    data = saved(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert images.load(data, 1).tolist() == np.full((3, 3, 1), 10).tolist()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "the file is empty"),
        (b"I am no image.\n", "not an image (it looks like text)"),
        (b"%PDF-1.7 \xff", "not an image (it looks like a PDF document)"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "not an image (it looks like SVG)"),
        (b"  <!DOCTYPE html><html>", "not an image (it looks like a web page)"),
        (b"%!PS-Adobe-3.0 EPSF-3.0", "not an image (it looks like PostScript)"),
        (b"8BPS\0\1" + bytes(20), "not an image (it looks like a Photoshop document)"),
        (b"\0\0\0\x18ftypisom", "not an image (it looks like a video)"),
        (bytes(4096), "not an image (it contains only zeros)"),
        (b"\xf3\x00\x12\xfe" * 9, "not an image (its type is unknown)"),
        (b"\x89PNG\r\n\x1a\n", "not an image (it looks like a damaged PNG)"),
    ],
)
def test_a_file_that_is_not_an_image_is_named(data: bytes, reason: str) -> None:
    with pytest.raises(UnusableImage) as caught:
        images.load(data, 3)
    assert caught.value.reason == reason


@pytest.mark.parametrize("format", FORMATS)
def test_truncated_files_are_refused(format: str) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (40, 40, 3), np.uint8)
    data = saved(Image.fromarray(noise), format)
    for part in (0.3, 0.6, 0.9):
        with pytest.raises(UnusableImage) as caught:
            images.load(data[: int(len(data) * part)], 3)
        assert any(word in caught.value.reason for word in ("truncated", "damaged"))


def test_a_huge_png_is_refused_before_it_is_decoded() -> None:
    data = png_of_zeros(50_000, 50_000)
    assert len(data) < 20_000_000
    with pytest.raises(UnusableImage) as caught:
        images.load(data, 1)
    assert caught.value.reason == (
        "50000×50000 pixels is more than the limit of 50,000,000 pixels; the setting max_image_pixels raises it"
    )


@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
@pytest.mark.parametrize("orientation", [1, 6])
@pytest.mark.parametrize("limit", [30_000, 2_000, 500])
def test_a_huge_jpeg_is_decoded_at_a_reduced_size(mode: str, orientation: int, limit: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = saved(Image.fromarray(gradient(200, 160, 3)).convert(mode), "JPEG", exif=exif, quality=95)
    size = (200, 160) if orientation == 1 else (160, 200)
    whole = images.open_picture(data, 3)
    reduced = images.open_picture(data, 3, max_pixels=limit)
    assert reduced.size == whole.size == size and not reduced.plain
    assert reduced.image.width * reduced.image.height <= limit
    assert images.upright_size_and_turn(data)[0] == size
    for how in images.RESIZE_MODES:
        same, small = whole.resize(18, 12, how).astype(int), reduced.resize(18, 12, how)
        assert abs(same - small).max() <= (40 if limit == 500 else 12)
    padded = reduced.pad(400, 320)
    assert padded.size == (400, 320)
    expected = whole.pad(400, 320).resize(20, 16, "squash").astype(int)
    assert abs(expected - padded.resize(20, 16, "squash")).max() <= 50
    with pytest.raises(UnusableImage, match="more than the limit of 499 pixels"):
        images.load(data, 3, max_pixels=499)


def test_a_huge_progressive_jpeg_needs_memory_and_is_refused() -> None:
    data = saved(Image.fromarray(gradient(200, 160, 3)), "JPEG", progressive=True)
    assert images.open_picture(data, 3, max_pixels=8000).image.size == (100, 80)
    with pytest.raises(UnusableImage, match="200×160 pixels is more than the limit of 7,999"):
        images.load(data, 3, max_pixels=7999)


def test_the_pixel_limit_is_exact() -> None:
    data = png_of_zeros(200, 100)
    assert images.load(data, 1, max_pixels=20_000).shape == (100, 200, 1)
    with pytest.raises(UnusableImage, match="200×100 pixels is more than the limit of 19,999 pixels"):
        images.load(data, 1, max_pixels=19_999)


def test_other_files_are_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "large.png").touch()
    os.truncate(tmp_path / "large.png", images.MAX_FILE_BYTES + 1)
    for name, message in (
        ("pipe.png", "not a regular file"),
        ("", "not a regular file"),
        ("large.png", "larger than 512 MB"),
    ):
        with pytest.raises(UnusableImage, match=message):
            images.load(tmp_path / name, 3)
    with pytest.raises(FileNotFoundError):
        images.load(tmp_path / "gone.png", 3)


@given(st.sampled_from(FORMATS), st.data())
def test_altered_files_load_or_are_refused(format: str, data: st.DataObject) -> None:
    content = bytearray(saved(images.as_image(gradient(12, 9, 3)), format))
    for _ in range(data.draw(st.integers(1, 6))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        loaded = images.load(bytes(content), 3, max_pixels=10_000)
    except UnusableImage as error:
        assert error.reason
    else:
        assert loaded.ndim == 3


def test_only_files_that_all_decoders_read_alike_are_plain() -> None:
    gray, color = images.as_image(gradient(9, 9, 1)), images.as_image(gradient(9, 9, 3))
    turned = Image.Exif()
    turned[0x0112] = 6
    plain = {
        "gray png": (saved(gray, "PNG"), 1),
        "color png": (saved(color, "PNG"), 3),
        "color jpeg": (saved(color, "JPEG"), 3),
    }
    changed = {
        "gray for color": (saved(gray, "PNG"), 3),
        "color for gray": (saved(color, "PNG"), 1),
        "one bit": (saved(gray.convert("1"), "PNG"), 1),
        "four bits": (saved(gray.convert("P").quantize(4), "PNG"), 3),
        "alpha": (saved(color.convert("RGBA"), "PNG"), 3),
        "transparent gray": (saved(gray, "PNG", transparency=0), 1),
        "turned": (saved(color, "JPEG", exif=turned), 3),
        "another format": (saved(color, "BMP"), 3),
        "much besides pixels": (saved(color, "JPEG", comment=bytes(9000)), 3),
        "cmyk": (saved(color.convert("CMYK"), "JPEG"), 3),
    }
    assert [name for name, (data, n) in plain.items() if not images.open_picture(data, n).plain] == []
    assert [name for name, (data, n) in changed.items() if images.open_picture(data, n).plain] == []


def test_a_png_with_a_wrong_checksum_is_not_plain() -> None:
    data = bytearray(saved(images.as_image(gradient(9, 9, 1)), "PNG"))
    data[-14] ^= 1  # in the checksum of the pixels, before the 12 bytes of the last chunk
    picture = images.open_picture(bytes(data), 1)
    assert np.array_equal(images.as_pixels(picture.image), gradient(9, 9, 1))
    assert not picture.plain


def test_sixteen_bit_color_is_not_plain() -> None:
    header = struct.pack(">IIBBBBB", 1, 1, 16, 2, 0, 0, 0)
    data = png(header, zlib.compress(b"\0" + bytes([1, 9, 2, 9, 3, 9])))
    picture = images.open_picture(data, 3)
    assert not picture.plain
    assert images.as_pixels(picture.image).tolist() == [[[1, 2, 3]]]


def photo(width: int, height: int, channels: int, seed: int) -> images.Pixels:
    """An image with noise, edges and a smooth background."""
    noise = np.random.default_rng(seed).integers(-40, 41, (height, width, channels))
    pixels = gradient(width, height, channels) / 2 + 20 + noise
    pixels[height // 3 : height // 2, width // 5 : width // 2] += 100  # sharp edges
    return pixels.clip(0, 255).astype(np.uint8)


@given(
    st.integers(1, 90),
    st.integers(1, 90),
    st.sampled_from([1, 3]),
    st.integers(0, 99),
    st.sampled_from(["4:4:4", "4:2:2", "4:2:0"]),
    st.booleans(),
)
def test_jpegs_have_the_pixels_that_pillow_decodes(
    width: int, height: int, channels: int, seed: int, subsampling: str, progressive: bool
) -> None:
    image = images.as_image(photo(width, height, channels, seed))
    data = saved(image, "JPEG", subsampling=subsampling, progressive=progressive)
    with Image.open(io.BytesIO(data)) as expected:
        assert np.array_equal(images.load(data, channels), images.as_pixels(expected))


def test_a_jpeg_with_another_size_in_its_metadata_is_decoded_by_its_header() -> None:
    data = saved(images.as_image(gradient(64, 48, 3)), "JPEG")
    comment = b"\xff\xfe\x00\x07\xff\xc0\x00\x11\x08"  # looks like the start of a frame
    assert np.array_equal(images.load(data[:2] + comment + data[2:], 3), images.load(data, 3))


@given(
    *[st.integers(1, 120)] * 4,
    st.sampled_from([1, 3]),
    st.sampled_from(images.RESIZE_MODES),
    st.integers(0, 99),
)
def test_resized_jpegs_barely_differ_from_pillows_result(
    width: int, height: int, to_width: int, to_height: int, channels: int, mode: str, seed: int
) -> None:
    data = saved(images.as_image(photo(width, height, channels, seed)), "JPEG")
    resized = images.open_picture(data, channels).resize(to_width, to_height, mode, seed=seed)
    with Image.open(io.BytesIO(data)) as image:
        expected = images.as_pixels(images.resize_image(image, to_width, to_height, mode, seed=seed))
    difference = np.abs(resized.astype(int) - expected)
    # Each of the two passes rounds to integers; both differences rarely meet in one value.
    assert difference.max() <= 2
    assert np.count_nonzero(difference == 2) <= 1 + difference.size / 1000


@pytest.mark.parametrize("channels", [1, 3])
def test_scaling_does_not_depend_on_the_processor(channels: int) -> None:
    pixels = photo(75, 50, channels, 0)
    resizer = Resizer()
    resizer.cpu_extensions = CpuExtensions.none
    type_ = PixelType.U8 if channels == 1 else PixelType.U8x3
    scaled = ImageData(31, 33, type_)
    options = ResizeOptions(resize_alg=ResizeAlg.convolution(FilterType.bilinear))
    resizer.resize(ImageData(75, 50, type_, pixels.tobytes()), scaled, options)
    assert scaled.get_buffer() == jpeg.scale(pixels, (0, 0, 75, 50), (31, 33)).tobytes()


@pytest.mark.slow
@given(
    st.integers(10, 40),
    st.floats(4, 40),
    st.floats(0.5, 2),
    st.sampled_from([1, 3]),
    st.sampled_from(images.RESIZE_MODES),
    st.integers(0, 99),
)
def test_large_jpegs_are_decoded_at_reduced_size_and_look_the_same(
    side: int, factor: float, ratio: float, channels: int, mode: str, seed: int
) -> None:
    shorter = math.ceil(side * factor)
    width, height = (
        (math.ceil(shorter * ratio), shorter) if ratio > 1 else (shorter, math.ceil(shorter / ratio))
    )
    data = saved(images.as_image(photo(width, height, channels, seed)), "JPEG")
    small = images.open_picture(data, channels, enough=(side, side))
    assert side * images.SCALED_DECODING_MARGIN <= min(small.pixels.shape[:2]) < shorter
    assert not small.plain
    assert small.size == (width, height)
    full = images.open_picture(data, channels)
    from_small, from_full = (
        picture.resize(side, side, mode, seed=1).astype(int) for picture in (small, full)
    )
    difference = np.abs(from_small - from_full)
    assert difference.mean() <= 4
    assert difference.max() <= 40


@given(st.integers(1, 40), st.integers(1, 40), st.sampled_from([1, 3]), st.integers(0, 99), st.integers(0, 9))
def test_simple_pngs_have_the_pixels_that_pillow_decodes(
    width: int, height: int, channels: int, seed: int, level: int
) -> None:
    image = images.as_image(photo(width, height, channels, seed))
    data = saved(image, "PNG", compress_level=level)
    picture = images.open_picture(data, channels)
    assert picture.plain
    assert (picture.size, picture.mode, picture.format) == (image.size, image.mode, "PNG")
    assert np.array_equal(picture.pixels, images.as_pixels(image))
    other = image.convert("RGB" if channels == 1 else "L")
    assert np.array_equal(images.load(data, 4 - channels), images.as_pixels(other))


@given(data=st.data())
def test_altered_pngs_are_read_like_pillow_does(data: st.DataObject) -> None:
    content = bytearray(saved(images.as_image(photo(12, 9, 3, 0)), "PNG"))
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(8, len(content) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        repair_checksums(content)
    try:
        expected = images.as_pixels(images.open_unconverted(bytes(content), max_pixels=10_000))
    except UnusableImage:
        with pytest.raises(UnusableImage):
            images.load(bytes(content), 3, max_pixels=10_000)
    else:
        loaded = images.load(bytes(content), 3, max_pixels=10_000)
        assert expected.shape != loaded.shape or np.array_equal(loaded, expected)


def repair_checksums(content: bytearray) -> None:
    """Make the checksums of the chunks of a PNG file valid."""
    start = 8
    while start + 12 <= len(content):
        end = start + 8 + int.from_bytes(content[start : start + 4], "big")
        if end + 4 > len(content):
            return
        content[end : end + 4] = zlib.crc32(content[start + 4 : end]).to_bytes(4, "big")
        start = end + 4


def test_a_png_rotated_by_text_metadata_is_upright() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    payload = exif.tobytes()
    text = f"\nexif\n{len(payload):8}\n{payload.hex()}\n"
    information = PngInfo()
    information.add_text("Raw profile type exif", text)
    data = saved(images.as_image(gradient(9, 5, 1)), "PNG", pnginfo=information)
    picture = images.open_picture(data, 1)
    assert picture.size == (5, 9)
    assert not picture.plain


sides = st.integers(1, 60)


@given(
    sides,
    sides,
    sides,
    sides,
    st.sampled_from([1, 3]),
    st.sampled_from(images.RESIZE_MODES),
    st.integers(0, 99),
)
def test_resizing_returns_the_exact_size(
    width: int, height: int, to_width: int, to_height: int, channels: int, mode: str, seed: int
) -> None:
    pixels = gradient(width, height, channels)
    resized = images.resize(pixels, to_width, to_height, mode, seed=seed)
    assert resized.shape == (to_height, to_width, channels)
    assert resized.dtype == np.uint8
    image = images.resize_image(images.as_image(pixels), to_width, to_height, mode, seed=seed)
    assert np.array_equal(resized, images.as_pixels(image))


@given(sides, sides, st.sampled_from([1, 3]), st.sampled_from(images.RESIZE_MODES))
def test_an_image_of_the_target_size_is_unchanged(width: int, height: int, channels: int, mode: str) -> None:
    pixels = gradient(width, height, channels)
    assert np.array_equal(images.resize(pixels, width, height, mode), pixels)


@given(st.integers(1, 20), st.integers(1, 20), st.integers(2, 5), st.sampled_from(images.RESIZE_MODES))
def test_an_image_of_the_target_ratio_is_squashed(width: int, height: int, factor: int, mode: str) -> None:
    pixels = gradient(width * factor, height * factor, 3)
    squashed = images.resize(pixels, width, height, "squash")
    assert np.array_equal(images.resize(pixels, width, height, mode), squashed)


@pytest.mark.parametrize(
    ("mode", "size", "target", "expected"),
    [
        ("squash", (100, 50), (20, 20), (20, 20)),
        ("crop", (100, 50), (20, 20), (40, 20)),
        ("fill", (100, 50), (20, 20), (20, 10)),
        ("half_crop", (100, 50), (20, 20), (27, 14)),
        ("crop", (50, 100), (20, 20), (20, 40)),
        ("fill", (100, 55), (20, 20), (20, 12)),  # 11 grows to 12, the remainder of 20 being odd
    ],
)
def test_the_scale_of_each_mode(mode, size, target, expected) -> None:
    assert images.scaled_size(size, *target, mode) == expected


def test_crop_keeps_the_middle() -> None:
    pixels = np.zeros((10, 30, 1), np.uint8)
    pixels[:, 10:20] = 200
    assert (images.resize(pixels, 10, 10, "crop") == 200).all()


@given(st.integers(3, 40), st.integers(3, 40), st.integers(3, 40), st.integers(3, 40))
def test_cropping_while_scaling_equals_cropping_afterwards(width, height, to_width, to_height) -> None:
    assume(width * to_height != height * to_width)
    image = images.as_image(gradient(width, height, 3))
    scaled = images.scaled_size(image.size, to_width, to_height, "crop")
    whole = np.asarray(image.resize(scaled, Image.Resampling.BILINEAR)).astype(int)
    left, top = round((scaled[0] - to_width) / 2), round((scaled[1] - to_height) / 2)
    cut = whole[top : top + to_height, left : left + to_width]
    resized = images.resize_image(image, to_width, to_height, "crop")
    assert np.abs(np.asarray(resized) - cut).max() <= 3


def test_padding_is_noise_determined_by_the_seed() -> None:
    pixels = np.full((10, 40, 3), 255, np.uint8)
    padded = images.resize(pixels, 20, 20, "fill", seed=1)
    border = np.concatenate([padded[:7], padded[13:]])
    assert (padded[7:13] == 255).all()
    assert border.max() <= 254
    assert len(np.unique(border)) > 50
    assert np.array_equal(padded, images.resize(pixels, 20, 20, "fill", seed=1))
    assert not np.array_equal(padded, images.resize(pixels, 20, 20, "fill", seed=2))


@pytest.mark.parametrize("mode", images.RESIZE_MODES)
def test_long_thin_images_can_be_resized(mode: str) -> None:
    image = Image.new("L", (1_000_000, 1))
    assert images.resize_image(image, 64, 64, mode).size == (64, 64)


@pytest.mark.parametrize("arguments", [(0, 5, "crop"), (5, 0, "crop"), (5, 5, "stretch")])
def test_impossible_sizes_and_modes_are_refused(arguments: tuple[int, int, str]) -> None:
    with pytest.raises(ValueError, match=r"not a size|not one of"):
        images.resize(gradient(4, 4, 1), *arguments)


@pytest.mark.parametrize("channels", [1, 3])
def test_encodings_preserve_the_pixels(channels: int) -> None:
    pixels = gradient(11, 6, channels)
    assert np.array_equal(images.load(images.encode(pixels, "png"), channels), pixels)
    assert images.encode(pixels, "none") == pixels.tobytes()
    jpeg = images.load(images.encode(pixels, "jpg"), channels)
    assert np.abs(jpeg.astype(int) - pixels).mean() < 8
    with pytest.raises(ValueError, match="not one of"):
        images.encode(pixels, "gif")


@pytest.mark.parametrize("mode", images.RESIZE_MODES)
@pytest.mark.parametrize("size", [(40, 20), (21, 33), (16, 16), (90, 30)])
def test_masks_and_boxes_are_resized_like_their_image(mode: str, size: tuple[int, int]) -> None:
    width, height = size
    left, top, right, bottom = width // 4, height // 4, 3 * width // 4, 3 * height // 4
    pixels = np.zeros((height, width), np.uint8)
    pixels[top:bottom, left:right] = 1
    geometry = images.Geometry(size, 32, 24, mode)
    mask = np.asarray(geometry.resize_mask(Image.fromarray(pixels), 9))
    resized = np.asarray(images.resize_image(Image.fromarray(pixels * 200), 32, 24, mode))
    known = mask != 9
    assert mask.shape == resized.shape
    # Antialiased edges differ.
    assert ((resized > 100) != (mask == 1))[known].mean() < 0.12
    box = geometry.move_boxes(np.array([[left, top, right, bottom]], np.float32))
    rows, columns = np.nonzero(mask == 1)
    edges = np.clip(box[0], 0, [32, 24, 32, 24])
    found = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
    np.testing.assert_allclose(edges, found, atol=1.01)
    np.testing.assert_allclose(
        geometry.restore_boxes(box), [[left, top, right, bottom]], atol=1e-3 * max(size)
    )
    restored = np.asarray(geometry.restore_mask(Image.fromarray(mask), 9))
    kept = restored != 9
    assert restored.shape == (height, width)
    assert (restored == pixels)[kept].mean() > 0.8


@pytest.mark.parametrize("mode", images.RESIZE_MODES)
def test_padded_images_and_their_boxes_are_resized_alike(mode: str) -> None:
    gray = Image.new("L", (30, 20), 200)
    picture = images.open_picture(saved(gray, "PNG"), 1)
    assert picture.pad(30, 10) is picture
    padded = picture.pad(50, 40)
    assert padded.size == (50, 40) and padded.image.getbbox() == (0, 0, 30, 20)
    assert images.pad(gray, 50, 10).size == (50, 20)
    geometry = images.Geometry((30, 20), 25, 25, mode, padded.size)
    same = images.Geometry(padded.size, 25, 25, mode)
    box = np.array([[0, 0, 30, 20]], np.float32)
    np.testing.assert_array_equal(geometry.move_boxes(box), same.move_boxes(box))
    np.testing.assert_allclose(geometry.restore_boxes(geometry.move_boxes(box)), box, atol=1e-4)
    if mode == "squash":
        assert geometry.move_boxes(box).tolist() == [[0, 0, 15, 12.5]]


def test_a_picture_knows_the_size_of_its_file() -> None:
    photo = Image.new("L", (801, 400))
    file = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6  # a quarter turn
    photo.save(file, "JPEG", exif=exif)
    picture = images.open_picture(file.getvalue(), 1, enough=(40, 40))
    assert picture.size == (400, 801)
    assert picture.image.width < 400 and picture.image.height > picture.image.width


def test_transparency_is_kept_in_png_files() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 4, 4), np.uint8)
    with Image.open(io.BytesIO(images.encode(pixels, "png"))) as found:
        assert found.mode == "RGBA" and np.array_equal(np.asarray(found), pixels)


def test_numbers_of_many_blocks_are_scaled_to_pixels():
    numbers = np.linspace(-2, 3, 600 * 500, dtype=np.float32).reshape(600, 500, 1)
    pixels = images.scale_to_pixels(numbers)
    assert pixels.shape == (600, 500, 1) and pixels.dtype == np.uint8
    assert np.array_equal(pixels, ((numbers.astype(np.float64) + 2) * 51).round().astype(np.uint8))
    assert np.array_equal(images.scale_to_pixels(numbers[::-1]), pixels[::-1])


def test_data_uris_contain_files_in_base64() -> None:
    data = bytes(range(256))
    assert images.from_data_uri(images.data_uri(data)) == data
    for uri in ("AAAA", "data:image/png,AAAA", "http://a/b;base64,AAAA", "data:image/png;base64,AA-AA"):
        with pytest.raises(ValueError):
            images.from_data_uri(uri)


GRAY, RGB, CMYK = 1, 2, 5


@pytest.mark.parametrize(
    ("data", "bands"),
    [
        (tiff_of(8, RGB, [0] * 5), "8 bands with 8 bits each"),
        (tiff_of(4, RGB, [0]), "4 bands with 8 bits each"),
        (tiff_of(5, RGB, [0, 0]), "5 bands with 8 bits each"),
        (tiff_of(13, GRAY, [0] * 12, np.uint16), "13 bands with 16 bits each"),
        (tiff_of(2, GRAY, [0]), "2 bands with 8 bits each"),
        (tiff_of(3, GRAY, [0, 0], np.uint16), "3 bands with 16 bits each"),
        (tiff_of(3, RGB, [], np.float32), "3 bands with 32 bits each"),
        (tiff_of(1, GRAY, [], np.float64), "1 band with 64 bits each"),
    ],
)
def test_tiff_files_of_other_bands_are_refused_with_their_number(
    tmp_path: Path, data: bytes, bands: str
) -> None:
    (tmp_path / "a.tif").write_bytes(data)
    for read in (lambda: images.load(data, 3), lambda: images.upright_size_and_turn(tmp_path / "a.tif")):
        with pytest.raises(UnusableImage) as caught:
            read()
        assert caught.value.reason == f"a TIFF file of {bands}"


@pytest.mark.parametrize(
    "data",
    [
        tiff_of(1, GRAY, []),
        tiff_of(2, GRAY, [2]),
        tiff_of(3, RGB, []),
        tiff_of(4, RGB, [2]),
        tiff_of(4, RGB, [1]),
        tiff_of(4, CMYK, []),
    ],
)
def test_tiff_files_of_gray_colors_and_opacity_are_read(data: bytes) -> None:
    assert images.load(data, 3).shape == (2, 4, 3)
