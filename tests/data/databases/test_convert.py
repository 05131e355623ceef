"""Conversion of databases of Caffe and DIGITS 4 to 6, also damaged ones, to TFRecord files."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from PIL import Image

from digits.data.databases.convert import Converted, Labels, OldDataset, convert
from digits.data.records.features import values_of
from digits.data.records.tfrecords import examples
from digits.data.sources.plan import Progress, UnusableSource
from tests.old_databases import (
    HEIGHT,
    WIDTH,
    datum,
    encode,
    numbers,
    picture,
    write_arrays,
    write_hdf5,
    write_job,
    write_lmdb,
)


def converted(folder: Path, labels: Labels = "class", **settings: Any) -> Converted:
    dataset = OldDataset(**{"train": str(folder)} | {name: str(path) for name, path in settings.items()})
    return convert(dataset, labels, folder.parent / "converted", Progress())


def values(found: Converted, feature: str, split: str = "train") -> list[Any]:
    return [list(values_of(features, feature)[1]) for _, features in examples(found.splits[split].path)]


def pixels(found: Converted, place: int) -> Any:
    return np.atleast_3d(np.asarray(Image.open(io.BytesIO(values(found, "image")[place][0]))))


def test_image_files_in_records_are_kept(tmp_path: Path) -> None:
    assert values(converted(write_job(tmp_path / "job", encoding="JPEG")), "image")[3] == [
        encode(picture(3), "JPEG")
    ]


def test_records_are_read_as_protobuf_2_wrote_them(tmp_path: Path) -> None:
    """Protobuf 2 writes the label 0 and unpacked lists, unlike protobuf 3."""
    head = b"\x08\x01\x10\x01\x18\x02"
    packed = head + b"\x22\x02\x07\xff" + b"\x28\x00" + b"\x38\x00"
    unpacked = head + b"\x28\x01" + b"\x35\x00\x00\x80\x3f" + b"\x35\x00\x00\x00\x40"
    found = converted(write_lmdb(tmp_path / "db", [packed, unpacked]))
    assert values(found, "label") == [[0], [1]]
    assert pixels(found, 0).tolist() == [[[7], [255]]]
    assert pixels(found, 1).tolist() == [[[1], [2]]]


def test_without_a_list_hdf5_files_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    folder = write_hdf5(tmp_path / "db", 12, per_file=1)
    (folder / "list.txt").unlink()
    assert values(converted(folder), "label") == [[number % 3] for number in range(12)]


def _lmdb(*records: bytes) -> Callable[[Path], Path]:
    good = [datum(picture(item), item % 3) for item in range(4)]
    return lambda folder: write_lmdb(folder / "db", [*good, *records])


def _value(value: float) -> Callable[[Path], Path]:
    array = np.zeros((3, HEIGHT, WIDTH))
    array[0, 0, 0] = value
    return _lmdb(numbers(array, 1))


HUGE_DATUM = b"\x08\x03\x10\xff\xff\xff\x07\x18\xff\xff\xff\x07\x22\x01a"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (_lmdb(b"\xff\xff"), "it is not a Caffe Datum"),
        (_lmdb(b"some text"), "it is not a Caffe Datum"),
        (_lmdb(b""), "it is not a Caffe Datum, or has no data"),
        (_lmdb(datum(picture(1), -1)), "it has no label, or a negative one"),
        (_lmdb(datum(picture(1), 1)[:12] + b"\x20"), "it is not a Caffe Datum"),
        (_lmdb(HUGE_DATUM), "it declares 3×16,777,215×16,777,215 values but contains 1"),
        (_value(np.nan), "it contains NaN or infinity"),
        (_value(256), "its values, 0 to 256, are not pixel values from 0 to 255"),
        (_value(0.5), "its values, 0 to 0.5, are not integers from 0 to 255"),
    ],
)
def test_faults_of_records_are_reported_with_their_keys(
    tmp_path: Path, make: Callable[[Path], Path], message: str
) -> None:
    found = converted(make(tmp_path))
    assert [(item.path, item.reason) for item in found.unusable] == [(f"{tmp_path}/db/00000004_1", message)]
    assert len(values(found, "label")) == 4


def _put(name: str, content: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(content)


def _removed(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).unlink()


def _truncate(job: Path) -> None:
    path = job / "train_db" / "data.mdb"
    path.write_bytes(path.read_bytes()[:-4096])


def _emptied(job: Path) -> None:
    (job / "val_db" / "data.mdb").unlink()
    (job / "val_db").rmdir()
    write_lmdb(job / "val_db", [])


def _link_out(job: Path) -> None:
    (job / "val_db").rename(job.parent / "elsewhere")
    (job / "val_db").symlink_to(job.parent / "elsewhere")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_removed("train_db/data.mdb"), "train_db is not a database"),
        (_put("train_db/data.mdb", b"text"), "train_db cannot be read: it is not an LMDB"),
        (_truncate, "train_db cannot be read: the file is truncated"),
        (_emptied, "val_db is empty"),
        (_link_out, "val_db cannot be read: data.mdb (is a link|cannot be opened)"),
    ],
)
def test_faults_of_a_job_are_named(tmp_path: Path, change: Callable[[Path], object], message: str) -> None:
    job = write_job(tmp_path / "job", encoding="none")
    change(job)
    with pytest.raises(UnusableSource, match=message):
        converted(job)


def test_a_database_of_labels_is_needed_or_refused(tmp_path: Path) -> None:
    images = write_lmdb(tmp_path / "images", [datum(picture(item), 0) for item in range(3)])
    labels = write_lmdb(tmp_path / "labels", [numbers([[[item]]]) for item in range(3)])
    with pytest.raises(UnusableSource, match="has no database of labels"):
        converted(images, "numbers")
    with pytest.raises(UnusableSource, match="its labels are in another database"):
        converted(images, "class", targets=labels)
    assert values(converted(images, "numbers", targets=labels), "label") == [[0], [1], [2]]


def test_records_belong_together_by_their_keys(tmp_path: Path) -> None:
    images = write_lmdb(tmp_path / "images", [datum(picture(item), 0) for item in range(6)], key="{:02d}")
    labels = write_arrays(tmp_path / "labels", [[0.0]])
    with pytest.raises(UnusableSource, match=r"No record .* can be used: it has no label with the same key"):
        converted(images, "numbers", targets=labels)
    few = write_lmdb(tmp_path / "few", [numbers([[[item]]]) for item in (0, 1, 9)], key="{:01d}4")
    found = converted(images, "numbers", targets=few)
    assert values(found, "label") == [[0.0]]
    assert [item.path[-2:] for item in found.unusable] == ["00", "01", "02", "03", "05"]
    assert "2 labels in" in found.warnings[0]


def test_arrays_that_are_no_objects_are_unusable(tmp_path: Path) -> None:
    images = write_arrays(tmp_path / "images", [picture(0), picture(1)])
    none = np.zeros(16)
    none[1] = 16
    labels = write_arrays(tmp_path / "labels", [none, np.ones(16)])
    found = converted(images, "boxes", targets=labels)
    assert [item.reason for item in found.unusable] == ["not an array of objects with 16 columns each"]


def _hdf5(change: Callable[[h5py.File], object]) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        with h5py.File(folder / "0.h5", "r+") as file:
            change(file)

    return make


def _with(name: str, **arguments: Any) -> Callable[[Path], None]:
    def change(file: h5py.File) -> None:
        del file[name]
        file.create_dataset(name, **arguments)

    return _hdf5(change)


def _linked(link: Any) -> Callable[[Path], None]:
    def change(file: h5py.File) -> None:
        del file["data"]
        file["data"] = link

    return _hdf5(change)


def _virtual(file: h5py.File) -> None:
    layout = h5py.VirtualLayout((4, 3, HEIGHT, WIDTH), np.float32)
    layout[:] = h5py.VirtualSource("/etc/passwd", "data", (4, 3, HEIGHT, WIDTH))
    del file["data"]
    file.create_virtual_dataset("data", layout)


IMAGES = np.zeros((4, 3, HEIGHT, WIDTH), np.float32)
HUGE, LARGE = (10**9, 3, 256, 256), (4, 3, 4000, 4000)
PASSWORDS = ("/etc/passwd", 0, h5py.h5f.UNLIMITED)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_hdf5(lambda file: file.pop("data")), r"0\.h5 has no dataset “data”"),
        (_with("data", data=1.0), r"“data” in 0\.h5 is a single value"),
        (_with("data", data=IMAGES[:3]), "“label” .* has shape 4, but “data” has shape 3×3×6×8"),
        (_with("label", data=np.zeros((4, 2))), "“label” .* has shape 4×2"),
        (_with("data", data=np.zeros((4, 1, 1, (1 << 28) + 1), np.bool_)), "not numbers"),
        (_with("data", data=np.full((4, 3, 1, 1), b"a", object), dtype=h5py.string_dtype()), "not numbers"),
        (_with("data", shape=HUGE, chunks=(1, 3, 256, 256)), "contains only part of the data"),
        (_with("data", shape=HUGE), "contains only part of the data"),
        (
            _with("data", shape=LARGE, chunks=LARGE, dtype="f4", compression="gzip"),
            "stored in chunks of 732 MiB",
        ),
        (_linked(h5py.ExternalLink("/etc/passwd", "data")), "“data” .*is a link, which is not followed"),
        (_linked(h5py.SoftLink("/label")), "“data” .*is a link, which is not followed"),
        (_hdf5(_virtual), "“data” .*refers to other files"),
        (
            _with("data", shape=IMAGES.shape, dtype="f4", external=[PASSWORDS]),
            "“data” .*refers to other files",
        ),
        (_put("0.h5", b"text"), r"0\.h5 .*is damaged or not an HDF5 file"),
        (_removed("0.h5"), r"0\.h5 .*cannot be read: .*No such file"),
        (_put("list.txt", b"/etc/passwd\n"), "passwd in .* cannot be read"),
        (_put("list.txt", b"0.h5\na/0.h5\n"), "lists a file twice"),
        (_put("list.txt", b""), "has no HDF5 files"),
        (lambda folder: os.truncate(folder / "0.h5", 3000), "is damaged"),
    ],
)
def test_faults_of_hdf5_files_are_named(
    tmp_path: Path, change: Callable[[Path], object], message: str
) -> None:
    folder = write_hdf5(tmp_path / "db", 8)
    change(folder)
    with pytest.raises(UnusableSource, match=message):
        converted(folder)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_with("label", data=[0, 1, 1.5, 0]), "the label 1.5 is not an integer"),
        (_with("label", data=[0, 1, np.nan, 0]), "the label nan is not an integer"),
        (_hdf5(lambda file: file.pop("label")), "it has no label, or a negative one"),
        (_with("data", data=IMAGES[:, :2]), "images must have 1 or 3 channels, not the shape 2×6×8"),
        (_with("data", data=IMAGES[:, 0]), "images must have 1 or 3 channels, not the shape 6×8"),
    ],
)
def test_unusable_records_of_hdf5_files_are_named(
    tmp_path: Path, change: Callable[[Path], object], reason: str
) -> None:
    folder = write_hdf5(tmp_path / "db", 8)
    change(folder)
    assert reason in {item.reason for item in converted(folder).unusable}
