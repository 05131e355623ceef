"""Create unique file names that are valid on all systems from untrusted text."""

from __future__ import annotations

import os
import re
import unicodedata

# Leaves space for a number and an ending within the 255 bytes that file systems allow.
MAX_NAME_BYTES = 180
_MAX_ENDING_BYTES = 20
# Invalid on some system: control characters, separators, wildcards, and characters that reverse the reading direction.
_INVALID = re.compile(
    '[\x00-\x1f\x7f-\x9f/\\\\:*?"<>|\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]'
)
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)


def safe_name(text: str) -> str:
    """Return ``text`` as a name of at most `MAX_NAME_BYTES` bytes in UTF-8 with its ending.

    Invalid characters become ``_``.
    """
    name = _INVALID.sub("_", unicodedata.normalize("NFC", text)).strip(" .")
    if len(name.encode()) > MAX_NAME_BYTES:
        stem, ending = os.path.splitext(name)
        ending = ending if len(ending.encode()) <= _MAX_ENDING_BYTES else ""
        length = MAX_NAME_BYTES - len(ending.encode())
        name = f"{stem.encode()[:length].decode('utf-8', 'ignore').strip(' .')}{ending}"
    return f"_{name}" if not name or _RESERVED.fullmatch(name) else name


def uploaded_name(path: str) -> str:
    """Return a safe name for an uploaded file, whose ``path`` on the computer of its user can contain folders."""
    last = path.replace("\\", "/").rstrip("/").rpartition("/")[2]
    return safe_name("".join(filter(str.isprintable, last)).strip(" .") or "upload")


def unique_names(texts: list[str]) -> list[str]:
    """Return a safe name for each of ``texts``; they differ also where upper and lower case are the same."""
    taken: set[str] = set()
    names = []
    for text in texts:
        name, number = safe_name(text), 2
        while name.casefold() in taken:
            name, number = f"{safe_name(text)}_{number}", number + 1
        taken.add(name.casefold())
        names.append(name)
    return names


def numbered_name(number: int, path: bytes) -> str:
    """Return a name without an ending, different for each ``number``: that of the file ``path`` after the number."""
    stem = os.path.splitext(os.path.basename(path))[0].decode("utf-8", "replace")
    return f"{number:06d}_{safe_name(stem)}" if stem else f"{number:06d}"
