"""Copy records of files to the inputs of a batch prediction: ``python -m digits.kinds.predictions.record_inputs``.

The server runs this as a program of its own, because a record can have hundreds of megabytes.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from digits.core.errors import BadRequest, DigitsError
from digits.core.machine.programs import Program, limit_resources
from digits.data.databases.convert import open_database
from digits.data.images import images
from digits.data.models import predictions
from digits.data.models.predictions import ListedImage
from digits.data.records.features import ExampleFeatures
from digits.data.records.files import paths_at
from digits.data.records.tfrecords import examples
from digits.kinds import kind_named
from digits.kinds.recipes import build_recipe

# The maximum size of the inputs of one request, which are copied.
MAX_INPUT_BYTES = 2 * 10**9
MEMORY_BYTES = 6 << 30
SECONDS = 600

# An input: its name, and a function that returns an image file, an array, or the paths of images on the server, which
# raises ValueError; and the index of the true class.
NamedInput = tuple[str, Callable[[], bytes | NDArray[Any] | Sequence[Path]], int | None]


class Request(Struct):
    """The records of the files at ``path``, or with ``is_database`` of the database there, for a model.

    Its dataset was created as in ``recipe``. At most ``most`` records are saved in the new folder ``target``. With a
    ``size`` (width, height), images of other sizes cannot be used.
    """

    path: str
    is_database: bool
    recipe: dict[str, Any]
    target: str
    most: int
    size: tuple[int, int] | None


class _Answer(Struct, omit_defaults=True):
    """A saved record, or the end: an error if there is a ``message``, or the number of one of the system."""

    saved: ListedImage | None = None
    errno: int = 0
    message: str = ""
    hint: str = ""


def save(request: Request) -> list[ListedImage]:
    """Run the program; return the list of the saved records. Raises BadRequest and OSError."""
    saved: list[ListedImage] = []
    with Program(__name__, request) as program:
        for line in program.lines():
            answer = msgspec.json.decode(line, type=_Answer)
            if answer.message:
                raise BadRequest(answer.message, answer.hint)
            if answer.errno:
                raise OSError(answer.errno, os.strerror(answer.errno))
            if answer.saved is None:
                return saved
            saved.append(answer.saved)
        if program.was_too_slow:
            raise BadRequest(
                f"Reading the records takes longer than {SECONDS // 60} minutes.",
                "Set “num_test_images” to a lower number.",
            )
    raise BadRequest("The records could not be read.", "The log of the server has the reason.")


def save_inputs(
    inputs: Iterable[NamedInput], folder: Path, size: tuple[int, int] | None, most: int
) -> Iterator[ListedImage]:
    """Save at most ``most`` inputs in the new ``folder``, and yield them.

    With a ``size``, images of other sizes cannot be used. Raises BadRequest if the inputs are too large.
    """
    folder.mkdir(mode=0o700)
    room = MAX_INPUT_BYTES
    for number, (name, read, truth) in enumerate(islice(inputs, most)):
        target = folder / f"{number:06}"
        try:
            data = read()
            if size and isinstance(data, bytes) and (own := images.header(data)[1]) != size:
                raise ValueError(f"its image is {own[0]}×{own[1]} pixels, not {size[0]}×{size[1]}")
        except ValueError as error:
            yield ListedImage("", name, truth, error=f"The record cannot be used: {error}.")
            continue
        if not isinstance(data, (bytes, np.ndarray)):
            first, *more = map(str, data)
            yield ListedImage(first, name, truth, more=more)
            continue
        if isinstance(data, bytes):
            target.write_bytes(data)
            room -= len(data)
        else:
            target = target.with_suffix(predictions.ARRAY_SUFFIX)
            np.save(target, data, allow_pickle=False)
            room -= data.nbytes
        if room < 0:
            raise BadRequest(
                f"The first {number + 1:,} records are larger than {MAX_INPUT_BYTES // 10**9} GB.",
                "Set “num_test_images” to a lower number.",
            )
        yield ListedImage(str(target), name, truth)


def _in_records(
    paths: Iterable[Path], read_record: Callable[[ExampleFeatures], bytes | NDArray[Any]]
) -> Iterator[NamedInput]:
    for path in paths:
        for frame, features in examples(path):
            yield f"{path.name}:{frame.number}", partial(read_record, features), None


def _in_database(path: Path) -> Iterator[NamedInput]:
    """Yield the images of a database by their keys; raises UnusableSource."""
    for stored in open_database(path).records():
        yield stored.name, stored.image, None


def main() -> None:
    """Save the records of the request on standard input, and print them."""
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=Request)
    limit_resources(MEMORY_BYTES)
    signal.alarm(SECONDS)
    try:
        for saved in save_inputs(_inputs(request), Path(request.target), request.size, request.most):
            _print(_Answer(saved=saved))
        _print(_Answer())
    except DigitsError as error:
        _print(_Answer(message=error.message, hint=error.hint))
    except OSError as error:
        _print(_Answer(errno=error.errno or errno.EIO))
    except MemoryError:
        _print(_Answer(message="A record is too large to be predicted."))


def _inputs(request: Request) -> Iterator[NamedInput]:
    if request.is_database:
        return _in_database(Path(request.path))
    recipe = build_recipe(request.recipe)
    views = kind_named(recipe.kind).load("views").Views()
    return _in_records(paths_at(request.path), partial(views.read_record, recipe))


def _print(answer: _Answer) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
