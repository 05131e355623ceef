"""Builds a network while it is being written: a short task in a folder of its own."""

from __future__ import annotations

import contextlib
import re
import secrets
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from digits.core import events
from digits.core.model_job import NETWORK_FILE
from digits.core.recipe import Export, Preflight, Recipe, Visualize
from digits.core.task import EVENTS_FILE, Failure, Handle, TaskState
from digits.runtime import task_output
from digits.runtime.executor import Executor, devices_environment

SECONDS_TO_BUILD = 60.0
# A step of a large network takes its time on a processor.
SECONDS_FOR_A_STEP = 180.0
SECONDS_TO_EXPORT = 180.0
EXPORTED_FOLDER = "exported"
KEPT = 20
_POLL_SECONDS = 0.01
_ID = re.compile(r"preview-[0-9a-f]{12}")


@dataclass(frozen=True)
class Preview:
    """What came out: what the task told, with its failure if it failed."""

    id: str
    folder: Path
    state: TaskState
    seconds: float

    def forget(self) -> None:
        """Remove the products."""
        shutil.rmtree(self.folder, ignore_errors=True)


class Previews:
    """Runs short tasks on a network and keeps the products of the latest ones."""

    def __init__(self, folder: Path, executor: Executor, discard: Callable[[Path], None]) -> None:
        """``discard`` deletes a folder, immediately or later."""
        self._folder = folder
        self._executor = executor
        self._discard = discard
        # In order of creation, which file times do not show reliably: the clock can be set back.
        self._kept: deque[Path] = deque()
        self._watched: dict[str, TaskState] = {}

    def clear(self) -> None:
        """Remove the leftovers of an earlier server."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def build(self, network: str, dataset_folder: Path, crop_size: int | None) -> Preview:
        """Build ``network`` in a process of its own and wait for it."""
        # Building needs no GPU, and those there are may be busy.
        recipe = Visualize(dataset=str(dataset_folder), crop_size=crop_size)
        return self._run(network, recipe, ["cpu"], SECONDS_TO_BUILD)

    def try_step(self, network: str, recipe: Preflight, devices: list[str], watch: str = "") -> Preview:
        """Run a preflight of ``network`` in a separate process and wait for it.

        Meanwhile, `watched` reports its progress under the caller's name ``watch``.
        """
        return self._run(network, recipe, devices, SECONDS_FOR_A_STEP, watch)

    def watched(self, watch: str) -> TaskState | None:
        """The events of a running preflight so far; None if there is none with this name."""
        return self._watched.get(watch)

    def export(self, job_folder: Path, snapshot: str, dataset_folder: Path) -> Preview:
        """Write a ``snapshot`` of a model job as a SavedModel into `EXPORTED_FOLDER` of the preview's folder."""
        with self._new_folder() as folder:
            recipe = Export(
                model=str(job_folder),
                snapshot=snapshot,
                dataset=str(dataset_folder),
                target=str(folder / EXPORTED_FOLDER),
            )
            return self._do(folder, recipe, ["cpu"], SECONDS_TO_EXPORT)

    def _run(
        self, network: str, recipe: Recipe, devices: list[str], seconds_allowed: float, watch: str = ""
    ) -> Preview:
        with self._new_folder() as folder:
            (folder / NETWORK_FILE).write_text(network)
            return self._do(folder, recipe, devices, seconds_allowed, watch)

    @contextlib.contextmanager
    def _new_folder(self) -> Iterator[Path]:
        """Create the folder of a preview; remove it if the block raises."""
        folder = self._folder / f"preview-{secrets.token_hex(6)}"
        folder.mkdir(parents=True, mode=0o700)
        try:
            self._kept.append(folder)
            while len(self._kept) > KEPT:
                self._discard(self._kept.popleft())
            yield folder
        except BaseException:
            self._discard(folder)
            raise

    def _do(
        self, folder: Path, recipe: Recipe, devices: list[str], seconds_allowed: float, watch: str = ""
    ) -> Preview:
        """Run a short task and wait for it; a timeout is reported as a failure."""
        began = time.monotonic()
        task_folder = folder / recipe.task
        task_folder.mkdir(mode=0o700)
        recipe.save(task_folder)
        handle = self._executor.start(task_folder, devices_environment(devices))
        state = TaskState()
        if watch:
            self._watched[watch] = state
        try:
            self._wait(state, task_folder, handle, began, seconds_allowed)
        finally:
            self._watched.pop(watch, None)
        return Preview(folder.name, folder, state, round(time.monotonic() - began, 3))

    def folder(self, preview_id: str) -> Path | None:
        """The folder of a preview that is still kept."""
        folder = self._folder / preview_id
        return folder if _ID.fullmatch(preview_id) and folder.is_dir() else None

    def tensorboard_folder(self, preview_id: str) -> Path | None:
        """The folder for TensorBoard of a preview that is still kept."""
        folder = self.folder(preview_id)
        return folder / "tb" if folder else None

    def _wait(
        self, state: TaskState, task_folder: Path, handle: Handle, began: float, seconds_allowed: float
    ) -> None:
        while True:
            ended = self._executor.poll(task_folder, handle)
            # A temporary error, such as too many open files, must not abandon the task.
            with contextlib.suppress(OSError):
                happened, state.cursor = events.read(task_folder / EVENTS_FILE, state.cursor)
                for event in happened:
                    state.apply(event)
            if state.is_finished or state.failure:
                return
            if ended is not None:
                said = "\n".join(task_output.last_lines(task_folder, 20))
                state.failure = Failure("The network ended the program during the check.", said)
                return
            if time.monotonic() - began > seconds_allowed:
                self._executor.stop(handle)
                message = f"The network was not ready within {seconds_allowed:.0f} seconds."
                state.failure = Failure(message, "Check it for an endless loop.")
                return
            time.sleep(_POLL_SECONDS)
