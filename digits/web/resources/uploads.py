"""Uploaded archives, as pages and programs see them."""

from __future__ import annotations

from msgspec import Struct


class UploadState(Struct):
    """An upload.

    ``state`` is ``receiving``, ``unpacking``, ``ready`` or ``failed``. ``offset`` bytes of ``length`` were received;
    ``unpacked`` is the fraction that has been unpacked to ``folder``. ``tables`` are paths of tables in it. ``changed``
    and ``expires`` are Unix times. ``notes`` are sentences about what was assumed.
    """

    id: str
    name: str
    owner: str | None
    state: str
    offset: int
    length: int
    unpacked: float
    folder: str | None
    tables: list[str]
    files: int
    bytes: int
    error: str | None
    notes: list[str]
    changed: float
    expires: float


class Uploads(Struct):
    uploads: list[UploadState]
