"""Work on the folder of a model job without the server: train the model, check it, export it.

The recipe in the folder describes the whole training.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from msgspec import structs

from digits.core import events, pretrained_files, snapshot_list
from digits.core import recipe as recipes
from digits.core.compute import Compute
from digits.core.errors import BadRequest
from digits.core.files import UnreadableFile, sync_folder, write_bytes
from digits.core.job import DeviceRequest
from digits.core.model_job import POOL, epoch_label
from digits.core.recipe import Export, ExportFormat, Preflight, Recipe, Train
from digits.core.resume_point import resume_point
from digits.core.task import EVENTS_FILE, EXIT_BUSY, TaskState
from digits.data import manifest
from digits.runtime.executors.cluster import ClusterExecutor
from digits.runtime.executors.executor import CPU, Placement, open_devices
from digits.runtime.executors.local import LocalExecutor, devices_environment
from digits.runtime.executors.pools import Executors
from digits.runtime.supervisor import EXIT_FILE
from digits.runtime.task_runner import TaskRun, TaskRunner

TASK = "train"
# More than a training prints between two polls.
OUTPUT_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True)
class Rerun:
    """A training that is about to run in ``job_folder``, from ``step`` on."""

    job_folder: Path
    recipe: Train
    step: int = 0

    @property
    def task_folder(self) -> Path:
        return self.job_folder / TASK


def prepare(job_folder: Path, dataset: Path | None = None, output: Path | None = None) -> Rerun:
    """Prepare to train the model in ``job_folder``; pass ``dataset`` if the recipe's dataset was moved.

    A new job runs in its folder, and one that ended early resumes there. A finished training is repeated with the
    same seed in the folder ``output``, by default in a new one beside it. Raises BadRequest if something is missing.
    """
    job_folder = job_folder.resolve()
    recipe = _recipe(job_folder)
    log_file = job_folder / TASK / EVENTS_FILE
    if output is None and events.is_written(log_file):
        raise _busy(job_folder)
    recipe = _on(dataset, recipe)
    state = _state_in(log_file)
    point = resume_point(job_folder)
    if output is None and not state.cursor:
        rerun = Rerun(job_folder, recipe)
    elif output is None and not state.is_finished:
        rerun = Rerun(job_folder, structs.replace(recipe, resume=True), point.step if point else 0)
    else:
        drawn = (state.result or {}).get("seed")
        seed = recipe.seed if recipe.seed is not None or not isinstance(drawn, int) else drawn
        target = output or _beside(job_folder)
        rerun = Rerun(target, structs.replace(recipe, seed=seed, resume=False))
        _copy_network(job_folder, rerun)
    rerun.recipe.save(rerun.task_folder)
    return rerun


def train(
    rerun: Rerun,
    say: Callable[[str], object],
    compute: Compute = Compute(),  # noqa: B008 (immutable)
    cluster: ClusterExecutor | None = None,
) -> bool:
    """Train to the end, and call ``say`` with each line that the training prints; return whether it succeeded.

    It runs on this machine, or on the ``cluster`` that ``compute`` names. SIGINT, SIGTERM and SIGHUP stop it, and so
    does the end of this process, except on a cluster. Raises BadRequest if the scheduler would refuse it.
    """
    folder = rerun.task_folder.absolute()
    gpu_count = sum(device != CPU for device in rerun.recipe.devices)
    request = DeviceRequest(POOL, gpu_count * (compute.workers if cluster else 1), compute=compute)
    placement = Placement(request, tuple(rerun.recipe.devices))
    clusters = {compute.target: cluster} if cluster else {}
    runner = TaskRunner(Executors(LocalExecutor(standby=False, environment=_environment()), clusters))
    if cluster:
        if refused := cluster.refusal(folder, request):
            raise BadRequest(refused.message, refused.hint)
        placement = Placement(request, open_devices(request))
        rerun.recipe.devices = [*placement.devices]
        rerun.recipe.save(folder)
        (folder / EXIT_FILE).unlink(missing_ok=True)  # of the previous run, which has the same number
        runner.serve()  # its executor works in greenlets
    printer = _Printer(runner, say)
    run = TaskRun(
        folder=folder,
        request=request,
        placement=placement,
        prepare=lambda devices: None,  # the recipe already exists
        follow=printer.print_output,
    )
    with _stopped_by_signals(lambda: runner.stop(run)):
        runner.submit(run)
        runner.wait(run)
    for executor in runner.executors:
        executor.close()
    error = run.error or printer.error
    if error:
        raise error
    if run.exit and run.exit.code == EXIT_BUSY:
        raise _busy(rerun.job_folder)
    return run.exit is not None and run.exit.went_well


class _Printer:
    """Calls ``say`` with each line that a run prints, and why it waits.

    If it raises, the run is stopped; see ``error``.
    """

    def __init__(self, runner: TaskRunner, say: Callable[[str], object]) -> None:
        self.error: Exception | None = None
        self._runner = runner
        self._say = say
        self._offset = 0
        self._rest = self._reason = ""

    def print_output(self, run: TaskRun) -> None:
        executor = self._runner.executor_of(run)
        reason = run.waiting.reason if run.waiting else ""
        if reason and reason != self._reason:
            self._say(f"Waiting because {reason}")
        self._reason = reason
        text, self._offset = executor.output(run.folder, self._offset, OUTPUT_BYTES)
        *lines, self._rest = (self._rest + text).split("\n")
        if run.has_ended and self._rest:
            lines.append(self._rest)
        try:
            for line in lines if self.error is None else ():
                self._say(line)
        except Exception as error:  # such as a closed pipe
            self.error = error
            self._runner.stop(run)


def check(job_folder: Path, dataset: Path | None = None, eager: bool = False) -> TaskState:
    """Run the first step of the training in the folder of a model job, in this terminal, without changing the folder.

    With ``eager``, run a few steps without a graph; the network can print values and call
    ``breakpoint()``. Raises BadRequest if something is missing.
    """
    job_folder = job_folder.resolve()
    training = _on(dataset, _recipe(job_folder))
    recipe = Preflight.of(training, eager=eager)
    return _done(recipe, training, job_folder / training.network)


def export(
    job_folder: Path,
    target: Path,
    epoch: float | None = None,
    dataset: Path | None = None,
    format_: ExportFormat = "savedmodel",
) -> TaskState:
    """Write the snapshot of ``epoch``, by default the best one, in another format into ``target``.

    Raises BadRequest if something is missing or ``target`` exists.
    """
    job_folder = job_folder.resolve()
    training = _on(dataset, _recipe(job_folder))
    if target.exists():  # the task checks it too, but only after it has imported TensorFlow
        raise BadRequest(f"The folder {target} is not empty.", "Choose another folder.")
    snapshots = snapshot_list.read(job_folder)
    snapshot = snapshots.default if epoch is None else snapshots.of_epoch(epoch)
    if snapshot is None:
        epochs = ", ".join(epoch_label(snapshot.epoch) for snapshot in snapshots)
        raise BadRequest(
            f"{job_folder} has no such snapshot" if snapshots else f"{job_folder} has no snapshot yet",
            f"It has snapshots of epochs {epochs}." if snapshots else "",
        )
    recipe = Export(
        model=str(job_folder),
        snapshot=snapshot.name,
        dataset=training.dataset,
        target=str(target.absolute()),
        format=format_,
    )
    return _done(recipe, training)


def _done(recipe: Recipe, training: Train, network: Path | None = None) -> TaskState:
    """Run a short task in this terminal, on the devices of ``training``; return its state."""
    with tempfile.TemporaryDirectory(prefix="digits-") as folder:
        task_folder = Path(folder) / recipe.task
        task_folder.mkdir()
        if network:
            shutil.copyfile(network, task_folder.parent / network.name)
            pretrained_files.link(network.parent, task_folder.parent)
        recipe.save(task_folder)
        subprocess.run(
            _command(task_folder),
            env={**_environment(), **devices_environment(training.devices)},
            cwd=task_folder,
            check=False,
        )
        return _state_in(task_folder / EVENTS_FILE)


def _state_in(log: Path) -> TaskState:
    state = TaskState()
    state.read(log)
    return state


def _on(dataset: Path | None, recipe: Train) -> Train:
    """Replace the dataset of ``recipe`` if ``dataset`` is given; raises BadRequest if there is none."""
    if dataset is not None:
        recipe = structs.replace(recipe, dataset=str(dataset.resolve()))
    if not (Path(recipe.dataset) / manifest.FILE_NAME).is_file():
        raise BadRequest(
            f"there is no dataset in {recipe.dataset}", "Name the folder of its job with --dataset FOLDER."
        )
    return recipe


def _command(task_folder: Path) -> list[str]:
    return [sys.executable, "-P", "-u", "-m", "digits.worker", str(task_folder.absolute())]


def _environment() -> dict[str, str]:
    return {"TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONUNBUFFERED": "1", **os.environ}


def _busy(job_folder: Path) -> BadRequest:
    return BadRequest(
        f"a training is running in {job_folder}",
        "Wait until it ends, stop it, or train in another folder with --output FOLDER.",
    )


@contextmanager
def _stopped_by_signals(stop: Callable[[], object]) -> Iterator[None]:
    """Call ``stop`` when this process receives a signal to end."""

    def handle(signum: int, frame: object) -> None:
        stop()

    before = {
        number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def failure(rerun: Rerun) -> str:
    """Return the error of a failed training; empty if it was stopped."""
    failed = _state_in(rerun.task_folder / EVENTS_FILE).failure
    if failed is None:
        return ""
    where = f"Line {failed.line}." if failed.line and f"line {failed.line}" not in failed.hint else ""
    return " ".join(filter(None, (failed.message, where, failed.hint)))


def _recipe(job_folder: Path) -> Train:
    try:
        recipe = recipes.load(job_folder / TASK, Train)
    except UnreadableFile as error:
        raise BadRequest(
            f"{job_folder} has no training recipe: {error}", "Name the folder of a model job."
        ) from error
    if not (job_folder / recipe.network).is_file():
        raise BadRequest(f"{job_folder} has no network: {recipe.network} is missing")
    return recipe


def _beside(job_folder: Path) -> Path:
    job_folder = job_folder.absolute()
    number, target = 1, job_folder.with_name(f"{job_folder.name}-again")
    while target.exists():
        number += 1
        target = job_folder.with_name(f"{job_folder.name}-again-{number}")
    return target


def _copy_network(job_folder: Path, rerun: Rerun) -> None:
    if (rerun.task_folder / EVENTS_FILE).exists():
        raise BadRequest(
            f"{rerun.job_folder} already contains a training", "Choose another folder for --output."
        )
    rerun.task_folder.mkdir(parents=True, exist_ok=True)
    sync_folder(rerun.job_folder.parent)
    write_bytes(rerun.job_folder / rerun.recipe.network, (job_folder / rerun.recipe.network).read_bytes())
    pretrained_files.link(job_folder, rerun.job_folder)
