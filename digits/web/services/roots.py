"""The data roots of the server, whose folders are searched outside of the event loop."""

from __future__ import annotations

from pathlib import Path

from digits.data.data_roots import FileType, Roots
from digits.runtime.offload import in_thread


class OffloadedRoots(Roots):
    """The allowed folders. For greenlets only: a path is looked up in a native thread, whatever its folder contains."""

    def resolve(self, text: str, file_type: FileType = "folder") -> Path:
        return in_thread(super().resolve, text, file_type)

    def complete(self, query: str, *, only_folders: bool = False) -> list[str]:
        return in_thread(super().complete, query, only_folders=only_folders)
