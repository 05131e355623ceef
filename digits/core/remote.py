"""Remote addresses of datasets, such as ``s3://bucket/images`` and ``https://host/images/``.

Disabled until an administrator allows addresses (the setting ``remote_addresses``). A recipe refers to them like
to paths; its `RemoteSources` lists them, with the limits that applied when the dataset was created.
"""

from __future__ import annotations

import contextlib
import fnmatch
import importlib.util
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from msgspec import Struct, field

from digits.core.errors import BadRequest, NotAllowed
from digits.core.files import UnreadableFile, make_folder, read_json, write_json

OPTION = "--remote-address"
# Schemes, each with the module that reads it; an extra of the same name as the scheme, or the package to install.
WEB_SCHEMES = ("http", "https")
MODULES: dict[str, tuple[str, str]] = {
    "http": ("requests", "requests"),
    "https": ("requests", "requests"),
    "s3": ("s3fs", "digits[s3]"),
    "gs": ("gcsfs", "gcsfs"),
    "gcs": ("gcsfs", "gcsfs"),
    "abfs": ("adlfs", "adlfs"),
    "az": ("adlfs", "adlfs"),
    "oss": ("ossfs", "ossfs"),
    "hdfs": ("pyarrow", "pyarrow"),
    "webhdfs": ("fsspec", "fsspec"),
    "sftp": ("paramiko", "fsspec[sftp]"),
    "smb": ("smbprotocol", "fsspec[smb]"),
    "ftp": ("fsspec", "fsspec"),
}
DEFAULT_PORTS = {"http": 80, "https": 443}
# Schemes whose addresses start with the name of a bucket or container instead of a host.
_OBJECT_STORES = ("s3", "gs", "gcs", "abfs", "az", "oss")
MAX_ADDRESS_CHARACTERS = 1024

AddressType = Literal["folder", "file", "any"]

_ADDRESS = re.compile(r"\s*[A-Za-z][A-Za-z0-9+.-]*:(//|:)")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,252})|\[[0-9A-Fa-f:.]+\]", re.ASCII)


class RemoteSources(Struct, kw_only=True, frozen=True):
    """The addresses in a recipe: its ``folders`` and ``files``, which are downloaded before it is read.

    ``allowed`` and the limits are those of the administrator. ``endpoint`` is the address of a service that is
    compatible with S3. ``credentials`` is the path of a file with `Credentials`, which is deleted when it is read.
    With ``keep_copies``, the downloaded files stay in the folder of the job.
    """

    folders: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    allowed: list[str] = field(default_factory=list)
    max_bytes: int = 0
    max_files: int = 0
    endpoint: str = ""
    credentials: str = ""
    keep_copies: bool = False

    @property
    def addresses(self) -> list[str]:
        return [*self.folders, *self.files]


class Credentials(Struct, kw_only=True, frozen=True):
    """An S3 access key. Its text form is redacted to keep it out of messages."""

    access_key: str = ""
    secret_key: str = ""

    def __repr__(self) -> str:
        return "Credentials(…)"


@dataclass(frozen=True)
class Address:
    """The parts of an address. ``host`` is the bucket or container of object stores; ``path`` has no slash at the
    ends.
    """

    scheme: str
    host: str
    port: int | None
    path: str

    @property
    def segments(self) -> list[str]:
        """The parts of the path; those of web addresses are unquoted."""
        parts = [part for part in self.path.split("/") if part]
        return [unquote(part) for part in parts] if self.scheme in WEB_SCHEMES else parts

    @property
    def netloc(self) -> str:
        """The host, with the port if it is not the default."""
        is_default = self.port is None or self.port == DEFAULT_PORTS.get(self.scheme)
        return self.host if is_default else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.netloc}{f'/{self.path}' if self.path else ''}"


def is_address(text: str | None) -> bool:
    """Return whether ``text`` is an address rather than a path."""
    return bool(_ADDRESS.match(text or ""))


def names_folder(address: str) -> bool:
    """Return whether ``address``, which may be a file, is a folder: it has no extension, or ends with a slash."""
    return address.endswith("/") or not os.path.splitext(urlsplit(address).path)[1]


def parse(text: str) -> Address:
    """Return the parts of the address ``text``; raises BadRequest."""
    text = text.strip()
    excerpt = text if len(text) <= 100 else f"{text[:100]}…"
    if len(text) > MAX_ADDRESS_CHARACTERS or not text.isprintable() or any(c.isspace() for c in text[:8]):
        raise BadRequest("The address is too long or contains unprintable characters.")
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise BadRequest("The address is not valid.") from error
    if parts.scheme not in MODULES:
        known = ", ".join(MODULES)
        raise BadRequest(
            f"Addresses that start with “{parts.scheme}:” are not supported.", f"Use one of {known}."
        )
    # Passwords and signatures would be visible to anyone who can see the dataset.
    if "@" in parts.netloc or parts.query or parts.fragment or "?" in text or "#" in text:
        raise BadRequest(
            "An address cannot contain a user name, a password, “?” or “#”.",
            "The address is stored with the dataset and shown on its page.",
        )
    if parts.scheme not in WEB_SCHEMES:
        host = parts.netloc.rpartition(":")[0] if port is not None else parts.netloc  # keep upper case
    if not _HOST.fullmatch(f"[{host}]" if ":" in host else host):
        raise BadRequest(f"The address {excerpt} has no host or bucket.")
    address = Address(parts.scheme, f"[{host}]" if ":" in host else host, port, parts.path.strip("/"))
    if any(part in (".", "..") or "\0" in part or "/" in part for part in address.segments):
        raise BadRequest(f"The address {excerpt} contains “.” or “..” as a folder name.")
    return address


class RemotePolicy:
    """The addresses that an administrator allows, as in the setting ``remote_addresses``.

    An item is an address; everything below it is allowed. Its host or bucket can contain ``*``. A host that is named
    without one may have a private address.
    """

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        self.allowed = tuple(allowed)
        self._items = [_parse_allowed(item) for item in self.allowed]

    def __bool__(self) -> bool:
        return bool(self._items)

    def check(self, text: str, *, need_driver: bool = True) -> Address:
        """Return the parts of the address ``text``. Raises BadRequest, and NotAllowed if it is not allowed."""
        address = parse(text)
        if not self:
            raise NotAllowed(
                "This server does not allow datasets from remote addresses.",
                f"An administrator can allow addresses with {OPTION} {_example(address)}.",
            )
        if not any(_allows(item, address) for item in self._items):
            raise NotAllowed(
                f"This server does not allow datasets from {address}.",
                f"Allowed addresses: {', '.join(self.allowed)}. An administrator can allow more with {OPTION}.",
            )
        module, package = MODULES[address.scheme]
        if need_driver and importlib.util.find_spec(module) is None:
            raise BadRequest(
                f"Addresses that start with {address.scheme}:// require an additional package.",
                f"Install it on the server: pip install '{package}'.",
            )
        return address

    def names(self, host: str, port: int | None) -> bool:
        """Return whether a host is listed by name, so that it may have a private address."""
        return any(
            item.host == host.lower() and port == (item.port or DEFAULT_PORTS.get(item.scheme, port))
            for item in self._items
            if "*" not in item.host and item.scheme not in _OBJECT_STORES
        )


def _parse_allowed(item: str) -> Address:
    scheme, _, rest = item.partition("://")
    host, _, path = rest.partition("/")
    name, colon, port = host.rpartition(":")
    is_port = bool(colon) and port.isdigit()
    return Address(
        scheme, (name if is_port else host).lower(), int(port) if is_port else None, path.strip("/")
    )


def _allows(item: Address, address: Address) -> bool:
    if item.scheme != address.scheme or not fnmatch.fnmatchcase(address.host.lower(), item.host):
        return False
    default = DEFAULT_PORTS.get(item.scheme)
    if (address.port or default) != (item.port or default):
        return False
    prefix = item.segments
    return address.segments[: len(prefix)] == prefix


def _example(address: Address) -> str:
    return f"{address.scheme}://{address.netloc}"


def is_valid_pattern(item: str) -> bool:
    """Return whether ``item`` can be a value of the setting ``remote_addresses``."""
    scheme, separator, rest = item.partition("://")
    host = rest.partition("/")[0]
    return (
        scheme in MODULES
        and bool(separator)
        and bool(
            re.fullmatch(r"[A-Za-z0-9*][A-Za-z0-9*._-]*(:[0-9]{1,5})?|\[[0-9A-Fa-f:.]+\](:[0-9]{1,5})?", host)
        )
    )


def sources_in(recipe: Any, addresses: dict[str, AddressType]) -> dict[str, AddressType]:
    """Return the ``addresses`` that occur in ``recipe`` (JSON), and the parents of its files."""
    texts = set(_texts(recipe))
    parents: dict[str, AddressType] = {
        os.path.dirname(address): "folder" for address, kind in addresses.items() if kind == "file"
    }
    return {address: kind for address, kind in {**parents, **addresses}.items() if address in texts}


def replace_texts(body: Any, new: dict[str, str]) -> Any:
    """Return the JSON ``body`` with the texts that equal a key of ``new`` replaced by its value."""
    if isinstance(body, dict):
        return {name: replace_texts(value, new) for name, value in body.items()}
    if isinstance(body, list):
        return [replace_texts(value, new) for value in body]
    return new.get(body, body) if isinstance(body, str) else body


def _texts(body: Any) -> Iterable[str]:
    if isinstance(body, dict):
        body = list(body.values())
    if isinstance(body, list):
        for item in body:
            yield from _texts(item)
    elif isinstance(body, str):
        yield body


class CredentialStore:
    """Credentials of waiting and running jobs: files in ``folder`` that only this user can read.

    A task deletes its file when it reads it; the server deletes those of jobs that ended without doing so.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def save(self, job_id: str, credentials: Credentials) -> Path:
        """Save the credentials of a job; return the path for `take`."""
        make_folder(self._folder)
        path = self._folder / job_id
        write_json(path, credentials)
        path.chmod(0o600)
        return path

    def discard(self, job_id: str) -> None:
        """Delete the credentials of a job, if any."""
        with contextlib.suppress(OSError):
            os.unlink(self._folder / job_id)

    def keep_only(self, job_ids: Iterable[str]) -> None:
        """Delete the credentials of all other jobs."""
        kept = set(job_ids)
        for path in self._folder.glob("*") if self._folder.is_dir() else ():
            if path.name not in kept:
                self.discard(path.name)


def take_credentials(path: str) -> Credentials | None:
    """Read and delete a file of `CredentialStore`; None if it does not exist."""
    try:
        return read_json(Path(path), Credentials)
    except UnreadableFile:
        return None
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)
