"""Archives from users: what is unpacked, and what is refused without leaving anything."""

from __future__ import annotations

import io
import os
import re
import resource
import struct
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from digits.data.archives import unpacking
from digits.data.archives.unpacking import (
    Limits,
    Request,
    Unpacking,
    UnpackingProgress,
    content_folder,
    unpack,
)
from digits.data.archives.zip_names import ArchiveError

LIMITS = Limits(max_bytes=300_000_000, max_files=50, max_ratio=200, spare_bytes=0)
FILES = {"cats/one.png": b"one" * 1000, "cats/two words.png": b"2", "dogs/ü.png": b"3" * 9999}


def zip_of(entries: dict[str, bytes], **options: int) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", **options) as archive:  # type: ignore[call-overload]
        for name, data in entries.items():
            archive.writestr(name, data)
    return file.getvalue()


def tar_of(entries: dict[str, bytes], mode: str = "w") -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as archive:  # type: ignore[call-overload]
        for name, data in entries.items():
            add(archive, name, data)
    return file.getvalue()


def add(archive: tarfile.TarFile, name: str, data: bytes = b"", **fields: object) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for field, value in fields.items():
        setattr(info, field, value)
    archive.addfile(info, io.BytesIO(data))


def special_tar(name: str, data: bytes = b"", **fields: object) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        add(archive, "good.png", b"good")
        add(archive, name, data, **fields)
    return file.getvalue()


def special_zip(name: str, mode: int = 0, flags: int = 0) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("good.png", b"good")
        info = zipfile.ZipInfo(name)
        info.external_attr = mode << 16
        archive.writestr(info, b"/etc/passwd")
    data = bytearray(file.getvalue())
    for place in (data.rfind(b"PK\1\2") + 8, data.rfind(b"PK\3\4") + 6):
        data[place] |= flags
    return bytes(data)


def unpacked(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


@pytest.fixture
def refusal(tmp_path: Path) -> Callable[..., str]:
    """Return a function that unpacks an archive which must be refused, and returns the message."""

    def refuse(data: bytes, limits: Limits = LIMITS) -> str:
        place = tmp_path / "place"
        place.mkdir()
        (place / "archive").write_bytes(data)
        with pytest.raises(ArchiveError) as error:
            unpack(place / "archive", place / "folder", limits)
        assert [path.name for path in tmp_path.rglob("*")] == ["place", "archive"]
        return str(error.value)

    return refuse


ARCHIVES = {
    "zip": zip_of(FILES),
    "deflated": zip_of(FILES, compression=zipfile.ZIP_DEFLATED),
    "tar": tar_of(FILES),
    "tar.gz": tar_of(FILES, "w:gz"),
    "tar.bz2": tar_of(FILES, "w:bz2"),
    "tar.xz": tar_of(FILES, "w:xz"),
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_every_format_is_unpacked(tmp_path: Path, name: str) -> None:
    (tmp_path / "archive").write_bytes(ARCHIVES[name])
    reports: list[float] = []
    progress = unpack(
        tmp_path / "archive", tmp_path / "folder", LIMITS, lambda state: reports.append(state.fraction)
    )
    assert unpacked(tmp_path / "folder") == FILES
    assert (progress.files, progress.bytes, progress.is_finished) == (3, sum(map(len, FILES.values())), True)
    assert reports == sorted(reports)


@given(name=st.sampled_from(sorted(ARCHIVES)), share=st.floats(0.02, 0.98))
def test_a_truncated_archive_is_refused(
    tmp_path_factory: pytest.TempPathFactory, name: str, share: float
) -> None:
    place = tmp_path_factory.mktemp("truncated")
    whole = ARCHIVES[name]
    # The end of a tar archive is padded with zeros, which are optional.
    (place / "archive").write_bytes(whole[: int(share * len(whole.rstrip(b"\0")))])
    with pytest.raises(ArchiveError, match=r"truncated|damaged|cannot be read"):
        unpack(place / "archive", place / "folder", LIMITS)
    assert not (place / "folder").exists()


@pytest.mark.parametrize(
    "files",
    [
        {f"{'a/' * 49}b.png": b"picture"},  # deeply nested
        {"Cat/a.png": b"1", "cat/a.png": b"2", "cat/A.png": b"3"},  # names that differ in case
    ],
)
def test_unusual_files_are_unpacked(tmp_path: Path, files: dict[str, bytes]) -> None:
    (tmp_path / "archive").write_bytes(zip_of(files))
    unpack(tmp_path / "archive", tmp_path / "folder", LIMITS)
    assert unpacked(tmp_path / "folder") == files


def test_a_full_disk_is_not_the_fault_of_the_archive(tmp_path: Path) -> None:
    (tmp_path / "archive").write_bytes(zip_of(FILES))
    full = replace(LIMITS, spare_bytes=1 << 60)
    with Unpacking(tmp_path / "archive", tmp_path / "folder", full) as process:
        while not process.has_ended:
            time.sleep(0.01)
        progress = process.progress
    assert progress.lacks_space and progress.bytes and "disk of the server is full" in progress.error
    assert not (tmp_path / "folder").exists()


NAMES = [f"{number}.png" for number in range(51)]
BOMB = {"zeros.png": bytes(101_000_000)}


def twice() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for data in (b"first", b"second"):
            archive.writestr("a/one.png", data)
    return file.getvalue()


def hidden_count() -> bytes:
    """A zip archive of 51 files that declares one."""
    data = bytearray(zip_of(dict.fromkeys(NAMES, b"")))
    struct.pack_into("<2H", data, data.rfind(b"PK\5\6") + 8, 1, 1)
    return bytes(data)


def hidden_size() -> bytes:
    """A zip archive with a file of 5000 bytes that declares ten."""
    data = bytearray(zip_of({"a.png": b"x" * 5000}, compression=zipfile.ZIP_DEFLATED))
    struct.pack_into("<L", data, data.rfind(b"PK\1\2") + 24, 10)
    return bytes(data)


def link(type_: bytes) -> bytes:
    return special_tar("data/odd", type=type_, linkname="/etc/passwd")


BOTH = "more than 50 files and folders"
FAULTS: list[tuple[str, Callable[[], bytes]]] = [
    ("nested more than 50 levels deep", lambda: zip_of({"b.png": b"", f"{'a/' * 50}b.png": b""})),
    ("nested more than 50 levels deep", lambda: zip_of({"b.png": b"", "a/" * 1000: b""})),
    (BOTH, lambda: zip_of(dict.fromkeys(["a.png", *(f"{n}{'/a' * 10}.png" for n in range(6))], b""))),
    (BOTH, lambda: zip_of(dict.fromkeys(["a.png", *(f"{n}/" for n in range(51))], b""))),
    ("more than 50 files", lambda: zip_of(dict.fromkeys(NAMES, b""))),
    ("more than 50 files", hidden_count),
    ("outside", lambda: zip_of({"good.png": b"good", "../evil": b"evil"})),
    ("outside", lambda: zip_of({"good.png": b"good", "a/../../evil": b"evil"})),
    ("outside", lambda: zip_of({"good.png": b"good", "/evil": b"evil"})),
    ("outside", lambda: zip_of({"good.png": b"good", "C:/evil": b"evil"})),
    ("outside", lambda: zip_of({"good.png": b"good", "..\\evil": b"evil"})),
    (r"(?=.*outside).*\.\./evil", lambda: special_tar("../evil", b"evil")),
    (r"(?=.*outside).*a/\.\./\.\./evil", lambda: special_tar("a/../../evil", b"evil")),
    (r"(?=.*outside).*/evil", lambda: special_tar("/evil", b"evil")),
    ("“data/odd” is a link or a device", lambda: link(tarfile.SYMTYPE)),
    ("“data/odd” is a link or a device", lambda: link(tarfile.LNKTYPE)),
    ("“data/odd” is a link or a device", lambda: link(tarfile.CHRTYPE)),
    ("“data/odd” is a link or a device", lambda: link(tarfile.FIFOTYPE)),
    ("“odd” is a link or a device", lambda: special_zip("odd", mode=0o120777)),
    ("“secret.png” is encrypted", lambda: special_zip("secret.png", flags=1)),
    ("“a/one.png” twice", twice),
    ("“a/one.png” twice, or as both", lambda: zip_of({"a": b"file", "a/one.png": b"x"})),
    ("too long", lambda: zip_of({"x" * 300: b""})),
    ("more than 200 times larger than the archive", lambda: zip_of(BOMB, compression=zipfile.ZIP_DEFLATED)),
    ("more than 200 times larger than the archive", lambda: tar_of(BOMB, "w:gz")),
    ("damaged", hidden_size),
    *(("Accepted are zip, tar", lambda data=data: data) for data in (b"Rar!\x1a\7", b"7z\xbc\xaf\x27\x1c")),
    *(("Accepted are zip, tar", lambda data=data: data) for data in (b"hello", b"", b"\0" * 2000)),
    ("contains no files", lambda: zip_of({"__MACOSX/x": b"", "a/.DS_Store": b""})),
]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(("message", "make"), FAULTS)
def test_other_archives_are_refused(
    refusal: Callable[..., str], message: str, make: Callable[[], bytes]
) -> None:
    assert re.search(message, refusal(make()))


@pytest.mark.parametrize("make", [zip_of, tar_of])
def test_too_many_bytes_are_refused(refusal: Callable[..., str], make: Callable[..., bytes]) -> None:
    data = make({"a": b"x" * 600, "b": b"x" * 600})
    assert "larger than" in refusal(data, replace(LIMITS, max_bytes=1000))


@given(data=st.sampled_from(sorted(ARCHIVES)), place=st.floats(0, 1), byte=st.integers(0, 255))
def test_a_damaged_archive_is_unpacked_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: str, place: float, byte: int
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    broken = bytearray(ARCHIVES[data])
    broken[int(place * (len(broken) - 1))] = byte
    (folder / "archive").write_bytes(broken)
    try:
        unpack(folder / "archive", folder / "folder", LIMITS)
    except ArchiveError:
        assert not (folder / "folder").exists()
    assert {path.name for path in folder.iterdir()} <= {"archive", "folder"}


def test_only_folders_at_the_top_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "a" / "b" / "cats").mkdir(parents=True)
    (tmp_path / "a" / "b" / "dogs").mkdir()
    assert content_folder(tmp_path) == tmp_path / "a" / "b"
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "link").symlink_to(tmp_path / "a")
    assert content_folder(tmp_path / "linked") == tmp_path / "linked"


def run(archive: Path, folder: Path, limits: Limits, data_bytes: int | None = None) -> UnpackingProgress:
    """Unpack in another process, of which ``data_bytes`` limits the memory."""
    request = Request(archive=str(archive), folder=str(folder), limits=limits)
    with subprocess.Popen(
        [sys.executable, "-m", "digits.data.archives.unpacking"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(unpacking.__file__).parents[3],
    ) as process:
        assert process.stdin and process.stdout
        if data_bytes:
            resource.prlimit(process.pid, resource.RLIMIT_DATA, (data_bytes, data_bytes))
        process.stdin.write(msgspec.json.encode(request) + b"\n")
        process.stdin.flush()
        return msgspec.json.decode(process.stdout.read().splitlines()[-1], type=UnpackingProgress)


@pytest.mark.integration
def test_the_program_refuses_a_million_entries_with_little_memory(tmp_path: Path) -> None:
    one = zip_of({"a": b""})
    start, entry = one.index(b"PK\1\2"), one[one.index(b"PK\1\2") : one.index(b"PK\5\6")]
    count = 1_000_000
    end64 = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, count, count, count * len(entry), start)
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, start + count * len(entry), 1)
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    (tmp_path / "archive").write_bytes(one[:start] + entry * count + end64 + locator + end)
    progress = run(tmp_path / "archive", tmp_path / "folder", LIMITS, data_bytes=256 << 20)
    assert "more than 50 files" in progress.error


def test_the_program_ends_with_the_server(tmp_path: Path) -> None:
    """The archive is a pipe that never ends."""
    os.mkfifo(tmp_path / "archive")
    request = Request(archive=str(tmp_path / "archive"), folder=str(tmp_path / "folder"), limits=LIMITS)
    process = subprocess.Popen(
        [sys.executable, "-m", "digits.data.archives.unpacking"], stdin=subprocess.PIPE
    )
    assert process.stdin
    process.stdin.write(msgspec.json.encode(request) + b"\n")
    process.stdin.close()
    assert process.wait(60) == 1


def nested(make: Callable[..., bytes] = zip_of, **archives: bytes) -> bytes:
    return make(
        {"labels.csv": b"id,label", **{name.replace("_", "."): data for name, data in archives.items()}}
    )


@pytest.mark.parametrize("make", [zip_of, tar_of])
def test_archives_in_an_archive_are_unpacked(tmp_path: Path, make: Callable[..., bytes]) -> None:
    data = nested(
        make,
        train_zip=zip_of({"train/cat/0.png": b"cat", "train/deep.tar.gz": tar_of({"a.png": b""}, "w:gz")}),
        test1_tar_gz=tar_of({"1.png": b"one"}, "w:gz"),
    )
    (tmp_path / "archive").write_bytes(data)
    progress = unpack(tmp_path / "archive", tmp_path / "folder", LIMITS)
    found = unpacked(tmp_path / "folder")
    deep = found.pop("train/deep.tar.gz")
    assert found == {"labels.csv": b"id,label", "train/cat/0.png": b"cat", "test1/1.png": b"one"}
    assert (progress.files, progress.bytes) == (4, sum(map(len, found.values())) + len(deep))
    assert progress.notes == ["Archives in archives in the archive are not unpacked: train/deep.tar.gz."]


def test_a_folder_that_exists_is_not_mixed_with_an_archive(tmp_path: Path) -> None:
    (tmp_path / "archive").write_bytes(zip_of({"a.zip": zip_of({"1.png": b"new"}), "a/1.png": b"old"}))
    unpack(tmp_path / "archive", tmp_path / "folder", LIMITS)
    assert unpacked(tmp_path / "folder") == {"a/1.png": b"old", "a.zip files/1.png": b"new"}


def test_files_that_are_no_archives_are_left_and_named(tmp_path: Path) -> None:
    whole = zip_of({"1.png": b"one" * 500, "2.png": b"two"}, compression=zipfile.ZIP_STORED)
    damaged = whole.replace(b"oneone", b"on!one", 1)
    (tmp_path / "archive").write_bytes(zip_of({"a.zip": damaged, "b.zip": b"text", "c.tar": tar_of(FILES)}))
    progress = unpack(tmp_path / "archive", tmp_path / "folder", LIMITS)
    left = {"a.zip": damaged, "b.zip": b"text"}
    assert unpacked(tmp_path / "folder") == left | {f"c/{name}": data for name, data in FILES.items()}
    assert not (tmp_path / "folder" / "a").exists()
    assert progress.files == 5
    assert progress.bytes == sum(map(len, [*left.values(), *FILES.values()]))
    assert [note.split(".zip is not unpacked. ")[0] for note in progress.notes] == ["a", "b"]
    assert "damaged" in progress.notes[0]


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("outer", [zip_of, tar_of])
@pytest.mark.parametrize(
    ("message", "make"),
    [
        ("outside", lambda: zip_of({"../evil": b"evil"})),
        ("outside", lambda: special_tar("../../evil", b"evil")),
        ("outside", lambda: zip_of({"/evil": b"evil"})),
        ("“in.zip/odd” is a link or a device", lambda: special_zip("odd", mode=0o120777)),
        ("“in.zip/data/odd” is a link or a device", lambda: link(tarfile.SYMTYPE)),
        ("“in.zip/a/one.png” twice", twice),
        ("“in.zip/secret.png” is encrypted", lambda: special_zip("secret.png", flags=1)),
        ("nested more than 50 levels", lambda: zip_of({f"{'a/' * 50}b.png": b""})),
    ],
)  # fmt: skip
def test_a_refused_archive_in_an_archive_remains_a_file(
    tmp_path: Path, message: str, make: Callable[[], bytes], outer: Callable[..., bytes]
) -> None:
    files = {"one.png": b"1", "in/kept.png": b"kept", "in.zip": make()}
    (tmp_path / "archive").write_bytes(outer({**files, "other.zip": zip_of({"2.png": b"2"})}))
    progress = unpack(tmp_path / "archive", tmp_path / "folder", LIMITS)
    assert unpacked(tmp_path / "folder") == {**files, "other/2.png": b"2"}
    (note,) = progress.notes
    assert note.startswith("in.zip is not unpacked. ") and re.search(message, note)
    assert (progress.files, progress.bytes) == (4, sum(map(len, files.values())) + 1)
    assert {path.name for path in (tmp_path / "folder").iterdir()} == {"one.png", "in", "in.zip", "other"}


@pytest.mark.slow
@pytest.mark.parametrize("outer", [zip_of, tar_of])
@pytest.mark.parametrize(
    ("message", "make"),
    [
        ("more than 50 files", lambda: zip_of(dict.fromkeys(NAMES[:49], b""))),
        ("more than 200 times larger", lambda: zip_of(BOMB, compression=zipfile.ZIP_DEFLATED)),
        ("larger than 1e-06 GB", lambda: zip_of({"a": b"x" * 600, "b": b"x" * 600})),
    ],
)
def test_the_limits_include_archives_in_an_archive(
    refusal: Callable[..., str], message: str, make: Callable[[], bytes], outer: Callable[..., bytes]
) -> None:
    limits = replace(LIMITS, max_bytes=1000) if message.endswith("GB") else LIMITS
    assert re.search(message, refusal(outer({"one.png": b"", "in.zip": make()}), limits))


LONG = "n" * 251
DAMAGED = zip_of({"1.png": b"damaged"}).replace(b"damaged", b"demaged", 1)


@pytest.mark.parametrize(
    ("files", "changed"),
    [
        ({"a/1": b"old", "a.zip": zip_of({"1": b"new"})}, {"a.zip files/1": b"new"}),
        (
            {"a/1": b"old", "a.zip files/1": b"old", "a.zip": zip_of({"1": b"new"})},
            {"a.zip files 2/1": b"new"},
        ),
        ({"a/1": b"old", "a.zip files/1": b"old", "a.zip": DAMAGED}, None),
        ({"a": b"old", "a.zip": zip_of({"1": b"new"})}, {"a.zip files/1": b"new"}),
        # An archive with a folder of its name, beside the other archive of that name.
        (
            {"a.tar.gz": tar_of({"a/1": b"one"}, "w:gz"), "a.zip": zip_of({"2": b"two"})},
            {"a/1": b"one", "a.zip files/2": b"two"},
        ),
        (
            {"a.tar": tar_of({"a/1": b"one"}), "a.zip": DAMAGED, "a.zip.zip": zip_of({"2": b"two"})},
            {"a/1": b"one", "a.zip": DAMAGED, "a.zip.zip files/2": b"two"},
        ),
        # No folder can have the name that it would need.
        ({LONG: b"old", f"{LONG}.zip": zip_of({"1": b"new"})}, None),
        ({".zip": zip_of({"1": b"new"}), ".tar": tar_of({"2": b"new"})}, {".zip files/1": b"new", ".tar files/2": b"new"}),
    ],
)  # fmt: skip
def test_no_file_or_folder_gives_way_to_an_archive(
    tmp_path: Path, files: dict[str, bytes], changed: dict[str, bytes] | None
) -> None:
    (tmp_path / "archive").write_bytes(zip_of(files))
    progress = unpack(tmp_path / "archive", tmp_path / "folder", LIMITS)
    kept = {name: data for name, data in files.items() if not name.endswith((".zip", ".tar", ".gz"))}
    assert unpacked(tmp_path / "folder") == (files if changed is None else kept | changed)
    assert progress.files == len(unpacked(tmp_path / "folder"))


def test_the_limits_count_what_remains(tmp_path: Path, refusal: Callable[..., str]) -> None:
    data = zip_of({"a.zip": zip_of({"1": b"x" * 600}), "b.zip": zip_of({"1": b"y" * 600})})
    assert "larger than" in refusal(data, replace(LIMITS, max_bytes=1199))
    (tmp_path / "archive").write_bytes(data)
    assert unpack(tmp_path / "archive", tmp_path / "folder", replace(LIMITS, max_bytes=1500)).bytes == 1200


@pytest.mark.integration
def test_the_program_asks_for_the_encoding_of_names(tmp_path: Path) -> None:
    names = ["고양이", "강아지", "자동차"]
    raw = {name: f"{number:0>{len(name.encode('cp949'))}}" for number, name in enumerate(names)}
    data = zip_of({f"{placeholder}/1.png": b"x" for placeholder in raw.values()})
    for name, placeholder in raw.items():
        data = data.replace(placeholder.encode(), name.encode("cp949"))
    (tmp_path / "archive").write_bytes(zip_of({"inner.zip": data}))
    progress = run(tmp_path / "archive", tmp_path / "folder", LIMITS)
    assert "cp949 (“고양이/1.png”)" in progress.error
    assert not (tmp_path / "folder").exists()
    unpack(tmp_path / "archive", tmp_path / "folder", LIMITS, encoding="cp949")
    assert {*unpacked(tmp_path / "folder")} == {f"inner/{name}/1.png" for name in names}
