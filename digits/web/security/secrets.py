"""Secrets of the server in files."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path


class ExposureError(Exception):
    """A secret of the server is too weak or readable by others. The message names the remedy."""


def read_or_make_secret(path: Path) -> str:
    """Read the secret in ``path``; create one of 256 bits, with mode 0600, if there is none.

    Raises ExposureError if the file, or a link in its place, is accessible to others.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return _read_secret(path)
    secret = secrets.token_urlsafe(32)
    try:
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(secret + "\n")
    except OSError:
        path.unlink(missing_ok=True)  # An empty file would keep the server from starting.
        raise
    return secret


def _read_secret(path: Path) -> str:
    advice = f"Delete {path} to generate a new one."
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise ExposureError(f"The secret in {path} cannot be read: {error.strerror}. {advice}") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            raise ExposureError(f"{path} is not a regular file that you own. {advice}")
        if status.st_mode & 0o077:
            raise ExposureError(f"Other users of this machine can read the secret in {path}. {advice}")
        secret = os.read(descriptor, 1000).decode("ascii", "replace").strip()
    finally:
        os.close(descriptor)
    if len(secret) < 16:
        raise ExposureError(f"{path} does not contain a secret. {advice}")
    return secret


def made_token(folder: Path) -> str:
    """Read or generate, in ``folder``, the token of a server without configured secrets."""
    return read_or_make_secret(folder / "token")
