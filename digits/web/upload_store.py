"""Uploads: files that are received in chunks, unpacked, and kept until they expire.

Each upload has a folder with a random name. While data arrives, the size of ``data`` is the offset at which the
upload resumes; nothing else records it, so it is correct however the server ended. When all data has arrived, a
separate process unpacks it (`digits.data.unpacking`), and the folder of the result can be read like a data root.

    archives/3f…/upload.json    name, owner, length, state
    archives/3f…/data           the bytes received
    archives/3f…/unverified     the offset of a chunk whose checksum has not been verified
    archives/3f…/NAME/          the unpacked files
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import secrets
import shutil
import subprocess
import sys
import threading
import time
import unicodedata
from collections import OrderedDict
from collections.abc import Callable, Iterable
from enum import Enum
from pathlib import Path
from typing import Any

import gevent
import humanize
import msgspec

from digits.core import files
from digits.core.environment import SYSTEM_VARIABLES, for_program, inherited
from digits.core.errors import BadRequest, DigitsError, DiskFull, InUse, NotFound
from digits.core.files import UnreadableFile
from digits.core.settings import Settings
from digits.data import unpacking
from digits.data.unpacking import Limits, Progress
from digits.web.offload import in_thread

CHECKSUMS = ("sha256", "sha1")
UNFINISHED_SECONDS = 24 * 3600.0
EXPIRY_SECONDS = 600.0
POLL_SECONDS = 0.1
MAX_NAME_BYTES = 100
# The ids of expired uploads that are remembered, to report them as expired and not as unknown.
MAX_REMEMBERED = 1000

_STATE_FILE, _DATA_FILE, _MARK_FILE, _PROGRESS_FILE = "upload.json", "data", "unverified", "progress"
_ID = re.compile(r"[0-9a-f]{32}")
_DELETED = ".deleted-"

log = logging.getLogger(__name__)


class Expired(DigitsError):
    """The upload was deleted because it expired."""

    http_status = 410


class WrongOffset(DigitsError):
    """A chunk does not start at the end of the data."""

    http_status = 409


class TooLarge(DigitsError):
    """More data than allowed or announced."""

    http_status = 413


class Busy(DigitsError):
    """Another request is writing to the upload."""

    http_status = 423


class WrongChecksum(DigitsError):
    """A chunk does not match its checksum."""

    http_status = 460


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
    # The time of the last change of the state, in Unix seconds.
    at: float


class Upload:
    """An upload in its ``folder``. Its id is the name of the folder."""

    def __init__(self, folder: Path, record: Record) -> None:
        self.id = folder.name
        self.folder = folder
        self.record = record
        self.fraction = 0.0
        self.is_deleted = False
        self.writing = threading.Lock()
        self.unpacking: subprocess.Popen[str] | None = None

    @property
    def data(self) -> Path:
        return self.folder / _DATA_FILE

    @property
    def mark(self) -> Path:
        return self.folder / _MARK_FILE

    @property
    def offset(self) -> int:
        """The number of bytes received."""
        if self.record.state is not State.RECEIVING:
            return self.record.length
        with contextlib.suppress(OSError, ValueError):
            return int(self.mark.read_text())
        return self.data.stat().st_size

    @property
    def content(self) -> Path | None:
        """The folder with the unpacked files, once it is ready."""
        return self.folder / self.record.content if self.record.state is State.READY else None

    @property
    def received_at(self) -> float:
        """When the last data arrived or the state changed, in Unix seconds."""
        with contextlib.suppress(OSError):
            if self.record.state is State.RECEIVING:
                return max(self.record.at, self.data.stat().st_mtime)
        return self.record.at

    def save(self) -> None:
        files.write_json(self.folder / _STATE_FILE, self.record)

    def discard_unverified(self) -> None:
        """Remove a chunk whose checksum was not verified, because the connection or the server ended before."""
        try:
            start = int(self.mark.read_text())
        except FileNotFoundError:
            return
        except ValueError:
            start = 0  # the mark was not written completely
        os.truncate(self.data, min(start, self.data.stat().st_size))
        self.mark.unlink()


class UploadStore:
    """All uploads below ``folder``.

    ``users_of`` returns the names of the datasets whose recipe contains a text, here the id of an upload; if its
    second argument is true, only those that are not finished.
    """

    def __init__(self, folder: Path, settings: Settings, users_of: Callable[[str, bool], list[str]]) -> None:
        self._folder = Path(os.path.realpath(folder))
        self._settings = settings
        self._users_of = users_of
        self._uploads: dict[str, Upload] = {}
        self._expired: OrderedDict[str, None] = OrderedDict()
        self._background: Any = None

    def start(self) -> None:
        """Load the uploads, and resume unpacking those that are complete."""
        files.make_folder(self._folder)
        for folder in sorted(self._folder.iterdir()):
            if not _ID.fullmatch(folder.name):
                if folder.name.startswith(_DELETED):
                    shutil.rmtree(folder, ignore_errors=True)
                continue
            try:
                upload = Upload(folder, files.read_json(folder / _STATE_FILE, Record, below=folder))
                files.remove_partial_writes(folder / _STATE_FILE)
                upload.discard_unverified()
                self._uploads[upload.id] = upload
            except (UnreadableFile, OSError) as error:
                log.warning("upload %s is damaged and removed: %s", folder.name, error)
                shutil.rmtree(folder, ignore_errors=True)
        self.remove_expired()
        for upload in [*self._uploads.values()]:
            if upload.record.state is State.UNPACKING:
                self._start_unpacking(upload)
        self._background = gevent.spawn(self._expire_regularly)

    def stop(self) -> None:
        """Stop unpacking; the next server starts over."""
        if self._background is not None:
            self._background.kill()
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
        """Return the Unix time at which the upload is removed, unless a dataset refers to it."""
        is_open = upload.record.state is State.RECEIVING
        return upload.received_at + (UNFINISHED_SECONDS if is_open else self._settings.upload_days * 86400)

    def create(self, name: str, length: int, owner: str | None) -> Upload:
        """Create an upload of ``length`` bytes. Raises TooLarge, BadRequest if there are too many, or DiskFull."""
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
        upload = Upload(folder, Record(name=safe_name(name), length=length, owner=owner, at=time.time()))
        try:
            upload.data.touch(mode=0o600)
            in_thread(upload.save)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        self._uploads[upload.id] = upload
        return upload

    def receive(
        self, upload: Upload, offset: int, pieces: Iterable[bytes], checksum: tuple[str, bytes] | None = None
    ) -> None:
        """Append a chunk that starts at ``offset``.

        With ``checksum``, an algorithm of `CHECKSUMS` and a digest, the chunk is appended as a whole or not at
        all; without, as much of it as arrives. Raises Busy, WrongOffset, TooLarge, WrongChecksum, and OSError.
        """
        if not upload.writing.acquire(blocking=False):
            raise Busy("Another request is sending data of this upload.", "Wait until it has finished.")
        try:
            if upload.record.state is not State.RECEIVING or offset != in_thread(_offset, upload):
                raise WrongOffset(f"The upload resumes at byte {upload.offset:,}, not {offset:,}.")
            if checksum is not None:
                in_thread(upload.mark.write_text, str(offset))
            try:
                self._append(upload, offset, pieces, checksum)
            finally:
                if not upload.is_deleted:
                    in_thread(upload.discard_unverified)
            if in_thread(_offset, upload) == upload.record.length:
                in_thread(files.sync_file, upload.data)
                self._set_state(upload, State.UNPACKING)
                self._start_unpacking(upload)
        finally:
            upload.writing.release()

    def _append(
        self, upload: Upload, offset: int, pieces: Iterable[bytes], checksum: tuple[str, bytes] | None
    ) -> None:
        digest = hashlib.new(checksum[0], usedforsecurity=False) if checksum else None
        end = offset
        file = in_thread(open, upload.data, "ab", buffering=0)  # the disk may be busy with the data before
        try:
            for piece in pieces:
                if upload.is_deleted:
                    raise NotFound("The upload was deleted while data arrived.")
                end += len(piece)
                if end > upload.record.length:
                    raise TooLarge(f"There is more data than the announced {upload.record.length:,} bytes.")
                in_thread(_write, file, piece, digest)
        finally:
            in_thread(file.close)
        if checksum and digest and digest.digest() != checksum[1]:
            raise WrongChecksum(
                "The data was corrupted in transit: its checksum does not match.",
                "Send this part of the file again.",
            )
        in_thread(upload.mark.unlink, missing_ok=True)

    def delete(self, upload: Upload) -> None:
        """Delete an upload in any state. Raises InUse while a dataset is created from it."""
        users = self._users_of(upload.id, True)
        if users:
            raise InUse(
                f"The dataset “{users[0]}” is being created from this upload.",
                "Wait until it is done, or abort it.",
            )
        self._forget(upload)

    def remove_expired(self) -> None:
        """Delete all uploads that have expired."""
        for upload in [*self._uploads.values()]:
            if self._has_expired(upload):
                self._remove_expired(upload)

    def _has_expired(self, upload: Upload) -> bool:
        """Whether the time of an upload is over and no dataset refers to it."""
        if upload.record.state is State.UNPACKING or upload.writing.locked():
            return False
        return time.time() > self.expires_at(upload) and not self._users_of(upload.id, False)

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
        # Rename first: removing many files takes a while, and may be interrupted.
        doomed = upload.folder.with_name(f"{_DELETED}{upload.id}")
        upload.folder.rename(doomed)
        in_thread(shutil.rmtree, doomed, ignore_errors=True)

    def _check_space(self, length: int) -> None:
        expected = sum(item.record.length - item.offset for item in self._uploads.values())
        free = shutil.disk_usage(self._folder).free - expected - unpacking.SPARE_BYTES
        if length > free:
            raise DiskFull(
                f"The disk of the server does not have enough space for {humanize.naturalsize(length)}: "
                f"{humanize.naturalsize(max(0, free))} are available.",
                "Delete uploads or jobs that you no longer need, or ask an administrator for space.",
            )

    def _expire_regularly(self) -> None:
        while True:
            gevent.sleep(EXPIRY_SECONDS)
            try:
                self.remove_expired()
            except Exception:  # the next round may succeed
                log.exception("expired uploads cannot be removed")

    def _set_state(self, upload: Upload, state: State, **changes: Any) -> None:
        upload.record = msgspec.structs.replace(upload.record, state=state, at=time.time(), **changes)
        in_thread(upload.save)

    def _start_unpacking(self, upload: Upload) -> None:
        target = upload.folder / folder_name(upload.record.name)
        if target.exists():  # of an earlier server
            in_thread(shutil.rmtree, target)
        limits = Limits(
            max_bytes=self._settings.max_upload_unpacked,
            max_files=self._settings.max_upload_files,
            max_ratio=self._settings.max_upload_ratio,
        )
        request = unpacking.Request(archive=str(upload.data), folder=str(target), limits=limits)
        with open(upload.folder / _PROGRESS_FILE, "w") as progress:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "digits.data.unpacking"],
                stdin=subprocess.PIPE,
                stdout=progress,
                stderr=subprocess.STDOUT,
                text=True,
                cwd="/",
                env=for_program(inherited(os.environ, SYSTEM_VARIABLES)),
                start_new_session=True,
            )
        assert process.stdin is not None
        upload.fraction = 0.0
        upload.unpacking = process
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(msgspec.json.encode(request).decode() + "\n")
            process.stdin.flush()
        gevent.spawn(self._follow, upload, process, target)

    def _follow(self, upload: Upload, process: subprocess.Popen[str], target: Path) -> None:
        """Wait until an upload is unpacked, and record the result."""
        while process.poll() is None:
            progress = _read_progress(upload.folder)
            upload.fraction = progress.fraction if progress else 0.0
            gevent.sleep(POLL_SECONDS)
        if process.stdin is not None:
            process.stdin.close()
        if upload.is_deleted or upload.unpacking is not process:
            return
        upload.unpacking = None
        progress = _read_progress(upload.folder) or Progress()
        try:
            self._finish(upload, progress, target, process.returncode)
        except OSError as error:
            log.error("the state of upload %s cannot be saved: %s", upload.id, error)
            upload.record.state, upload.record.error = State.FAILED, "The disk of the server failed."

    def _finish(self, upload: Upload, progress: Progress, target: Path, code: int) -> None:
        if progress.is_finished:
            content = unpacking.content_folder(target)
            self._set_state(
                upload,
                State.READY,
                content=str(content.relative_to(upload.folder)),
                files=progress.files,
                bytes=progress.bytes,
            )
            self._remove_archive(upload)
        else:
            if not progress.error:
                log.error(
                    "unpacking upload %s ended with code %s: %s", upload.id, code, _last_words(upload.folder)
                )
            error = (
                progress.error or f"The program that unpacks the archive ended unexpectedly (code {code})."
            )
            in_thread(shutil.rmtree, target, ignore_errors=True)
            self._remove_archive(upload)
            self._set_state(upload, State.FAILED, error=error)

    def _remove_archive(self, upload: Upload) -> None:
        in_thread(upload.data.unlink, missing_ok=True)  # slow for a large file
        (upload.folder / _PROGRESS_FILE).unlink(missing_ok=True)


def is_accessible(upload: Upload, user: str | None) -> bool:
    """Return whether ``user`` may see, continue and delete an upload: its owner may, and everyone if it has none."""
    return not upload.record.owner or not user or upload.record.owner == user


def safe_name(name: str) -> str:
    """Return the file name ``name``, which is from a user, without folders and unprintable characters."""
    last = name.replace("\\", "/").rstrip("/").rpartition("/")[2]
    text = "".join(letter for letter in unicodedata.normalize("NFC", last) if letter.isprintable())
    text = text.encode("utf-8", "replace")[:MAX_NAME_BYTES].decode("utf-8", "ignore").strip(" .")
    return text or "upload"


def folder_name(name: str) -> str:
    """Return the name of the folder for the archive ``name``: without its ending, and different from our files."""
    ending = next((f".{ending}" for ending in unpacking.ENDINGS if name.lower().endswith(f".{ending}")), "")
    stem = name[: len(name) - len(ending)].strip(" .") or "upload"
    return f"{stem} files" if stem in (_STATE_FILE, _DATA_FILE, _MARK_FILE, _PROGRESS_FILE) else stem


def _offset(upload: Upload) -> int:
    return upload.offset


def _write(file: Any, piece: bytes, digest: Any) -> None:
    view = memoryview(piece)
    if digest is not None:
        digest.update(view)
    while view:
        view = view[file.write(view) :]


def _kill(upload: Upload) -> None:
    process, upload.unpacking = upload.unpacking, None
    if process is not None:
        process.kill()
        process.wait()


def _read_progress(folder: Path) -> Progress | None:
    """Return the last complete line that the program has written."""
    text = _last_words(folder)
    for line in reversed(text.split("\n")[:-1]):
        with contextlib.suppress(msgspec.DecodeError, ValueError):
            return msgspec.json.decode(line, type=Progress)
    return None


def _last_words(folder: Path) -> str:
    try:
        with open(folder / _PROGRESS_FILE, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
            return file.read().decode(errors="replace")
    except OSError:
        return ""
