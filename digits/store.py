"""All jobs: in memory while the server runs, in their folders always."""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from digits import files
from digits import job as jobs
from digits.errors import BadRequest, DigitsError, InUse, NotFound
from digits.files import UnreadableFile
from digits.job import DamagedJob, Job
from digits.schema import Malformed

log = logging.getLogger(__name__)

_DELETED = ".deleted-"

AnyJob = TypeVar("AnyJob", bound=Job)


class StoreInUse(DigitsError):
    """Another server works on the same jobs folder."""


class Store:
    """The jobs of one jobs folder. One server owns it at a time."""

    def __init__(self, folder: Path, kinds: dict[str, type[Job]]) -> None:
        self.folder = folder
        self._kinds = kinds
        self._jobs: dict[str, Job] = {}
        self._children: defaultdict[str, list[Job]] = defaultdict(list)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = self._take_lock()

    def load(self) -> None:
        """Read every job's folder. One that cannot be understood is left alone and kept as a `DamagedJob`."""
        with os.scandir(self.folder) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
        for name in names:
            folder = self.folder / name
            if _was_left_by_a_killed_server(folder):
                shutil.rmtree(folder, ignore_errors=True)
            elif jobs.is_id(name):
                self._keep(self._load(folder))

    def _load(self, folder: Path) -> Job:
        try:
            job = jobs.load(folder, self._kinds)
            if job.id in job.needs():
                raise UnreadableFile(f"{jobs.FILE_NAME}: the job needs itself")
            return job
        except UnreadableFile as error:
            log.warning("job %s is damaged: %s", folder.name, error)
            reason = str(error)
        except Exception as error:  # one folder must not keep the others from being read
            log.exception("job %s cannot be read", folder.name)
            reason = f"{type(error).__name__}: {error}"
        return DamagedJob(id=folder.name, folder=folder, name=folder.name, reason=reason)

    def new_folder(self) -> Path:
        """Make the folder of a new job; its name is the job's id."""
        while True:
            folder = self.folder / jobs.new_id()
            try:
                folder.mkdir(mode=0o700)
                return folder
            except FileExistsError:
                continue

    def add(self, job: Job) -> None:
        """Keep a new job, on disk first. Raises BadRequest for one that could not be read again."""
        try:
            jobs.check_readable(job)
        except Malformed as error:
            raise BadRequest(f"This job cannot be kept: {error}.") from error
        job.save()
        self._keep(job)

    def get(self, job_id: str, kind: type[AnyJob]) -> AnyJob:
        """The job of this kind (`Job` for any); raises NotFound, and Damaged for a damaged one of any kind."""
        job = self._jobs.get(job_id)
        if isinstance(job, DamagedJob) and kind is not Job:
            raise job.error()
        if not isinstance(job, kind):
            raise NotFound("There is no such job.", "It may have been deleted.")
        return job

    def find(self, job_id: str) -> Job | None:
        return self._jobs.get(job_id)

    def all(self, kind: type[AnyJob]) -> list[AnyJob]:
        """All jobs of a kind, the newest first."""
        return [job for job in reversed(list(self._jobs.values())) if isinstance(job, kind)]

    def children(self, job: Job) -> list[Job]:
        """The jobs that need ``job``, the newest first."""
        return self._children[job.id][::-1] if job.id in self._children else []

    def running(self) -> Iterator[Job]:
        """The jobs that may still change by themselves, the oldest first."""
        return (job for job in list(self._jobs.values()) if job.status.is_running)

    def check_deletable(self, job: Job) -> None:
        """Raises InUse, naming the jobs, when something depends on ``job``."""
        # Jobs that need each other can only be damaged; they must not keep each other from being deleted.
        children = [child for child in self.children(job) if child.id not in job.needs()]
        if children:
            names = ", ".join(f"“{child.name}”" for child in children[:5])
            more = f" and {len(children) - 5} more" if len(children) > 5 else ""
            raise InUse(
                f"“{job.name}” is used by {names}{more}.",
                "Delete what uses it first.",
            )

    def remove(self, job: Job) -> None:
        """Forget ``job`` and delete its folder."""
        self.check_deletable(job)
        self._jobs.pop(job.id, None)
        for needed in job.needs():
            if job in self._children[needed]:
                self._children[needed].remove(job)
        # Renamed first: a folder half deleted must not look like a job.
        doomed = self.folder / f"{_DELETED}{job.id}"
        try:
            job.folder.rename(doomed)
        except FileNotFoundError:
            return
        shutil.rmtree(doomed, ignore_errors=True)

    def close(self) -> None:
        os.close(self._lock)

    def _keep(self, job: Job) -> None:
        self._jobs[job.id] = job
        for needed in job.needs():
            self._children[needed].append(job)

    def _take_lock(self) -> int:
        descriptor = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise StoreInUse(
                f"Another DIGITS server uses the jobs folder {self.folder}.",
                "Stop it, or give this one another folder with --jobs-dir.",
            ) from None
        return descriptor


def _was_left_by_a_killed_server(folder: Path) -> bool:
    """Whether a job's folder was about to be deleted, or was being made and holds no job yet."""
    if not jobs.is_id(folder.name):
        return folder.name.startswith(_DELETED) and jobs.is_id(folder.name.removeprefix(_DELETED))
    try:
        files.remove_halves(folder / jobs.FILE_NAME)
        rest = {name for name in os.listdir(folder) if not name.startswith(".network.py.")}
    except OSError:
        return False
    return rest <= {"network.py"}
