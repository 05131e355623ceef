"""Finding and downloading pretrained weights, with servers that fail."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from digits.core.settings import read_settings
from digits.data.models import pretrained
from digits.data.models.pretrained import WeightsMissing, WeightsPlaces, obtain
from digits.data.models.pretrained_catalog import CATALOG, Pretrained, WeightsFile
from digits.data.models.weights_conversion import LayerWeights
from digits.data.samples import downloads
from digits.data.samples.downloads import SourceError, download_file
from tests.data.web import Web, running

DATA = bytes(range(256)) * 400
MD5 = hashlib.md5(DATA, usedforsecurity=False).hexdigest()
SHA256 = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def web() -> Iterator[Web]:
    with running(Web()) as server:
        server.default = DATA
        yield server


def download(web: Web, folder: Path, checksum: str = MD5, **options: Any) -> None:
    """Download `DATA` into ``folder``, and compare it."""
    download_file(f"{web.address}/net.h5", folder / "net.h5", checksum, lambda fraction: None, **options)
    assert (folder / "net.h5").read_bytes() == DATA


@pytest.fixture
def entry(web: Web) -> Pretrained:
    file = WeightsFile("net.h5", MD5, 1, 2)
    without_top = WeightsFile("net_notop.h5", SHA256, 1, 1)
    return Pretrained("tiny", "Net", "Net", f"{web.address}/keras", file, without_top, "MIT")


def no_progress(fraction: float, action: str) -> None:
    pass


@pytest.mark.parametrize("checksum", [MD5, SHA256])
def test_a_download_reports_its_progress(web: Web, tmp_path: Path, checksum: str) -> None:
    fractions: list[float] = []
    download_file(f"{web.address}/net.h5", tmp_path / "net.h5", checksum, fractions.append)
    assert (tmp_path / "net.h5").read_bytes() == DATA
    assert fractions[-1] == 1.0 and fractions == sorted(fractions)
    assert [path.name for path in tmp_path.iterdir()] == ["net.h5"]


def test_an_interrupted_download_continues_where_it_ended(web: Web, tmp_path: Path) -> None:
    web.cuts = [1000, 2000]
    download(web, tmp_path)
    assert [asked for _, asked in web.requested] == [None, "bytes=1000-", "bytes=3000-"]


def test_a_later_call_continues_a_download(web: Web, tmp_path: Path) -> None:
    web.cuts = [1000] + [0] * (downloads.ATTEMPTS - 1)
    with pytest.raises(SourceError, match="closed early"):
        download(web, tmp_path)
    assert not (tmp_path / "net.h5").exists()
    download(web, tmp_path)
    assert web.requested[-1][1] == "bytes=1000-"


def test_a_download_starts_again_without_ranges_or_with_a_part_of_another_version(
    web: Web, tmp_path: Path
) -> None:
    web.cuts, web.ranges = [1000], False
    download(web, tmp_path)
    (tmp_path / "net.h5").unlink()
    web.ranges = True
    (tmp_path / "net.h5.partial").write_bytes(b"other")
    download(web, tmp_path)


def test_a_stalled_download_ends(web: Web, tmp_path: Path) -> None:
    web.stalls, web.cuts = True, [1000] + [0] * downloads.ATTEMPTS
    with pytest.raises(SourceError, match=r"no data within 0\.2 seconds"):
        download(web, tmp_path, stall_seconds=0.2)


def test_a_wrong_checksum_leaves_no_file(web: Web, tmp_path: Path) -> None:
    web.default = DATA[:-1] + b"?"
    with pytest.raises(SourceError, match=r"checksum of net\.h5 is wrong"):
        download(web, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_weights_are_downloaded_once(web: Web, entry: Pretrained, tmp_path: Path) -> None:
    actions: list[str] = []
    places = WeightsPlaces(tmp_path / "weights")
    assert places.find(entry) is None
    for _ in range(2):
        found = obtain(entry, places, lambda fraction, action: actions.append(action))
        assert found.path.read_bytes() == DATA and not found.differs
    assert web.requested == [("/keras/net.h5", None)]
    assert actions[0] == "Downloading the weights of Net (1 MB)"
    assert places.find(entry) == found.path


def test_a_mirror_comes_before_keras(web: Web, entry: Pretrained, tmp_path: Path) -> None:
    obtain(entry, WeightsPlaces(tmp_path, [f"{web.address}/mirror/"]), no_progress)
    assert [path for path, _ in web.requested] == ["/mirror/net.h5"]


def test_the_folders_of_an_administrator_come_first(web: Web, entry: Pretrained, tmp_path: Path) -> None:
    folder = tmp_path / "provided"
    folder.mkdir()
    places = WeightsPlaces(tmp_path / "weights", [str(folder)])
    (folder / "net_notop.h5").write_bytes(DATA)
    assert obtain(entry, places, no_progress) == pretrained.Obtained(folder / "net_notop.h5")
    (folder / "net_notop.h5").write_bytes(b"trained here")
    assert obtain(entry, places, no_progress).differs
    (folder / "tiny.weights.h5").write_bytes(b"trained here")
    assert obtain(entry, places, no_progress) == pretrained.Obtained(folder / "tiny.weights.h5")
    assert web.requested == []


def test_a_damaged_download_is_repeated(web: Web, entry: Pretrained, tmp_path: Path) -> None:
    (tmp_path / "net.h5").write_bytes(DATA[:100])
    assert obtain(entry, WeightsPlaces(tmp_path), no_progress).path.read_bytes() == DATA


def test_the_message_says_which_file_is_missing_and_where_to_put_it(
    web: Web, entry: Pretrained, tmp_path: Path
) -> None:
    web.status = 404
    (tmp_path / "net.h5").write_bytes(DATA[:100])
    with pytest.raises(WeightsMissing) as raised:
        obtain(entry, WeightsPlaces(tmp_path), no_progress)
    hint = raised.value.hint
    assert f"Put the file net.h5 into {tmp_path}" in hint
    assert f"{tmp_path / 'net.h5'}: incomplete or damaged" in hint and "404" in hint


def test_an_unwritable_folder_is_named(entry: Pretrained, tmp_path: Path) -> None:
    (tmp_path / "weights").write_text("a file")
    with pytest.raises(WeightsMissing, match="cannot be written"):
        obtain(entry, WeightsPlaces(tmp_path / "weights"), no_progress)


def test_weights_without_a_checksum_are_not_downloaded(web: Web, entry: Pretrained, tmp_path: Path) -> None:
    file = WeightsFile("vit.h5", "", 1, 1)
    changes = {"address": "", "package": "keras_hub", "preset": "vit_preset"}
    entry = dataclasses.replace(entry, full=file, without_top=file, **changes)
    places = WeightsPlaces(tmp_path, [web.address])
    with pytest.raises(WeightsMissing) as raised:
        obtain(entry, places, no_progress)
    assert web.requested == []
    assert "keras_hub.models.Net.from_preset('vit_preset').save_weights('vit.h5')" in raised.value.hint
    assert f"Put the file vit.h5 into {tmp_path}" in raised.value.hint
    (tmp_path / "vit.h5").write_bytes(DATA)
    assert obtain(entry, places, no_progress) == pretrained.Obtained(tmp_path / "vit.h5")


@dataclass(frozen=True)
class Package:
    """A package whose only file is `DATA`."""

    name = "the package weights"

    def fetch(self, folder: Path, report: Callable[[float], None]) -> dict[str, bytes]:
        report(1.0)
        return {"weights.bin": DATA}


def test_weights_in_a_package_are_converted(web: Web, entry: Pretrained, tmp_path: Path) -> None:
    web.status = 404

    def read(files: Mapping[str, bytes]) -> LayerWeights:
        return {"conv": {"kernel": np.frombuffer(files["weights.bin"], np.float32)}}

    entry = dataclasses.replace(entry, packages=((Package(), read),))
    places = WeightsPlaces(tmp_path)
    found = obtain(entry, places, no_progress)
    assert found.path == tmp_path / "tiny.h5" == places.find(entry)
    with h5py.File(found.path) as file:
        assert list(file.attrs["layer_names"]) == ["conv"]
        assert file["conv/kernel"][()].tobytes() == DATA
    assert obtain(entry, places, no_progress) == found
    assert [path for path, _ in web.requested] == ["/keras/net.h5"]


def test_every_entry_of_keras_has_files_with_checksums() -> None:
    entries = [entry for entry in CATALOG.values() if entry.package == "keras"]
    names = [file.name for entry in entries for file in entry.files]
    assert len(set(names)) == len(names) == 2 * len(entries)
    for entry in entries:
        assert entry.address.startswith("https://storage.googleapis.com/tensorflow/keras-applications/")
        assert all(len(file.checksum) in (32, 64) for file in entry.files)
        assert dataclasses.asdict(entry)["license"]


def test_sources_are_folders_or_addresses(tmp_path: Path) -> None:
    settings = read_settings({"DIGITS_WEIGHTS_SOURCES": f"{tmp_path},https://mirror.example/w/"})
    assert settings.weights_sources == (str(tmp_path), "https://mirror.example/w")
