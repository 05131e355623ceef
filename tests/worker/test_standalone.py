"""``digits train`` runs a training from its recipe."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from click.testing import CliRunner, Result

from digits.cli.commands import digits
from digits.core import events, recipe
from digits.core.errors import BadRequest
from digits.core.resume_point import resume_point
from digits.runtime import standalone
from tests.shared_executor import SharedExecutor
from tests.waiting import has_ended, wait_until
from tests.worker import networks
from tests.worker.conftest import snapshot


@pytest.fixture
def run_here(start: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Return a function that runs ``digits`` in this process, and the task of the command in a fork of it."""

    def run(command: list[str], **options: Any) -> None:
        print(start(Path(command[-1])).wait().output)

    monkeypatch.setattr(standalone, "subprocess", SimpleNamespace(run=run))
    return lambda *arguments: CliRunner().invoke(digits, arguments)


def test_a_copied_job_trains_to_the_same_bytes(
    train: Any, gradients: Path, tmp_path: Path, run_clean: Callable[..., Any]
) -> None:
    first = train(networks.LINEAR, seed=None, solver={"type": "ADAM", "learning_rate": 0.01})
    moved = shutil.copytree(gradients, tmp_path / "elsewhere" / "dataset")
    copy = shutil.copytree(first.job_folder, tmp_path / "elsewhere" / "copy")
    training = recipe.load(copy / "train", recipe.Train)
    training.dataset = "/nowhere"
    training.save(copy / "train")
    (copy / "pretrained.keras").write_text("a file that the network may load")

    missing = CliRunner().invoke(digits, ["train", str(copy)])
    assert (missing.exit_code, missing.stdout) == (1, "")
    assert "there is no dataset in /nowhere" in missing.stderr and "--dataset" in missing.stderr

    answer = run_clean("-m", "digits", "train", str(copy), "--dataset", str(moved))
    assert answer.returncode == 0, answer.stderr + answer.stdout
    assert "Validation (epoch 2): loss = " in answer.stdout
    again = tmp_path / "elsewhere" / "copy-again"
    assert answer.stdout.startswith(f"Training in {again}\n")
    assert (again / "pretrained.keras").read_text() == "a file that the network may load"
    one, two = (snapshot(folder, "snapshot_2.ckpt") for folder in (first.job_folder, again))
    assert {name: value.tobytes() for name, value in one.items()} == {
        name: value.tobytes() for name, value in two.items()
    }


def test_a_check_prints_the_cost_and_leaves_the_folder_unchanged(
    model: Any, run_here: Callable[..., Result]
) -> None:
    job = model(networks.LINEAR).parent
    before = sorted(job.rglob("*"))
    answer = run_here("check", str(job))
    assert answer.exit_code == 0, answer.output
    assert (
        "The cross-entropy starts near the chance level." in answer.stdout
        and "estimated total" in answer.stdout
    )
    assert sorted(job.rglob("*")) == before


def test_an_eager_check_prints_values(model: Any, run_here: Callable[..., Result]) -> None:
    job = model(
        networks.LINEAR.replace("model = ", "print('least', self.x.numpy().min())\n        model = ", 1)
    ).parent
    answer = run_here("check", str(job), "--eager")
    assert answer.exit_code == 0, answer.output
    assert answer.stdout.count("least -") == 3
    assert "The loss of each step is " in answer.stdout


def test_a_check_reports_an_error_with_its_line(model: Any, run_here: Callable[..., Result]) -> None:
    job = model(networks.LINEAR.replace("scope='fc'", "scop='fc'")).parent
    answer = run_here("check", str(job))
    assert answer.exit_code == 1
    assert "digits: TypeError" in answer.stderr and "line 6 of the network" in answer.stderr
    missing = run_here("check", str(job / "nowhere"))
    assert missing.exit_code == 1 and "has no training recipe" in missing.stderr


def test_a_snapshot_is_exported(trained: Any, run_here: Callable[..., Result], tmp_path: Path) -> None:
    job = trained(networks.LINEAR).job_folder
    target = tmp_path / "exported"
    answer = run_here("export", str(job), str(target), "--epoch", "1")
    assert answer.exit_code == 0, answer.output
    assert f"Exported snapshot_1.ckpt to {target} (" in answer.stdout
    assert "input [any, 12, 12, 1] float32, 0 to 255" in answer.stdout
    assert "output output [any, 4] float32" in answer.stdout
    assert (target / "saved_model.pb").is_file()
    again = run_here("export", str(job), str(target))
    assert again.exit_code == 1 and "is not empty" in again.stderr
    other = run_here("export", str(job), str(tmp_path / "other"), "--epoch", "7")
    assert other.exit_code == 1 and "snapshots of epochs 2, 1." in other.stderr


def test_export_requires_a_snapshot(model: Any, tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="has no snapshot yet"):
        standalone.export(model(networks.LINEAR).parent, tmp_path / "out")


@pytest.mark.tensorflow
def test_an_error_is_reported(model: Any, executor: SharedExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standalone, "LocalExecutor", lambda **options: executor.for_site())
    task_folder = model("class UserModel(Tower):\n    pass\n")
    answer = CliRunner().invoke(digits, ["train", str(task_folder.parent)])
    assert answer.exit_code == 1
    assert "digits: UserModel has no property inference. Line 1." in answer.stderr


@pytest.mark.tensorflow
def test_a_stopped_training_resumes_and_does_not_outlive_its_command(
    model: Any, clean_environment: dict[str, str]
) -> None:
    task_folder = model(networks.LINEAR, epochs=100000, snapshot_interval=0, val_interval=0)
    command = [sys.executable, "-m", "digits", "train", str(task_folder.parent)]

    def begin(run: int) -> subprocess.Popen[str]:
        """Start the command, and wait until it trains."""
        process = subprocess.Popen(
            command, env=clean_environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        while rows_of_run(task_folder, run) < 3:
            assert process.poll() is None
            time.sleep(0.02)
        return process

    with begin(0) as process:
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "Run the same command again to resume it." in errors
    assert "from step" not in output
    point = resume_point(task_folder.parent)
    assert point

    with begin(1) as process:
        (worker,) = psutil.Process(process.pid).children()
        process.kill()
        output, _ = process.communicate(timeout=60)
    assert f"from step {point.step}\n" in output
    wait_until(lambda: has_ended(worker))
    # It saved its state when the command ended, and resumes in the same folder.
    again = standalone.prepare(task_folder.parent)
    assert again.job_folder == task_folder.parent and again.recipe.resume
    resumed = [event for event in read(task_folder) if isinstance(event, events.Resumed)]
    assert len(resumed) == 1 and 0 < resumed[0].step == point.step < again.step


def read(task_folder: Path) -> list[events.Event]:
    return events.read(task_folder / "events.jsonl")[0]


def rows_of_run(task_folder: Path, run: int) -> int:
    """Return the number of rows measured by the run with this index."""
    runs = "".join(
        "|" if isinstance(event, events.Resumed) else "m" if isinstance(event, events.Measured) else ""
        for event in read(task_folder)
    )
    return len(runs.split("|")[run]) if runs.count("|") == run else 0


@pytest.mark.parametrize("folder", ["nowhere", "."])
def test_a_folder_without_a_recipe_is_refused(tmp_path: Path, folder: str) -> None:
    with pytest.raises(BadRequest, match="has no training recipe"):
        standalone.prepare(tmp_path / folder)


def test_a_different_training_is_not_overwritten(model: Any, tmp_path: Path) -> None:
    job, other = model("", name="job").parent, model("", name="other")
    (other / "events.jsonl").write_bytes(events.encode(events.Progressed(0.5)))
    with pytest.raises(BadRequest, match="already contains a training"):
        standalone.prepare(job, output=other.parent)
    assert standalone.prepare(job, output=tmp_path / "new").job_folder == tmp_path / "new"
    assert standalone.prepare(job).job_folder == job
    (job / "train" / "events.jsonl").write_bytes(events.encode(events.Finished({"seed": 7})))
    further = [standalone.prepare(job) for _ in range(3)]
    assert [rerun.job_folder.name for rerun in further] == ["job-again", "job-again-2", "job-again-3"]
