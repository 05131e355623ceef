"""Records: writing, reading, damaged shards, and reading the same files with TensorFlow."""

from __future__ import annotations

import os
import random
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from digits.data import manifest
from digits.data.manifest import SplitRecords
from digits.data.records import index as record_index
from digits.data.records import records
from digits.data.records.index import DamagedRecords
from digits.data.records.records import Record, ShardWriter, SplitReader
from digits.data.targets.class_index import ClassIndex
from tests import power_loss
from tests.datasets import manifest_of
from tests.power_loss import Recording

EXAMPLE = Record(
    data=b"\x89PNG",
    format="png",
    height=2,
    width=3,
    channels=1,
    features={"image/class/label": [4], "image/class/text": [b"four"], "target/numbers": [0.5, -2.0]},
    source=b"4/a.png",
)

records_of_any_kind = st.builds(
    Record,
    data=st.binary(max_size=400),
    format=st.sampled_from(["png", "jpeg", "raw"]),
    height=st.integers(0, 2**31),
    width=st.integers(0, 2**31),
    channels=st.sampled_from([1, 3]),
    features=st.dictionaries(
        st.text(min_size=1, max_size=20).filter(lambda name: not name.startswith("image/")),
        st.lists(st.binary(max_size=40), min_size=1)
        | st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1)
        | st.lists(st.floats(width=32, allow_nan=False), min_size=1),
        max_size=5,
    ),
    source=st.binary(max_size=300),
)


def label_of(record: Record) -> int:
    return int(record.features["image/class/label"][0])


def write(folder: Path, *shards: list[Record]) -> SplitRecords:
    """Write ``shards`` to ``folder`` and return their description for a manifest."""
    names = [records.shard_name("train", number, len(shards)) for number in range(len(shards))]
    for name, content in zip(names, shards, strict=True):
        with ShardWriter(folder / name) as writer:
            for record in content:
                writer.add(records.encode_example(record), label_of(record))
    count = sum(map(len, shards))
    return SplitRecords(count=count, counts=[count], bytes=0, shards=names)


def test_a_manifest_is_never_on_disk_without_its_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, chance = tmp_path / "job", random.Random(1)
    job.mkdir()
    recording = Recording(job, tmp_path / "recording")
    with monkeypatch.context() as patched:
        recording.start(patched)
        split = write(job, numbered(5), numbered(3, start=5))
        splits = {"train": split}
        manifest_of(ClassIndex.of(["a"]), encoding="none", groups=["a"], splits=splits).save(job)
    states = [state for moment in recording.moments() for state in recording.states(moment, chance, count=5)]
    complete = [state for state in states if "dataset.json" in state]
    assert complete and len(complete) < len(states)
    for number, state in enumerate(complete):
        power_loss.write(state, tmp_path / str(number))
        found = manifest.load(tmp_path / str(number))
        with SplitReader(tmp_path / str(number), found.splits["train"]) as reader:
            assert [reader.read(n) for n in range(8)] == numbered(8)


def numbered(count: int, start: int = 0) -> list[Record]:
    return [
        Record(bytes([n % 256]) * (n % 7), "raw", 1, n % 7, 1, {"image/class/label": [n % 3]}, b"%d.png" % n)
        for n in range(start, start + count)
    ]


@given(records_of_any_kind)
def test_a_record_survives_encoding(record: Record) -> None:
    assert records.decode_example(records.encode_example(record)) == record


@given(st.binary(max_size=200))
def test_random_bytes_are_refused(noise: bytes) -> None:
    with pytest.raises(DamagedRecords):
        records.decode_example(noise)


@given(st.integers(0, len(records.encode_example(EXAMPLE)) - 1), st.integers(0, 255))
def test_an_altered_payload_decodes_or_is_refused_and_a_truncated_one_is_refused(
    place: int, byte: int
) -> None:
    payload = records.encode_example(EXAMPLE)
    try:
        records.decode_example(payload[:place] + bytes([byte]) + payload[place + 1 :])
    except DamagedRecords as error:
        assert "record" in str(error)
    with pytest.raises(DamagedRecords):
        records.decode_example(payload[:place])


def test_features_in_another_order_and_encoding_are_read() -> None:
    # Other writers give each integer its own field instead of packing them, and add features.
    def delimited(key: bytes, data: bytes) -> bytes:
        return key + bytes([len(data)]) + data

    def feature(name: bytes, value: bytes) -> bytes:
        return delimited(b"\n", delimited(b"\n", name) + delimited(b"\x12", value))

    def text(value: bytes) -> bytes:
        return delimited(b"\n", delimited(b"\n", value))

    def number(value: int) -> bytes:
        return delimited(b"\x1a", bytes([8, value]))

    texts = {b"filename": b"a.png", b"class/text": b"cat", b"source_id": b"extra", b"format": b"raw"}
    numbers = {b"class/label": 5, b"channels": 3, b"width": 2, b"height": 1}
    body = b"".join(feature(b"image/" + name, text(value)) for name, value in texts.items())
    body += b"".join(feature(b"image/" + name, number(value)) for name, value in numbers.items())
    body += feature(b"image/encoded", text(b"abcdef"))
    payload = b"\n" + bytes([len(body) & 0x7F | 0x80, len(body) >> 7]) + body
    assert records.decode_example(payload) == Record(
        b"abcdef",
        "raw",
        1,
        2,
        3,
        {"image/class/label": [5], "image/class/text": [b"cat"], "image/source_id": [b"extra"]},
        b"a.png",
    )


def test_a_missing_feature_is_named() -> None:
    payload = records.encode_example(EXAMPLE).replace(b"image/width", b"image/wedth")
    with pytest.raises(DamagedRecords, match="image/width"):
        records.decode_example(payload)


def test_filenames_that_are_not_utf8_are_displayable() -> None:
    record = Record(b"", "raw", 0, 0, 1, {}, os.fsencode("caf\udce9/\U0001f600.png"))
    shown = records.decode_example(records.encode_example(record)).filename
    assert shown == "caf\\xe9/\U0001f600.png"
    shown.encode()


def test_records_are_read_in_order_across_shards(tmp_path: Path) -> None:
    first, second = numbered(5), numbered(3, start=5)
    split = write(tmp_path, first, [], second)
    with SplitReader(tmp_path, split) as reader:
        assert len(reader) == 8
        assert [reader.read(n) for n in range(8)] == first + second
        assert reader.groups.tolist() == [n % 3 for n in range(8)]
        assert len(reader.offsets(0)) == 5
        for number in (-1, 8):
            with pytest.raises(IndexError):
                reader.read(number)


def test_an_empty_split_has_no_records(tmp_path: Path) -> None:
    with SplitReader(tmp_path, SplitRecords(count=0, counts=[], bytes=0, shards=[])) as reader:
        assert len(reader) == 0
        assert reader.groups.shape == (0,)


def test_no_shard_appears_before_it_is_closed(tmp_path: Path) -> None:
    writer = ShardWriter(tmp_path / "train-00000-of-00001.tfrecord")
    writer.add(b"payload", 0)
    assert not list(tmp_path.glob("train-*"))
    writer.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "train-00000-of-00001.index",
        "train-00000-of-00001.names",
        "train-00000-of-00001.tfrecord",
    ]


def test_a_failing_writer_leaves_no_files(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), ShardWriter(tmp_path / "train-00000-of-00001.tfrecord") as writer:
        writer.add(b"payload", 0)
        raise ZeroDivisionError
    assert not list(tmp_path.iterdir())


def shift_index(shard: Path, index: Path) -> None:
    found = np.fromfile(index, record_index.INDEX_DTYPE)
    found["offset"][1] += 1
    found.tofile(index)


def link_shard(shard: Path, index: Path) -> None:
    shard.unlink()
    shard.symlink_to("/etc/passwd")


def pipe_index(shard: Path, index: Path) -> None:
    index.unlink()
    os.mkfifo(index)


def cut(path: Path, count: int) -> None:
    os.truncate(path, path.stat().st_size - count)


DAMAGES: dict[str, Callable[[Path, Path], object]] = {
    "cut shard": lambda shard, index: cut(shard, 3),
    "empty shard": lambda shard, index: os.truncate(shard, 0),
    "no shard": lambda shard, index: shard.unlink(),
    "linked shard": link_shard,
    "cut index": lambda shard, index: cut(index, 3),
    "shorter index": lambda shard, index: cut(index, record_index.INDEX_DTYPE.itemsize),
    "shifted index": shift_index,
    "no index": lambda shard, index: index.unlink(),
    "pipe as index": pipe_index,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_detected_when_opening(tmp_path: Path, damage: str) -> None:
    split = write(tmp_path, numbered(4))
    shard = tmp_path / split.shards[0]
    DAMAGES[damage](shard, record_index.index_path(shard))
    with pytest.raises(DamagedRecords, match="train-00000-of-00001"):
        SplitReader(tmp_path, split)


def test_a_split_with_too_few_records_is_refused(tmp_path: Path) -> None:
    split = write(tmp_path, numbered(4))
    split.count = 5
    with pytest.raises(DamagedRecords, match="contain 4 records, but the manifest 5"):
        SplitReader(tmp_path, split)


def test_several_records_of_a_network_file_system_are_read_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = numbered(8)
    split = write(tmp_path, content[:4], content[4:])
    expected = [records.encode_example(record) for record in content]
    together, read = threading.Barrier(2, timeout=60), os.pread

    def wait_for_another(*arguments: Any) -> bytes:
        together.wait()
        return read(*arguments)

    with SplitReader(tmp_path, split, is_remote=True) as reader:
        with monkeypatch.context() as patched:
            patched.setattr(os, "pread", wait_for_another)
            assert reader.payloads(np.arange(8)) == expected
        (tmp_path / split.shards[1]).unlink()
        assert reader.payloads(np.arange(8)[::-1]) == expected[::-1]  # from the open files
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("records")]


def test_altered_pixels_fail_their_checksum(tmp_path: Path) -> None:
    split = write(tmp_path, numbered(6))
    shard = tmp_path / split.shards[0]
    content = bytearray(shard.read_bytes())
    place = content.index(b"\x05" * 5)
    content[place] = 77
    shard.write_bytes(content)
    with SplitReader(tmp_path, split) as reader:
        with pytest.raises(DamagedRecords, match="record 5"):
            reader.read(5)
        assert reader.read(4) == numbered(6)[4]


@pytest.mark.parametrize("channels", [1, 3])
def test_raw_records_are_sent_as_png(channels: int) -> None:
    pixels = np.arange(4 * 5 * channels, dtype=np.uint8).reshape(4, 5, channels)
    raw = Record(pixels.tobytes(), "raw", 4, 5, channels, 0)
    data, media_type = raw.as_browser_image()
    assert media_type == "image/png"
    assert np.array_equal(Record(data, "png", 4, 5, channels, 0).as_array(), pixels)
    assert Record(b"\xff\xd8", "jpeg", 4, 5, channels, 0).as_browser_image() == (b"\xff\xd8", "image/jpeg")


@pytest.mark.parametrize("record", [Record(b"12345", "raw", 2, 3, 1, 0), Record(b"1", "png", 2, 3, 1, 0)])
def test_pixels_that_do_not_match_the_shape_are_refused(record: Record) -> None:
    with pytest.raises(DamagedRecords):
        record.as_array()


def _read_with_tensorflow(paths: list[str]) -> list[list[Any]]:
    import tensorflow as tf

    types = dict.fromkeys(("encoded", "format", "filename"), tf.string)
    types |= dict.fromkeys(("height", "width", "channels", "class/label"), tf.int64)
    spec = {f"image/{name}": tf.io.FixedLenFeature([], type_) for name, type_ in types.items()}
    examples = [tf.io.parse_single_example(payload, spec) for payload in tf.data.TFRecordDataset(paths)]
    return [[example[name].numpy() for name in sorted(spec)] for example in examples]


def test_tensorflow_reads_the_same_records(tmp_path: Path, in_child: Any) -> None:
    shards = [
        numbered(5),
        [
            *numbered(2, start=300),
            EXAMPLE,
            Record(b"", "raw", 0, 200, 3, {"image/class/label": [-7]}, b"\xff"),
        ],
    ]
    split = write(tmp_path, *shards)
    paths = [str(tmp_path / name) for name in split.shards]
    expected = [
        [
            np.int64(record.channels),
            np.int64(label_of(record)),
            record.data,
            record.source,
            record.format.encode(),
            np.int64(record.height),
            np.int64(record.width),
        ]
        for shard in shards
        for record in shard
    ]
    assert in_child(_read_with_tensorflow, paths) == expected


def test_cached_indexes_are_shared_until_a_file_changes(tmp_path: Path) -> None:
    cache = record_index.IndexCache(max_records=10)
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        folder.mkdir()
    first, second = (write(folder, numbered(4), numbered(3)) for folder in folders)
    found = cache.get(folders[0], first)
    assert cache.get(folders[0], first) is found
    with SplitReader(folders[0], first, found) as reader:
        assert label_of(reader.read(5)) == label_of(numbered(3)[1])
    damaged = folders[0] / first.shards[1]
    damaged.write_bytes(damaged.read_bytes()[:-1])
    with pytest.raises(DamagedRecords, match="inconsistent"):
        cache.get(folders[0], first)
    damaged.unlink()
    with pytest.raises(DamagedRecords, match="cannot be read"):
        cache.get(folders[0], first)
    found = cache.get(folders[1], second)
    cache.get(folders[0], SplitRecords(count=0, counts=[], bytes=0, shards=[]))
    assert cache.get(folders[1], second) is found
    third = tmp_path / "c"
    third.mkdir()
    cache.get(third, write(third, numbered(6)))  # together more than 10 records
    assert cache.get(folders[1], second) is not found


@given(st.lists(st.integers(-1, 4), max_size=40))
def test_members_are_the_records_of_a_group(groups: list[int]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with ShardWriter(folder / "train-00000-of-00001.tfrecord") as writer:
            for group in groups:
                writer.add(b"payload", group)
        split = SplitRecords(count=len(groups), counts=[], bytes=0, shards=["train-00000-of-00001.tfrecord"])
        index = record_index.SplitIndex(folder, split)
        for group in range(-1, 6):
            assert index.members(group).tolist() == [n for n, found in enumerate(groups) if found == group]
