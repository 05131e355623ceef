"""Uploads: files that are received in chunks, unpacked, and kept until they expire.

Each upload has a folder with a random name. While data arrives, the size of ``data`` is the offset at which the
upload resumes, however the server ended. If the machine lost power, it is the last one at which the data was on disk:
at the end of a request, and every `SYNC_BYTES` of a long one. When all data has arrived, a separate process unpacks it
(`digits.data.archives.unpacking`), and the folder of the result can be read like a data root. A server that starts, or
whose disk was full, continues with the uploads whose data is complete.

    archives/3f…/upload.json    name, owner, length, state
    archives/3f…/data           the bytes received
    archives/3f…/received.json  how many of them are on disk
    archives/3f…/NAME/          the unpacked files
    running-time.json           the clock by which uploads expire
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import secrets
import shutil
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import gevent
import humanize
import msgspec

from digits.core import files
from digits.core.errors import BadRequest, DigitsError, DiskFull, InUse, NotFound, StorageError, explain
from digits.core.files import UnreadableFile, is_disk_full
from digits.core.settings import Settings
from digits.data.archives import unpacking
from digits.data.archives.file_names import uploaded_name
from digits.data.archives.unpacking import Limits, Unpacking, UnpackingProgress
from digits.runtime.executors.processes import boot_id
from digits.runtime.offload import in_thread
from digits.web.services.running_time import RunningTime

UNFINISHED_SECONDS = 24 * 3600.0
EXPIRY_SECONDS = 600.0
# How often uploads that wait for free space are reconsidered.
RETRY_SECONDS = 5.0
POLL_SECONDS = 0.1
# The most data of a request that a power loss may cost.
SYNC_BYTES = 64_000_000
# Above this number of files, it is faster to sync all file systems than each file.
MANY_FILES = 100
# The ids of expired uploads that are remembered, to report them as expired and not as unknown.
MAX_REMEMBERED = 1000

_STATE_FILE, _DATA_FILE = "upload.json", "data"
_RECEIVED_FILE, _CLOCK_FILE = "received.json", "running-time.json"
_ID = re.compile(r"[0-9a-f]{32}")

log = logging.getLogger(__name__)


class Expired(DigitsError):
    """The upload was deleted because it expired."""

    http_status = 410


class WrongOffset(DigitsError):
    """A chunk does not start at the end of the data."""

    http_status = 409


class Unusable(DigitsError):
    """The archive was refused."""

    http_status = 410


class TooLarge(DigitsError):
    """More data than allowed or announced."""

    http_status = 413


class Busy(DigitsError):
    """Another request is writing to the upload."""

    http_status = 423


class State(Enum):
    """``RECEIVING`` → ``UNPACKING`` → ``READY`` or ``FAILED``."""

    RECEIVING = "receiving"
    UNPACKING = "unpacking"
    READY = "ready"
    FAILED = "failed"


class Record(msgspec.Struct, kw_only=True):
    """The contents of ``upload.json``."""

    name: str
    length: int
    owner: str | None = None
    state: State = State.RECEIVING
    # The folder with the contents, relative to that of the upload.
    content: str = ""
    files: int = 0
    bytes: int = 0
    error: str = ""
    notes: list[str] = msgspec.field(default_factory=list)
    # The encoding of names in zip archives, if the client states it.
    encoding: str = ""
    # The time of the last change of the state, in Unix seconds, and by the clock of `RunningTime`; -1 if unknown.
    at: float
    ran: float = -1.0


class Received(msgspec.Struct, kw_only=True):
    """The contents of ``received.json``: bytes of the data that are on disk.

    ``boot`` identifies the run of the machine: as long as it lasts, all other bytes are still there, too. ``ran`` is
    the time at which they arrived, by the clock of `RunningTime`.
    """

    offset: int
    boot: str
    ran: float


class Upload:
    """An upload in its ``folder``. Its id is the name of the folder."""

    def __init__(self, folder: Path, record: Record) -> None:
        self.id = folder.name
        self.folder = folder
        self.record = record
        self.fraction = 0.0
        self.is_deleted = False
        self.writing = threading.Lock()
        self.unpacking: Unpacking | None = None
        # Why the complete upload is not being unpacked, and the free space that it waits for, in bytes.
        self.problem: DigitsError | None = None
        self.needed_bytes = 0
        self.received = Received(offset=0, boot="", ran=record.ran)

    @property
    def data(self) -> Path:
        return self.folder / _DATA_FILE

    @property
    def offset(self) -> int:
        """The number of bytes received."""
        if self.record.state is not State.RECEIVING:
            return self.record.length
        with contextlib.suppress(FileNotFoundError):
            return self.data.stat().st_size
        return 0

    @property
    def state(self) -> State:
        """The recorded state, or ``UNPACKING`` if that is not recorded yet, but all data has arrived."""
        is_complete = self.record.state is State.RECEIVING and self.offset == self.record.length
        return State.UNPACKING if is_complete else self.record.state

    @property
    def content(self) -> Path | None:
        """The folder with the unpacked files, once it is ready."""
        return self.folder / self.record.content if self.record.state is State.READY else None

    @property
    def ran(self) -> float:
        """When the last data arrived or the state changed, by the clock of `RunningTime`."""
        return max(self.record.ran, self.received.ran)

    def save(self, record: Record) -> None:
        files.write_json(self.folder / _STATE_FILE, record)

    def save_received(self, ran: float) -> None:
        """Make the data durable that has arrived by ``ran``; raises OSError."""
        files.sync_file(self.data)
        received = Received(offset=self.data.stat().st_size, boot=boot_id(), ran=ran)
        files.write_json(self.folder / _RECEIVED_FILE, received)
        self.received = received

    def recover(self) -> None:
        """Remove what a killed server, or a machine that lost power, has left incomplete; raises OSError."""
        for name in (_STATE_FILE, _RECEIVED_FILE):
            files.remove_partial_writes(self.folder / name)
        if self.record.state is not State.RECEIVING:
            return
        with contextlib.suppress(UnreadableFile):  # of an earlier version
            self.received = files.read_json(self.folder / _RECEIVED_FILE, Received, below=self.folder)
            if self.received.boot != boot_id():
                os.truncate(self.data, min(self.received.offset, self.data.stat().st_size))

    def check_usable(self) -> None:
        """Raise an error if the upload was refused, or is complete but cannot be unpacked yet."""
        if self.record.state is State.FAILED:
            raise Unusable(self.record.error)
        if self.problem is not None:
            raise self.problem


class UploadStore:
    """All uploads below ``folder``.

    ``users_of`` returns the names of the jobs that read a path with a text, here the id of an upload; if its second
    argument is true, without datasets that are finished. ``discard`` deletes folders in the background.
    """

    def __init__(
        self,
        folder: Path,
        settings: Settings,
        users_of: Callable[[str, bool], list[str]],
        discard: Callable[[Path], None],
    ) -> None:
        self._folder = Path(os.path.realpath(folder))
        self._settings = settings
        self._users_of = users_of
        self._discard = discard
        self._uploads: dict[str, Upload] = {}
        self._expired: OrderedDict[str, None] = OrderedDict()
        self._background: Any = None

    def start(self) -> None:
        """Load the uploads, and continue with those that are complete."""
        files.make_folder(self._folder)
        self._clock = RunningTime(self._folder.with_name(_CLOCK_FILE))
        for folder in sorted(self._folder.iterdir()):
            if not _ID.fullmatch(folder.name):
                continue
            try:
                upload = Upload(folder, files.read_json(folder / _STATE_FILE, Record, below=folder))
                upload.recover()
                if upload.state in (State.READY, State.FAILED):
                    self._discard(upload.data)
                self._uploads[upload.id] = upload
                self._clock.advance_to(upload.ran)
            except UnreadableFile as error:
                log.warning("upload %s is damaged and removed: %s", folder.name, error)
                self._discard(folder)
            except OSError as error:  # such as too many open files: the next server may load it
                log.error("upload %s cannot be loaded: %s", folder.name, error)
        for upload in self._uploads.values():
            if upload.ran < 0:  # of an earlier version
                upload.received.ran = self._clock.seconds
        self.remove_expired()
        self._background = gevent.spawn(self._maintain)

    def stop(self) -> None:
        """Stop unpacking; the next server starts over."""
        if self._background is not None:
            self._background.kill()
            with contextlib.suppress(OSError):
                self._clock.save()
        for upload in self._uploads.values():
            _kill(upload)

    def list(self, owner: str | None) -> list[Upload]:
        """Return the uploads of a user and those without an owner, the newest first."""
        own = [upload for upload in self._uploads.values() if is_accessible(upload, owner)]
        return sorted(own, key=lambda upload: upload.record.at, reverse=True)

    def get(self, upload_id: str, user: str | None) -> Upload:
        """Return an upload of ``user``. Raises NotFound, or Expired."""
        upload = self._uploads.get(upload_id)
        if upload is not None and self._has_expired(upload):
            self._remove_expired(upload)
            upload = None
        if upload is None and upload_id in self._expired:
            raise Expired("This upload has expired.", "Upload the files again.")
        if upload is None or not is_accessible(upload, user):
            raise NotFound("There is no such upload.", "It may have been deleted; upload the files again.")
        return upload

    def expires_at(self, upload: Upload) -> float:
        """Return the Unix time at which the upload is removed, unless a job refers to it or the server stops."""
        return time.time() + self._seconds_left(upload)

    def _seconds_left(self, upload: Upload) -> float:
        is_open = upload.record.state is State.RECEIVING
        seconds = UNFINISHED_SECONDS if is_open else self._settings.upload_days * 86400
        return upload.ran + seconds - self._clock.seconds

    def create(self, name: str, length: int, owner: str | None, encoding: str = "") -> Upload:
        """Create an upload of ``length`` bytes. Raises TooLarge, BadRequest if there are too many, or DiskFull.

        ``encoding`` is one of `digits.data.archives.zip_names`.
        """
        limit = self._settings.max_upload
        if length > limit:
            raise TooLarge(
                f"The upload is too large: {humanize.naturalsize(length)}; at most "
                f"{humanize.naturalsize(limit)} are allowed.",
                "Split it, or ask an administrator to raise --max-upload.",
            )
        if length < 1:
            raise BadRequest("The file is empty.", "Choose another one.")
        if len(self.list(owner)) >= self._settings.max_uploads:
            raise BadRequest(
                f"There are already {self._settings.max_uploads} uploads.",
                "Delete some of them on the page Uploads, or ask an administrator to raise --max-uploads.",
            )
        self._check_space(length)
        folder = self._folder / secrets.token_hex(16)
        folder.mkdir(mode=0o700)
        record = Record(
            name=uploaded_name(name),
            length=length,
            owner=owner,
            encoding=encoding,
            at=time.time(),
            ran=self._clock.seconds,
        )
        upload = Upload(folder, record)
        try:
            upload.data.touch(mode=0o600)
            self._uploads[upload.id] = upload  # before other requests run, which count them
            in_thread(upload.save_received, record.ran)
            in_thread(upload.save, upload.record)
            in_thread(files.sync_folder, self._folder)
        except BaseException:
            self._uploads.pop(upload.id, None)
            self._discard(folder)
            raise
        return upload

    def receive(self, upload: Upload, offset: int, pieces: Iterable[bytes]) -> None:
        """Append a chunk that starts at ``offset``, or as much of it as arrives.

        Raises Busy, WrongOffset, TooLarge, and OSError.
        """
        with _writing(upload):
            if upload.record.state is not State.RECEIVING or offset != in_thread(getattr, upload, "offset"):
                raise WrongOffset(f"The upload resumes at byte {upload.offset:,}, not {offset:,}.")
            try:
                self._append(upload, offset, pieces)
            finally:
                if not upload.is_deleted:
                    in_thread(upload.save_received, self._clock.seconds)
            if upload.state is State.UNPACKING:
                self._continue(upload)
                upload.check_usable()

    def _append(self, upload: Upload, end: int, pieces: Iterable[bytes]) -> None:
        file = in_thread(open, upload.data, "ab", buffering=0)  # the disk may be busy with the data before
        try:
            for piece in pieces:
                if upload.is_deleted:
                    raise NotFound("The upload was deleted while data arrived.")
                end += len(piece)
                if end > upload.record.length:
                    raise TooLarge(f"There is more data than the announced {upload.record.length:,} bytes.")
                in_thread(_write, file, piece)
                if end - upload.received.offset >= SYNC_BYTES:
                    in_thread(upload.save_received, self._clock.seconds)
        finally:
            in_thread(file.close)

    def delete(self, upload: Upload) -> None:
        """Delete an upload in any state. Raises InUse while a dataset is created from it, or it has labels."""
        users = self._users_of(upload.id, True)
        if users:
            raise InUse(
                f"“{users[0]}” uses this upload.",
                "Wait until the dataset is done, or delete the job.",
            )
        self._forget(upload)

    def remove_expired(self) -> None:
        """Delete all uploads that have expired."""
        for upload in [*self._uploads.values()]:
            if self._has_expired(upload):
                self._remove_expired(upload)

    def _has_expired(self, upload: Upload) -> bool:
        """Whether the time of an upload is over and no dataset refers to it."""
        if upload.state is State.UNPACKING or upload.writing.locked():
            return False
        return self._seconds_left(upload) < 0 and not self._users_of(upload.id, False)

    def _remove_expired(self, upload: Upload) -> None:
        log.info("upload %s has expired", upload.id)
        self._expired[upload.id] = None
        while len(self._expired) > MAX_REMEMBERED:
            self._expired.popitem(last=False)
        self._forget(upload)

    def _forget(self, upload: Upload) -> None:
        if self._uploads.pop(upload.id, None) is None:
            return
        upload.is_deleted = True
        _kill(upload)
        self._discard(upload.folder)

    def _check_space(self, length: int) -> None:
        expected = sum(item.record.length - item.offset for item in self._uploads.values())
        free = shutil.disk_usage(self._folder).free - expected - unpacking.SPARE_BYTES
        if length > free:
            raise DiskFull(
                f"The disk of the server does not have enough space for {humanize.naturalsize(length)}: "
                f"{humanize.naturalsize(max(0, free))} are available.",
                "Delete uploads or jobs that you no longer need, or ask an administrator for space.",
            )

    def _maintain(self) -> None:
        """Continue with complete uploads, and from time to time remove the expired ones."""
        expiry_at = time.monotonic() + EXPIRY_SECONDS
        while True:
            try:
                for upload in [*self._uploads.values()]:
                    self._retry(upload)
                if time.monotonic() >= expiry_at:
                    expiry_at = time.monotonic() + EXPIRY_SECONDS
                    self.remove_expired()
                    in_thread(self._clock.save)
            except Exception:  # the next round may succeed
                log.exception("unexpected error in the maintenance of uploads; continuing")
            gevent.sleep(RETRY_SECONDS)

    def _retry(self, upload: Upload) -> None:
        """Continue with a complete upload that a killed server left, or that waits for space."""
        if upload.needed_bytes and shutil.disk_usage(self._folder).free < upload.needed_bytes:
            return
        if upload.state is State.UNPACKING and upload.writing.acquire(blocking=False):
            try:
                self._continue(upload)
            finally:
                upload.writing.release()

    def _continue(self, upload: Upload) -> None:
        """Start to unpack a complete upload, unless that has to wait; see its ``problem``."""
        try:
            if upload.record.state is State.RECEIVING:
                in_thread(files.sync_file, upload.data)
                self._set_state(upload, State.UNPACKING)
                self._discard(upload.folder / _RECEIVED_FILE)
            if upload.unpacking is None and not upload.is_deleted:
                self._start_unpacking(upload)
        except OSError as error:
            self._postpone(upload, explain(error) or StorageError(str(error)), is_disk_full(error))

    def _postpone(self, upload: Upload, problem: DigitsError, lacks_space: bool, size: int = 0) -> None:
        """Let a complete upload wait for space or, for other problems, for the next round."""
        if not upload.is_deleted and upload.problem is None:
            log.warning("upload %s is complete but cannot be unpacked: %s", upload.id, problem.message)
        upload.problem = type(problem)(
            f"{problem.message} The upload is complete, and is unpacked as soon as possible.", problem.hint
        )
        upload.needed_bytes = unpacking.SPARE_BYTES + size if lacks_space else 0

    def _set_state(self, upload: Upload, state: State, **changes: Any) -> None:
        changes |= {"at": time.time(), "ran": self._clock.seconds}
        record = msgspec.structs.replace(upload.record, state=state, **changes)
        in_thread(upload.save, record)
        upload.record = record

    def _start_unpacking(self, upload: Upload) -> None:
        target = upload.folder / folder_name(upload.record.name)
        in_thread(files.remove_tree, target)  # of an earlier attempt
        limits = Limits.of(self._settings)
        upload.unpacking = Unpacking(upload.data, target, limits, upload.record.encoding)
        upload.fraction, upload.problem, upload.needed_bytes = 0.0, None, 0
        gevent.spawn(self._follow, upload, upload.unpacking, target)

    def _follow(self, upload: Upload, process: Unpacking, target: Path) -> None:
        """Wait until an upload is unpacked, and record the result."""
        while upload.unpacking is process and not process.has_ended:
            upload.fraction = process.progress.fraction
            gevent.sleep(POLL_SECONDS)
        if upload.unpacking is not process:
            return  # killed
        try:
            self._finish(upload, process.progress, target)
        except OSError as error:
            self._postpone(upload, explain(error) or StorageError(str(error)), is_disk_full(error))
        _kill(upload)

    def _finish(self, upload: Upload, progress: UnpackingProgress, target: Path) -> None:
        if progress.lacks_space:
            self._postpone(upload, DiskFull(progress.error), True, progress.bytes)
            return
        if progress.is_finished:
            if progress.files > MANY_FILES:
                in_thread(os.sync)
            else:
                in_thread(files.sync_tree, target)
            content = unpacking.content_folder(target)
            self._set_state(
                upload,
                State.READY,
                content=str(content.relative_to(upload.folder)),
                files=progress.files,
                bytes=progress.bytes,
                notes=progress.notes,
            )
        else:
            self._discard(target)  # of a killed process
            self._set_state(upload, State.FAILED, error=progress.error)
        self._discard(upload.data)


def is_accessible(upload: Upload, user: str | None) -> bool:
    """Return whether ``user`` may see, continue and delete an upload: its owner may, and everyone if it has none."""
    return not upload.record.owner or not user or upload.record.owner == user


def folder_name(name: str) -> str:
    """Return the name of the folder for the archive ``name``: without its ending, and different from our files."""
    stem = unpacking.without_ending(name) or "upload"
    own_names = (_STATE_FILE, _DATA_FILE, _RECEIVED_FILE)
    return f"{stem} files" if stem in own_names else stem


@contextlib.contextmanager
def _writing(upload: Upload) -> Iterator[None]:
    """Keep other requests from writing to an upload. Raises Busy if one does."""
    if not upload.writing.acquire(blocking=False):
        raise Busy("Another request is sending data of this upload.", "Wait until it has finished.")
    try:
        yield
    finally:
        upload.writing.release()


def _write(file: Any, piece: bytes) -> None:
    view = memoryview(piece)
    while view:
        view = view[file.write(view) :]


def _kill(upload: Upload) -> None:
    process, upload.unpacking = upload.unpacking, None
    if process is not None:
        process.close()
