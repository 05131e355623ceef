"""Image classification from databases of Caffe and DIGITS 4 to 6: plans, messages, and the requests of the form."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import lmdb
import numpy as np
import pytest
from PIL import Image

from digits.core import events
from digits.core.errors import DigitsError
from digits.data import manifest
from digits.data.images.images import UnusableImage
from digits.data.sources.plan import Plan, Progress, UnusableSource
from digits.kinds.classification import reader
from digits.kinds.classification.recipe import CreateClassification, Databases
from digits.worker.failure import UserFault
from digits.worker.tasks import create_dataset
from tests.kinds.dataset_forms import Forms, create
from tests.old_databases import (
    HEIGHT,
    NAMES,
    WIDTH,
    datum,
    encode,
    numbers,
    picture,
    write_hdf5,
    write_job,
    write_lmdb,
    write_mean,
)


def plan(folder: Path, **settings: Any) -> Plan:
    names = ("val", "test", "labels")
    source = Databases(folder=str(folder), **{name: str(settings.pop(name, "")) for name in names})
    return reader.read(
        CreateClassification(files=source, **{"pct_val": 0, "seed": 1, **settings}), Progress()
    )


def pixels(made: Plan, split: str, place: int) -> np.ndarray[Any, Any]:
    (data,) = made.read(made.splits[split], place)
    return np.atleast_3d(np.asarray(Image.open(io.BytesIO(data))))


@pytest.mark.parametrize(
    ("backend", "encoding", "channels"),
    [("lmdb", "PNG", 3), ("lmdb", "PNG", 1), ("lmdb", "none", 3), ("lmdb", "none", 1), ("hdf5", "none", 3)],
)
def test_the_folder_of_an_old_job_becomes_a_dataset_with_the_same_pixels(
    tmp_path: Path, backend: str, encoding: str, channels: int
) -> None:
    made = plan(write_job(tmp_path / "job", backend=backend, encoding=encoding, channels=channels))
    assert made.groups == list(NAMES)
    assert {name: len(split) for name, split in made.splits.items()} == {"train": 12, "val": 6}
    for place, label in enumerate(made.splits["train"].targets):
        assert label == place % 3
        assert np.array_equal(pixels(made, "train", place), picture(place, channels))
    first = 0 if backend == "hdf5" else 12
    assert np.array_equal(pixels(made, "val", 2), picture(first + 2, channels))
    assert made.splits["train"].source == str(tmp_path / "job" / "train_db")


def test_image_files_in_records_are_kept(tmp_path: Path) -> None:
    made = plan(write_job(tmp_path / "job", encoding="JPEG"))
    assert made.read(made.splits["train"], 3) == [encode(picture(3), "JPEG")]


def test_records_are_read_as_protobuf_2_wrote_them(tmp_path: Path) -> None:
    """Protobuf 2 writes the label 0 and unpacked lists, unlike protobuf 3."""
    head = b"\x08\x01\x10\x01\x18\x02"
    packed = head + b"\x22\x02\x07\xff" + b"\x28\x00" + b"\x38\x00"
    unpacked = head + b"\x28\x01" + b"\x35\x00\x00\x80\x3f" + b"\x35\x00\x00\x00\x40"
    made = plan(write_lmdb(tmp_path / "db", [packed, unpacked]))
    assert made.groups == ["0", "1"] and made.splits["train"].targets == [0, 1]
    assert pixels(made, "train", 0).tolist() == [[[7], [255]]]
    assert pixels(made, "train", 1).tolist() == [[[1], [2]]]


def test_single_databases_have_the_labels_of_a_file_or_numbers(tmp_path: Path) -> None:
    train = write_lmdb(tmp_path / "one", [datum(picture(item), item % 3) for item in range(12)])
    val = write_hdf5(tmp_path / "two", 6, compression="gzip")
    made = plan(train, pct_val=25, pct_test=25)
    assert made.groups == ["0", "1", "2"]
    assert {name: len(split) for name, split in made.splits.items()} == {"train": 6, "val": 3, "test": 3}
    (tmp_path / "names.txt").write_text("\n".join(NAMES))
    made = plan(train, pct_val=25, val=val, test=val / "4.h5", labels=tmp_path / "names.txt")
    assert made.groups == list(NAMES)
    assert {name: len(split) for name, split in made.splits.items()} == {"train": 12, "val": 6, "test": 2}
    assert np.array_equal(pixels(made, "test", 1), picture(5))
    assert np.array_equal(pixels(made, "val", 0), picture(0))


def test_without_a_list_hdf5_files_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    folder = write_hdf5(tmp_path / "db", 12, per_file=1)
    (folder / "list.txt").unlink()
    assert plan(folder).splits["train"].files == [f"{number}.h5:0" for number in range(12)]


def _lmdb(*values: bytes) -> Callable[[Path], Path]:
    good = [datum(picture(item), item % 3) for item in range(4)]
    return lambda folder: write_lmdb(folder / "db", [*good, *values])


HUGE_DATUM = b"\x08\x03\x10\xff\xff\xff\x07\x18\xff\xff\xff\x07\x22\x01a"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (_lmdb(b"\xff\xff"), r"1 record of .*db cannot be used: 00000004_1: it is not a Caffe Datum"),
        (_lmdb(b"some text"), "00000004_1: it is not a Caffe Datum"),
        (_lmdb(b""), "00000004_1: it is not a Caffe Datum, or has no data"),
        (_lmdb(datum(picture(1), -1)), "00000004_1: the label -1 is negative"),
        (_lmdb(datum(picture(1)[:3], 1)), "00000004_1: its shape is 8×3×3, unlike 8×6×3"),
        (_lmdb(datum(picture(1), 1)[:12] + b"\x20"), "00000004_1: it is not a Caffe Datum"),
        (_lmdb(HUGE_DATUM), "it declares 16777215×16777215×3 values but contains 1"),
        (lambda folder: write_lmdb(folder / "db", []), r"The database .*db is empty"),
    ],
)
def test_faults_of_records_are_reported_with_their_keys(
    tmp_path: Path, make: Callable[[Path], Path], message: str
) -> None:
    with pytest.raises(UnusableSource, match=message):
        plan(make(tmp_path))


def _put(name: str, content: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(content)


def _removed(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).unlink()


def _truncate(job: Path) -> None:
    path = job / "train_db" / "data.mdb"
    path.write_bytes(path.read_bytes()[:-4096])


def _mean(channels: int, width: int) -> Callable[[Path], object]:
    return lambda job: write_mean(job / "mean.binaryproto", np.zeros((HEIGHT, width, channels)))


def _replace(job: Path, count: int, height: int) -> None:
    (job / "val_db" / "data.mdb").unlink()
    (job / "val_db").rmdir()
    write_lmdb(job / "val_db", [datum(picture(item)[:height], item % 3) for item in range(count)])


def _link_out(job: Path) -> None:
    (job / "val_db").rename(job.parent / "elsewhere")
    (job / "val_db").symlink_to(job.parent / "elsewhere")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_removed("train_db/data.mdb"), "train_db is not a database"),
        (_put("train_db/data.mdb", b"text"), "train_db cannot be read: it is not an LMDB"),
        (_truncate, "train_db cannot be read: the file is truncated"),
        (_removed("labels.txt"), "has no labels.txt"),
        (
            _put("labels.txt", b"cold\nwarm\n"),
            r"4 records of .*train_db cannot be used: the label 2 is not between 0 and 1: 00000002_2, ",
        ),
        (_put("mean.binaryproto", b"\xff"), "mean.binaryproto is damaged or not a Caffe mean image"),
        (_mean(1, WIDTH), "mean.binaryproto has shape 8×6×1, but the records have shape 8×6×3"),
        (_mean(3, 5), "mean.binaryproto has shape 5×6×3, but the records have shape 8×6×3"),
        (lambda job: _replace(job, 6, 4), r"its shape is 8×4×3, unlike 8×6×3 in .*train_db"),
        (lambda job: _replace(job, 0, 4), "val_db is empty"),
        (_link_out, "val_db cannot be read: data.mdb (is a link|cannot be opened)"),
    ],
)
def test_faults_of_a_job_are_named(tmp_path: Path, change: Callable[[Path], object], message: str) -> None:
    job = write_job(tmp_path / "job", encoding="none")
    change(job)
    with pytest.raises(UnusableSource, match=message):
        plan(job)


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
        (_hdf5(lambda file: file.pop("label")), r"0\.h5 has no dataset “label”"),
        (_with("data", data=IMAGES[0]), "has shape 3×6×8"),
        (_with("data", data=IMAGES[:, :2]), "has shape 4×2×6×8"),
        (_with("data", data=IMAGES[:3]), "“label” .* has shape 4, but “data” has shape 3×3×6×8"),
        (_with("label", data=np.zeros((4, 2))), "“label” .* has shape 4×2"),
        (_with("label", data=[0, 1, 1.5, 0]), r"1 record .*0\.h5:2: the label 1\.5 is not an integer"),
        (_with("label", data=[0, 1, np.nan, 0]), r"0\.h5:2: the label nan is not an integer"),
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
        plan(folder)


@pytest.mark.parametrize(
    ("value", "reason"),
    [(np.nan, "NaN or infinity"), (256, "0 to 256, are not pixel values"), (0.5, "not integers")],
)
def test_values_that_are_no_pixels_are_unusable(tmp_path: Path, value: float, reason: str) -> None:
    folder = write_hdf5(tmp_path / "hdf5", 8)
    with h5py.File(folder / "0.h5", "r+") as file:
        file["data"][1, 2] = 0
        file["data"][1, 2, 3, 4] = value
        file["data"][1, :2] = 0
    values = np.zeros((3, HEIGHT, WIDTH))
    values[0, 0, 0] = value
    records = [numbers(np.zeros((3, HEIGHT, WIDTH)), 0), numbers(values, 1)]
    for made in (plan(folder), plan(write_lmdb(tmp_path / "lmdb", records))):
        assert made.read(made.splits["train"], 0)
        with pytest.raises(UnusableImage, match=reason):
            made.read(made.splits["train"], 1)


def events_of(folder: Path, recipe: CreateClassification) -> list[events.Event]:
    """Create a dataset in ``folder``; return the events."""
    create(recipe, folder)
    return events.read(folder / "create" / "events.jsonl")[0]


def recipe(folder: Path, **settings: Any) -> CreateClassification:
    size = {"width": WIDTH, "height": HEIGHT, "processes": 1, "seed": 1}
    return CreateClassification(files=Databases(folder=str(folder)), **{**size, **settings})


def warnings(found: list[events.Event]) -> list[str]:
    return [event.message for event in found if isinstance(event, events.Warned)]


def test_the_mean_image_agrees_with_the_old_one(tmp_path: Path) -> None:
    job = write_job(tmp_path / "job")
    assert warnings(events_of(tmp_path / "new", recipe(job))) == []
    mean = np.load(tmp_path / "new" / manifest.MEAN_ARRAY_FILE)
    assert np.allclose(mean, np.mean([picture(number) for number in range(12)], axis=0), atol=1e-4)
    # Blue is first in the file of Caffe: the means of red and blue differ by more than rounding.
    write_mean(job / "mean.binaryproto", mean[..., ::-1])
    (found,) = warnings(events_of(tmp_path / "other", recipe(job)))
    assert "The recomputed mean image differs from the source’s mean image by up to" in found


def test_broken_images_are_skipped_and_listed(tmp_path: Path) -> None:
    values = [datum(picture(item), item % 3, "PNG") for item in range(12)]
    values[4] = datum(picture(4), 1, "PNG").replace(b"IDAT", b"IDXX")
    folder = write_lmdb(tmp_path / "db", values)
    create(recipe(folder, pct_val=0, max_unusable_percent=20), tmp_path / "new")
    made = manifest.load(tmp_path / "new")
    assert made.splits["train"].count == 11 and made.skipped == 1
    assert "00000004_1,not an image" in (tmp_path / "new" / manifest.SKIPPED_FILE).read_text()


def test_a_database_that_changes_meanwhile_ends_the_creation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Larger than a page, so that the images are not in memory.
    large = [picture(item).repeat(5, 0).repeat(5, 1) for item in range(12)]
    folder = write_lmdb(tmp_path / "db", [datum(item, number % 3) for number, item in enumerate(large)])
    planned = plan(folder)
    with lmdb.open(str(folder), map_size=1 << 30) as database, database.begin(write=True) as transaction:
        transaction.put(b"00000000_0", datum(picture(5), 2))
    with pytest.raises(UnusableImage, match="changed while it was read"):
        planned.read(planned.splits["train"], 11)
    monkeypatch.setattr(create_dataset, "read_source", lambda *arguments: planned)
    with pytest.raises(UserFault, match="changed while it was read"):
        create(recipe(folder), tmp_path / "new")


def test_the_form_describes_and_imports_an_old_job(tmp_path: Path) -> None:
    forms = Forms("image-classification", tmp_path / "data")
    fields = {"method": "database", "database_train": write_job(forms.data / "20170401-120000-abcd")}
    found = forms.summary(**fields)
    assert found.facts[0] == "A DIGITS dataset with 18 images in 3 classes." and found.problems == []
    assert found.splits == {"train": 12, "val": 6} and set(found.sizes) == {(8, 6)}
    assert found.bars == [(name, 4) for name in NAMES]
    made = forms.create(**fields, resize_width=8, resize_height=6)
    assert made.manifest.target.names == list(NAMES) and made.counts == {"train": 12, "val": 6}


def test_the_form_names_faults(tmp_path: Path) -> None:
    forms = Forms("image-classification", tmp_path / "data")
    outside, job = write_job(tmp_path / "job"), write_job(forms.data / "job")
    (job / "labels.txt").write_text("cold\nwarm\n")
    found = forms.summary(method="database", database_train=job)
    (problem,) = found.problems
    assert "4 records of" in problem and "the label 2 is not between 0 and 1: 00000002_2, " in problem
    (job / "train_db" / "data.mdb").write_text("text")
    found = forms.summary(method="database", database_train=job)
    assert "not an LMDB file" in found.problems[0]
    with pytest.raises(DigitsError, match="outside the folders"):
        forms.summary(method="database", database_train=outside)
    for path, message in ((job, "not an LMDB file"), (outside, "outside the folders"), ("", "required")):
        (error,) = forms.errors(method="database", database_train=path)["database_train"]
        assert message in error.replace("Enter", "required")
