"""Decode files for pages, in a process of its own: ``python -m digits.kinds.decoding``.

Files of users are decoded in this process, whose memory and time are limited. The server only relays its results, so a
file that becomes gigabytes of pixels, or one that crashes a decoder, affects nothing but its own picture.
"""

from __future__ import annotations

import contextlib
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from digits.core.errors import BadRequest, DigitsError
from digits.core.files import UnreadableFile
from digits.core.machine.programs import end, limit_resources, start
from digits.core.recipe import CreateDataset
from digits.data import manifest as manifests
from digits.data.arrays import load_array
from digits.data.images import images
from digits.data.images.images import UnusableImage
from digits.data.images.masks import pixels_of
from digits.data.records.index import DamagedRecords
from digits.data.records.records import Features, Record, SplitReader
from digits.data.targets.forms import form_of
from digits.data.targets.mask import IGNORED
from digits.data.targets.picture import PictureTarget
from digits.data.targets.target import Target
from digits.kinds.views import InputRequest

# The maximum width and height of pictures of users' files.
SHOWN_SIZE = (512, 512)
# The address space of one process. A file of 50 million pixels takes a fraction of it.
MEMORY_BYTES = 2 << 30
SECONDS = 30
PROCESSES = 2
# A page requests all its pictures at once. The process ends by itself afterwards.
IDLE_SECONDS = 0.5
_LENGTH_BYTES = 8


class Decoded(Struct):
    """An image file for a page, with the ``width`` and ``height`` of a user's image, or an array of numbers.

    Instead of an image, there can be ``texts``.
    """

    data: bytes
    width: int = 0
    height: int = 0
    shape: list[int] = field(default_factory=list)
    dtype: str = ""
    texts: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, array: NDArray[Any]) -> Decoded:
        return cls(array.tobytes(), shape=list(array.shape), dtype=array.dtype.str)

    def as_array(self) -> NDArray[Any]:
        return np.frombuffer(self.data, self.dtype).reshape(self.shape)


class SmallImage(Struct, tag=True, frozen=True):
    """The image file ``path`` as a PNG of at most `SHOWN_SIZE`; a large JPEG file is decoded at a reduced size."""

    path: str

    def run(self) -> Decoded:
        picture = images.open_picture(Path(self.path), 3, enough=SHOWN_SIZE, bits=None)
        return Decoded(_small_png(picture.image), *picture.size)


class SmallArray(Struct, tag=True, frozen=True):
    """The file ``path`` of an array, uint8 [height, width, 1 or 3], as a PNG of at most `SHOWN_SIZE`.

    The folder ``below`` contains it.
    """

    path: str
    below: str

    def run(self) -> Decoded:
        try:
            image = images.as_image(load_array(Path(self.path), below=Path(self.below)))
        except (UnreadableFile, ValueError, TypeError, IndexError) as error:
            raise UnusableImage(f"the pixels cannot be read: {error}") from error
        size = image.size
        return Decoded(_small_png(image), *size)


class ResizedImage(Struct, tag=True, frozen=True):
    """The image file ``path`` as it would be in a dataset."""

    path: str
    channels: int
    width: int
    height: int
    mode: str
    encoding: str
    max_pixels: int

    def run(self) -> Decoded:
        picture = images.open_picture(Path(self.path), self.channels, max_pixels=self.max_pixels, bits=None)
        resized = images.resize_image(picture.image, self.width, self.height, self.mode)
        encoding = "png" if self.encoding == "none" else self.encoding
        return Decoded(images.encode_image(resized, encoding), *picture.size)


class Thumbnail(Struct, tag=True, frozen=True):
    """The image file ``path`` as a JPEG file whose sides are at most ``side`` pixels."""

    path: str
    side: int

    def run(self) -> Decoded:
        picture = images.open_picture(Path(self.path), 3, enough=(self.side, self.side), bits=None)
        return Decoded(images.thumbnail(picture.image, self.side), *picture.size)


class DrawnMask(Struct, tag=True, frozen=True):
    """The PNG file ``data`` of a mask as one of 8 bits: ids of classes, or `IGNORED`.

    The texts of the result are the ids that it contains, without the latter.
    """

    data: bytes

    def run(self) -> Decoded:
        pixels = pixels_of(images.open_unconverted(self.data))
        if pixels.ndim != 2:
            raise UnusableImage("its pixels are colors instead of ids of classes")
        height, width = pixels.shape
        ids = [number for number in np.unique(pixels).tolist() if number != IGNORED]
        return Decoded(images.encode(pixels[..., None], "png"), width, height, texts=[*map(str, ids)])


class StoredImage(Struct, frozen=True):
    """The image of a `Record`."""

    data: bytes
    format: str
    height: int
    width: int
    channels: int
    source: bytes

    @classmethod
    def of(cls, record: Record) -> StoredImage:
        return cls(record.data, record.format, record.height, record.width, record.channels, record.source)

    def as_record(self, features: Features) -> Record:
        return Record(
            self.data, self.format, self.height, self.width, self.channels, features, source=self.source
        )


class RecordThumbnail(Struct, tag=True, frozen=True):
    """The image of a record as a JPEG file whose sides are at most ``side`` pixels."""

    image: StoredImage
    side: int

    def run(self) -> Decoded:
        return Decoded(self.image.as_record({}).as_thumbnail(self.side))


class RecordTarget(Struct, tag=True, frozen=True):
    """The target of a record, a mask or an image, as a PNG file; an image with ``side`` as a JPEG file of this size."""

    image: StoredImage
    spec: Target
    target: bytes
    side: int = 0

    @classmethod
    def of(cls, record: Record, spec: Target, side: int = 0) -> RecordTarget:
        values = cast(Sequence[bytes], record.features.get(spec.feature, [b""]))
        return cls(StoredImage.of(record), spec, values[0], side)

    def run(self) -> Decoded:
        spec = cast(PictureTarget, form_of(self.spec))
        value = self.image.as_record({spec.feature: [self.target]}).target(spec)
        return Decoded(spec.draw(value, self.side))


class RecordLabels(Struct, tag=True, frozen=True):
    """What `Views.describe_record` returns for the records at ``places``, each a split and a number.

    Their dataset is in the ``folder``. The masks of a whole page are decoded, one after the other.
    """

    folder: str
    places: list[tuple[str, int]]

    def run(self) -> Decoded:
        from digits.kinds import kind_named

        folder = Path(self.folder)
        manifest = manifests.load(folder)
        views = kind_named(manifest.kind).load("views").Views()
        with contextlib.ExitStack() as opened:
            readers = {
                split: opened.enter_context(SplitReader(folder, manifest.splits[split]))
                for split in {split for split, _ in self.places}
            }
            texts = [
                views.describe_record(manifest, readers[split].read(each)) for split, each in self.places
            ]
        return Decoded(b"", texts=texts)


class Animation(Struct, tag=True, frozen=True):
    """Generated images, the PNG files in data URIs ``frames``, as a looping GIF file."""

    frames: list[str]

    def run(self) -> Decoded:
        from digits.kinds.builtin_views.gan.view import animation  # imports the forms of views

        return Decoded(animation(self.frames))


class RecordArray(Struct, tag=True, frozen=True):
    """The pixels of a record, or its numbers."""

    image: StoredImage

    def run(self) -> Decoded:
        return Decoded.of(self.image.as_record({}).as_array())


class ReadInput(Struct, tag=True, frozen=True):
    """What `Views.read_input` returns for ``fields`` and files: an array, or nothing for None.

    ``recipe`` is that of a dataset of the ``kind``, whose 16-bit images use ``bits``; files are ``uploads`` or have
    ``paths``.
    """

    kind: str
    recipe: dict[str, Any]
    fields: dict[str, str]
    uploads: dict[str, bytes] = field(default_factory=dict)
    paths: dict[str, str] = field(default_factory=dict)
    bits: int = images.FULL_BITS

    @classmethod
    def of(cls, recipe: CreateDataset, request: InputRequest, bits: int = images.FULL_BITS) -> ReadInput:
        uploads = {name: file for name, file in request.files.items() if isinstance(file, bytes)}
        paths = {name: str(file) for name, file in request.files.items() if isinstance(file, Path)}
        return cls(recipe.kind, recipe.as_json(), dict(request.fields), uploads, paths, bits)

    def run(self) -> Decoded:
        from digits.kinds import kind_named
        from digits.kinds.recipes import build_recipe

        files: dict[str, bytes | Path] = {name: Path(path) for name, path in self.paths.items()}
        files |= self.uploads
        views = kind_named(self.kind).load("views").Views()
        pixels = views.read_input(build_recipe(self.recipe), InputRequest(self.fields, files, bits=self.bits))
        return Decoded(b"") if pixels is None else Decoded.of(pixels)


Request = (
    SmallImage
    | SmallArray
    | ResizedImage
    | Thumbnail
    | DrawnMask
    | RecordThumbnail
    | RecordTarget
    | RecordLabels
    | RecordArray
    | Animation
    | ReadInput
)


def _small_png(image: Any) -> bytes:
    image.thumbnail(SHOWN_SIZE)
    return images.encode_image(image, "png")


class _Answer(Struct):
    """The result of a request, or the ``error``, whose ``kind`` is the name of one of the classes in `_error`."""

    result: Decoded | None = None
    kind: str = ""
    error: str = ""
    hint: str = ""


class Decoder:
    """Runs the program for at most `PROCESSES` requests at a time; others wait.

    Its methods wait for pipes and locks, so they belong into greenlets, not into native threads.
    """

    def __init__(self) -> None:
        self._slots = threading.BoundedSemaphore(PROCESSES)
        self._idle: list[subprocess.Popen[bytes]] = []

    def run(self, request: Request) -> Decoded:
        """Return the result of ``request``; raises UnusableImage, DamagedRecords, and the DigitsErrors of a kind."""
        message = msgspec.msgpack.encode(request)
        with self._slots:
            # One that has been idle may end at any moment.
            reply = self._ask(self._idle.pop(), message) if self._idle else None
            answer = msgspec.msgpack.decode(
                reply or self._ask(start(__name__), message) or _NO_REPLY, type=_Answer
            )
        if answer.result is None:
            raise _error(answer)
        return answer.result

    def close(self) -> None:
        while self._idle:
            end(self._idle.pop())

    def _ask(self, process: subprocess.Popen[bytes], message: bytes) -> bytes | None:
        """Return the reply to ``message``; None if the process has ended."""
        reply = b""
        try:
            assert process.stdin is not None and process.stdout is not None
            with contextlib.suppress(OSError):
                process.stdin.write(len(message).to_bytes(_LENGTH_BYTES, "big") + message)
                process.stdin.flush()
                length = int.from_bytes(process.stdout.read(_LENGTH_BYTES), "big")
                whole = process.stdout.read(length)
                reply = whole if len(whole) == length else b""
            return reply or None
        finally:
            if reply:
                self._idle.append(process)
            else:  # it has ended, or nobody waits for it anymore
                end(process)


_NO_REPLY = msgspec.msgpack.encode(
    _Answer(kind="UnusableImage", error="decoding it takes too much memory or time")
)


def _error(answer: _Answer) -> Exception:
    if answer.kind == "UnusableImage":
        return UnusableImage(answer.error)
    if answer.kind == "DamagedRecords":
        return DamagedRecords(answer.error)
    return BadRequest(answer.error, answer.hint)


def _answer(request: Request) -> _Answer:
    try:
        return _Answer(request.run())
    except UnusableImage as error:
        return _Answer(kind="UnusableImage", error=error.reason)
    except UnreadableFile as error:
        return _Answer(kind="DamagedRecords", error=str(error))
    except DigitsError as error:
        return _Answer(kind="BadRequest", error=error.message, hint=error.hint)
    except OSError as error:
        return _Answer(kind="UnusableImage", error=error.strerror or str(error))
    except MemoryError:
        return _Answer(kind="UnusableImage", error="decoding needs more memory than is available")


def main() -> None:
    """Answer requests from standard input until it is closed, or nothing arrives for `IDLE_SECONDS`."""
    limit_resources(MEMORY_BYTES)
    source, target = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # what decoders print must not be in a reply
    wait: float | None = None
    while select.select([source], [], [], wait)[0]:  # nothing is buffered: the server waits for the reply
        length = int.from_bytes(source.read(_LENGTH_BYTES), "big")
        if not length:
            return
        signal.alarm(SECONDS)
        request = msgspec.msgpack.decode(source.read(length), type=Request)
        reply = msgspec.msgpack.encode(_answer(request))
        signal.alarm(0)
        target.write(len(reply).to_bytes(_LENGTH_BYTES, "big") + reply)
        target.flush()
        wait = IDLE_SECONDS


if __name__ == "__main__":
    main()
