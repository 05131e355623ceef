"""Model archives: read ``info.json``, which describes the other files.

An archive contains the source code of the network, a snapshot, the mean image and the class names. Archives written by
this version also contain ``dataset.json``, the manifest of the dataset, and the `digits.core.pretrained_files` that
``info.json`` lists. Its other keys are the same as in DIGITS 6.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct, field

from digits.core.files import UnreadableFile, exists, read_bytes, read_json
from digits.core.recipe import Mean, ResizeMode

INFO_FILE = "info.json"
MAX_LABELS_BYTES = 4 * 1024 * 1024
MAX_NETWORK_BYTES = 4 * 1024 * 1024
# The suffix of a TensorFlow checkpoint's index file, after its prefix.
CHECKPOINT_SUFFIX = ".index"
_FRAMEWORKS = {"caffe": "Caffe", "torch": "Torch"}
_EPOCH = re.compile(r"snapshot_(\d{1,7}(?:\.\d{1,6})?)\.ckpt")

# A file beside info.json.
_File = Annotated[str, Meta(pattern=r"^(?a:[\w-][\w. -]{0,200})\Z")]
# One of the files of `digits.core.pretrained_files`.
_PretrainedFile = Annotated[str, Meta(pattern=r"^(?a:pretrained(\.\w{1,8}|(/[\w-][\w. -]{0,200}){1,20}))\Z")]
_Side = Annotated[int, Meta(ge=1, le=100_000)]


class ArchiveProblem(Exception):
    """Raised if an archive cannot be imported. ``hint`` suggests a fix."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class Info(Struct, kw_only=True):
    """The contents of ``info.json``. ``dimensions`` are the height, width and channels of the images."""

    name: str
    framework: str
    snapshot_file: _File = field(name="snapshot file")
    model_file: _File | None = field(default=None, name="model file")
    network_file: _File | None = field(default=None, name="network file")
    labels_file: _File | None = field(default=None, name="labels file")
    mean_file: _File | None = field(default=None, name="mean file")
    mean: Mean = field(default="none", name="mean subtraction")
    dimensions: Annotated[list[_Side], Meta(min_length=3, max_length=3)] | None = field(
        default=None, name="image dimensions"
    )
    resize_mode: ResizeMode | None = field(default=None, name="image resize mode")
    crop_size: Annotated[int, Meta(ge=0, le=100_000)] | None = field(default=None, name="crop size")
    whitening: bool = False
    pretrained_files: list[_PretrainedFile] = field(default_factory=list, name="pretrained files")

    @property
    def network(self) -> str | None:
        """The name of the file that contains the source code of the network."""
        return self.model_file or self.network_file


def find(folder: Path) -> Path:
    """Return the folder that contains ``info.json``: ``folder`` or one of its subfolders.

    Raises ArchiveProblem if there is none.
    """
    candidates = [folder, *(entry for entry in sorted(folder.iterdir()) if entry.is_dir())]
    for candidate in candidates:
        if (candidate / INFO_FILE).is_file():
            return candidate
    raise ArchiveProblem(
        f"The archive contains no {INFO_FILE}.",
        "Upload an archive downloaded from DIGITS, or specify the files of the model individually.",
    )


def read(folder: Path) -> Info:
    """Read and validate ``info.json`` in ``folder``. Raises ArchiveProblem, which names the invalid key or file."""
    try:
        info = read_json(folder / INFO_FILE, Info, below=folder)
    except UnreadableFile as error:
        raise ArchiveProblem(
            f"The archive cannot be imported: {error}.", "Download the model again, or correct the file."
        ) from error
    if info.framework.lower() != "tensorflow":
        framework = _FRAMEWORKS.get(info.framework.lower(), info.framework)
        raise ArchiveProblem(
            f"“{info.name}” is a {framework} model.", "Only TensorFlow models can be imported."
        )
    if not info.network:
        raise ArchiveProblem(
            f"{INFO_FILE} has neither “model file” nor “network file”.",
            "Add the name of the file that contains the network.",
        )
    for name in (info.network, f"{info.snapshot_file}{CHECKPOINT_SUFFIX}", *info.pretrained_files):
        _check_exists(folder, name)
    return info


def labels_in(folder: Path, name: str) -> list[str]:
    """Return the class names in a file with one name per line. Raises ArchiveProblem if it cannot be read."""
    try:
        text = read_bytes(folder / name, MAX_LABELS_BYTES, below=folder).decode("utf-8-sig", errors="replace")
    except UnreadableFile as error:
        raise ArchiveProblem(f"The class names cannot be read: {error}.") from error
    return names_of(text.splitlines())


def names_of(lines: Sequence[str]) -> list[str]:
    """Return the stripped names in ``lines``, without trailing empty lines."""
    names = [line.strip() for line in lines]
    while names and not names[-1]:
        names.pop()
    return names


def epoch_of(snapshot: str) -> float:
    """Return the epoch in the name of a snapshot, or 0 if the name contains none."""
    match = _EPOCH.fullmatch(snapshot)
    return float(match[1]) if match else 0.0


def _check_exists(folder: Path, name: str) -> None:
    try:
        is_there = exists(folder / name, below=folder)
    except UnreadableFile as error:
        raise ArchiveProblem(f"The archive cannot be imported: {error}.") from error
    if not is_there:
        raise ArchiveProblem(
            f"{INFO_FILE} refers to {name}, but the archive contains no such file.",
            "Download the model again.",
        )
