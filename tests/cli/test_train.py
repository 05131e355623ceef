"""``digits train`` with the folder of a dataset."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from digits.cli.commands import digits
from digits.core import recipe
from digits.core.job import DeviceRequest
from digits.core.task import Failure
from digits.data.manifest import SplitRecords
from digits.data.targets.class_index import ClassIndex
from digits.kinds.standard_networks import network
from digits.runtime import standalone
from tests.datasets import manifest_of
from tests.fake_cluster import FakeCluster


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


@pytest.mark.parametrize(("devices", "gpus"), [(["cpu"], 0), (["0", "1"], 6)])
def test_a_cluster_is_asked_for_the_gpus_of_all_workers(
    dataset: Path, monkeypatch: pytest.MonkeyPatch, devices: list[str], gpus: int
) -> None:
    asked = []

    class Refusing(FakeCluster):
        def refusal(self, folder: Path, request: DeviceRequest) -> Failure:
            asked.append((request.gpu_count, request.compute.workers))
            return Failure("No node has them.", "Request less.")

    model = dataset.with_name("model")
    with monkeypatch.context() as patched:
        patched.setattr(standalone, "train", lambda rerun, say, compute, cluster: True)
        CliRunner().invoke(digits, ["train", str(dataset), "--output", str(model)])
    training = recipe.load(model / "train", recipe.Train)
    training.devices = devices
    training.save(model / "train")
    monkeypatch.setattr(
        "digits.runtime.executors.targets.configured_clusters", lambda settings: {"slurm": Refusing()}
    )
    answer = CliRunner().invoke(digits, ["train", str(model), "--target", "slurm", "--workers", "3"])
    assert answer.exit_code == 1 and "No node has them." in answer.output
    assert asked == [(gpus, 3)]
