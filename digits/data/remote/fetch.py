"""Download the files at remote addresses into a folder, in a separate process.

``python -m digits.data.remote.fetch`` reads a `Request` as one line of JSON, which includes credentials, and writes
`News` as lines of JSON. It exits when standard input is closed. Nothing from a server is trusted: connections go to
public addresses and listed hosts only (`guard`); names of files cannot lead out of the folder; and the number and the
size of the files are limited while they are listed and received.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

import msgspec
from msgspec import Struct, field

from digits.core.errors import DigitsError
from digits.core.machine import programs
from digits.core.remote import WEB_SCHEMES, Address, RemotePolicy, parse
from digits.data.remote import guard
from digits.data.remote.drivers import (
    Driver,
    FileSystemDriver,
    RemoteError,
    RemoteFile,
    S3Driver,
    is_usable_name,
)

# Number of concurrent downloads.
THREADS = 16
ATTEMPTS = 4
FIRST_PAUSE_SECONDS = 0.5
REPORT_SECONDS = 0.25
# Give up if this many downloads in a row fail, each after all attempts: the server is gone.
MAX_FAILURES_IN_A_ROW = 2 * THREADS
# Disk space to leave free, in bytes.
SPARE_BYTES = 500_000_000
SHOWN_NAMES = 3
MAX_FOLDERS_SHOWN = 500


class Source(Struct, kw_only=True):
    """An address, and the ``path`` that its copy gets: a file, or a folder."""

    address: str
    path: str
    is_folder: bool = True


class Request(Struct, kw_only=True):
    """The arguments of the program. With ``only_list``, nothing is downloaded, and a partial list is enough."""

    sources: list[Source]
    allowed: list[str]
    max_bytes: int
    max_files: int
    max_failed_percent: float = 0.0
    endpoint: str = ""
    access_key: str = ""
    secret_key: str = ""
    only_list: bool = False


class News(Struct, kw_only=True):
    """The state of the program. ``listed`` counts entries; ``total_bytes`` is known for some file systems only.

    At the end, ``is_finished`` or ``error`` and ``hint``. ``folders`` are the first folders with their numbers of
    files, ``warnings`` sentences for the user, ``failed`` the paths of files that could not be read, with the reasons.
    """

    listed: int = 0
    files: int = 0
    total_files: int | None = None
    bytes: int = 0
    total_bytes: int | None = None
    is_finished: bool = False
    is_partial: bool = False
    folders: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)
    error: str = ""
    hint: str = ""


class TooMany(RemoteError):
    """A limit set by the administrator was exceeded."""


class Fetch:
    """One run of the program; ``report`` receives its `News`."""

    def __init__(self, request: Request, report: Callable[[News], None]) -> None:
        self._request = request
        self._report = report
        self._policy = RemotePolicy(request.allowed)
        self._lock = threading.Lock()
        self._reported_at = 0.0
        # The paths of the files of a source, and of the folders that contain them.
        self._files: set[str] = set()
        self._folders: set[str] = set()
        self._unusable: list[str] = []
        self._failed: list[tuple[str, str]] = []
        self._failures_in_a_row = 0
        self.news = News()

    def run(self) -> None:
        """List and download everything. Raises RemoteError and DigitsError."""
        for source in self._request.sources:
            self._check(source.address)
        remote = [
            (driver, file, path)
            for source in self._request.sources
            for driver in [self._driver(parse(source.address))]
            for file, path in self._list(driver, source)
        ]
        self._warn_of_unusable()
        if not self._request.only_list:
            self._download_all(remote)
        self.news.is_finished = True
        self._tell(now=True)

    def _check(self, text: str) -> None:
        address = self._policy.check(text)
        if self._request.endpoint and address.scheme == "s3":
            self._policy.check(self._request.endpoint)

    def _driver(self, address: Address) -> Driver:
        request = self._request
        if address.scheme in WEB_SCHEMES:
            from digits.data.remote.web import WebDriver

            return WebDriver(self._policy)
        if address.scheme == "s3":
            return S3Driver(address, request.endpoint, request.access_key, request.secret_key)
        return FileSystemDriver(address, {}, ())

    # Listing

    def _list(self, driver: Driver, source: Source) -> Iterator[tuple[RemoteFile, str]]:
        address = parse(source.address)
        if not source.is_folder:
            self.news.folders[""] = self.news.folders.get("", 0) + 1
            yield driver.find(address), source.path
            return
        self._files, self._folders = set(), {source.path}
        for file in driver.list(address, self._visit):
            path = f"{source.path}/{file.name}"
            if not is_usable_name(file.name) or not self._claim(path):
                self._unusable.append(file.name)
                continue
            self.news.total_bytes = (
                (self.news.total_bytes or 0) + file.size if file.size is not None else None
            )
            if (self.news.total_bytes or 0) > self._request.max_bytes:
                raise self._too_large()
            folder = file.name.rpartition("/")[0]
            if len(self.news.folders) < MAX_FOLDERS_SHOWN or folder in self.news.folders:
                self.news.folders[folder] = self.news.folders.get(folder, 0) + 1
            yield file, path
            self._tell()

    def _visit(self) -> None:
        self.news.listed += 1
        self._check_count(self.news.listed)

    def _check_count(self, count: int) -> None:
        if count > self._request.max_files:
            limit = f"{self._request.max_files:,}"
            raise TooMany(
                f"The address contains more than {limit} files and folders, the limit on this server.",
                "Choose a smaller folder, or ask the administrator to raise --max-remote-files.",
            )

    def _claim(self, path: str) -> bool:
        """Reserve ``path``; return whether neither it nor a part of it is the path of another file."""
        parents = []
        parent = path
        while (parent := parent.rpartition("/")[0]) and parent not in self._folders:
            parents.append(parent)
        if path in self._files or path in self._folders or not self._files.isdisjoint(parents):
            return False
        self._files.add(path)
        self._folders.update(parents)
        # Object stores list files only, but their names imply folders.
        self._check_count(len(self._files) + len(self._folders) - 1)
        return True

    def _warn_of_unusable(self) -> None:
        if self._unusable:
            count = len(self._unusable)
            names = ", ".join(repr(name)[1:-1][:120] for name in self._unusable[:SHOWN_NAMES])
            names += "…" if count > SHOWN_NAMES else ""
            self.news.warnings.append(
                f"{count:,} remote {'files were' if count > 1 else 'file was'} ignored, because the name cannot be "
                f"used on this server or duplicates another file or folder: {names}"
            )

    # Downloading

    def _download_all(self, remote: list[tuple[Driver, RemoteFile, str]]) -> None:
        self.news.total_files = len(remote)
        self._need_room()
        for folder in sorted({os.path.dirname(path) for *_, path in remote}):
            os.makedirs(folder, mode=0o700, exist_ok=True)
        with ThreadPoolExecutor(THREADS) as pool:
            waiting: dict[Future[None], str] = {}
            try:
                for number, (driver, file, path) in enumerate(remote):
                    waiting[pool.submit(self._download, driver, file, path, number)] = path
                    if len(waiting) >= 2 * THREADS:
                        self._collect(waiting)
                while waiting:
                    self._collect(waiting)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        self.news.failed = sorted(self._failed)

    def _collect(self, waiting: dict[Future[None], str]) -> None:
        """Wait for downloads, and remove those that have ended; raises RemoteError above the limit of failures."""
        done, _ = wait(waiting, timeout=REPORT_SECONDS, return_when=FIRST_COMPLETED)
        for future in done:
            path = waiting.pop(future)
            try:
                future.result()
            except TooMany:
                raise
            except RemoteError as error:
                self._failed.append((path, error.message))
                self._failures_in_a_row += 1
                limit = self._request.max_failed_percent * (self.news.total_files or 1)
                if len(self._failed) * 100 > limit or self._failures_in_a_row >= MAX_FAILURES_IN_A_ROW:
                    raise
            else:
                self.news.files += 1
                self._failures_in_a_row = 0
        self._tell()

    def _download(self, driver: Driver, file: RemoteFile, path: str, number: int) -> None:
        # The name of the partial file is short even if that of the file has the maximum length.
        partial = f"{os.path.dirname(path)}/.{number}.part"
        for attempt in range(1, ATTEMPTS + 1):
            counted = [0]
            try:
                driver.download(file, partial, lambda count, counted=counted: self._receive(count, counted))  # type: ignore[misc]
                os.replace(partial, path)
                return
            except RemoteError as error:
                with self._lock:
                    self.news.bytes -= counted[0]
                with contextlib.suppress(OSError):
                    os.unlink(partial)
                if not error.is_temporary or attempt == ATTEMPTS:
                    raise
            time.sleep(FIRST_PAUSE_SECONDS * 2**attempt * random.uniform(0.5, 1))

    def _receive(self, count: int, counted: list[int]) -> None:
        counted[0] += count
        with self._lock:
            self.news.bytes += count
        if self.news.bytes > self._request.max_bytes:
            raise self._too_large()

    def _need_room(self) -> None:
        if not self._request.sources or not self.news.total_bytes:
            return
        place = Path(self._request.sources[0].path)
        while not place.exists():
            place = place.parent
        free = shutil.disk_usage(place).free - SPARE_BYTES
        if self.news.total_bytes > free:
            needed, left = _size(self.news.total_bytes), _size(max(0, free))
            raise RemoteError(
                f"The files require {needed} of disk space, but only {left} is available.", "Free some space."
            )

    def _too_large(self) -> TooMany:
        limit = _size(self._request.max_bytes)
        return TooMany(
            f"The total file size exceeds {limit}, the limit on this server.",
            "Choose a smaller folder, or ask the administrator to raise --max-remote.",
        )

    def _tell(self, now: bool = False) -> None:
        if now or time.monotonic() - self._reported_at >= REPORT_SECONDS:
            self._reported_at = time.monotonic()
            self._report(self.news)


def _size(count: float) -> str:
    import humanize

    return humanize.naturalsize(count)


def explain(error: BaseException, request: Request) -> News:
    """Return the news about the end by ``error``, without the secrets of ``request``."""
    if guard.refusals and isinstance(error, RemoteError) and "private address" not in error.message:
        from digits.data.remote.web import refused

        address = request.endpoint or request.sources[0].address
        error = refused(address, guard.refusals[-1])
    if isinstance(error, RemoteError | DigitsError):
        message, hint = error.message, error.hint
    elif isinstance(error, OSError):
        message, hint = f"The files cannot be saved: {error.strerror or error}.", ""
    else:
        message, hint = f"The files could not be read: {type(error).__name__}: {error}"[:500], ""
    for secret in (request.secret_key, request.access_key):
        if secret:
            message, hint = message.replace(secret, "…"), hint.replace(secret, "…")
    return News(error=message, hint=hint)


def main() -> int:
    request = programs.receive(Request)
    output = os.fdopen(os.dup(1), "wb", buffering=0)
    # The output of libraries could contain secrets.
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    os.dup2(null, 2)
    os.umask(0o077)

    def report(news: News) -> None:
        with contextlib.suppress(BrokenPipeError):
            output.write(msgspec.json.encode(news) + b"\n")

    policy = RemotePolicy(request.allowed)
    if not policy.names("169.254.169.254", 80):
        os.environ["AWS_EC2_METADATA_DISABLED"] = "true"
    guard.install(policy.names)
    fetch = Fetch(request, report)
    code = 0
    try:
        fetch.run()
    except BaseException as error:
        if request.only_list and isinstance(error, TooMany):
            fetch.news.is_finished = fetch.news.is_partial = True
            report(fetch.news)
        else:
            report(explain(error, request))
            code = 1
    # Threads may still be waiting for an unresponsive server.
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
