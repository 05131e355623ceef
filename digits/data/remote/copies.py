"""Local copies of the remote files of a recipe, so that readers work on files as always."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from digits.core.files import remove_tree
from digits.core.remote import Credentials, RemoteSources, parse, take_credentials
from digits.data.manifest import COPIES_FOLDER
from digits.data.remote import client
from digits.data.remote.client import FetchFailed
from digits.data.remote.drivers import is_usable_name
from digits.data.remote.fetch import News, Request, Source


class DownloadProgress(Protocol):
    """Receives the progress of downloads."""

    def reading(self, what: str) -> None:
        """Report the present activity."""

    def downloaded(self, fraction: float, what: str, seconds_left: float | None = None) -> None:
        """Report the progress of a download, 0 to 1."""

    def warn(self, message: str) -> None:
        """Report a warning to the user."""


class Copies:
    """The copies of ``sources`` in the folder of a job. ``paths`` maps their addresses to the paths of the copies."""

    def __init__(self, sources: RemoteSources, job_folder: Path) -> None:
        self._sources = sources
        self._folder = job_folder / COPIES_FOLDER
        self.paths = {address: self._path(address) for address in sources.addresses}

    def fetch(
        self,
        progress: DownloadProgress,
        max_failed_percent: float = 0.0,
        run: Callable[[Request], Iterable[News]] = client.run,
    ) -> list[tuple[str, str]]:
        """Download all files; return the addresses of those that could not be read, with the reasons.

        Raises FetchFailed if these are more than ``max_failed_percent``, or for any other reason.
        """
        sources = self._sources
        credentials = Credentials()
        if sources.credentials:
            taken = take_credentials(sources.credentials)
            if taken is None:
                raise FetchFailed(
                    "The credentials for this dataset are no longer available because they can be used only once.",
                    "Clone the dataset and enter them again.",
                )
            credentials = taken
        request = Request(
            sources=[
                Source(address=address, path=path, is_folder=address in sources.folders)
                for address, path in self.paths.items()
            ],
            allowed=sources.allowed,
            max_bytes=sources.max_bytes,
            max_files=sources.max_files,
            max_failed_percent=max_failed_percent,
            endpoint=sources.endpoint,
            access_key=credentials.access_key,
            secret_key=credentials.secret_key,
        )
        what = ", ".join(self.paths)
        progress.reading(f"Listing {what}")
        began, said = time.monotonic(), ""
        failed: list[tuple[str, str]] = []
        for news in run(request):
            if news.total_files is None:
                progress.reading(f"Listing {what}: {news.listed:,} files and folders")
                began = time.monotonic()
            else:
                fraction = _fraction(news)
                seconds = time.monotonic() - began
                left = seconds * (1 - fraction) / fraction if fraction else None
                if (words := _in_words(news)) != said:
                    progress.downloaded(fraction, words, left)
                said = words
            if news.is_finished:
                for warning in news.warnings:
                    progress.warn(warning)
                failed = [(self.show(path), reason) for path, reason in news.failed]
        return failed

    def remove(self) -> None:
        """Delete the copies, unless the recipe keeps them."""
        if not self._sources.keep_copies:
            remove_tree(self._folder, ignore_errors=True)

    def show(self, text: str) -> str:
        """Return ``text`` with the addresses instead of the paths of their copies."""
        for address, path in sorted(self.paths.items(), key=lambda item: -len(item[1])):
            text = text.replace(path, address)
        return text

    def _path(self, text: str) -> str:
        address = parse(text)
        below = "/".join([address.scheme, address.netloc, *address.segments])
        if not is_usable_name(below):
            raise FetchFailed(f"The address {address} cannot be used as a folder name.")
        return str(self._folder / below)


def _fraction(news: News) -> float:
    if news.total_bytes:
        return min(1.0, news.bytes / news.total_bytes)
    return news.files / news.total_files if news.total_files else 1.0


def _in_words(news: News) -> str:
    import humanize

    size = humanize.naturalsize(news.bytes)
    of = f" of {humanize.naturalsize(news.total_bytes)}" if news.total_bytes else ""
    return f"Downloading: {news.files:,} of {news.total_files or 0:,} files, {size}{of}"
