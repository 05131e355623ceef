"""A failing disk: writes below a folder fail with an errno, as the kernel would report it."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_REMOVING = {"os.remove", "os.rmdir"}
_MAKING = {"os.mkdir", "os.rename", "os.link", "os.symlink", "os.truncate"}


class FailingDisk:
    """Starting with the ``first`` write, every write below ``folder`` whose path is ``chosen`` fails with ``number``.

    With ENOSPC, files can still be removed; EMFILE only affects opening files.
    """

    def __init__(self, folder: Path, number: int, first: int, chosen: Callable[[str], bool]) -> None:
        self._folder = f"{folder}/"
        self._number = number
        self._first = first
        self._chosen = chosen
        self._count = 0

    @property
    def has_failed(self) -> bool:
        return self._count >= self._first

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            writes = bool(arguments[2] & _WRITING)
            concerned = writes or self._number == errno.EMFILE
        else:
            concerned = self._number != errno.EMFILE and (
                event in _MAKING or (event in _REMOVING and self._number != errno.ENOSPC)
            )
        if concerned and isinstance(arguments[0], (str, bytes, os.PathLike)):
            self.write(os.path.join(_folder_of(arguments), os.fsdecode(arguments[0])))

    def write(self, path: str) -> None:
        if not path.startswith(self._folder) or not self._chosen(path):
            return
        self._count += 1
        if self.has_failed:
            raise OSError(self._number, os.strerror(self._number), path)


_disk: FailingDisk | None = None
_is_hooked = False


@contextmanager
def failing_disk(
    folder: Path, number: int, first: int = 1, chosen: Callable[[str], bool] = lambda path: True
) -> Iterator[FailingDisk]:
    """Make this process's writes below ``folder`` fail in the block."""
    global _disk, _is_hooked
    if not _is_hooked:
        sys.addaudithook(_audit)
        _is_hooked = True
    original = os.fsync

    def fsync(descriptor: int) -> None:
        if number != errno.EMFILE and number != errno.EROFS:
            made.write(os.readlink(f"/proc/self/fd/{descriptor}"))
        original(descriptor)

    made = _disk = FailingDisk(folder, number, first, chosen)
    os.fsync = fsync
    try:
        yield made
    finally:
        os.fsync = original
        _disk = None


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _disk is not None and (event == "open" or event in _MAKING or event in _REMOVING):
        _disk.audit(event, arguments)


def _folder_of(arguments: tuple[Any, ...]) -> str:
    """The folder to which a relative path of `os.remove` and `os.rmdir` refers."""
    descriptor = arguments[1] if len(arguments) == 2 and isinstance(arguments[1], int) else -1
    return os.readlink(f"/proc/self/fd/{descriptor}") if descriptor >= 0 else ""


@contextmanager
def small_disk(folder: Path, options: str) -> Iterator[bool]:
    """Mount a small file system at ``folder``; False if this user lacks the permission."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    try:
        is_mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        is_mounted = False
    try:
        yield is_mounted
    finally:
        if is_mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def few_descriptors(spare: int) -> Iterator[None]:
    """Let this process open only ``spare`` more files in the block."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = [os.dup(0)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (used[0] + 64, limits[1]))
    try:
        with suppress(OSError):
            while True:
                used.append(os.dup(0))
        for _ in range(spare):
            os.close(used.pop())
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for descriptor in used:
            os.close(descriptor)


def fill(path: Path) -> None:
    """Write to the new file ``path`` until the disk is full."""
    with open(path, "wb", buffering=0) as file:
        for size in (65536, 512, 1):
            try:
                while True:
                    file.write(b"\0" * size)
            except OSError as error:
                assert error.errno == errno.ENOSPC
