"""Recognize image files by their names, and report those in formats that cannot be read.

A name only selects a file: its content decides how it is decoded. Listing a folder opens no file whose ending is known.
"""

from __future__ import annotations

import mimetypes
import os
from collections import Counter
from dataclasses import dataclass, field
from importlib.util import find_spec

from PIL import features

READS_AVIF = features.check("avif")
READS_HEIF = find_spec("pillow_heif") is not None

_HEIF = (".heic", ".heif", ".hif")
_AVIF = (".avif",)
EXTENSIONS: tuple[str, ...] = (
    *(".png", ".jpg", ".jpeg", ".bmp", ".ppm", ".pgm", ".gif", ".webp", ".tif", ".tiff"),
    *(".jfif", ".jif", ".jpe", ".pjpeg", ".pjp", ".mpo", ".apng", ".dib", ".pbm", ".pnm"),
    *(_AVIF if READS_AVIF else ()),
    *(_HEIF if READS_HEIF else ()),
)

HEIF_REMEDY = "install digits[heif], or export them as JPEG"
_AS_JPEG, _AS_PNG = "export them as JPEG", "export them as PNG"
_REMEDIES = {
    HEIF_REMEDY: _HEIF,
    f"install Pillow with AVIF, or {_AS_JPEG}": _AVIF,
    _AS_JPEG: tuple(".raw .cr2 .cr3 .crw .nef .nrw .arw .dng .orf .rw2 .raf .pef .srw".split()),
    _AS_PNG: tuple(
        ".psd .psb .xcf .svg .svgz .jp2 .j2k .jpx .jxl .jxr .tga .exr .hdr .pcx .sgi .ico .eps .wmf".split()
    ),
    "save their arrays as PNG": (".npy", ".npz", ".mat"),
    "convert them to 16-bit PNG": tuple(
        ".dcm .dicom .nii .nii.gz .mha .nrrd .fits .fit .czi .lif .nd2".split()
    ),
}
# Endings of images that cannot be read, with what to do about them.
_UNREAD = {
    ending: remedy for remedy, endings in _REMEDIES.items() for ending in endings if ending not in EXTENSIONS
}
# Those of all images, in readable formats or not.
KNOWN_ENDINGS = (*EXTENSIONS, *_UNREAD)
_READ = frozenset(EXTENSIONS)
_OTHERS = frozenset((*_UNREAD, *mimetypes.types_map, *".yaml .yml .md .log .db .names .cache".split()))
_BEGINNINGS = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF8", b"II*\0", b"MM\0*")


@dataclass
class LeftOut:
    """The numbers of images that cannot be read, by their ending in lower case."""

    counts: Counter[str] = field(default_factory=Counter)

    def add(self, name: str) -> None:
        """Count the file ``name`` if it is an image that cannot be read."""
        ending = _ending(name)
        if ending in _UNREAD:
            self.counts[ending] += 1

    def update(self, other: LeftOut) -> None:
        self.counts.update(other.counts)

    def __bool__(self) -> bool:
        return bool(self.counts)

    def __str__(self) -> str:
        """Return the numbers for a sentence, most frequent first, such as ``8 files .heic and 1 file .psd``."""
        return _joined(self.counts.most_common())

    def remarks(self) -> list[str]:
        """Return a sentence with the remedy for each kind of format, most frequent first."""
        by_remedy: dict[str, list[tuple[str, int]]] = {}
        for ending, count in self.counts.most_common():
            by_remedy.setdefault(_UNREAD[ending], []).append((ending, count))
        remarks = []
        for remedy, counts in by_remedy.items():
            is_single = sum(count for _, count in counts) == 1
            verb, remedy = ("is", remedy.replace("them", "it")) if is_single else ("are", remedy)
            remarks.append(f"{_joined(counts)} {verb} not read: {remedy}.")
        return remarks


def is_image_file(entry: os.DirEntry[str]) -> bool:
    """Return whether a regular file is an image by its ending or, if that is unknown, by its first bytes."""
    ending = _ending(entry.name)
    if ending in _READ:
        return True
    if ending in _OTHERS:
        return False
    try:
        # A file that is not regular would block.
        if not entry.is_file():
            return False
        with open(entry.path, "rb", buffering=0) as file:
            head = file.read(16)
    except OSError:
        return False
    return head.startswith(_BEGINNINGS) or (head[:4] == b"RIFF" and head[8:12] == b"WEBP")


def browser_type(head: bytes) -> str | None:
    """Return the media type of a file that begins with ``head`` if browsers display it: JPEG, PNG or WebP."""
    types = {b"\xff\xd8\xff": "image/jpeg", b"\x89PNG\r\n\x1a\n": "image/png"}
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return next((media for beginning, media in types.items() if head.startswith(beginning)), None)


def _ending(name: str) -> str:
    stem, dot, ending = name.rpartition(".")
    ending = (dot + ending).lower()
    return ".nii.gz" if ending == ".gz" and stem.lower().endswith(".nii") else ending


def _joined(counts: list[tuple[str, int]]) -> str:
    texts = [f"{count:,} file{'' if count == 1 else 's'} {ending}" for ending, count in counts]
    return " and ".join(filter(None, (", ".join(texts[:-1]), texts[-1])))
