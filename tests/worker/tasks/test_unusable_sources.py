"""Every kind and source survives unusable images: others are kept, and the messages name the file."""

from __future__ import annotations

import csv
import os
import re
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from digits.core import events
from digits.data import manifest
from digits.data.records import records
from digits.worker.failure import UserFault
from digits.worker.tasks import create_dataset
from tests.kinds import small_sources

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("no_process_remains")]


def _huge(side: int) -> bytes:
    """The start of a PNG file that declares a square of black pixels."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    pixels = chunk(b"IDAT", zlib.compress(bytes(100_000)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + pixels + chunk(b"IEND", b"")


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def _link(target: str) -> Callable[[Path], None]:
    def replace(path: Path) -> None:
        path.unlink()
        path.symlink_to(target)

    return replace


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


# The words are part of the reason in skipped.csv.
UNUSABLE: dict[str, tuple[Callable[[Path], object], str]] = {
    "empty": (lambda path: path.write_bytes(b""), "empty"),
    "truncated": (_cut, "ends too early"),
    "text": (lambda path: path.write_text("no image"), "looks like text"),
    "svg": (lambda path: path.write_text("<svg xmlns='http://www.w3.org/2000/svg'/>"), "looks like SVG"),
    "13,000 pixels wide": (lambda path: path.write_bytes(_huge(13_000)), "pixels"),
    "50,000 pixels wide": (lambda path: path.write_bytes(_huge(50_000)), "pixels"),
}
# Opening these could hang or leave the folder.
SPECIAL: dict[str, Callable[[Path], None]] = {
    "link outside": _link("/etc/passwd"),
    "link to itself": _link("2.png"),
    "dead link": _link("missing.png"),
    "FIFO": _fifo,
    "folder": _folder,
}


@pytest.fixture
def images(tmp_path: Path) -> Path:
    return small_sources.write_images(tmp_path / "images")


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "job" / "create").mkdir(parents=True)
    return tmp_path / "job"


def create(job: Path, recipe: small_sources.CreateDataset) -> list[events.Event]:
    """Run the task; return its events."""
    log = events.EventLog(job / "create" / "events.jsonl")
    try:
        create_dataset.run(recipe, job / "create", log)
    finally:
        log.close()
    return events.read(job / "create" / "events.jsonl")[0]


def kept(job: Path) -> list[list[str]]:
    """The names of the images of each record."""
    made = manifest.load(job)
    found: list[list[str]] = []
    for split in made.splits.values():
        with records.SplitReader(job, split) as reader:
            sources = [os.fsdecode(reader.read(number).source) for number in range(len(reader))]
        found += [source.split(" | ") for source in sources]
    return found


def skipped(job: Path) -> list[dict[str, str]]:
    if not (job / manifest.SKIPPED_FILE).exists():
        return []
    with open(job / manifest.SKIPPED_FILE, newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("source", small_sources.ALL)
def test_unusable_images_are_listed_and_the_others_kept(images: Path, job: Path, source: str) -> None:
    recipe = small_sources.ALL[source](images)
    victims = dict(zip((f"b/{number}.png" for number in range(1, 7)), UNUSABLE.values(), strict=True))
    for name, (damage, _) in victims.items():
        damage(images / name)
    create(job, recipe)
    reasons = skipped(job)
    assert not [name for names in kept(job) for name in names if name in victims]
    for number, (name, (_, words)) in enumerate(victims.items()):
        # Rows of a Parquet file are numbered from 0.
        listed = {name, f"train-00000-of-00001.parquet:{small_sources.COUNT + number + 1}"}
        found = [row["reason"] for row in reasons if listed & set(row["path"].split(" | "))]
        assert any(words in reason for reason in found), (name, reasons)
    good = {"a/6.png", "a/7.png", "b/7.png"}
    if "parquet" in source:
        good = {"train-00000-of-00001.parquet:0", "train-00000-of-00001.parquet:15"}
    assert good <= {name for names in kept(job) for name in names}


@pytest.mark.parametrize("source", small_sources.SCANNED)
def test_special_files_in_a_folder_are_ignored(images: Path, job: Path, source: str) -> None:
    recipe = small_sources.SCANNED[source](images)
    victims = dict(zip((f"b/{number}.png" for number in range(2, 7)), SPECIAL.values(), strict=True))
    for name, damage in victims.items():
        damage(images / name)
    messages = [event.message for event in create(job, recipe) if isinstance(event, events.Warned)]
    assert any("3 links ignored" in message for message in messages), messages
    found = {name for names in kept(job) for name in names}
    assert found.isdisjoint(victims) and found >= {"a/0.png", "a/7.png", "b/0.png", "b/7.png"}
    assert skipped(job) == []


@pytest.mark.parametrize("source", small_sources.LISTED)
def test_special_files_in_a_list_are_skipped(images: Path, job: Path, source: str) -> None:
    recipe = small_sources.LISTED[source](images)
    inside = {name: damage for name, damage in SPECIAL.items() if name != "link outside"}
    for number, damage in enumerate(inside.values(), 2):
        damage(images / f"b/{number}.png")
    create(job, recipe)
    # The reasons of pairs start with the name of the image.
    reasons = {row["reason"].rpartition(".png: ")[2] for row in skipped(job)}
    assert reasons == {
        "cannot be read: Too many levels of symbolic links",
        "the file does not exist",
        "not a regular file",
    }
    found = {name for names in kept(job) for name in names}
    assert found and found.isdisjoint(f"b/{number}.png" for number in range(2, 2 + len(inside)))


@pytest.mark.parametrize("source", small_sources.LISTED)
def test_a_path_outside_the_folder_of_a_list_is_skipped(images: Path, job: Path, source: str) -> None:
    recipe = small_sources.LISTED[source](images)
    SPECIAL["link outside"](images / "b/2.png")
    if "parquet" in source:  # its paths are read with the images
        create(job, recipe)
        assert [row["reason"] for row in skipped(job)] == ["“files/b/2.png” is outside the image folder"]
        return
    create(job, recipe)
    rows = [row for row in skipped(job) if row["reason"] == "“b/2.png” is outside the image folder"]
    assert rows and all(re.fullmatch(r"\S+, (line|image) \d+", row["path"]) for row in rows)
    assert rows == skipped(job) and {row["split"] for row in rows} == {"train"}
    assert "b/2.png" not in {name for names in kept(job) for name in names}
    recipe.max_unusable_percent = 5.0
    with pytest.raises(
        UserFault,
        match=r"“b/2.png” is outside the image folder: (line|image) \d+|(line|image) \d+: “b/2.png” is outside",
    ):
        create(job, recipe)


@pytest.mark.parametrize("source", small_sources.ALL)
def test_a_source_without_images_is_refused(images: Path, job: Path, source: str) -> None:
    recipe = small_sources.ALL[source](images)
    for name in small_sources.names():
        (images / name).unlink()
    words = (
        "No images found in .*/images"
        if source in small_sources.SCANNED
        else r"(cannot be used, more than the limit|The first one is ).*(a/0\.png|:0)"
    )
    with pytest.raises(UserFault, match=words):
        create(job, recipe)


@pytest.mark.parametrize("source", small_sources.SCANNED)
def test_names_of_files_can_be_anything(images: Path, job: Path, source: str) -> None:
    recipe = small_sources.SCANNED[source](images)
    odd = "b\N{RIGHT-TO-LEFT OVERRIDE}\N{RED APPLE}\n\udcff" + "x" * 240
    for folder in images.parent.glob("*/b"):
        folder.rename(folder.with_name(odd))
    create(job, recipe)
    found = {name for names in kept(job) for name in names}
    assert {f"{odd}/0.png", f"{odd}/7.png", "a/0.png"} <= found


@pytest.mark.parametrize("source", small_sources.ALL)
def test_too_many_unusable_images_fail_the_job(images: Path, job: Path, source: str) -> None:
    recipe = small_sources.ALL[source](images)
    recipe.max_unusable_percent = 5.0
    for number in range(2, 8):
        (images / f"b/{number}.png").write_bytes(b"")
    with pytest.raises(UserFault, match=r"more than the limit of 5%: .*the file is empty") as caught:
        create(job, recipe)
    assert manifest.SKIPPED_FILE in caught.value.hint and skipped(job)
    assert {path.name for path in job.iterdir()} == {"create", manifest.SKIPPED_FILE}


def test_the_limit_counts_images_of_pairs_once_and_the_reasons_name_them(images: Path, job: Path) -> None:
    recipe = small_sources.ALL["random pairs"](images)
    recipe.max_unusable_percent = 100 / 16
    (images / "b/2.png").write_bytes(b"")
    create(job, recipe)
    rows = skipped(job)
    assert len(rows) > 1 and {row["reason"] for row in rows} == {"b/2.png: the file is empty"}
    recipe.max_unusable_percent = 6.0
    with pytest.raises(UserFault, match=r"^1 of 16 images cannot be used, .*: b/2\.png: the file"):
        create(job, recipe)
