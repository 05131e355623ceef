"""Short tasks: visualize a network, preview augmentation, run a preflight check, export a snapshot, import a model,
download pretrained weights.

Each runs in a separate folder while a request waits for it. Only a few run at the same time; others wait.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from msgspec import structs

from digits.core import events, pretrained_files
from digits.core.errors import NotReady, Unavailable
from digits.core.files import make_folder
from digits.core.job import DeviceRequest
from digits.core.model_job import NETWORK_FILE, NETWORK_SECONDS
from digits.core.recipe import (
    Export,
    ImportModel,
    ObtainWeights,
    Preflight,
    PreviewAugmentation,
    Recipe,
    Visualize,
)
from digits.core.task import EVENTS_FILE, Failure, TaskState
from digits.data.models.pretrained_catalog import PREFIX
from digits.runtime.task_runner import Phase, TaskRun, TaskRunner

POOL = "short"
# Long enough that the worker names the line of a network that does not come to an end, and for a step of a large
# network on a CPU.
SECONDS_FOR_A_STEP = NETWORK_SECONDS + 60.0
# The file of pretrained weights that a check downloads has about 100 MB.
SECONDS_TO_DOWNLOAD = 1800.0
SECONDS_TO_EXPORT = 180.0
SECONDS: dict[type[Recipe], float] = {
    ImportModel: 300.0,
    PreviewAugmentation: 30.0,
    ObtainWeights: SECONDS_TO_DOWNLOAD,
}
QUEUE_SECONDS = 60.0
EXPORTED_FOLDER = "exported"
KEPT = 20
POLL_SECONDS = 0.01
_LAST_LINES = 20
_ID = re.compile(r"preview-[0-9a-f]{12}")


@dataclass(frozen=True)
class Holder:
    """The user of a GPU as shown on pages."""

    name: str
    owner: str | None = None


PREFLIGHT = Holder("Check of a network")
ON_CPU = DeviceRequest(POOL, if_free=True)


@dataclass(frozen=True)
class ShortTaskResult:
    """The final state of a short task, with its failure if any, and its folder of products."""

    id: str
    folder: Path
    state: TaskState
    seconds: float


class ShortTasks:
    """Runs short tasks in folders below ``folder``, and keeps the products of the latest ones.

    ``discard`` deletes folders in the background. ``queue_seconds`` is the longest time that a task
    waits while too many others are running.
    """

    def __init__(
        self,
        folder: Path,
        runner: TaskRunner,
        discard: Callable[[Path], None],
        queue_seconds: float = QUEUE_SECONDS,
    ) -> None:
        self._folder = folder
        self._runner = runner
        self._discard = discard
        self._queue_seconds = queue_seconds
        # In order of creation, which file times do not show reliably: the clock can be set back.
        self._kept: deque[Path] = deque()
        self._watched: dict[str, TaskState] = {}
        # The latest preview of each form.
        self._previews: dict[str, TaskRun] = {}

    def clear(self) -> None:
        """Stop the tasks of an earlier server, and remove their folders."""
        if self._folder.exists():
            self._runner.clear(self._folder)
            self._discard(self._folder)

    def visualize(
        self, network: str, dataset_folder: Path, crop_size: int | None, network_folder: Path | None = None
    ) -> ShortTaskResult:
        """Build ``network`` and report its layers. Raises Unavailable, like all methods that run a task.

        ``network_folder`` contains the `pretrained_files` to which the network refers, if any.
        """
        recipe = Visualize(dataset=str(dataset_folder), crop_size=crop_size)
        with self._new_folder() as folder:
            write_network(folder, network, network_folder)
            return self._run(folder, recipe, SECONDS_FOR_A_STEP)

    def preflight(
        self,
        network: str,
        recipe: Preflight,
        request: DeviceRequest,
        watch: str = "",
        network_folder: Path | None = None,
    ) -> ShortTaskResult:
        """Check the training that ``recipe`` describes, on the CPU if the requested GPUs are in use.

        Meanwhile, `watched` reports its progress under the name ``watch``. See `visualize` for ``network_folder``.
        """
        # One GPU is enough, unless specific ones are requested: then those of the first worker.
        gpus = request.gpus[: request.gpus_per_worker]
        spare = DeviceRequest(POOL, min(request.gpu_count, 1), gpus, if_free=True)
        recipe = structs.replace(recipe, workers=request.compute.workers)
        with self._new_folder() as folder:
            write_network(folder, network, network_folder)
            seconds = SECONDS_FOR_A_STEP
            if (recipe.weights or "").startswith(PREFIX):
                seconds += SECONDS_TO_DOWNLOAD
            return self._run(folder, recipe, seconds, watch, request=spare)

    def run(self, recipe: Recipe, *, watch: str = "", form: str = "") -> ShortTaskResult:
        """Run a task that needs nothing but its recipe, such as an import of a model. See `preflight` for ``watch``.

        Stops the task of the same ``form`` that is still running, if there is one: its settings are outdated. That
        call then raises NotReady.
        """
        with self._new_folder() as folder:
            return self._run(folder, recipe, SECONDS[type(recipe)], watch, form=form)

    def export(self, job_folder: Path, snapshot: str, dataset_folder: Path) -> ShortTaskResult:
        """Write a ``snapshot`` of a model job as a SavedModel into `EXPORTED_FOLDER` of the result's folder."""
        with self._new_folder() as folder:
            recipe = Export(
                model=str(job_folder),
                snapshot=snapshot,
                dataset=str(dataset_folder),
                target=str(folder / EXPORTED_FOLDER),
            )
            return self._run(folder, recipe, SECONDS_TO_EXPORT)

    def watched(self, watch: str) -> TaskState | None:
        """Return the current state of a preflight or download, or None if there is none with this name."""
        return self._watched.get(watch)

    def folder(self, task_id: str) -> Path | None:
        """Return the folder of a task whose products are still kept."""
        folder = self._folder / task_id
        return folder if _ID.fullmatch(task_id) and folder.is_dir() else None

    def tensorboard_folder(self, task_id: str) -> Path | None:
        """Return the TensorBoard folder of a task whose products are still kept."""
        folder = self.folder(task_id)
        return folder / "tb" if folder else None

    def forget(self, result: ShortTaskResult) -> None:
        """Delete the products of a task."""
        self._discard(result.folder)

    @contextlib.contextmanager
    def _new_folder(self) -> Iterator[Path]:
        """Create the folder of a task; remove it if the block raises."""
        folder = self._folder / f"preview-{secrets.token_hex(6)}"
        make_folder(self._folder)
        folder.mkdir(mode=0o700)
        try:
            self._kept.append(folder)
            while len(self._kept) > KEPT:
                self._discard(self._kept.popleft())
            yield folder
        except BaseException:
            self._discard(folder)
            raise

    def _run(
        self,
        folder: Path,
        recipe: Recipe,
        seconds_allowed: float,
        watch: str = "",
        form: str = "",
        request: DeviceRequest = ON_CPU,
    ) -> ShortTaskResult:
        """Run a task and wait for it; a timeout while it runs is reported as its failure."""
        began = time.monotonic()
        task_folder = folder / recipe.task
        task_folder.mkdir(mode=0o700)
        state = TaskState(doing="Waiting for other checks")
        run = TaskRun(
            folder=task_folder,
            request=request,
            holder=PREFLIGHT,
            prepare=partial(prepare, task_folder, recipe, state),
            follow=partial(follow, state),
            queue_seconds=self._queue_seconds,
            seconds=seconds_allowed,
            poll_seconds=POLL_SECONDS,
        )
        if watch:
            self._watched[watch] = state
        if form:
            if earlier := self._previews.get(form):
                self._runner.stop(earlier)
            self._previews[form] = run
        try:
            self._runner.submit(run)
            self._runner.wait(run)
        except BaseException:
            self._runner.stop(run)
            raise
        finally:
            self._watched.pop(watch, None)
            is_latest = not form or self._previews.get(form) is run
            if is_latest:
                self._previews.pop(form, None)
        if not is_latest and not state.is_finished:
            raise NotReady("A newer request of this form has taken its place, or the form was closed.")
        self._check(run, state, seconds_allowed)
        return ShortTaskResult(folder.name, folder, state, round(time.monotonic() - began, 3))

    def _check(self, run: TaskRun, state: TaskState, seconds_allowed: float) -> None:
        """Complete the ``state`` of a settled run; raises an error if it did not run."""
        if run.error:
            raise run.error
        if state.is_finished or state.failure:
            return
        if run.timed_out is Phase.QUEUED:
            raise Unavailable(
                f"Too many other checks are running: this one waited {self._queue_seconds:g} seconds for its turn.",
                "Try again when they have finished.",
            )
        if run.timed_out:
            activity = f" Its last activity: {state.doing}." if state.doing else ""
            state.failure = Failure(
                f"The task took longer than {seconds_allowed:.0f} seconds.{activity}",
                "Check the network for an endless loop. If this machine is too slow, reduce the batch size or "
                "the image size.",
            )
        elif run.exit is None or (run.exit.stopped and run.handle is None):
            raise Unavailable("The server is shutting down.")
        else:
            last_lines = "\n".join(self._runner.last_lines(run, _LAST_LINES))
            state.failure = Failure("The network ended the program during the check.", last_lines)


def write_network(folder: Path, network: str, network_folder: Path | None) -> None:
    """Write the text of a network into the ``folder`` of a task; see `ShortTasks.visualize`."""
    (folder / NETWORK_FILE).write_text(network)
    if network_folder:
        pretrained_files.link(network_folder, folder)


def prepare(task_folder: Path, recipe: Recipe, state: TaskState, devices: Sequence[str]) -> None:
    """Write the recipe of a task for ``devices``."""
    state.doing = ""
    if isinstance(recipe, Preflight):
        recipe.devices = list(devices)
    recipe.save(task_folder)


def follow(state: TaskState, run: TaskRun) -> bool:
    """Read new events of ``run`` into ``state``; return whether all were read."""
    deadline = time.monotonic() + events.TURN_SECONDS
    _, is_complete = state.read(run.folder / EVENTS_FILE, deadline)
    if state.is_finished or state.failure:
        run.settle()
    return is_complete
