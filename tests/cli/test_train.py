"""``digits train`` with the folder of a dataset."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from digits.cli.commands import digits
from digits.core import recipe
from digits.data.manifest import SplitRecords
from digits.data.targets.class_index import ClassIndex
from digits.kinds.standard_networks import network
from digits.runtime import standalone
from tests.datasets import manifest_of


@pytest.fixture
def dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a dataset of small grayscale images; weights are beside it."""
    monkeypatch.setenv("DIGITS_WEIGHTS_DIR", str(tmp_path / "weights"))
    folder = tmp_path / "digits"
    folder.mkdir()
    splits = {"train": SplitRecords(count=1000, counts=[500, 500], bytes=0, shards=[])}
    manifest_of(ClassIndex.of(["a", "b"]), side=28, groups=["a", "b"], splits=splits).save(folder)
    return folder


def test_the_recommended_network_is_trained_on_a_dataset(
    tmp_path: Path, dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standalone, "train", lambda rerun, say, compute, cluster: True)
    answer = CliRunner().invoke(digits, ["train", str(dataset)])
    assert answer.exit_code == 0, answer.output
    model = tmp_path / "digits-model"
    assert answer.output.splitlines() == [
        "1,000 grayscale images of 28×28 pixels: a small network such as LeNet is accurate and trains in minutes.",
        f"Training in {model}",
    ]
    assert (model / "network.py").read_text() == network("lenet").text
    training = recipe.load(model / "train", recipe.Train)
    assert (training.dataset, training.batch_size, training.weights) == (str(dataset), 32, None)

    (model / "network.py").write_text("# my own\n")
    again = CliRunner().invoke(digits, ["train", str(dataset)])
    assert again.output == f"Training in {model}\n" and (model / "network.py").read_text() == "# my own\n"


def test_the_compute_target_is_checked_before_anything_starts(dataset: Path) -> None:
    def output(code: int, *options: str) -> str:
        answer = CliRunner().invoke(digits, ["train", str(dataset), *options])
        assert answer.exit_code == code, answer.output
        return answer.output

    assert "there is no compute target “moon”\nUse local or slurm, or ray" in output(1, "--target", "moon")
    assert "Invalid value for --workers: Expected `int` <= 64" in output(2, "--workers", "65")
    assert "Invalid value for --memory-mb" in output(2, "--memory-mb", "0")
    assert "Invalid value for --options" in output(2, "--options", "constraint=a100")
