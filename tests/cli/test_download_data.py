"""``digits download-data``: what it prints, removes and refuses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from digits.cli.commands import digits
from digits.data.samples.catalog import SAMPLES, Sample
from digits.data.samples.downloads import Report, SourceError
from digits.data.samples.formats import LabeledImages


class Memory:
    """An in-memory source, which needs no network."""

    checksums = ("set.bin",)

    def __init__(self, name: str = "https://authors.test/set", works: str = "") -> None:
        self.name = name
        self._works = works or name

    def at(self, address: str) -> Memory:
        return Memory(address, self._works)

    def fetch(self, folder: Path, report: Report) -> dict[str, bytes]:
        if self.name != self._works:
            raise SourceError("it cannot be reached")
        report(1.0)
        return {}


def read(files: object) -> dict[str, LabeledImages]:
    images = LabeledImages(np.zeros((4, 4, 4, 1), np.uint8), np.arange(4) % 2)
    return {"train": images, "test": images}


def add_sample(monkeypatch: pytest.MonkeyPatch, works: str = "") -> None:
    sample = Sample("set", "The set", "", 4, 4, 1, ("a", "b"), web=Memory(works=works), read=read)
    monkeypatch.setitem(SAMPLES, "set", sample)


def test_download_data_shows_progress_and_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_sample(monkeypatch)
    (tmp_path / "train").mkdir()
    (tmp_path / "mine.txt").touch()
    answer = CliRunner().invoke(digits, ["download-data", "set", str(tmp_path), "--clean"])
    lines = answer.stdout.splitlines()
    assert answer.exit_code == 0
    assert lines[0] == "Downloading The set from https://authors.test/set (0%)"
    assert lines[-1] == f"Dataset directory is {tmp_path}"
    assert len(lines) == len(set(lines))
    assert (tmp_path / "mine.txt").exists() and (tmp_path / "train" / "a").is_dir()


def test_download_data_uses_the_configured_mirrors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_sample(monkeypatch, works="http://mirror.test/data/set")
    command = ["download-data", "set", str(tmp_path)]
    failed = CliRunner().invoke(digits, command)
    assert failed.exit_code == 1
    assert (
        "digits: The set could not be downloaded.\nTried https://authors.test/set: it cannot" in failed.stderr
    )
    environment = {"DIGITS_SAMPLE_MIRRORS": "http://other.test, http://mirror.test/data/"}
    assert CliRunner().invoke(digits, command, env=environment).exit_code == 0
    wrong = CliRunner().invoke(digits, command, env={"DIGITS_SAMPLE_MIRRORS": "mirror.test"})
    assert wrong.exit_code == 2
    assert "DIGITS_SAMPLE_MIRRORS: takes addresses such as https://" in wrong.stderr


def test_unknown_samples_are_refused(tmp_path: Path) -> None:
    answer = CliRunner().invoke(digits, ["download-data", "imagenet", str(tmp_path)])
    assert answer.exit_code == 1
    assert "no sample called 'imagenet'" in answer.stderr
    assert "Available: mnist, fashion-mnist, cifar10." in answer.stderr
