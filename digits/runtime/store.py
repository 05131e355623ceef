"""All jobs, in their folders and, while the server runs, in memory."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from digits.core import files
from digits.core import job as jobs
from digits.core.errors import BadRequest, DigitsError, InUse, NotFound, StorageError, explain
from digits.core.files import UnreadableFile
from digits.core.job import DamagedJob, Job
from digits.core.machine import garbage_collection
from digits.core.schema import Malformed
from digits.runtime import trash
from digits.runtime.job_index import JobIndex
from digits.runtime.lease import Lease, StoreInUse, is_at
from digits.runtime.offload import in_thread
from digits.runtime.trash import Trash

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0
# With less, the disk counts as full: a job's file and some rows of metrics would not fit.
MIN_FREE_BYTES = 64 * 1024
# A job that more jobs use is not deleted together with them.
MOST_USERS = 500
# Errors that affect every job, not only the one being saved.
_EVERY_WRITE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE}
# Marks the folder of a job that is being created, until its job.json is written.
_NEW_FILE = ".new"

AnyJob = TypeVar("AnyJob", bound=Job)


class StoreLost(StorageError):
    """The server no longer owns the jobs folder."""


class Store:
    """The jobs of one jobs folder, which is owned by one server at a time.

    ``index`` finds jobs for lists.
    """

    def __init__(self, folder: Path, types: dict[str, type[Job]]) -> None:
        self.folder = folder
        self._types = types
        self._jobs: dict[str, Job] = {}
        # Unfinished jobs, found without examining all jobs; see `running`.
        self._unfinished: set[str] = set()
        self._positions: dict[str, int] = {}
        self._children: defaultdict[str, list[Job]] = defaultdict(list)
        self.index = JobIndex(self.count_children)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lease = Lease(folder)
        self._place = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._problem: DigitsError | None = None
        self._unsaved: dict[str, Job] = {}
        self._trash = Trash(folder)
        self._retry_at = 0.0

    def load(self) -> None:
        """Load all jobs. An invalid folder is left unchanged and becomes a `DamagedJob`."""
        with os.scandir(self.folder) as entries:
            items = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
        self._trash.resume(self.folder / name for name in items if name.startswith(trash.PREFIX))
        names = sorted(name for name, is_folder in items.items() if is_folder)
        with garbage_collection.paused():
            for folder in (self.folder / name for name in names if jobs.is_id(name)):
                if _is_unborn(folder):
                    self.discard(folder)
                else:
                    self._keep(self._load(folder))
            for job in self._jobs.values():
                self.index.add(job)

    def _load(self, folder: Path) -> Job:
        try:
            job = jobs.load(folder, self._types)
            if job.id in job.needs():
                raise UnreadableFile(f"{jobs.FILE_NAME}: the job depends on itself")
            return job
        except UnreadableFile as error:
            log.warning("job %s is damaged: %s", folder.name, error)
            reason = str(error)
        except Exception as error:  # one folder must not affect the others
            log.exception("job %s cannot be read", folder.name)
            reason = f"{type(error).__name__}: {error}"
        return DamagedJob(id=folder.name, folder=folder, name=folder.name, reason=reason)

    @property
    def problem(self) -> DigitsError | None:
        """The error that currently keeps the store from writing; its text is meant for the user."""
        return self._problem or _full_disk(self.folder)

    @contextlib.contextmanager
    def creation(self) -> Iterator[Callable[[], Path]]:
        """Create jobs, all or none: yield `new_folder`, and remove the folders it created if the block raises."""
        made: list[Path] = []

        def new_folder() -> Path:
            made.append(self.new_folder())
            return made[-1]

        try:
            yield new_folder
        except BaseException:
            for folder in made:
                self.discard(folder)
            raise

    def new_folder(self) -> Path:
        """Create the folder of a new job, named after the job's id; raises OSError or StoreLost."""
        self.check()
        while True:
            folder = self.folder / jobs.new_id()
            try:
                folder.mkdir(mode=0o700)
            except FileExistsError:
                continue
            try:
                (folder / _NEW_FILE).touch(mode=0o600)
                in_thread(files.sync_folder, self.folder)
            except OSError:
                self.discard(folder)
                raise
            return folder

    def add(self, *new: Job) -> None:
        """Save new jobs in a thread and add them, all or none.

        Raises OSError if one cannot be written, and BadRequest if one could not be loaded again.
        """
        for job in new:
            try:
                jobs.check_readable(job)
            except Malformed as error:
                raise BadRequest(f"This job cannot be saved: {error}.") from error
        in_thread(_save, new)
        for job in new:
            with contextlib.suppress(OSError):  # it has no meaning in the folder of a job
                (job.folder / _NEW_FILE).unlink(missing_ok=True)
            self._keep(job)
            self.index.add(job)
            self._index(job.needs())

    def save(self, job: Job) -> None:
        """Write ``job.json``; if that fails, retry until it succeeds. A job that was deleted is not written."""
        if job.id not in self._jobs:
            return
        self.index.update(job)
        if job.status.is_running:
            self._unfinished.add(job.id)
        try:
            self.check()
            job.save()
            self._unsaved.pop(job.id, None)
        except (OSError, StoreLost) as error:
            if job.id not in self._unsaved:
                log.error("job %s could not be saved, will retry: %s", job.id, error)
            self._unsaved[job.id] = job
            # Errors of this job's folder alone, such as its removal, do not affect other jobs.
            if isinstance(error, StoreLost):
                self._problem = error
            elif isinstance(error, OSError) and error.errno in _EVERY_WRITE:
                self._problem = _not_saved(error, len(self._unsaved))

    def edit(self, job: Job, **changes: Any) -> None:
        """Change attributes of ``job`` on disk, then in memory; raises OSError or StoreLost, leaving it unchanged."""
        self.check()
        try:
            job.save(**changes)
        except OSError:
            self.save(job)  # Roll back: the new content may have reached the disk before the error.
            raise
        for name, value in changes.items():
            setattr(job, name, value)
        self.index.update(job)

    def get(self, job_id: str, job_type: type[AnyJob]) -> AnyJob:
        """Return the job of this type (`Job` for any). Raises NotFound, and Damaged for a damaged job."""
        job = self._jobs.get(job_id)
        if isinstance(job, DamagedJob) and job_type is not Job:
            raise job.error()
        if not isinstance(job, job_type):
            raise NotFound("There is no such job.", "It may have been deleted.")
        return job

    def find(self, job_id: str) -> Job | None:
        return self._jobs.get(job_id)

    def all(self, job_type: type[AnyJob]) -> list[AnyJob]:
        """Return all jobs of a type, newest first."""
        return [job for job in reversed(list(self._jobs.values())) if isinstance(job, job_type)]

    def children(self, job: Job) -> list[Job]:
        """Return the jobs that depend on ``job``, newest first."""
        return self._children[job.id][::-1] if job.id in self._children else []

    def users(self, job: Job) -> list[Job]:
        """Return the jobs that cannot remain without ``job``, directly or not, those that others need last.

        Nothing is returned of more than `MOST_USERS`, so that a page costs the same whatever uses its job.
        """
        found = {job.id: job}
        pending = [job]
        while pending:
            if len(found) + self.count_children(pending[-1]) > MOST_USERS + 1:
                return []
            new = [child for child in self.children(pending.pop()) if child.id not in found]
            found |= {child.id: child for child in new}
            pending += new
        del found[job.id]
        return self.in_order(found.values())[::-1]

    def count_children(self, job: Job) -> int:
        """Return the number of jobs that depend on ``job``."""
        return len(self._children.get(job.id, ()))

    def running(self) -> Iterator[Job]:
        """Return the jobs that have not ended, oldest first."""
        self._unfinished = {job_id for job_id in self._unfinished if self._is_running(job_id)}
        ids = sorted(self._unfinished, key=self._positions.__getitem__)
        return (self._jobs[job_id] for job_id in ids if self._is_running(job_id))

    def in_order(self, some: Iterable[Job]) -> list[Job]:
        """Return ``some`` jobs of this store, oldest first."""
        return sorted(some, key=lambda job: self._positions[job.id])

    def check_deletable(self, job: Job) -> None:
        """Raise InUse, with the names of the jobs, if any depend on ``job``; raises StoreLost."""
        self.check()
        # Ignore cycles, which only damaged files can form, so that their jobs can be deleted.
        children = [child for child in self.children(job) if child.id not in job.needs()]
        if children:
            raise InUse(
                f"“{job.name}” is used by {names_of(children)}.", "Delete the jobs that use it first."
            )

    def remove(self, job: Job) -> None:
        """Delete ``job`` and its folder; raises InUse, OSError or StoreLost, leaving both unchanged."""
        self.check_deletable(job)
        with contextlib.suppress(FileNotFoundError):
            self._trash.take(job.folder)
            files.sync_folder(self.folder)
        self._jobs.pop(job.id, None)
        self._unsaved.pop(job.id, None)
        self.index.remove(job)
        for needed in job.needs():
            if job in self._children[needed]:
                self._children[needed].remove(job)
        self._index(job.needs())

    def discard(self, path: Path) -> None:
        """Delete a file or a folder, if it exists, in the background; see `Trash`."""
        self._trash.discard(path)

    def check(self) -> None:
        """Raise StoreLost if the folder was removed or replaced, or another server owns it."""
        if self._lease.is_held:
            return
        if not is_at(self._place, self.folder):
            raise StoreLost(
                "The jobs folder was removed or replaced while the server was running.",
                "Restore it, or restart the server. Until then, no jobs are started or saved.",
            )
        try:
            lease = Lease(self.folder, waits=False)
        except (StoreInUse, OSError) as error:
            raise StoreLost(
                "The lock file of the jobs folder was removed, replaced or could not be renewed, and another server "
                "may work on the same jobs.",
                "Stop the other server, then restart this one. Until then, no jobs are started or saved.",
            ) from error
        log.warning("the lock file of %s was removed; created it again", self.folder)
        self._lease.close()
        self._lease = lease

    def maintain(self) -> bool:
        """Retry failed writes and deletions from time to time; return whether this server still owns the folder."""
        try:
            self.check()
        except StoreLost as error:
            if not isinstance(self._problem, StoreLost):
                log.error("%s: %s %s", self.folder, error.message, error.hint)
            self._problem = error
            return False
        if isinstance(self._problem, StoreLost):
            log.warning("%s: the jobs folder is available again", self.folder)
            self._problem = None
        self._lease.maintain()
        if time.monotonic() >= self._retry_at:
            self._retry_at = time.monotonic() + RETRY_SECONDS
            self._retry()
        self._trash.maintain()
        return True

    def close(self) -> None:
        self._trash.close()
        self._lease.close()
        os.close(self._place)

    def _retry(self) -> None:
        had_problem, self._problem = self._problem, None
        for job in list(self._unsaved.values()):
            with contextlib.suppress(OSError):
                files.remove_partial_writes(job.folder / jobs.FILE_NAME)
            self.save(job)
        if had_problem and not self._problem:
            log.info("%s is writable again", self.folder)

    def _is_running(self, job_id: str) -> bool:
        job = self._jobs.get(job_id)
        return job is not None and job.status.is_running

    def _keep(self, job: Job) -> None:
        self._jobs[job.id] = job
        self._positions[job.id] = len(self._positions)
        if job.status.is_running:
            self._unfinished.add(job.id)
        for needed in job.needs():
            self._children[needed].append(job)

    def _index(self, job_ids: Iterable[str]) -> None:
        """Update the index after jobs that depend on these were added or removed."""
        for job_id in job_ids:
            if job_id in self._jobs:
                self.index.update(self._jobs[job_id])


def names_of(some: Sequence[Job]) -> str:
    """Return the names of the first few jobs, and the number of others."""
    names = ", ".join(f"“{job.name}”" for job in some[:5])
    return names + (f" and {len(some) - 5} more" if len(some) > 5 else "")


def _save(new: Iterable[Job]) -> None:
    for job in new:
        job.save()


def _not_saved(error: OSError, count: int) -> DigitsError:
    why = explain(error) or StorageError("The jobs folder is not writable.")
    unsaved = "one job is" if count == 1 else f"{count} jobs is"
    return type(why)(f"{why.message} The state of {unsaved} not saved yet.", why.hint)


def _full_disk(folder: Path) -> DigitsError | None:
    try:
        state = os.statvfs(folder)
    except OSError:
        return None  # `Store.check` reports a lost folder
    is_full = state.f_bavail * state.f_frsize < MIN_FREE_BYTES or (state.f_files > 0 and state.f_favail == 0)
    return explain(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder / "any"))) if is_full else None


def _is_unborn(folder: Path) -> bool:
    """Return whether a killed server created ``folder`` without a job; otherwise, complete its last writes."""
    try:
        names = os.listdir(folder)
        if jobs.FILE_NAME not in names:
            return not names or _NEW_FILE in names
        if any(name.startswith(".") for name in names):
            files.remove_partial_writes(folder / jobs.FILE_NAME)
            (folder / _NEW_FILE).unlink(missing_ok=True)
    except OSError:
        pass  # loading the job reports it
    return False
