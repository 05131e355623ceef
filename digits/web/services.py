"""The long-lived parts of the server, made once and shared by all requests."""

from __future__ import annotations

import os
from pathlib import Path
from typing import cast

from flask import current_app, request

from digits.core.errors import OtherSite
from digits.core.settings import Settings
from digits.data.data_roots import Roots
from digits.kinds.jobs import JOB_TYPES
from digits.runtime.changes import Change
from digits.runtime.devices import Devices
from digits.runtime.executor import LocalExecutor
from digits.runtime.inference_servers import InferenceWorkers
from digits.runtime.scheduler import Scheduler
from digits.runtime.short_tasks import Previews
from digits.runtime.store import Store
from digits.runtime.tensorflow_support import find_tensorflow
from digits.web import live_messages
from digits.web.gate import comes_from_another_site
from digits.web.live import Live
from digits.web.tensorboard import TensorBoards

SERVER_FOLDER = ".server"


class Services:
    """Who does what: the store keeps jobs, the scheduler runs them, live tells browsers, and so on."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.tensorflow = find_tensorflow()
        self.roots = Roots(settings.readable_roots)
        self.devices = Devices()
        self.live = Live()
        self.store = Store(settings.jobs_dir, JOB_TYPES)
        self.folder = settings.jobs_dir / SERVER_FOLDER
        self.folder.mkdir(mode=0o700, exist_ok=True)
        self.executor = LocalExecutor(
            standby=settings.standby and self.tensorflow.available,
            log_file=self.folder / "forkserver.log",
            pass_env=settings.pass_env,
        )
        self.scheduler = Scheduler(
            self.store,
            self.executor,
            report=self.report,
            gpus=self._gpus,
            # A training on the CPU uses about four cores well.
            slots={"create": 1, "cpu": max(1, (os.cpu_count() or 1) // 4)},
        )
        self.tensorboards = TensorBoards(settings.url_prefix)
        self.previews = Previews(self.folder / "previews", self.executor, self.store.discard)
        self.inference = InferenceWorkers(self.executor)

    def start(self) -> None:
        """Read the jobs, go on with what was running, and warm up."""
        self.store.load()
        self.scheduler.start()
        self.previews.clear()
        if self.tensorflow.available:
            self.executor.warm_up()

    def stop(self) -> None:
        """Let go of everything that should not outlive the server. Tasks go on."""
        self.scheduler.stop()
        self.inference.stop_all()
        self.tensorboards.stop_all()
        self.executor.close()
        self.store.close()

    def report(self, change: Change) -> None:
        """Send browsers the messages about ``change``."""
        for message in live_messages.of(change):
            self.live.publish(*message)

    def _gpus(self) -> list[str]:
        return [device.id for device in self.devices.list() if device.is_gpu]

    def tensorboard_folder(self, job_id: str) -> Path | None:
        """Where the events of a model, or of a preview, lie; None for an unknown id."""
        preview = self.previews.tensorboard_folder(job_id)
        if preview:
            return preview
        job = self.store.find(job_id)
        return getattr(job, "tensorboard_folder", None)


def refuse_other_sites() -> None:
    """Raise OtherSite for a GET that a page of another site caused.

    For views that start a process on GET. The gate already refuses writes from other sites.
    """
    if request.method == "GET" and comes_from_another_site(request.environ):
        raise OtherSite(
            "This request came from another site.", "Opening this page starts a program on this machine."
        )


def services() -> Services:
    """The services of the app that handles this request."""
    return cast(Services, current_app.extensions["digits"])
