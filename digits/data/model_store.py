"""Model stores: folders or web addresses that publish models, each in a subfolder with its ``info.json``.

The layout is that of DIGITS 6. ``master.json`` contains a message, ``msg``, and the names of the subfolders,
``children``; without it, all subfolders are listed. Each of them contains the files of a downloaded archive
(`digits.data.model_archive`), and optionally ``aux.json`` with a description: ``dataset``, ``license``.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Struct

from digits.core.environment import SYSTEM_VARIABLES, inherited
from digits.core.errors import BadRequest, Unavailable
from digits.core.files import UnreadableFile, read_json
from digits.core.remote import is_address
from digits.data import manifest as manifests
from digits.data.model_archive import CHECKPOINT_SUFFIX, INFO_FILE, Info
from digits.data.remote import client
from digits.data.remote.client import FetchFailed
from digits.data.remote.drivers import is_usable_name
from digits.data.remote.fetch import News, Request, Source

MASTER_FILE = "master.json"
AUX_FILE = "aux.json"
MAX_MODELS = 500
# Limits for reading the list of models of a store.
MAX_LIST_BYTES = 20_000_000
MAX_LIST_SECONDS = 30.0
# A download fails if the store sends less than a kilobyte in this time.
STALL_SECONDS = 30.0
_CHECKPOINT_SUFFIXES = (CHECKPOINT_SUFFIX, ".data-00000-of-00001")


class _Master(Struct):
    msg: str = ""
    children: list[str] | None = None


@dataclass(frozen=True)
class StoredModel:
    """A model in the subfolder ``folder`` of ``store``; ``info`` and ``aux`` are the contents of its JSON files."""

    store: str
    folder: str
    info: Mapping[str, Any]
    aux: Mapping[str, Any]

    @property
    def id(self) -> str:
        """An ID that is the same each time the store is read."""
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{self.store}/{self.folder}"))

    @property
    def name(self) -> str:
        return str(self.info.get("name") or self.folder)

    @property
    def framework(self) -> str:
        return str(self.info.get("framework") or "")

    @property
    def local_folder(self) -> Path | None:
        """The folder of the model, or None if its store is an address."""
        return None if is_address(self.store) else Path(self.store) / self.folder

    @property
    def input(self) -> str:
        """The height, width and channels of the images, such as ``224×224×3``; empty if they are unknown."""
        dimensions = self.info.get("image dimensions")
        return "×".join(map(str, dimensions)) if isinstance(dimensions, list) else ""

    @property
    def is_importable(self) -> bool:
        """Whether it is a TensorFlow model."""
        return self.framework.lower() == "tensorflow"


@dataclass
class Listing:
    """The models of a store, and its message. ``problem`` explains why all or some of them cannot be read."""

    store: str
    message: str = ""
    models: list[StoredModel] = field(default_factory=list)
    problem: str = ""


def read(store: str, scratch: Path) -> Listing:
    """Read the list of models of ``store``, a folder or an address; ``scratch`` is an empty folder for downloads.

    The result describes errors; nothing is raised. In the server, other greenlets run while this waits.
    """
    listing = Listing(store)
    try:
        if is_address(store):
            folder, children = _download_list(store, scratch, listing)
        else:
            folder, children = _local_list(Path(store), listing)
    except (BadRequest, UnreadableFile, OSError) as error:
        listing.problem = error.sentences if isinstance(error, BadRequest) else f"{error}."
        return listing
    broken = []
    for child in children:
        try:
            info = _object(folder / child / INFO_FILE, folder)
            aux = _object(folder / child / AUX_FILE, folder) if (folder / child / AUX_FILE).exists() else {}
        except UnreadableFile:
            broken.append(child)
            continue
        listing.models.append(StoredModel(store, child, info, aux))
    if broken:
        names = ", ".join(f"“{name}”" for name in broken[:3]) + ("…" if len(broken) > 3 else "")
        listing.problem = f"{INFO_FILE} or {AUX_FILE} is missing or damaged in {names}."
    elif not listing.models:
        listing.problem = "This store contains no models."
    return listing


def download(model: StoredModel, folder: Path, max_bytes: int) -> Iterator[News]:
    """Download the files of ``model`` from the address of its store to ``folder``; yield the progress.

    Optional files may be missing; the import checks the others. Raises BadRequest and Unavailable.
    """
    sources = [_file(model.store, f"{model.folder}/{name}", folder / name) for name in _files_of(model)]
    request = Request(
        sources=sources,
        allowed=[model.store],
        max_bytes=max_bytes,
        max_files=len(sources),
        max_failed_percent=100,
    )
    try:
        yield from client.run(request, environment=_environment(), stall_seconds=STALL_SECONDS)
    except FetchFailed as error:
        raise Unavailable(f"“{model.name}” could not be downloaded. {error.message}", error.hint) from error


def _files_of(model: StoredModel) -> list[str]:
    """Return the names of the files to download. Raises BadRequest if ``info.json`` is invalid."""
    try:
        info = msgspec.convert(model.info, Info)
    except msgspec.ValidationError as error:
        raise BadRequest(
            f"The {INFO_FILE} of “{model.name}” is invalid: {error}.", "Choose another model."
        ) from error
    names = [INFO_FILE, info.network, info.labels_file, info.mean_file]
    names += [f"{info.snapshot_file}{suffix}" for suffix in _CHECKPOINT_SUFFIXES]
    names += [manifests.FILE_NAME, manifests.MEAN_ARRAY_FILE, *info.pretrained_files]
    return [*dict.fromkeys(name for name in names if name)]


def _local_list(folder: Path, listing: Listing) -> tuple[Path, list[str]]:
    master = _Master()
    if (folder / MASTER_FILE).exists():
        master = read_json(folder / MASTER_FILE, _Master, below=folder)
    listing.message = master.msg
    if master.children is not None:
        return folder, _usable(master.children)
    return folder, sorted(entry.name for entry in folder.iterdir() if (entry / INFO_FILE).is_file())


def _download_list(store: str, scratch: Path, listing: Listing) -> tuple[Path, list[str]]:
    """Download the JSON files of all models. Raises FetchFailed, and UnreadableFile for ``master.json``."""
    _run([_file(store, MASTER_FILE, scratch / MASTER_FILE)], store)
    if (scratch / MASTER_FILE).exists():
        master = read_json(scratch / MASTER_FILE, _Master, below=scratch)
        listing.message = master.msg
        children = _usable(master.children or [])
    else:
        whole = Source(address=store, path=str(scratch), is_folder=True)
        children = _usable(sorted(_run([whole], store, only_list=True).folders))
    names = [f"{child}/{name}" for child in children for name in (INFO_FILE, AUX_FILE)]
    if names:
        _run([_file(store, name, scratch / name) for name in names], store)
    return scratch, children


def _file(store: str, name: str, path: Path) -> Source:
    return Source(address=f"{store}/{quote(name)}", path=str(path), is_folder=False)


def _run(sources: list[Source], store: str, only_list: bool = False) -> News:
    """Download ``sources``; any of them may be missing."""
    request = Request(
        sources=sources,
        allowed=[store],
        max_bytes=MAX_LIST_BYTES,
        max_files=20 * MAX_MODELS,
        max_failed_percent=100,
        only_list=only_list,
    )
    *_, news = client.run(request, environment=_environment(), seconds=MAX_LIST_SECONDS)
    return news


def _environment() -> Mapping[str, str]:
    return inherited(os.environ, SYSTEM_VARIABLES)


def _usable(names: list[str]) -> list[str]:
    """Return up to `MAX_MODELS` of the ``names``, without those that are not plain folder names."""
    plain = (name.rstrip("/") for name in names)
    return [name for name in dict.fromkeys(plain) if "/" not in name and is_usable_name(name)][:MAX_MODELS]


def _object(path: Path, below: Path) -> dict[str, Any]:
    content: dict[str, Any] = read_json(path, dict[str, Any], below=below)
    return content
