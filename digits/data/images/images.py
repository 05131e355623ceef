"""Convert images of any file type to pixels of a given size: uint8 [height, width, channels].

Files are untrusted. Only the formats of `FORMATS` are tried, the size is checked before anything is decoded, and
any error of a decoder becomes `UnusableImage` with a reason for users. The first frame of an animation is used.
`digits.data.images.conversion` describes the conversion to 8-bit grayscale or RGB.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import importlib
import io
import os
import stat
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
from msgspec import Struct, structs
from numpy.typing import NDArray
from PIL import Image, TiffImagePlugin, UnidentifiedImageError

from digits.core.machine.environment import max_image_pixels
from digits.data.images import jpeg, png
from digits.data.images.conversion import FULL_BITS as FULL_BITS
from digits.data.images.conversion import (
    ORIENTATION,
    WIDE_GRAY,
    bits_of,
    has_exif,
    high_bits,
    is_turned,
    opaque,
    scale_part,
    surround_with_noise,
    upright,
)
from digits.data.images.conversion import RESIZE_MODES as RESIZE_MODES
from digits.data.images.conversion import Geometry as Geometry
from digits.data.images.conversion import Pixels as Pixels
from digits.data.images.conversion import Size as Size
from digits.data.images.conversion import UnusableImage as UnusableImage
from digits.data.images.conversion import as_image as as_image
from digits.data.images.conversion import as_pixels as as_pixels
from digits.data.images.conversion import pad as pad
from digits.data.images.conversion import padded_size as padded_size
from digits.data.images.conversion import resize as resize
from digits.data.images.conversion import resize_image as resize_image
from digits.data.images.conversion import scaled_size as scaled_size
from digits.data.images.endings import EXTENSIONS as EXTENSIONS
from digits.data.images.endings import HEIF_REMEDY, READS_AVIF, READS_HEIF
from digits.data.images.limits import check_exif, check_structure
from digits.data.images.limits import open_limited as open_limited

FORMATS = ("PNG", "JPEG", "BMP", "PPM", "GIF", "WEBP", "TIFF", *(["AVIF"] if READS_AVIF else []))
GRAYSCALE = frozenset(("1", "L", "LA", "La", "I", "I;16", "I;16B", "I;16L", "I;16N"))
ENCODINGS = ("png", "jpg", "none")
MAX_PIXELS = max_image_pixels()
MAX_FILE_BYTES = 512_000_000
JPEG_QUALITY = 90
THUMBNAIL_QUALITY = 80
SCALED_DECODING_MARGIN = 2

Source = str | bytes | os.PathLike[str] | BinaryIO

_QUARTER_TURNS = (5, 6, 7, 8)
_HEADER_BYTES = 256 << 10
# Decoding a progressive JPEG file at a reduced size takes memory for all of its coefficients.
_PROGRESSIVE_FACTOR = 4
_BITS_PER_SAMPLE = 258
_TIFF_BEGINNINGS = (b"II*\x00", b"MM\x00*", b"II+\x00", b"MM\x00+")
# The number of colors by photometric interpretation, if it is not one.
_TIFF_COLORS = {2: 3, 5: 4, 6: 3, 8: 3, 9: 3}


class Picture(Struct, frozen=True, dict=True):
    """A decoded image in mode L or RGB, and the file it was read from.

    ``plain``: the file contains exactly these pixels in this mode with 8 bits each, upright and opaque, so that it
    can be stored instead of them. ``size`` is the width and height of the upright image in the file, and ``mode`` its
    Pillow mode; the ``decoded`` image may be smaller, see `open_picture`. ``bits`` are those that its values use if
    they have 16 bits, else 0.
    """

    decoded: Image.Image | Pixels
    data: bytes
    format: str
    plain: bool
    size: tuple[int, int]
    mode: str
    bits: int = 0

    @functools.cached_property
    def image(self) -> Image.Image:
        return self.decoded if isinstance(self.decoded, Image.Image) else as_image(self.decoded)

    @property
    def pixels(self) -> Pixels:
        return as_pixels(self.decoded) if isinstance(self.decoded, Image.Image) else self.decoded

    @property
    def is_reduced(self) -> bool:
        """Whether the image was decoded at a reduced size."""
        decoded = self.decoded
        return (decoded.size if isinstance(decoded, Image.Image) else decoded.shape[1::-1]) != self.size

    def pad(self, width: int, height: int) -> Picture:
        """Add black pixels on the right and at the bottom up to this size; see `pad`."""
        size = padded_size(self.size, (width, height))
        if size == self.size:
            return self
        image = self.image
        across, down = image.width / self.size[0], image.height / self.size[1]
        padded = pad(image, round(size[0] * across), round(size[1] * down))
        return structs.replace(self, decoded=padded, plain=False, size=size)

    def resize(self, width: int, height: int, mode: str, *, seed: int = 0) -> Pixels:
        """Resize the image as the function `resize` does. For JPEG files, the values may differ by 1, rarely 2."""
        if self.size == (width, height):
            return self.pixels
        geometry = Geometry(self.size, width, height, mode)
        scaled = self.scale(geometry)
        return scaled if geometry.inner == (width, height) else surround_with_noise(scaled, geometry, seed)

    def scale(self, geometry: Geometry) -> Pixels:
        """Scale the part ``geometry.cut`` of the image in the file to ``geometry.inner``."""
        if self.format != "JPEG":
            return as_pixels(scale_part(self.image, geometry))
        pixels = self.pixels
        height, width, _ = pixels.shape
        return jpeg.scale(pixels, geometry.cut_of((width, height)), geometry.inner)


def load(
    source: Source, channels: int, *, max_pixels: int = MAX_PIXELS, bits: int | None = FULL_BITS
) -> Pixels:
    """Load the pixels of an image file, uint8 [height, width, channels] with 1 or 3 channels.

    ``source`` is a path, a binary file or a file's bytes. Raises UnusableImage for unusable images and OSError for
    unreadable files.
    """
    return as_pixels(open_picture(source, channels, max_pixels=max_pixels, bits=bits).image)


def open_picture(
    source: Source,
    channels: int,
    *,
    max_pixels: int = MAX_PIXELS,
    enough: tuple[int, int] | None = None,
    bits: int | None = FULL_BITS,
) -> Picture:
    """Decode an image file to mode L (1 channel) or RGB (3). Raises the same errors as `load`.

    With ``enough`` = (width, height), a JPEG larger than four times that may be decoded at a half, quarter or
    eighth of its size, which is several times faster. One with more than ``max_pixels`` always is.

    ``bits`` are those of 16-bit values that become 8 bits; None means the ones that the image uses.
    """
    if channels not in _MODES:
        raise ValueError(f"an image has 1 or 3 channels, not {channels}")
    data = read_source(source)
    if not data:
        raise UnusableImage("the file is empty")
    check_structure(data)
    if picture := _open_simple(data, channels, max_pixels, enough):
        return picture
    with _explained(data, max_pixels):
        return _decode(data, channels, max_pixels, enough, bits)


def open_unconverted(source: Source, *, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """Decode an image file upright in its own mode, such as P with a palette. Raises the same errors as `load`."""
    data = read_source(source)
    if not data:
        raise UnusableImage("the file is empty")
    with _explained(data, max_pixels), _open(data) as image:
        _check_size(image.size, max_pixels)
        image.load()
        check_exif(image)
        return upright(image)


def header(data: bytes) -> tuple[str, tuple[int, int]]:
    """Return the format, such as ``JPEG``, and the width and height in the header. Raises UnusableImage."""
    with _explained(data, MAX_PIXELS), _open(data) as image:
        return _format_of(image), image.size


def is_gray(data: bytes, *, max_pixels: int = MAX_PIXELS) -> bool:
    """Return whether an image file has no colors, even if it is stored in color. Raises UnusableImage."""
    with _explained(data, max_pixels), _open(data) as image:
        if image.mode in GRAYSCALE:
            return True
    pixels = open_picture(data, 3, enough=(64, 64), max_pixels=max_pixels, bits=None).pixels
    return bool((pixels == pixels[..., :1]).all())


def upright_size_and_turn(source: Path | bytes) -> tuple[Size, int]:
    """Return the width and height of an image as it is displayed, and its EXIF orientation, from 1 to 8.

    Of a file, only the first bytes are read if they contain the size. Raises UnusableImage and OSError.
    """
    if isinstance(source, Path):
        if not source.is_file():
            raise UnusableImage("not a regular file")
        with open(source, "rb") as file:
            data = file.read(_HEADER_BYTES)
        try:
            return upright_size_and_turn(data)
        except UnusableImage:
            if len(data) < _HEADER_BYTES:
                raise
        source = read_source(source)  # such as TIFF files whose header is at the end
    with _explained(source, MAX_PIXELS), _open(source) as image:
        width, height = image.size
        check_exif(image)
        turn = image.getexif().get(ORIENTATION, 1) if has_exif(image) else 1
        if turn not in range(1, 9):
            turn = 1
        return ((height, width) if turn in _QUARTER_TURNS else (width, height)), turn


@contextlib.contextmanager
def _explained(data: bytes, max_pixels: int) -> Iterator[None]:
    """Convert all decoder errors to UnusableImage."""
    with warnings.catch_warnings():
        # Pillow warns about unusual metadata, which is not used.
        warnings.simplefilter("ignore")
        try:
            yield
        except UnusableImage:
            raise
        except UnidentifiedImageError as error:
            raise UnusableImage(_bands_of(data)[0] or f"not an image ({_resemblance(data)})") from error
        except Image.DecompressionBombError as error:
            raise UnusableImage(f"more pixels than the limit of {max_pixels:,}") from error
        except MemoryError as error:
            raise UnusableImage("decoding needs more memory than is available") from error
        except Exception as error:  # decoders raise anything for damaged files
            raise UnusableImage(_damage(error)) from error


def read_source(source: Source) -> bytes:
    """Return all bytes of a source of at most `MAX_FILE_BYTES`; never blocks on a FIFO or a device."""
    if isinstance(source, bytes):
        return source
    if not isinstance(source, (str, os.PathLike)):
        return _at_most(source.read(MAX_FILE_BYTES + 1))
    descriptor = os.open(source, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise UnusableImage("not a regular file")
        if status.st_size > MAX_FILE_BYTES:
            raise UnusableImage(_TOO_LARGE)
        data = os.read(descriptor, status.st_size + 1)
        if len(data) == status.st_size:
            return data
        while len(data) <= MAX_FILE_BYTES and (more := os.read(descriptor, 1 << 20)):
            data += more
        return _at_most(data)
    finally:
        os.close(descriptor)


def encode(pixels: Pixels, encoding: str) -> bytes:
    """Encode ``pixels`` as a ``png`` or ``jpg`` file (quality 90), or as raw bytes for ``none``."""
    if encoding == "none":
        return pixels.tobytes()
    if encoding == "png":
        return png.write(pixels)
    if encoding == "jpg":
        return jpeg.write(pixels, JPEG_QUALITY)
    raise ValueError(f"{encoding!r} is not one of {', '.join(ENCODINGS)}")


def encode_image(image: Image.Image, encoding: str) -> bytes:
    """Encode a Pillow image of mode L or RGB, or RGBA as PNG; see `encode`."""
    return encode(as_pixels(image), encoding)


def thumbnail(image: Image.Image, side: int) -> bytes:
    """Return ``image``, of mode L or RGB, as a JPEG file whose sides are at most ``side`` pixels."""
    # A JPEG file that has not been loaded is decoded at a fraction of its size.
    image.thumbnail((side, side), Image.Resampling.BILINEAR)
    return jpeg.write(as_pixels(image), THUMBNAIL_QUALITY)


def reason_of(error: UnusableImage | OSError) -> str:
    """Return why an image file cannot be used, for users."""
    return error.reason if isinstance(error, UnusableImage) else error.strerror or str(error)


def arrange(
    tiles: NDArray[np.uint8], columns: int, gap: int = 0, rows: int | None = None, background: int = 255
) -> NDArray[np.uint8]:
    """Arrange images [N, H, W, C] row by row, by default in as many ``rows`` as they need, with gaps between them."""
    count, height, width, channels = tiles.shape
    rows = rows or -(-count // columns)
    down, across = height + gap, width + gap
    cells = np.full((rows * columns, down, across, channels), background, np.uint8)
    cells[:count, :height, :width] = tiles
    sheet = cells.reshape(rows, columns, down, across, channels).swapaxes(1, 2)
    return sheet.reshape(rows * down, columns * across, channels)[
        : rows * down - gap, : columns * across - gap
    ]


def side_by_side(pixels: Pixels) -> Pixels:
    """Move images that are stacked along the channels, [..., width, channels], beside each other."""
    channels = pixels.shape[-1]
    return np.concatenate(np.split(pixels, channels // (1 if channels % 3 else 3), axis=-1), axis=-2)


def scale_to_pixels(values: NDArray[np.float32]) -> Pixels:
    """Show numbers [..., height, width, channels] as pixels: the smallest becomes black, and the largest white."""
    low, high = float(values.min()), float(values.max())
    factor = 255 / ((high - low) or 1)
    pixels = np.empty(values.shape, np.uint8)
    source, target = values.reshape(-1), pixels.reshape(-1)
    # In blocks, because float64 takes eight times the memory of the pixels.
    for start in range(0, source.size, _SCALED_AT_ONCE):
        block = slice(start, start + _SCALED_AT_ONCE)
        scaled = (source[block].astype(np.float64) - low) * factor
        target[block] = np.nan_to_num(scaled.round(), posinf=255).clip(0, 255)
    return pixels


def data_uri(file: bytes, media_type: str = "image/png") -> str:
    """Return the contents of an image file as a data URI."""
    return f"data:{media_type};base64,{base64.b64encode(file).decode()}"


def from_data_uri(uri: str) -> bytes:
    """Return the contents of a data URI in Base64; raises ValueError."""
    head, separator, data = uri.partition(";base64,")
    if not separator or not head.startswith("data:"):
        raise ValueError("not a data URI in Base64")
    return base64.b64decode(data, validate=True)


_MODES = {1: "L", 3: "RGB"}
_SCALED_AT_ONCE = 1 << 18
_TOO_LARGE = f"the file is larger than {MAX_FILE_BYTES // 10**6} MB"


def _decode(
    data: bytes, channels: int, max_pixels: int, enough: tuple[int, int] | None, bits: int | None
) -> Picture:
    mode = _MODES[channels]
    with _open(data) as image:
        width, height = image.size
        file_mode, format_name = image.mode, _format_of(image)
        check_exif(image)
        if format_name == "JPEG":
            is_ordinary, is_progressive = file_mode in ("L", "RGB"), "progressive" in image.info
            factor = _reduction_below(max_pixels, image.size, enough if is_ordinary else None, is_progressive)
            if (
                file_mode == mode
                and not is_turned(image)
                and (simple := _decode_jpeg(data, image.size, mode, factor))
            ):
                return simple
            if factor > 1:
                image.draft(mode if is_ordinary else None, (width // factor, height // factor))
        else:
            _check_size(image.size, max_pixels)
        own_mode = image.mode
        image.load()
        check_exif(image)  # it may be at the end
        used_bits = _stretch_color(image, data, bits)
        turned = upright(image)
        changed = turned is not image or own_mode != mode or "transparency" in image.info
        if turned.mode in WIDE_GRAY:
            used_bits = bits_of(np.asarray(turned))
        result = opaque(turned, bits)
        if result.mode != mode:
            result = result.convert(mode)
        # Only a rotation by 90° exchanges the sides.
        is_on_side = (turned.width > turned.height) != (image.width > image.height)
        size = (height, width) if is_on_side else (width, height)
        is_whole = format_name == "JPEG" and image.size == (width, height) and not changed
        plain = is_whole and _is_plain_jpeg(data, size, channels)
        return Picture(result, data, format_name, plain, size, file_mode, used_bits)


def _stretch_color(image: Image.Image, data: bytes, bits: int | None) -> int:
    """Replace the pixels of a file with 16-bit colors, of which Pillow keeps the upper byte, by those of ``bits``.

    Returns the number of bits that the colors use, or 0 for other files.
    """
    if image.format == "TIFF":
        samples = image.tag_v2.get(_BITS_PER_SAMPLE, ())  # type: ignore[attr-defined]
        is_wide = len(samples) > 1 and max(samples) == FULL_BITS
        if is_wide and np.asarray(image).max() < 16:
            raise UnusableImage("a TIFF file with 16-bit colors that use at most 12 bits: convert it to PNG")
    elif (values := png.decode_wide_color(data)) is not None and "transparency" not in image.info:
        colors = values[..., :3]
        used = bits_of(colors)
        if bits != FULL_BITS:
            pixels = high_bits(values, FULL_BITS)
            pixels[..., :3] = high_bits(colors, used if bits is None else bits)
            image.paste(Image.fromarray(pixels).convert(image.mode))
        return used
    return 0


def _open_simple(
    data: bytes, channels: int, max_pixels: int, enough: tuple[int, int] | None
) -> Picture | None:
    """Decode an ordinary PNG or JPEG file without the overhead of Pillow's readers.

    Return None if it is unusual or damaged: Pillow then reads it or reports the error.
    """
    try:
        if data.startswith(png.SIGNATURE):
            return _open_simple_png(data, channels, max_pixels)
        return _open_simple_jpeg(data, channels, max_pixels, enough)
    except MemoryError:
        return None


def _open_simple_png(data: bytes, channels: int, max_pixels: int) -> Picture | None:
    pixels = png.decode_simple(data, max_pixels)
    if pixels is None:
        return None
    height, width, own_channels = pixels.shape
    mode = _MODES[own_channels]
    if own_channels != channels:
        converted = as_pixels(as_image(pixels).convert(_MODES[channels]))
        return Picture(converted, data, "PNG", False, (width, height), mode)
    plain = not _is_bloated(data, (width, height), channels)
    return Picture(pixels, data, "PNG", plain, (width, height), mode)


def _open_simple_jpeg(
    data: bytes, channels: int, max_pixels: int, enough: tuple[int, int] | None
) -> Picture | None:
    header = jpeg.read_header(data)
    if header is None or header.mode != _MODES[channels] or header.width * header.height > max_pixels:
        return None
    size = header.width, header.height
    return _decode_jpeg(data, size, header.mode, _reduction(size, enough))


def _decode_jpeg(data: bytes, size: tuple[int, int], mode: str, factor: int) -> Picture | None:
    """Decode an upright JPEG file of this size and mode; return None if it is unusual or damaged."""
    pixels = jpeg.decode(data, mode, size, factor)
    if pixels is None:
        return None
    plain = factor == 1 and _is_plain_jpeg(data, size, pixels.shape[2])
    return Picture(pixels, data, "JPEG", plain, size, mode)


def _open(data: bytes) -> Image.Image:
    # Pillow's own limit rejects large images without naming their size; the caller applies a lower limit before
    # anything is decoded.
    check_structure(data)
    bands, are_colors = _bands_of(data)
    if not are_colors:
        raise UnusableImage(bands)
    limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
    try:
        return open_limited(data, [*FORMATS, *_heif(data)])
    finally:
        Image.MAX_IMAGE_PIXELS = limit


def _bands_of(data: bytes) -> tuple[str, bool]:
    """Return the bands of a TIFF file in words, and whether they are gray or colors, and opacity; none for others."""
    if not data.startswith(_TIFF_BEGINNINGS):
        return "", True
    file = io.BytesIO(data)
    try:
        tags = TiffImagePlugin.ImageFileDirectory_v2(file.read(16 if b"+" in data[:4] else 8))
        file.seek(tags.next)
        tags.load(file)
        bands, kind = (
            tags.get(TiffImagePlugin.SAMPLESPERPIXEL, 1),
            tags[TiffImagePlugin.PHOTOMETRIC_INTERPRETATION],
        )
        bits = max(tags.get(TiffImagePlugin.BITSPERSAMPLE, (1,)))
        extra = np.ravel(tags.get(TiffImagePlugin.EXTRASAMPLES, ())).tolist()
    except Exception:  # as for decoders
        return "", True
    colors = _TIFF_COLORS.get(kind, 1)
    has_opacity = bands == colors + 1 and extra in ([1], [2])
    count = "1 band" if bands == 1 else f"{bands} bands"
    return f"a TIFF file of {count} with {bits} bits each", bands == colors or has_opacity


def _format_of(image: Image.Image) -> str:
    """Return the format of an image; a file of several JPEG images is the first of them."""
    return "JPEG" if image.format == "MPO" else str(image.format)


def _heif(data: bytes) -> list[str]:
    """Return the further format for a file that looks like HEIF, if the package that decodes it is installed."""
    if not READS_HEIF or data[4:8] != b"ftyp":
        return []
    importlib.import_module("pillow_heif").register_heif_opener()
    return ["HEIF"]


def _check_size(size: tuple[int, int], max_pixels: int) -> None:
    width, height = size
    if width * height > max_pixels:
        hint = "; the setting max_image_pixels raises it" if max_pixels == MAX_PIXELS else ""
        raise UnusableImage(f"{width}×{height} pixels is more than the limit of {max_pixels:,} pixels{hint}")


def _reduction_below(
    max_pixels: int, size: tuple[int, int], enough: tuple[int, int] | None, is_progressive: bool
) -> int:
    """Return the divisor for decoding a JPEG image with at most ``max_pixels``; raises UnusableImage."""
    width, height = size
    if is_progressive and width * height > max_pixels * _PROGRESSIVE_FACTOR:
        _check_size(size, max_pixels)
    factor = _reduction(size, enough)
    while -(-width // factor) * -(-height // factor) > max_pixels:
        if factor == 8:
            _check_size(size, max_pixels)
        factor *= 2
    return factor


def _reduction(size: tuple[int, int], enough: tuple[int, int] | None) -> int:
    """Return the divisor of a JPEG image's sides for decoding at a reduced size: 1, 2, 4 or 8."""
    if enough is None:
        return 1
    # At least twice the target size in each direction makes the result nearly indistinguishable from that of a full
    # decode. The image may be rotated later.
    most = min(size) // (SCALED_DECODING_MARGIN * max(enough))
    return next((factor for factor in (8, 4, 2) if factor <= most), 1)


def _is_plain_jpeg(data: bytes, size: tuple[int, int], channels: int) -> bool:
    return data.endswith(b"\xff\xd9") and not _is_bloated(data, size, channels)


def _is_bloated(data: bytes, size: tuple[int, int], channels: int) -> bool:
    """Return whether a file is larger than its raw pixels, so that storing it would not save space."""
    return len(data) > size[0] * size[1] * channels + 4096


def _at_most(data: bytes) -> bytes:
    if len(data) > MAX_FILE_BYTES:
        raise UnusableImage(_TOO_LARGE)
    return data


_HEIF_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")
_BEGINNINGS = (
    (b"%PDF", "a PDF document"),
    (b"%!PS", "PostScript"),
    (b"8BPS", "a Photoshop document"),
    (b"SIMPLE  =", "a FITS file"),
    (b"PK\x03\x04", "a zip archive"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"<?xml", "XML or SVG"),
    (b"<svg", "SVG"),
    (b"<!DOCTYPE", "a web page"),
    (b"<html", "a web page"),
    (b"\x89PNG", "a damaged PNG"),
    (b"\xff\xd8", "a damaged JPEG"),
    (b"GIF8", "a damaged GIF"),
    (b"BM", "a damaged BMP"),
    (b"RIFF", "a damaged WEBP"),
    (b"II*\x00", "a damaged TIFF"),
    (b"MM\x00*", "a damaged TIFF"),
)


def _resemblance(data: bytes) -> str:
    head = data[:512].lstrip()
    for beginning, name in _BEGINNINGS:
        if head.startswith(beginning):
            return f"it looks like {name}"
    if data[4:8] == b"ftyp":
        brand = data[8:12]
        if brand in (b"avif", b"avis"):
            return "it looks like a damaged AVIF" if READS_AVIF else "it looks like AVIF: export it as JPEG"
        if brand in _HEIF_BRANDS:
            remedy = HEIF_REMEDY.replace("them", "it")
            return "it looks like a damaged HEIC" if READS_HEIF else f"it looks like HEIC: {remedy}"
        return "it looks like a video"
    if not any(data[:512]):
        return "it contains only zeros"
    try:
        data[:512].decode("utf-8")
    except UnicodeDecodeError:
        return "its type is unknown"
    return "it looks like text"


def _damage(error: Exception) -> str:
    text = str(error)
    if "truncated" in text or "Truncated" in text or isinstance(error, EOFError):
        return "truncated: the file ends too early"
    return f"damaged: {text or type(error).__name__}"
