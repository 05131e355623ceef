"""TFRecord files of other programs: reading, damage, compression, and access by record."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from digits.data.images.images import UnusableImage
from digits.data.records import tfrecords
from digits.data.records.features import ImageFeature
from digits.data.records.tfrecords import DamagedFile, TFRecordImages
from tests.tfrecord_files import colored, example, frame, picture, write_records


def read(path: Path) -> list[tuple[int, int]]:
    return [
        (item.number, features["label"].int64_list.value[0]) for item, features in tfrecords.examples(path)
    ]


def labels(count: int) -> list[bytes]:
    return [example(label=number * 3) for number in range(count)]


@pytest.mark.parametrize("compression", ["", "gzip", "zlib"])
def test_records_are_read_in_order_whatever_the_compression(tmp_path: Path, compression: str) -> None:
    path = write_records(tmp_path / "a.tfrecord", labels(500), compression)
    assert read(path) == [(number, number * 3) for number in range(500)]
    assert tfrecords.is_compressed(path) == bool(compression)


def test_files_are_read_as_tensorflow_writes_them(tmp_path: Path, in_child: Any) -> None:
    for compression in ("", "GZIP", "ZLIB"):
        path = tmp_path / f"a{compression}.tfrecord"
        in_child(_write_with_tensorflow, path, compression)
        assert read(path) == [(number, number * 3) for number in range(300)]


def _write_with_tensorflow(path: Path, compression: str) -> None:
    import tensorflow as tf

    with tf.io.TFRecordWriter(str(path), tf.io.TFRecordOptions(compression_type=compression)) as writer:
        for payload in labels(300):
            writer.write(payload)


def test_concatenated_gzip_files_are_one_file(tmp_path: Path) -> None:
    first, second = (write_records(tmp_path / name, labels(3), "gzip").read_bytes() for name in "ab")
    path = tmp_path / "both"
    path.write_bytes(first + second)
    assert [number for number, _ in read(path)] == list(range(6))


def test_a_length_that_looks_like_a_gzip_header_is_plain(tmp_path: Path) -> None:
    payload = example(label=1, text=b"x" * (0x8B1F - 60))
    payload = example(label=1, text=b"x" * (0x8B1F - 60 + 0x8B1F - len(payload)))
    assert len(payload) == 0x8B1F
    assert read(write_records(tmp_path / "a", [payload])) == [(0, 1)]


def test_an_empty_file_has_no_records(tmp_path: Path) -> None:
    path = write_records(tmp_path / "a.tfrecord", [])
    assert read(path) == [] and tfrecords.first_example(path) is None


@pytest.mark.parametrize("compression", ["", "gzip", "zlib"])
def test_every_truncation_is_reported_with_its_record(tmp_path: Path, compression: str) -> None:
    path = write_records(tmp_path / "a.tfrecord", labels(3), compression)
    data = path.read_bytes()
    whole = {len(frame(labels(1)[0])) * count for count in (0, 1, 2)} if not compression else {0}
    for size in range(len(data)):
        path.write_bytes(data[:size])
        if size in whole:
            assert len(read(path)) < 3
            continue
        with pytest.raises(DamagedFile, match=r"a\.tfrecord(, record [0-3]: | is not a TFRecord)"):
            read(path)


@pytest.mark.parametrize("compression", ["", "gzip"])
def test_every_changed_byte_is_found(tmp_path: Path, compression: str) -> None:
    path = write_records(tmp_path / "a.tfrecord", labels(2), compression)
    data = path.read_bytes()
    # The header of GZIP contains a time and an operating system.
    for place in range(0 if not compression else 10, len(data)):
        path.write_bytes(data[:place] + bytes([data[place] ^ 0x21]) + data[place + 1 :])
        with pytest.raises(DamagedFile, match=r"a\.tfrecord"):
            read(path)


ONE = frame(labels(1)[0])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (ONE + ONE[:-3] + b"abc" + ONE, ", record 1: the contents do not match their checksum"),
        (ONE + ONE + b"x" * 12, ", record 2: the length does not match its checksum"),
        (ONE + ONE[:-1], ", record 1: truncated"),
        (b"image,label\na.png,1\n", " is not a TFRecord file"),
        *((frame(payload), ", record 0: not a tf.train.Example") for payload in (b"\xff\xff\xff", b"")),
        (frame(b"hello world, this is no message"), ", record 0: not a tf.train.Example"),
        ("pipe", " is not a regular file"),
        (None, " cannot be read: No such file"),
    ],
)
def test_the_message_names_the_file_and_the_record(tmp_path: Path, content: Any, message: str) -> None:
    path = tmp_path / "a.tfrecord"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content:
        os.mkfifo(path)
    with pytest.raises(DamagedFile, match=rf"a\.tfrecord{message}"):
        read(path)


def test_a_huge_length_allocates_nothing(tmp_path: Path) -> None:
    from digits.data.records.records import masked_checksum

    path = tmp_path / "a.tfrecord"
    for length, message in ((1 << 60, "exceeds the limit"), (200 << 20, "truncated")):
        header = length.to_bytes(8, "little")
        path.write_bytes(header + masked_checksum(header) + b"x" * 100)
        tracemalloc.start()
        with pytest.raises(DamagedFile, match=rf"record 0: .*{message}"):
            read(path)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 5_000_000


@pytest.mark.parametrize("compression", ["", "gzip"])
def test_memory_does_not_grow_with_the_file(tmp_path: Path, compression: str) -> None:
    payload = example(label=1, image=os.urandom(100_000))
    path = write_records(tmp_path / "a.tfrecord", [payload] * 100, compression)
    tracemalloc.start()
    count = len(read(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 100 and peak < 4_000_000


@pytest.mark.parametrize("compression", ["", "zlib"])
def test_images_are_read_by_record_in_any_order(tmp_path: Path, compression: str) -> None:
    files = ["a.tfrecord", "b/c.tfrecord"]
    source = TFRecordImages(tmp_path, ImageFeature("image"))
    names, expected = [], []
    for number, name in enumerate(files):
        payloads = [example(image=picture(size=(8 + place, 4 + number))) for place in range(5)]
        path = write_records(tmp_path / name, payloads, compression)
        if compression:
            source.compressed.add(name)
        names += [source.add(name, item) for item in tfrecords.frames(path)]
        expected += [picture(size=(8 + place, 4 + number)) for place in range(5)]
    assert names[:2] == ["a.tfrecord:0", "a.tfrecord:1"] and names[-1] == "b/c.tfrecord:4"
    for order in (range(10), reversed(range(10))):
        for place in order:
            assert source.read(names[place]) == expected[place]
    assert source.describe() == str(tmp_path) and source.is_available()


def test_a_file_that_changes_while_it_is_read_is_reported(tmp_path: Path) -> None:
    path = write_records(tmp_path / "a.tfrecord", colored(4))
    source = TFRecordImages(tmp_path, ImageFeature("image/encoded"))
    names = [source.add("a.tfrecord", item) for item in tfrecords.frames(path)]
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    assert source.read(names[0]) == picture()
    with pytest.raises(UnusableImage, match="changed while it was read"):
        source.read(names[3])
    path.unlink()
    with pytest.raises(FileNotFoundError):
        TFRecordImages(tmp_path, ImageFeature("x"), dict(source.offsets)).read(names[0])
