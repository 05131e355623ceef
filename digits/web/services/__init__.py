"""The long-lived parts of the server, created once and shared by all requests."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

import msgspec
from flask import current_app

from digits.core import snapshot_list
from digits.core.errors import Unavailable
from digits.core.files import make_folder
from digits.core.job import Job
from digits.core.model_job import ModelJob
from digits.core.remote import CredentialStore, RemotePolicy
from digits.core.settings import Settings
from digits.core.snapshot_list import SnapshotList
from digits.core.status import Status
from digits.data.models.pretrained import WeightsPlaces
from digits.data.models.pretrained_catalog import FEATURES
from digits.data.models.production import ProductionModels
from digits.data.records.index import IndexCache
from digits.data.records.search import RecordSearch
from digits.kinds.decoding import Decoder
from digits.kinds.jobs import JOB_TYPES, DatasetJob
from digits.kinds.labeling.job import LabelsJob
from digits.runtime.background_tasks import BackgroundTasks
from digits.runtime.changes import Change, CurveChanged, JobDeleted, ProgressChanged, StatusChanged
from digits.runtime.devices import Devices
from digits.runtime.executors.cluster import ClusterExecutor
from digits.runtime.executors.device_ledger import DeviceLedger
from digits.runtime.executors.executor import Executor
from digits.runtime.executors.local import LocalExecutor
from digits.runtime.executors.pools import Executors, limits
from digits.runtime.executors.targets import configured_clusters
from digits.runtime.inference_servers import InferenceServers
from digits.runtime.offload import in_thread
from digits.runtime.request_batches import RequestBatches
from digits.runtime.scheduler import Scheduler
from digits.runtime.short_tasks import ShortTasks
from digits.runtime.store import Store
from digits.runtime.task_runner import TaskRunner
from digits.runtime.tensorboards import TensorBoards
from digits.runtime.tensorflow_support import find_tensorflow
from digits.web.live import messages as live_messages
from digits.web.live.socket import Live
from digits.web.services.clusters import Clusters
from digits.web.services.folder_sizes import FolderSizes
from digits.web.services.picture_cache import PictureCache
from digits.web.services.recent_predictions import RecentPredictions
from digits.web.services.results_cache import ResultsCache
from digits.web.services.roots import OffloadedRoots
from digits.web.services.serving_metrics import ServingMetrics
from digits.web.services.upload_store import UploadStore

SERVER_FOLDER = ".server"
# Uploaded files while a request needs them.
UPLOADS_FOLDER = "uploads"
# About 100 MB.
CACHED_RECORDS = 3_000_000
# On disk; a thumbnail of a photo has about 8 kB.
PICTURE_BYTES = 256 << 20


class Services:
    """Store, scheduler, task runner and the other services of the server.

    Tasks run on ``executor``, by default as processes of this machine, and on ``clusters`` by their targets.
    """

    def __init__(
        self,
        settings: Settings,
        executor: Executor | None = None,
        clusters: Mapping[str, ClusterExecutor] | None = None,
    ) -> None:
        self.settings = settings
        self.tensorflow = find_tensorflow()
        self.roots = OffloadedRoots(settings.readable_roots)
        self.remote = RemotePolicy(settings.remote_addresses)
        self.credentials = CredentialStore(settings.state_dir / "credentials")
        self.devices = Devices()
        self.store = Store(settings.jobs_dir, JOB_TYPES)
        self.live = Live(self._storage_problem)
        self._published_problem: dict[str, str] | None = None
        self.folder = settings.jobs_dir / SERVER_FOLDER
        self.folder.mkdir(mode=0o700, exist_ok=True)
        self.executor: Executor = executor or LocalExecutor(
            DeviceLedger(limits(), gpus=self.devices.gpus),
            standby=settings.standby and self.tensorflow.available,
            log_file=self.folder / "forkserver.log",
            pass_env=settings.pass_env,
        )
        clusters = configured_clusters(settings) if clusters is None else clusters
        self.clusters = Clusters(clusters, self.folder / "compute")
        self.runner = TaskRunner(Executors(self.executor, clusters), may_run=self._maintain)
        self.scheduler = Scheduler(self.store, self.runner, report=self.report)
        self.short_tasks = ShortTasks(self.folder / "previews", self.runner, self.store.discard)
        self.inference = InferenceServers(self.runner, lambda id_: self.flops(self.store.get(id_, ModelJob)))
        self.recent_predictions = RecentPredictions()
        self.prediction_results = ResultsCache()
        self.serving_metrics = ServingMetrics()
        self.production = ProductionModels(settings.jobs_dir)
        self._snapshots: dict[str, tuple[tuple[int, ...], SnapshotList]] = {}
        self.batches = RequestBatches(self.inference.exchange, sizes=self.serving_metrics.batch)
        self.folder_sizes = FolderSizes(lambda job: self.live.publish(*live_messages.size_measured(job)))
        # Those of the activities, by name, and what else happens when a job is done.
        self.background: dict[str, BackgroundTasks] = {}
        self.when_done: list[Callable[[Job], None]] = []
        self.tensorboards = TensorBoards()
        self.record_indexes = IndexCache(CACHED_RECORDS)
        self.record_search = RecordSearch(self.record_indexes)
        self.decoder = Decoder()
        self.pictures = PictureCache(self.folder / "pictures", PICTURE_BYTES)
        self.uploads = UploadStore(self.folder / "archives", settings, self._users_of, self.store.discard)

    @property
    def weights_places(self) -> WeightsPlaces:
        """Where ImageNet weights are."""
        return WeightsPlaces(self.settings.weights_dir, self.settings.weights_sources)

    @property
    def feature_weights(self) -> str:
        """The path of the weights of the network that compares images; empty without such a file."""
        return str(self.weights_places.find(FEATURES) or "")

    def start(self) -> None:
        """Load the jobs, follow those that are running, and warm up."""
        self.short_tasks.clear()  # before the store discards the folders into which they import
        self.store.discard(self.folder / UPLOADS_FOLDER)
        self.store.load()
        self.credentials.keep_only(job.id for job in self.store.all(DatasetJob) if job.status.is_running)
        self.uploads.start()
        self.scheduler.start()
        self.runner.serve()
        for executor in self.runner.executors:
            executor.warm_up()

    def stop(self) -> None:
        """Stop everything that must not outlive the server. Tasks of jobs keep running."""
        self.scheduler.stop()
        self.uploads.stop()
        self.inference.stop_all()
        self.runner.close()
        self.tensorboards.stop_all()
        self.decoder.close()
        self.clusters.close()
        for running in self.runner.executors:
            running.close()
        self.store.close()

    def _maintain(self) -> bool:
        """Maintain the store, and send browsers its current problem when it changes."""
        is_ours = self.store.maintain()
        problem = self._storage_problem()
        if problem != self._published_problem:
            self._published_problem = problem
            self.live.publish_storage_problem()
        return is_ours

    def _storage_problem(self) -> dict[str, str] | None:
        problem = self.store.problem
        return {"message": problem.message, "hint": problem.hint} if problem else None

    def report(self, change: Change) -> None:
        """Send browsers the messages about ``change``, and keep the index up to date."""
        if isinstance(change, ProgressChanged | CurveChanged):
            self.store.index.update(change.job)  # the store updates it only for changes that it saves
        for message in live_messages.of(change):
            self.live.publish(*message)
        has_ended = isinstance(change, StatusChanged) and not change.job.status.is_running
        if has_ended or isinstance(change, JobDeleted):
            self.folder_sizes.forget(change.job)
        if has_ended:
            self.credentials.discard(change.job.id)
        if isinstance(change, StatusChanged) and change.job.status is Status.DONE:
            for start in self.when_done:
                start(change.job)

    def new_upload(self) -> Path:
        """Return a new path for a file or folder that a request needs temporarily; the request discards it.

        It is on the same file system as the jobs. Raises StoreLost or OSError.
        """
        self.store.check()
        folder = self.folder / UPLOADS_FOLDER
        make_folder(folder)
        return folder / secrets.token_hex(8)

    def snapshots_of(self, job: ModelJob) -> SnapshotList:
        """Return the snapshots of ``job``.

        They are read again only when one was added, validated or removed, or when the files of the default one
        changed. Later damage to the files of the other ones is not noticed.
        """
        folder = str(job.folder)
        changed = _changed_at(folder), _changed_at(f"{folder}/{snapshot_list.FILE_NAME}")
        cached = self._snapshots.get(job.id)
        if cached is None or cached[0] != (*changed, *_default_changed_at(folder, cached[1])):
            saved = in_thread(job.snapshots)  # a network may fill the folder with files
            cached = self._snapshots[job.id] = (*changed, *_default_changed_at(folder, saved)), saved
        return cached[1]

    def flops(self, job: ModelJob) -> int | None:
        """Return the operations of the trained network for one image, if they are known."""
        flops = (self.scheduler.task_state(job, job.tasks[0]).result or {}).get("flops")
        return flops if isinstance(flops, int) else None

    def _users_of(self, text: str, only_unfinished: bool) -> list[str]:
        """Return the names of the datasets whose recipe contains ``text``, and of the labels from such a folder."""
        datasets = [
            job.name
            for job in self.store.all(DatasetJob)
            if (job.status.is_running or not only_unfinished)
            and text.encode() in msgspec.json.encode(job.recipe)
        ]
        labels = (job.name for job in self.store.all(LabelsJob) if text in f"{job.root} {job.source}")
        return [*datasets, *labels]

    def tensorboard_folder(self, job_id: str) -> Path | None:
        """Return the folder with the events of a model or preview; None for an unknown id."""
        folder = self.short_tasks.tensorboard_folder(job_id)
        if folder:
            return folder
        job = self.store.find(job_id)
        return getattr(job, "tensorboard_folder", None)


def _changed_at(path: str) -> int:
    """Return the time of the last change to ``path`` in nanoseconds, or 0 if they are unreadable."""
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def _default_changed_at(folder: str, saved: SnapshotList) -> list[int]:
    """Return the times of the last changes to the files of the default snapshot in nanoseconds."""
    if saved.default is None:
        return []
    return [_changed_at(f"{folder}/{saved.default.name}{suffix}") for suffix in snapshot_list.SUFFIXES]


def require_tensorflow() -> None:
    """Raise Unavailable if tasks cannot use TensorFlow."""
    if not services().tensorflow.available:
        raise Unavailable("TensorFlow support is disabled.", services().tensorflow.reason)


def services() -> Services:
    """Return the services of the app that handles this request."""
    return cast(Services, current_app.extensions["digits"])
