"""Read labels that exist already, in a process of its own: ``python -m digits.kinds.labeling.importing``.

Any source of datasets whose images are files can be the start: the reader of the kind reads it. The answers are written
into the folder of a new job as ``imported.json``; the task that lists the images appends them to the log.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct, field, structs
from numpy.typing import NDArray

from digits.core.errors import BadRequest, TookTooLong
from digits.core.files import MissingFile, make_folder, read_json, sync_tree, write_bytes
from digits.core.machine.programs import Program, reply, take
from digits.core.recipe import CreateDataset
from digits.data import parallel
from digits.data.images import images
from digits.data.images.images import UnusableImage, reason_of
from digits.data.sources.plan import (
    ImageFolder,
    Plan,
    Progress,
    SkippedParts,
    SplitPlan,
    UnusableSource,
    count_of,
    listed,
    show,
)
from digits.kinds.labeling.answers import FINISHED, Answer
from digits.kinds.labeling.forms import MASKS_FOLDER, Form, folded, form_of
from digits.kinds.recipes import build_recipe, has_databases, read_source

FILE = "imported.json"
AUTHOR = "imported"
SECONDS = 600
_MAX_BYTES = 2 << 30
_PIECE = 64
# Settings of recipes that leave no image, class or object out.
_WHOLE: dict[str, Any] = {"pct_val": 0, "pct_test": 0, "val_min_box_size": 0, "one_class": True}


class Request(Struct):
    """The ``recipe`` of a dataset of the ``kind``, with whose labels those of the images below ``root`` begin.

    ``root`` is by default the folder of the images of the recipe. ``target`` is the folder of the job, and ``classes``
    are the names of the first ones.
    """

    kind: str
    recipe: dict[str, Any]
    target: str
    root: str
    classes: list[str]


class Start(Struct):
    """The folder of the images, and the names of the classes, the given ones first."""

    root: str
    classes: list[str]


class Imported(Struct):
    """The answers by the path of the image, and ``remarks`` about what was not imported."""

    kind: str
    answers: dict[str, Answer] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)


def import_labels(request: Request) -> Start:
    """Run the program; raises DigitsError."""
    with Program(__name__, request) as program:
        if (start := program.answer()) is None:
            raise TookTooLong("The labels could not be read in time.", "Use a faster disk, or fewer images.")
    return msgspec.convert(start, Start)


def load(folder: Path) -> Imported | None:
    """Return what was imported into the job in ``folder``; None without. Raises UnreadableFile."""
    try:
        return read_json(folder / FILE, Imported, below=folder, limit=_MAX_BYTES)
    except MissingFile:
        return None


def write(request: Request) -> Start:
    """Write the file in this process; raises DigitsError and OSError."""
    try:
        plan = read_source(_whole(build_recipe(request.recipe)), Progress())
        folders = [_folder_of(split) for split in plan.splits.values()]
    except UnusableSource as error:
        raise BadRequest(error.message, error.hint) from error
    root = os.path.realpath(request.root or os.path.commonpath(folders))
    form, used = form_of(request.kind), plan.target.names
    names, ids = _numbered(form.first_classes(request.classes), [*dict.fromkeys([*plan.declared, *used])])
    imported = Imported(request.kind)
    unusable = [f"{item.path} ({item.reason})" for item in plan.unusable]
    outside: list[str] = []
    unclear: set[str] = set()
    for path, found in _answers(plan, form, [ids[name] for name in used], root, Path(request.target)):
        if isinstance(found, str):
            unusable.append(f"{path} ({found})")
        elif path.startswith("../") or not is_text(path):
            outside.append(path)
        elif found is not None and imported.answers.setdefault(path, found) != found:
            unclear.add(path)
    for path in unclear:
        del imported.answers[path]
    unfinished = [path for path, found in imported.answers.items() if found.state not in FINISHED]
    imported.remarks = [
        *(str(warning) for warning in plan.warnings if not isinstance(warning, SkippedParts)),
        *remark(unusable, "label", "not imported"),
        *remark(outside, "image", f"outside of {show(root)}: labels not imported"),
        *remark(sorted(unclear), "image", "with several different labels: left open"),
        *remark(
            unfinished,
            "image",
            "with regions to ignore, such as objects marked difficult or crowd, which labels cannot contain: "
            "left open, with the other objects",
        ),
    ]
    write_bytes(Path(request.target, FILE), msgspec.json.encode(imported))
    return Start(root, names)


def remark(items: Sequence[str], noun: str, what: str) -> list[str]:
    """Return the sentence about ``items``; none without any."""
    return [f"{count_of(len(items), noun)} {what}: {listed(items)}."] if items else []


def is_text(path: str) -> bool:
    """Return whether a path is valid UTF-8."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _whole(recipe: CreateDataset) -> CreateDataset:
    """Return the recipe with all images, unless these are not files; raises UnusableSource."""
    if recipe.remote or has_databases(recipe):
        raise _no_files()
    settings = {name: value for name, value in _WHOLE.items() if name in recipe.__struct_fields__}
    return structs.replace(recipe, **settings)


def _folder_of(split: SplitPlan) -> str:
    """Return the real path of the folder of the images; raises UnusableSource if these are not files."""
    if not isinstance(split.images, ImageFolder):
        raise _no_files()
    return os.path.realpath(split.images.root)


def _no_files() -> UnusableSource:
    return UnusableSource(
        "Labels need images that are files, and those of this source are not.",
        "Download the dataset as images, and start with this folder.",
    )


def _answers(
    plan: Plan, form: Form, ids: Sequence[int], root: str, target: Path
) -> Iterator[tuple[str, Answer | str | None]]:
    """Yield the path of each image, relative to ``root``, with its answer, or the reason why it has none.

    Masks are written into the folder ``target`` of the job.
    """
    every = [(name, split, place) for name, split in plan.splits.items() for place in range(len(split))]
    below = {name: os.path.relpath(_folder_of(split), root) for name, split in plan.splits.items()}
    masks = target / MASKS_FOLDER
    make_folder(masks)

    def answer_of(name: str, split: SplitPlan, place: int) -> Answer | str | None:
        def write_mask(pixels: NDArray[np.uint8]) -> str:
            file = masks / f"{AUTHOR}-{name}-{place}.png"
            file.write_bytes(images.encode(pixels[..., None], "png"))
            return file.name

        try:
            return form.read(plan.value(split, place), ids, write_mask)
        except (UnusableImage, OSError) as error:
            return reason_of(error)

    def work(piece: int, send: parallel.Send) -> None:
        part = every[piece * _PIECE : (piece + 1) * _PIECE]
        send(
            [
                (
                    os.path.normpath(os.path.join(below[name], split.files[place])),
                    answer_of(name, split, place),
                )
                for name, split, place in part
            ]
        )

    with closing(parallel.run(work, -(-len(every) // _PIECE))) as messages:
        for message in filter(None, messages):
            yield from message
    sync_tree(masks)


def _numbered(first: Sequence[str], found: Iterable[str]) -> tuple[list[str], dict[str, int]]:
    """Return the names of all classes, the ``first`` ones among them, and the number of each one that was ``found``.

    Raises BadRequest if upper and lower case make the difference between two of those found.
    """
    names = [*first]
    numbers = {folded(name): number for number, name in enumerate(names)}
    ids: dict[str, int] = {}
    seen: dict[str, str] = {}
    for name in found:
        key = folded(name)
        if (other := seen.setdefault(key, name)) != name:
            raise BadRequest(f"“{show(other)}” and “{show(name)}” are the same class.", "Rename one of them.")
        if key not in numbers:
            numbers[key] = len(names)
            names.append(name)
        ids[name] = numbers[key]
    return names, ids


if __name__ == "__main__":
    request = take(Request, SECONDS)
    reply(lambda: write(request))
