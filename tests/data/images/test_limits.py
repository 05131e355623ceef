"""Small files that would take much work are refused with the reason, whichever function reads them."""

from __future__ import annotations

import io
import struct
import tracemalloc
import zlib
from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image

from digits.data.images import images
from digits.data.images import limits as image_limits
from digits.data.images.images import UnusableImage
from digits.data.images.limits import MAX_PARTS, MAX_SCANS, LimitedFile
from digits.data.records.records import DamagedRecords, Record

ORIENTATION = 274


def segment(marker: int, data: bytes) -> bytes:
    return bytes([0xFF, marker]) + struct.pack(">H", len(data) + 2) + data


def progressive(scans: int, side: int = 16, before: bytes = b"", after: bytes = b"") -> bytes:
    """A gray JPEG file with ``scans``, of which all but the first refine nothing."""
    blocks = (side // 8) ** 2
    frame = struct.pack(">BHHB", 8, side, side, 1) + bytes([1, 0x11, 0])
    tables = segment(0xDB, b"\0" + bytes([16] * 64)) + segment(0xC2, frame)
    tables += segment(0xC4, b"\x00" + bytes([1] + [0] * 15) + b"\x00")
    tables += segment(0xC4, b"\x10" + bytes([1] + [0] * 15) + b"\x00")
    empty = bytes(-(-blocks // 8))
    first = segment(0xDA, bytes([1, 1, 0, 0, 0, 0])) + empty
    later = segment(0xDA, bytes([1, 1, 0, 1, 63, 0])) + empty
    return b"\xff\xd8" + before + tables + first + later * (scans - 1) + b"\xff\xd9" + after


def chunk(kind: bytes, data: bytes = b"") -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(*chunks: bytes, at_end: bool = False) -> bytes:
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 2, 2, 8, 0, 0, 0, 0))
    pixels = chunk(b"IDAT", zlib.compress(b"\0\1\2\0\3\4"))
    parts = (pixels, *chunks) if at_end else (*chunks, pixels)
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(parts) + chunk(b"IEND")


def directory(entries: list[tuple[int, int, int, int]], size: int = 0) -> bytes:
    """A TIFF file, or EXIF data, of one directory with the tag, type, count and value of each entry."""
    body = b"".join(struct.pack("<HHII", *entry) for entry in entries)
    data = b"II*\0" + struct.pack("<IH", 8, len(entries)) + body + bytes(4)
    return data + bytes(max(0, size - len(data)))


def tiff(strips: int) -> bytes:
    entries = [(256, 4, 1, 1), (257, 4, 1, strips), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 1)]
    entries += [(273, 4, strips, 200), (278, 3, 1, 1), (279, 4, strips, 200)]
    return directory(entries, 8 * strips + 1000)


# Each entry has all of the data as its value.
OVERLAPPING = directory([(number, 1, 90_000, 0) for number in range(1000, 6000)], 100_000)
GIF = b"GIF89a" + struct.pack("<HHBBB", 2, 2, 0xF0, 0, 0) + bytes(6)

BOMBS: dict[str, tuple[str, Callable[[], bytes]]] = {
    "scans": (f"more than {MAX_SCANS} scans", lambda: progressive(MAX_SCANS + 1)),
    "segments": ("segments", lambda: progressive(2, before=segment(0xE0, b"JFIF\0") * MAX_PARTS)),
    "segments between scans": (
        "segments",
        lambda: progressive(1).removesuffix(b"\xff\xd9")
        + segment(0xFE, b"\xff\xda" * MAX_SCANS)
        + segment(0xFE, b"") * MAX_PARTS,
    ),
    "chunks": ("chunks", lambda: png(chunk(b"tEXt", b"a\0b") * MAX_PARTS)),
    "chunks at the end": ("chunks", lambda: png(chunk(b"tEXt", b"a\0b") * MAX_PARTS, at_end=True)),
    "EXIF in PNG": ("metadata is larger than the file", lambda: png(chunk(b"eXIf", OVERLAPPING))),
    "EXIF at the end of PNG": (
        "metadata is larger than the file",
        lambda: png(chunk(b"eXIf", OVERLAPPING), at_end=True),
    ),
    "EXIF as text": (
        "metadata is larger than the file",
        lambda: png(chunk(b"zTXt", b"Raw profile type exif\0\0" + zlib.compress(
            b"\nexif\n    100006\n" + OVERLAPPING.hex().encode()
        ))),
    ),
    "EXIF in JPEG": (
        "metadata is larger than the file",
        lambda: progressive(2, before=segment(0xE1, b"Exif\0\0" + OVERLAPPING[:65_000])),
    ),
    "TIFF": ("metadata is larger than the file", lambda: OVERLAPPING),
    "strips": ("strips or tiles", lambda: tiff(MAX_PARTS + 1)),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("reason", "make"), BOMBS.values(), ids=BOMBS)
def test_a_file_of_much_work_is_refused(reason: str, make: Callable[[], bytes]) -> None:
    data = make()
    tracemalloc.start()
    try:
        for read in (lambda: images.open_picture(data, 1), lambda: images.open_unconverted(data)):
            with pytest.raises(UnusableImage, match=reason):
                read()
        assert tracemalloc.get_traced_memory()[1] < 20 * len(data) + 10_000_000
    finally:
        tracemalloc.stop()


def test_a_stored_image_of_much_work_is_refused() -> None:
    record = Record(progressive(MAX_SCANS + 1), "jpg", 16, 16, 1, {})
    for read in (record.as_array, lambda: record.as_thumbnail(8)):
        with pytest.raises(DamagedRecords, match="scans"):
            read()


@pytest.mark.parametrize(
    "data",
    [
        progressive(MAX_SCANS),
        # Of a preview in the metadata, of a second image, and in a comment.
        progressive(10, before=segment(0xE2, progressive(MAX_SCANS)[:60_000])),
        progressive(10, after=progressive(MAX_SCANS + 1)),
        progressive(10, before=segment(0xFE, b"\xff\xda" * 1000)),
        png() + bytes(12 * (MAX_PARTS + 1)),  # after the end of the image
        progressive(10, before=segment(0xFE, b"text") * 1000),
        png(chunk(b"tEXt", b"a\0b") * 1000),
        tiff(1000),
    ],
    ids=["scans", "preview", "second image", "comment", "trailing bytes", "segments", "chunks", "strips"],
)
def test_unusual_files_are_decoded(data: bytes) -> None:
    assert images.open_picture(data, 1).pixels.ndim == 3


@pytest.mark.parametrize("turn", range(1, 10))
def test_an_orientation_is_applied_whatever_else_the_metadata_contains(turn: int) -> None:
    exif = directory([(ORIENTATION, 3, 1, turn), (34665, 4, 1, 0), (40000, 7, 4, 0)])
    pixels = images.open_picture(png(chunk(b"eXIf", exif)), 1).pixels[..., 0]
    stored = np.array([[1, 2], [3, 4]], np.uint8)
    turned = {
        2: stored[:, ::-1], 3: stored[::-1, ::-1], 4: stored[::-1], 5: stored.T,
        6: stored[::-1].T, 7: stored[::-1, ::-1].T, 8: stored[:, ::-1].T,
    }  # fmt: skip
    assert pixels.tolist() == turned.get(turn, stored).tolist()


def test_a_decoder_that_reads_for_too_long_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    file = LimitedFile(b"x" * 1000)
    spent = 0.0
    monkeypatch.setattr(image_limits.time, "thread_time", lambda: spent)
    file = LimitedFile(b"x" * 1000)
    assert file.read(10) == b"x" * 10
    spent = image_limits.OPENING_SECONDS + 0.1
    with pytest.raises(UnusableImage, match="takes more than 1 s"):
        file.read(10)
    file.allow_decoding()
    assert file.read(10) == b"x" * 10
    opened = [image_limits.open_limited(png(), ["PNG"]) for _ in range(2)]
    spent += image_limits.OPENING_SECONDS + 0.1
    opened[0].load()
    spent += image_limits.SECONDS + 0.1
    for read in (lambda: file.read(10), opened[1].load):
        with pytest.raises(UnusableImage, match="takes more than"):
            read()


def test_a_comment_of_millions_of_blocks_ends_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    # Pillow would copy the whole comment for each block.
    monkeypatch.setattr(image_limits, "OPENING_SECONDS", 0.005)
    data = GIF + b"\x21\xfe" + (b"\xff" + bytes([1]) * 255) * 40_000 + b"\0"
    with pytest.raises(UnusableImage, match="takes more than"):
        images.open_picture(data, 1)


def test_usual_files_of_every_format_are_read_within_the_limits() -> None:
    picture = Image.effect_noise((90, 60), 80)
    for format_ in ("PNG", "JPEG", "BMP", "PPM", "GIF", "WEBP", "TIFF"):
        file = io.BytesIO()
        picture.save(file, format_)
        assert images.open_picture(file.getvalue(), 1).size == (90, 60)
