"""Records: writing, reading, damaged shards, and reading the same files with TensorFlow."""

from __future__ import annotations

import os
import random
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from digits.data import manifest, record_index, records
from digits.data.manifest import Manifest, SplitRecords
from digits.data.record_index import DamagedRecords
from digits.data.records import Record, ShardWriter, SplitReader
from digits.data.targets.class_index import ClassIndex
from tests import power_loss
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
        Manifest(
            width=1,
            height=1,
            channels=1,
            encoding="none",
            resize_mode="squash",
            kind="image-classification",
            target=ClassIndex.of(["a"]),
            groups=["a"],
            splits={"train": split},
            mean_pixel=[0.0],
        ).save(job)
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


@given(st.data())
def test_an_altered_payload_decodes_or_is_refused(data: st.DataObject) -> None:
    payload = bytearray(records.encode_example(EXAMPLE))
    place = data.draw(st.integers(0, len(payload) - 1))
    payload[place] = data.draw(st.integers(0, 255))
    try:
        records.decode_example(bytes(payload))
    except DamagedRecords as error:
        assert "record" in str(error)


@given(cut=st.integers(0, len(records.encode_example(EXAMPLE)) - 1))
def test_a_truncated_payload_is_refused(cut: int) -> None:
    with pytest.raises(DamagedRecords):
        records.decode_example(records.encode_example(EXAMPLE)[:cut])


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

    features = [
        feature(b"image/filename", text(b"a.png")),
        feature(b"image/class/text", text(b"cat")),
        feature(b"image/class/label", number(5)),
        feature(b"image/source_id", text(b"extra")),
        feature(b"image/channels", number(3)),
        feature(b"image/width", number(2)),
        feature(b"image/height", number(1)),
        feature(b"image/format", text(b"raw")),
        feature(b"image/encoded", text(b"abcdef")),
    ]
    body = b"".join(features)
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


def test_the_index_finds_the_records_of_a_class(tmp_path: Path) -> None:
    with SplitReader(tmp_path, write(tmp_path, numbered(9))) as reader:
        of_class_one = np.flatnonzero(reader.groups == 1)
        assert [label_of(reader.read(int(n))) for n in of_class_one] == [1, 1, 1]


@pytest.mark.parametrize("number", [-1, 3])
def test_indices_outside_the_split_are_refused(tmp_path: Path, number: int) -> None:
    with SplitReader(tmp_path, write(tmp_path, numbered(3))) as reader, pytest.raises(IndexError):
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


def cut_shard(shard: Path) -> None:
    os.truncate(shard, shard.stat().st_size - 3)


def empty_shard(shard: Path) -> None:
    os.truncate(shard, 0)


def cut_index(shard: Path) -> None:
    index = record_index.index_path(shard)
    os.truncate(index, index.stat().st_size - 3)


def shorten_index(shard: Path) -> None:
    index = record_index.index_path(shard)
    os.truncate(index, index.stat().st_size - record_index.INDEX_DTYPE.itemsize)


def shift_index(shard: Path) -> None:
    index = np.fromfile(record_index.index_path(shard), record_index.INDEX_DTYPE)
    index["offset"][1] += 1
    index.tofile(record_index.index_path(shard))


def remove_shard(shard: Path) -> None:
    shard.unlink()


def remove_index(shard: Path) -> None:
    record_index.index_path(shard).unlink()


def link_shard(shard: Path) -> None:
    shard.unlink()
    shard.symlink_to("/etc/passwd")


def pipe_index(shard: Path) -> None:
    remove_index(shard)
    os.mkfifo(record_index.index_path(shard))


@pytest.mark.parametrize(
    "damage",
    [
        cut_shard,
        empty_shard,
        cut_index,
        shorten_index,
        shift_index,
        remove_shard,
        remove_index,
        link_shard,
        pipe_index,
    ],
)
def test_damage_is_detected_when_opening(tmp_path: Path, damage) -> None:
    split = write(tmp_path, numbered(4))
    damage(tmp_path / split.shards[0])
    with pytest.raises(DamagedRecords, match="train-00000-of-00001"):
        SplitReader(tmp_path, split)


def test_a_split_with_too_few_records_is_refused(tmp_path: Path) -> None:
    split = write(tmp_path, numbered(4))
    split.count = 5
    with pytest.raises(DamagedRecords, match="contain 4 records, but the manifest 5"):
        SplitReader(tmp_path, split)


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

    spec = {
        "image/encoded": tf.io.FixedLenFeature([], tf.string),
        "image/format": tf.io.FixedLenFeature([], tf.string),
        "image/filename": tf.io.FixedLenFeature([], tf.string),
        "image/height": tf.io.FixedLenFeature([], tf.int64),
        "image/width": tf.io.FixedLenFeature([], tf.int64),
        "image/channels": tf.io.FixedLenFeature([], tf.int64),
        "image/class/label": tf.io.FixedLenFeature([], tf.int64),
    }
    examples = [tf.io.parse_single_example(payload, spec) for payload in tf.data.TFRecordDataset(paths)]
    return [[example[name].numpy() for name in sorted(spec)] for example in examples]


@pytest.mark.tensorflow
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
