"""Unpack an archive from a user into a new folder.

Nothing in an archive is trusted. The whole archive is refused, with the name of the entry, if an entry would be
outside the folder, is nested too deeply, is a link or a device, is encrypted, or exists twice; if the archive is
truncated or damaged; or if it exceeds one of the `Limits`, which count the bytes, files and folders actually
created. Archives in the archive are unpacked, too, each into a new folder with its name, but not those in them; one
that is refused for another reason than the limits remains a file, and is named.

`Unpacking` does it in another process, the program ``python -m digits.data.archives.unpacking``. It reads a `Request`
as one line of JSON, writes each `UnpackingProgress` as one, and stops when standard input is closed. Its memory is
limited.
"""

from __future__ import annotations

import bz2
import contextlib
import errno
import gzip
import itertools
import logging
import lzma
import os
import shutil
import stat
import struct
import subprocess
import sys
import tarfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Self

import msgspec

from digits.core.errors import explain
from digits.core.files import is_disk_full, remove_tree
from digits.core.machine import programs
from digits.core.settings import Settings
from digits.data.archives.zip_names import ArchiveError, UnclearNames, decode_names

log = logging.getLogger(__name__)

# File extensions to remove from the name of the folder, without their dots, longest first.
ENDINGS = ("tar.gz", "tar.bz2", "tar.xz", "tgz", "tar", "zip")
_ARCHIVE_ENDINGS = tuple(f".{ending}" for ending in ENDINGS)
# Examples in a note, and notes.
_MAX_EXAMPLES = 3
_MAX_NOTES = 10
# The depth to which files and folders may be nested.
MAX_LEVELS = 50
PIECE_BYTES = 256 * 1024
# Below this size, any compression ratio is accepted: a small file of zeros is not an attack.
ANY_RATIO_BYTES = 100_000_000
# Disk space to leave free, in bytes.
SPARE_BYTES = 500_000_000
MEMORY_BYTES = 1 << 30
REPORT_SECONDS = 0.2
_LAST_BYTES = 64 * 1024
_DISK_CHECK_BYTES = 64_000_000
_MAX_NAME_BYTES = 4096
# Headers that precede an entry, such as a long name, are read into memory.
_MAX_EXTRA_BYTES = 1_000_000
_EXTRA_TYPES = (b"x", b"g", b"X", b"L", b"K")
# Files that operating systems add to archives.
_ADDED_FILES = frozenset({".DS_Store", "Thumbs.db", "desktop.ini"})
_ADDED_FOLDERS = frozenset({"__MACOSX"})

_ZIP_END = struct.Struct("<4s4H2LH")
_ZIP64_END = struct.Struct("<4sQ2H2L4Q")
_ZIP64_LOCATOR_BYTES = 20

_DAMAGED = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    ValueError,
    OverflowError,
    struct.error,
    IndexError,
)


class Refused(ArchiveError):
    """The contents of an archive are not acceptable."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"The archive is refused: {reason}")


class LimitExceeded(Refused):
    """An archive and those in it exceed one of the `Limits` together."""


class NoSpace(ArchiveError):
    """The disk is full; the archive may be fine."""


@dataclass(frozen=True)
class Limits:
    """Limits on the contents of an archive.

    ``max_files`` counts files and folders; ``max_ratio`` is the unpacked size divided by the size of the archive.
    """

    max_bytes: int
    max_files: int
    max_ratio: float
    spare_bytes: int = SPARE_BYTES

    @classmethod
    def of(cls, settings: Settings) -> Self:
        return cls(settings.max_upload_unpacked, settings.max_upload_files, settings.max_upload_ratio)


@dataclass(frozen=True)
class Request:
    """The arguments of the program."""

    archive: str
    folder: str
    limits: Limits
    encoding: str = ""


@dataclass
class UnpackingProgress:
    """The state of unpacking: the fraction that is done, and at the end ``is_finished`` or the ``error``.

    With ``lacks_space``, the error is the full disk. ``notes`` are sentences about what was assumed.
    """

    fraction: float = 0.0
    files: int = 0
    bytes: int = 0
    is_finished: bool = False
    error: str = ""
    lacks_space: bool = False
    notes: list[str] = field(default_factory=list)


class Unpacking:
    """A process that unpacks ``archive`` into the new ``folder``; it ends with this process.

    ``encoding`` is that of names in zip archives which do not state theirs; see `digits.data.archives.zip_names`. Use
    it in a ``with`` block, or call `close`. Raises OSError if the process cannot be started.
    """

    def __init__(self, archive: Path, folder: Path, limits: Limits, encoding: str = "") -> None:
        self._archive = archive
        # Not a file: the disk may be full.
        self._output = open(os.memfd_create("unpacking"), "r+b", buffering=0)  # noqa: SIM115
        try:
            self._process = programs.start(
                "digits.data.archives.unpacking", stdout=self._output, stderr=subprocess.STDOUT
            )
        except BaseException:
            self._output.close()
            raise
        request = Request(archive=str(archive), folder=str(folder), limits=limits, encoding=encoding)
        programs.send(self._process, request)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    @property
    def progress(self) -> UnpackingProgress:
        """The latest state; once the process has ended, it has an ``error`` unless it ``is_finished``."""
        code = self._process.poll()
        words = self._last_words()
        progress = UnpackingProgress()
        for line in reversed(words.split(b"\n")[:-1]):
            with contextlib.suppress(msgspec.DecodeError, ValueError):
                progress = msgspec.json.decode(line, type=UnpackingProgress)
                break
        if code is not None and not progress.is_finished and not progress.error:
            log.error(
                "unpacking %s ended with code %s: %s", self._archive, code, words.decode(errors="replace")
            )
            progress.error = f"The program that unpacks the archive ended unexpectedly (code {code})."
        return progress

    def close(self) -> None:
        """Kill the process if it is running."""
        programs.end(self._process)
        self._output.close()

    def _last_words(self) -> bytes:
        size = os.fstat(self._output.fileno()).st_size
        return os.pread(self._output.fileno(), _LAST_BYTES, max(0, size - _LAST_BYTES))


@dataclass(frozen=True)
class _Entry:
    """A file or folder of an archive; ``refusal`` is the reason why it cannot be unpacked, or empty."""

    name: str
    is_folder: bool
    refusal: str
    open: Callable[[], IO[bytes] | None]


def unpack(
    archive: Path,
    folder: Path,
    limits: Limits,
    report: Callable[[UnpackingProgress], None] = lambda progress: None,
    encoding: str = "",
) -> UnpackingProgress:
    """Unpack ``archive`` into the new ``folder``. If that fails, the folder does not exist.

    Raises ArchiveError with a message for the user.
    """
    progress = UnpackingProgress()
    folder.mkdir(mode=0o700)
    try:
        report(progress)
        writer = _Writer(folder, limits, archive.stat().st_size, progress)
        _unpack_into(writer, archive, encoding, report)
        _unpack_inner(writer, encoding, report)
        if not progress.files:
            raise ArchiveError("The archive contains no files.")
    except BaseException:
        remove_tree(folder, ignore_errors=True)
        raise
    progress.fraction, progress.is_finished = 1.0, True
    return progress


def _unpack_into(
    writer: _Writer, archive: Path, encoding: str, report: Callable[[UnpackingProgress], None]
) -> None:
    with open(archive, "rb") as file, _readable():
        for entry, fraction in _entries(file, writer, encoding):
            writer.advance(fraction)
            writer.write(entry)
            report(writer.progress)


def _unpack_inner(writer: _Writer, encoding: str, report: Callable[[UnpackingProgress], None]) -> None:
    """Replace the archives among the files by folders with their contents; those that are refused remain."""
    archives, notes = writer.archives.copy(), writer.progress.notes
    writer.archives.clear()
    for path in archives:
        try:
            with _readable(), writer.replacing(path):
                _unpack_into(writer, path, encoding, report)
        except (NoSpace, LimitExceeded, UnclearNames):
            raise
        except ArchiveError as error:
            notes.append(f"{_shown(writer.name_of(path))} is not unpacked. {error}")
    if writer.archives:
        names = [_shown(writer.name_of(path)) for path in writer.archives]
        more = f" and {len(names) - _MAX_EXAMPLES:,} more" if len(names) > _MAX_EXAMPLES else ""
        notes.append(
            f"Archives in archives in the archive are not unpacked: {', '.join(names[:_MAX_EXAMPLES])}{more}."
        )
    if len(notes) > _MAX_NOTES:
        notes[_MAX_NOTES:] = [f"There are {len(notes) - _MAX_NOTES:,} more such archives."]


def without_ending(name: str) -> str:
    """Return the ``name`` of an archive without its ending."""
    ending = next((f".{ending}" for ending in ENDINGS if name.lower().endswith(f".{ending}")), "")
    return name[: len(name) - len(ending)].strip(" .")


def content_folder(folder: Path) -> Path:
    """Return the folder with the contents: a single top-level folder, as in most archives, is skipped."""
    while True:
        with os.scandir(folder) as entries:
            first, second = next(entries, None), next(entries, None)
        if first is None or second is not None or not first.is_dir(follow_symlinks=False):
            return folder
        folder = folder / first.name


@contextlib.contextmanager
def _readable() -> Iterator[None]:
    """Convert the errors of a damaged archive or of the disk to ArchiveError."""
    try:
        yield
    except MemoryError as error:
        raise ArchiveError(
            "Unpacking the archive needs too much memory. Pack it again as zip or tar.gz."
        ) from error
    except NotImplementedError as error:
        raise ArchiveError(
            f"The archive uses an unsupported compression ({error}). Pack it again as zip or tar.gz."
        ) from error
    except OSError as error:
        explained = explain(error)
        if explained:
            raise (NoSpace if is_disk_full(error) else ArchiveError)(explained.sentences) from error
        if error.errno is not None:
            raise ArchiveError(f"The archive cannot be unpacked: {error.strerror}.") from error
        raise ArchiveError(f"The archive is damaged: {_plain(error)}. Create it again.") from error
    except _DAMAGED as error:
        raise ArchiveError(
            f"The archive is truncated or damaged: {_plain(error)}. Create it again."
        ) from error


class _Writer:
    """Writes entries below ``folder``, and counts files and bytes in ``progress``.

    ``archives`` are the files written that are archives themselves. While it is `replacing` one of them, entries are
    written below another folder.
    """

    def __init__(self, folder: Path, limits: Limits, archive_bytes: int, progress: UnpackingProgress) -> None:
        self.limits, self.progress = limits, progress
        self.archives: list[Path] = []
        self._top = self._folder = folder
        self._archive_bytes = archive_bytes
        self._entries = 0
        self._next_disk_check = 0
        self._folders = {folder}
        self._prefix = ""

    def advance(self, fraction: float) -> None:
        """Report the ``fraction`` of the archive that is done."""
        if not self._prefix:
            self.progress.fraction = min(1.0, fraction)

    def name_of(self, path: Path) -> str:
        """Return the name of a file in the archive."""
        return str(path.relative_to(self._top))

    @contextlib.contextmanager
    def replacing(self, archive: Path) -> Iterator[None]:
        """Write below a new folder in place of ``archive``, which is removed unless that fails."""
        target = _free(
            archive.with_name(without_ending(archive.name) or archive.name), f"{archive.name} files"
        )
        target.mkdir(mode=0o700)
        self._prefix = f"{self.name_of(archive)}/"
        self.progress.files -= 1
        self.progress.bytes -= archive.stat().st_size
        before = self.progress.files, self.progress.bytes, len(self.archives)
        try:
            self._folders.add(target)
            self._folder = target
            yield
        except ArchiveError:
            self.progress.files, self.progress.bytes = before[:2]
            self.progress.files += 1
            self.progress.bytes += archive.stat().st_size
            del self.archives[before[2] :]
            self._folders = {folder for folder in self._folders if not folder.is_relative_to(target)}
            remove_tree(target, ignore_errors=True)
            raise
        finally:
            self._folder, self._prefix = self._top, ""
        archive.unlink()
        self._lift(target)

    def _lift(self, folder: Path) -> None:
        """Remove the only folder in ``folder`` if it repeats its name, as in train.zip with train/cat/1.png."""
        inner = folder / folder.name
        if [path.name for path in folder.iterdir()] == [folder.name] and inner.is_dir():
            spare = _free(
                folder.with_name(f"{folder.name}.zip"), f"{folder.name}.zip"
            )  # most likely the archive's
            inner.rename(spare)
            folder.rmdir()
            spare.rename(folder)
            self.archives = [
                folder / path.relative_to(inner) if path.is_relative_to(inner) else path
                for path in self.archives
            ]

    def write(self, entry: _Entry) -> None:
        self._entries += 1
        self._check_count()
        name = _shown(f"{self._prefix}{entry.name}")
        if entry.refusal:
            raise Refused(f"“{name}” {entry.refusal}.")
        parts = _parts(entry.name, name)
        if not parts or _is_added_by_system(parts):
            return
        if len(parts) > MAX_LEVELS:
            raise Refused(f"“{name}” is nested more than {MAX_LEVELS} levels deep.")
        target = self._folder.joinpath(*parts)
        try:
            self._make_folder(target if entry.is_folder else target.parent)
            if not entry.is_folder:
                self._copy(entry, target, name)
        except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
            raise Refused(f"it contains “{name}” twice, or as both a file and a folder.") from error
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                raise Refused(f"the name “{name}” is too long.") from error
            raise

    def _make_folder(self, folder: Path) -> None:
        if folder in self._folders:
            return
        self._make_folder(folder.parent)
        if not folder.is_dir():
            folder.mkdir(mode=0o700)
        self._folders.add(folder)
        self._check_count()

    def _check_count(self) -> None:
        # The entries count, too: one that repeats a folder takes time and creates nothing.
        if max(self._entries, self.progress.files + len(self._folders) - 1) > self.limits.max_files:
            raise _too_many(self.limits)

    def _copy(self, entry: _Entry, target: Path, name: str) -> None:
        source = entry.open()
        if source is None:
            raise Refused(f"“{name}” is not a regular file.")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with source, open(os.open(target, flags, 0o600), "wb", buffering=0) as copy:
            while piece := source.read(PIECE_BYTES):
                self.progress.bytes += len(piece)
                self._check_size(name)
                copy.write(piece)
        self.progress.files += 1
        if target.name.lower().endswith(_ARCHIVE_ENDINGS):
            self.archives.append(target)

    def _check_size(self, name: str) -> None:
        written = self.progress.bytes
        if written > self.limits.max_bytes:
            raise _too_large(self.limits)
        if written > ANY_RATIO_BYTES and written > self.limits.max_ratio * self._archive_bytes:
            raise LimitExceeded(
                f"its contents are more than {self.limits.max_ratio:g} times larger than the "
                f"archive, at “{name}”. An administrator can raise --max-upload-ratio."
            )
        if written >= self._next_disk_check:
            self._next_disk_check = written + _DISK_CHECK_BYTES
            if shutil.disk_usage(self._folder).free < self.limits.spare_bytes:
                raise NoSpace(
                    "The disk of the server is full. Delete uploads or jobs that you no longer need, then try again."
                )


def _entries(file: IO[bytes], writer: _Writer, encoding: str) -> Iterator[tuple[_Entry, float]]:
    """Yield the entries of an archive, each with the fraction of the archive before it."""
    start = file.read(512)
    file.seek(0)
    if start.startswith(b"PK"):
        return _zip_entries(file, writer, encoding)
    if start.startswith(b"\x1f\x8b"):
        return _tar_entries(file, gzip.open(file))
    if start.startswith(b"BZh"):
        return _tar_entries(file, bz2.open(file))
    if start.startswith(b"\xfd7zXZ\0"):
        return _tar_entries(file, lzma.open(file))
    if start[257:262] == b"ustar" or _is_old_tar(start):
        return _tar_entries(file, file)
    names = {b"Rar!": "RAR", b"7z\xbc\xaf": "7-Zip", b"\x28\xb5\x2f\xfd": "Zstandard"}
    found = next(
        (f"{name} archives" for magic, name in names.items() if start.startswith(magic)), "this file"
    )
    raise ArchiveError(
        f"The archive cannot be read: {found} cannot be unpacked. Accepted are zip, tar, tar.gz, tar.bz2 and tar.xz."
    )


def _is_old_tar(start: bytes) -> bool:
    """Return whether ``start`` is the header of a tar archive older than POSIX."""
    try:
        tarfile.TarInfo.frombuf(start, "utf-8", "surrogateescape")
    except tarfile.TarError:
        return False
    return True


def _zip_entries(file: IO[bytes], writer: _Writer, encoding: str) -> Iterator[tuple[_Entry, float]]:
    _check_zip_end(file, writer.limits)
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        total = sum(member.file_size for member in members)
        if total > writer.limits.max_bytes:
            raise _too_large(writer.limits)
        names = decode_names(members, encoding)
        if names.note and names.note not in writer.progress.notes:
            writer.progress.notes.append(names.note)
        done = 0
        for member, text in zip(members, names.texts, strict=True):
            # Windows programs may separate folders by backslashes.
            name = text.replace("\\", "/")
            entry = _Entry(
                name,
                name.endswith("/"),
                _zip_refusal(member),
                lambda member=member: archive.open(member),  # type: ignore[misc]
            )
            yield entry, done / max(1, total)
            done += member.file_size


def _zip_refusal(member: zipfile.ZipInfo) -> str:
    mode = member.external_attr >> 16
    if member.flag_bits & 0x41:
        return "is encrypted; pack the files again without a password"
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
        return "is a link or a device; pack the files themselves"
    return ""


def _check_zip_end(file: IO[bytes], limits: Limits) -> None:
    """Check the number of entries before they are read, all at once, into memory."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - (1 << 16) - _ZIP_END.size))
    tail = file.read()
    place = tail.rfind(b"PK\5\6")
    if place < 0 or len(tail) - place < _ZIP_END.size:
        raise ArchiveError("The zip archive is truncated: its list of files is missing. Create it again.")
    end = _ZIP_END.unpack_from(tail, place)
    count, list_bytes = end[4], end[5]
    before = place - _ZIP64_LOCATOR_BYTES - _ZIP64_END.size
    if before >= 0 and tail[before:].startswith(b"PK\6\6"):
        end64 = _ZIP64_END.unpack_from(tail, before)
        count, list_bytes = end64[7], end64[8]
    if max(count, list_bytes // (46 + _MAX_NAME_BYTES)) > limits.max_files:
        raise _too_many(limits)
    file.seek(0)


class _StrictTarInfo(tarfile.TarInfo):
    """A header whose damage is an error; the library would take it as the end of the archive."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        if len(buf) < tarfile.BLOCKSIZE:
            raise ArchiveError("The tar archive is truncated: its end is missing. Create it again.")
        if not any(buf):
            return super().frombuf(buf, encoding, errors)  # raises the error for the end
        try:
            info = super().frombuf(buf, encoding, errors)
        except tarfile.TarError as error:
            raise ArchiveError(f"The tar archive is damaged: {error}. Create it again.") from error
        if info.size < 0 or (info.type in _EXTRA_TYPES and info.size > _MAX_EXTRA_BYTES):
            raise ArchiveError("The tar archive is damaged: a header is too long. Create it again.")
        return info


def _tar_entries(file: IO[bytes], stream: Any) -> Iterator[tuple[_Entry, float]]:
    size = os.fstat(file.fileno()).st_size
    with tarfile.open(fileobj=stream, mode="r|", tarinfo=_StrictTarInfo) as archive:
        while (member := archive.next()) is not None:
            # The library keeps all entries.
            archive.members.clear()  # type: ignore[attr-defined]
            entry = _Entry(
                member.name,
                member.isdir(),
                ""
                if member.isreg() or member.isdir()
                else "is a link or a device; pack the files themselves",
                lambda member=member: archive.extractfile(member),  # type: ignore[misc]
            )
            yield entry, file.tell() / max(1, size)
    # Reading the end verifies the checksum of compressed archives.
    stream.read(PIECE_BYTES)


def _parts(name: str, shown: str) -> list[str]:
    """Split the ``name`` of an entry into the names of its folders and its own; raises ArchiveError."""
    try:
        length = len(os.fsencode(name))
    except UnicodeEncodeError as error:
        raise Refused(f"the name “{shown}” is not valid text.") from error
    if length > _MAX_NAME_BYTES:
        raise Refused(f"the name “{shown}” is too long.")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts or (parts and parts[0][1:2] == ":") or "\0" in name:
        raise Refused(f"“{shown}” is outside the archive's folder.")
    return parts


def _is_added_by_system(parts: list[str]) -> bool:
    return parts[0] in _ADDED_FOLDERS or parts[-1] in _ADDED_FILES or parts[-1].startswith("._")


def _too_many(limits: Limits) -> LimitExceeded:
    return LimitExceeded(
        f"it contains more than {limits.max_files:,} files and folders. Split it into several "
        "archives, or ask an administrator to raise --max-upload-files."
    )


def _too_large(limits: Limits) -> LimitExceeded:
    return LimitExceeded(
        f"its contents are larger than {limits.max_bytes / 1e9:g} GB. Split it, or ask an "
        "administrator to raise --max-upload-unpacked."
    )


def _free(path: Path, other_name: str) -> Path:
    """Return ``path``, or the first of ``other_name``, ``other_name 2`` and so on in its folder that is free."""
    names = itertools.chain(
        [path.name, other_name], (f"{other_name} {number}" for number in itertools.count(2))
    )
    return next(each for name in names if not os.path.lexists(each := path.with_name(name)))


def _plain(error: BaseException) -> str:
    return _shown(str(error).strip(" .") or type(error).__name__)


def _shown(name: str) -> str:
    """Return ``name`` for a message: printable, and shortened in the middle."""
    text = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in name)
    return text if len(text) <= 120 else f"{text[:70]}…{text[-45:]}"


def main() -> None:
    programs.limit_resources(MEMORY_BYTES)
    request = programs.receive(Request)
    progress, reported = UnpackingProgress(), 0.0

    def report(latest: UnpackingProgress) -> None:
        nonlocal progress, reported
        progress = latest
        if time.monotonic() - reported >= REPORT_SECONDS:
            reported = time.monotonic()
            _write(progress)

    try:
        _write(unpack(Path(request.archive), Path(request.folder), request.limits, report, request.encoding))
    except ArchiveError as error:
        progress.error, progress.lacks_space = str(error), isinstance(error, NoSpace)
        _write(progress)


def _write(progress: UnpackingProgress) -> None:
    sys.stdout.write(f"{msgspec.json.encode(progress).decode()}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
