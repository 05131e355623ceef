"""Drivers, which list and download the files of a file system. They run in the process of `fetch`."""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from digits.core.files import is_disk_full
from digits.core.remote import Address

CONNECT_SECONDS = 10
READ_SECONDS = 30
MAX_NAME_BYTES = 255
MAX_DEPTH = 50


class RemoteError(Exception):
    """A message for the user, and a hint. ``is_temporary`` if another attempt may succeed."""

    def __init__(self, message: str, hint: str = "", *, is_temporary: bool = False) -> None:
        super().__init__(message)
        self.message, self.hint, self.is_temporary = message, hint, is_temporary


@dataclass(frozen=True)
class RemoteFile:
    """A file: its path below the folder, with ``/``, its location for the driver, and its size if that is known."""

    name: str
    location: str
    size: int | None = None


def is_usable_name(name: str) -> bool:
    """Return whether a file can have the path ``name`` below a folder: no part is empty, ``..`` or too long."""
    parts = name.split("/")
    return (
        all(part not in ("", ".", "..") and len(os.fsencode(part)) <= MAX_NAME_BYTES for part in parts)
        and len(parts) <= MAX_DEPTH
        and "\0" not in name
    )


# Called with the number of bytes received; can raise.
Received = Callable[[int], None]


class Driver(Protocol):
    """Access to one file system, by several threads."""

    def list(self, folder: Address, visited: Callable[[], None]) -> Iterator[RemoteFile]:
        """Yield the files below a folder, and call ``visited`` for each entry that is read. Raises RemoteError."""

    def find(self, file: Address) -> RemoteFile:
        """Return a single file, whose size may be unknown."""

    def download(self, file: RemoteFile, path: str, received: Received) -> None:
        """Write the contents of a file to ``path``. Raises RemoteError."""


class FileSystemDriver:
    """A file system of fsspec, by default with the credentials of the server's environment."""

    def __init__(
        self, address: Address, options: dict[str, Any], errors: tuple[type[Exception], ...]
    ) -> None:
        self._scheme = address.scheme
        self._errors: tuple[type[Exception], ...] = (OSError, *errors)
        self._is_object_store = address.scheme in ("s3", "gs", "gcs", "abfs", "az", "oss")
        host = {} if self._is_object_store else {"host": address.host.strip("[]")}
        port = {} if self._is_object_store or address.port is None else {"port": address.port}
        with self._explained(str(address)):
            self._files = importlib.import_module("fsspec").filesystem(
                address.scheme, skip_instance_cache=True, use_listings_cache=False, **host, **port, **options
            )

    def list(self, folder: Address, visited: Callable[[], None]) -> Iterator[RemoteFile]:
        top = self._path(folder)
        with self._explained(str(folder)):
            found = False
            for _, folders, files in self._files.walk(top, detail=True, on_error="raise"):
                for _ in folders:
                    visited()
                for information in files.values():
                    visited()
                    found = True
                    yield self._file(top, information)
            if not found and not self._files.isdir(top):
                raise FileNotFoundError(str(folder))

    def find(self, file: Address) -> RemoteFile:
        path = self._path(file)
        return RemoteFile(path.rpartition("/")[2], path)

    def download(self, file: RemoteFile, path: str, received: Received) -> None:
        callback = importlib.import_module("fsspec.callbacks").Callback()
        callback.relative_update = received
        with self._explained(f"{self._scheme}://{file.location.lstrip('/')}"):
            self._files.get_file(file.location, path, callback=callback)

    def _path(self, address: Address) -> str:
        path = "/".join(address.segments)
        return f"{address.host}/{path}".rstrip("/") if self._is_object_store else f"/{path}"

    def _file(self, top: str, information: dict[str, Any]) -> RemoteFile:
        location = str(information["name"])
        below = location.lstrip("/")[len(top.strip("/")) :].removeprefix("/")
        return RemoteFile(below, location, information.get("size"))

    @contextlib.contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        try:
            yield
        except RemoteError:
            raise
        except Exception as error:
            if isinstance(error, OSError) and is_disk_full(error):
                raise
            raise self.explain(error, what) from error

    def explain(self, error: Exception, what: str) -> RemoteError:
        """Return the error for the user."""
        if isinstance(error, FileNotFoundError):
            return RemoteError(
                f"{what} does not exist.", "Check the spelling, including upper and lower case."
            )
        if isinstance(error, PermissionError):
            return RemoteError(f"Access to {what} was denied (403).", "Check the credentials.")
        if isinstance(error, ImportError):
            return RemoteError(f"{what} requires a package that is not installed: {error}.")
        text = " ".join(str(error).split())[:300]
        return RemoteError(
            f"{what} could not be read: {text or type(error).__name__}.",
            is_temporary=isinstance(error, self._errors),
        )


class S3Driver(FileSystemDriver):
    """Amazon S3, or a compatible service. Lists pages of 1,000 objects, however large a bucket is."""

    def __init__(self, address: Address, endpoint: str, access_key: str, secret_key: str) -> None:
        errors = importlib.import_module("botocore.exceptions")
        self._no_credentials = errors.NoCredentialsError
        options: dict[str, Any] = {
            "config_kwargs": {
                "connect_timeout": CONNECT_SECONDS,
                "read_timeout": READ_SECONDS,
                "retries": {"max_attempts": 2},
                "max_pool_connections": 32,
                "proxies": {},
            }
        }
        if endpoint:
            options["endpoint_url"] = endpoint
        if access_key:
            options |= {"key": access_key, "secret": secret_key}
        elif not _has_aws_credentials():
            options["anon"] = True
        super().__init__(address, options, (errors.BotoCoreError, errors.ClientError))
        self._files.retries = 2

    def list(self, folder: Address, visited: Callable[[], None]) -> Iterator[RemoteFile]:
        prefix = f"{folder.path}/" if folder.path else ""
        page: dict[str, Any] = {"IsTruncated": True}
        following: dict[str, str] = {}
        is_empty = True
        while page.get("IsTruncated"):
            with self._explained(str(folder)):
                page = self._files.call_s3("list_objects_v2", Bucket=folder.host, Prefix=prefix, **following)
            for item in page.get("Contents", ()):
                visited()
                is_empty = False
                name = item["Key"][len(prefix) :]
                if name and not (name.endswith("/") and not item["Size"]):  # a folder marker
                    yield RemoteFile(name, f"{folder.host}/{item['Key']}", item["Size"])
            following = {"ContinuationToken": page.get("NextContinuationToken", "")}
        if is_empty:
            raise RemoteError(
                f"{folder} contains no objects.", "Check the spelling, including upper and lower case."
            )

    def explain(self, error: Exception, what: str) -> RemoteError:
        code = getattr(error, "response", {}).get("Error", {}).get("Code", "") or _code_of(error)
        if isinstance(error, self._no_credentials):
            return RemoteError(f"{what} requires credentials.", "Enter an access key and a secret key.")
        if code in ("NoSuchBucket", "NoSuchKey", "404"):
            noun = "The bucket" if code == "NoSuchBucket" else "The object"
            return RemoteError(f"{noun} of {what} does not exist.", "Check the name and the endpoint.")
        if code in (
            "AccessDenied",
            "403",
            "InvalidAccessKeyId",
            "SignatureDoesNotMatch",
            "AllAccessDisabled",
        ):
            return RemoteError(
                f"Access to {what} was denied ({code}).", "Check the access key and the secret key."
            )
        return super().explain(error, what)


def _code_of(error: Exception) -> str:
    """Return the code of S3 in the error that s3fs translated."""
    cause = error.__cause__
    response = getattr(cause, "response", None)
    return str(response.get("Error", {}).get("Code", "")) if isinstance(response, dict) else ""


def _has_aws_credentials() -> bool:
    """Return whether the environment or the files of this user contain credentials for AWS."""
    session = importlib.import_module("botocore.session").Session()
    with contextlib.suppress(Exception):
        return session.get_credentials() is not None
    return False
