"""Builds a network while it is being written: a short task in a folder of its own."""

from __future__ import annotations

import secrets
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from digits import events, output
from digits.errors import Unavailable
from digits.executor import Executor
from digits.recipe import Visualize
from digits.task import EVENTS_FILE, Failure, News

SECONDS_ALLOWED = 60.0
KEPT = 20
_POLL_SECONDS = 0.01
_TASK = "visualize"


@dataclass(frozen=True)
class Preview:
    """What came out: the layers, or why there are none."""

    id: str
    layers: list[dict[str, Any]]
    parameters: int | None
    failure: Failure | None
    seconds: float


class Previews:
    """Runs preview tasks and keeps the latest few for TensorBoard."""

    def __init__(self, folder: Path, executor: Executor) -> None:
        self._folder = folder
        self._executor = executor

    def clear(self) -> None:
        """Throw away what an earlier server left."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def build(self, network: str, dataset_folder: Path, crop_size: int | None) -> Preview:
        """Build ``network`` in a process of its own and wait for it."""
        began = time.monotonic()
        preview_id = f"preview-{secrets.token_hex(6)}"
        folder = self._folder / preview_id
        task_folder = folder / _TASK
        task_folder.mkdir(parents=True, mode=0o700)
        self._forget_oldest()
        (folder / "network.py").write_text(network)
        Visualize(dataset=str(dataset_folder), crop_size=crop_size).save(task_folder)
        # Building needs no GPU, and those there are may be busy.
        handle = self._executor.start(task_folder, {"CUDA_VISIBLE_DEVICES": ""})
        news = self._wait(task_folder, handle, began)
        return Preview(
            preview_id, news.layers, news.parameters, news.failure, round(time.monotonic() - began, 3)
        )

    def tensorboard_folder(self, preview_id: str) -> Path | None:
        """The folder for TensorBoard of a preview that is still kept."""
        folder = self._folder / preview_id
        return folder / "tb" if preview_id.startswith("preview-") and folder.is_dir() else None

    def _wait(self, task_folder: Path, handle: dict[str, Any], began: float) -> News:
        news = News()
        while True:
            ended = self._executor.poll(task_folder, handle)
            happened, news.cursor = events.read(task_folder / EVENTS_FILE, news.cursor)
            for event in happened:
                news.add(event)
            if news.is_finished or news.failure:
                return news
            if ended is not None:
                said = "\n".join(output.last_lines(task_folder, 20))
                news.failure = Failure("The network ended the program while it was being built.", said)
                return news
            if time.monotonic() - began > SECONDS_ALLOWED:
                self._executor.stop(handle)
                raise Unavailable(
                    f"The network was not built within {SECONDS_ALLOWED:.0f} seconds.",
                    "Is there an endless loop in it?",
                )
            time.sleep(_POLL_SECONDS)

    def _forget_oldest(self) -> None:
        kept = sorted(self._folder.iterdir(), key=lambda folder: folder.stat().st_mtime)
        for folder in kept[:-KEPT]:
            shutil.rmtree(folder, ignore_errors=True)
