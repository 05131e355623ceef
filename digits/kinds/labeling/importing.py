"""Read labels that exist already: those of any source of datasets whose images are files.

The task that lists the images reads them with the reader of the kind.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, structs
from numpy.typing import NDArray

from digits.core.errors import BadRequest
from digits.core.files import make_folder, read_json, sync_tree, write_json
from digits.core.recipe import CreateDataset, ListImages
from digits.data import parallel
from digits.data.images import images as image_files
from digits.data.images.images import UnusableImage, reason_of
from digits.data.sources.plan import (
    ImageFolder,
    Progress,
    SkippedParts,
    SplitPlan,
    UnusableSource,
    count_of,
    listed,
    show,
)
from digits.kinds.labeling.answers import FINISHED, Answer, LabelClass
from digits.kinds.labeling.classes import with_found, with_new
from digits.kinds.labeling.forms import MASKS_FOLDER, form_of
from digits.kinds.labeling.images import ListedImage
from digits.kinds.labeling.log import LABELS_FILE, LabelLog
from digits.kinds.recipes import build_recipe, has_databases, read_source

AUTHOR = "imported"
_FILE = "imported.json"
_PIECE = 64
# Settings of recipes that leave no image, class or object out.
_WHOLE: dict[str, Any] = {"pct_val": 0, "pct_test": 0, "val_min_box_size": 0, "one_class": True}


class Imported(Struct):
    """The folder of the images and the classes of labels that began with others."""

    root: str
    classes: list[LabelClass]


def load(folder: Path) -> Imported:
    """Return what was imported into the job in ``folder``; raises UnreadableFile."""
    return read_json(folder / _FILE, Imported, below=folder)


def whole(recipe: CreateDataset) -> CreateDataset:
    """Return the recipe with all images; raises UnusableSource if these are not files."""
    if recipe.remote or has_databases(recipe):
        raise _no_files()
    settings = {name: value for name, value in _WHOLE.items() if name in recipe.__struct_fields__}
    return structs.replace(recipe, **settings)


class Source:
    """The labels with which those of ``recipe`` begin. Raises DigitsError and OSError.

    The images are below ``root``, by default the folder of those of the source. ``remarks`` say what cannot be
    imported.
    """

    def __init__(self, recipe: ListImages, progress: Progress) -> None:
        assert recipe.source is not None
        source = build_recipe(recipe.source)
        self._folder, self._form = Path(recipe.target), form_of(source.kind)
        self._plan = plan = read_source(source, progress)
        folders = {name: _folder_of(split) for name, split in plan.splits.items()}
        self.root = os.path.realpath(recipe.root or os.path.commonpath(folders.values()))
        self._below = {name: os.path.relpath(folder, self.root) for name, folder in folders.items()}
        given, used = with_new([], self._form, recipe.classes), plan.target.names
        self._classes, ids = with_found(given, self._form, [*dict.fromkeys([*plan.declared, *used])])
        self._ids = [ids[name] for name in used]
        self.remarks = [str(text) for text in plan.warnings if not isinstance(text, SkippedParts)]

    def __len__(self) -> int:
        return sum(map(len, self._plan.splits.values()))

    def save(self, images: Sequence[ListedImage], advance: Callable[[int], None]) -> None:
        """Write the labels of the listed ``images``, before anybody else can label them.

        ``advance`` is called with numbers of images that were read.
        """
        numbers = {image.path: number for number, image in enumerate(images) if not image.reason}
        unusable = [f"{item.path} ({item.reason})" for item in self._plan.unusable]
        outside: list[str] = []
        missing: list[str] = []
        unclear: set[int] = set()
        answers: dict[int, Answer] = {}
        for path, found in self._answers(advance):
            if isinstance(found, str):
                unusable.append(f"{path} ({found})")
            elif path.startswith("../") or not is_text(path):
                outside.append(path)
            elif found is not None and path not in numbers:
                missing.append(path)
            elif found is not None:
                number = numbers[path]
                try:
                    self._form.check_values(found, images[number].size)
                except BadRequest as error:
                    unusable.append(f"{path} ({error.message})")
                    continue
                if answers.setdefault(number, found) != found:
                    unclear.add(number)
        for number in unclear:
            del answers[number]
        unfinished = [number for number, found in answers.items() if found.state not in FINISHED]
        self.remarks += [
            *remark(unusable, "label", "not imported"),
            *remark(outside, "image", f"outside of {show(self.root)}: labels not imported"),
            *remark(missing, "image", "not found or not readable: labels not imported"),
            *remark(
                [images[number].path for number in sorted(unclear)],
                "image",
                "with several different labels: left open",
            ),
            *remark(
                [images[number].path for number in unfinished],
                "image",
                "with regions to ignore, such as objects marked difficult or crowd, which labels cannot contain: "
                "left open, with the other objects",
            ),
        ]
        (self._folder / LABELS_FILE).unlink(missing_ok=True)  # of a task that was killed
        LabelLog(self._folder).accept(answers, AUTHOR, AUTHOR)
        write_json(self._folder / _FILE, Imported(self.root, self._classes))

    def _answers(self, advance: Callable[[int], None]) -> Iterator[tuple[str, Answer | str | None]]:
        """Yield the path of each image, relative to the root, with its answer, or the reason why it has none.

        Masks are written into the folder of the job.
        """
        splits = self._plan.splits.items()
        every = [(name, split, place) for name, split in splits for place in range(len(split))]
        masks = self._folder / MASKS_FOLDER
        make_folder(masks)

        def answer_of(name: str, split: SplitPlan, place: int) -> Answer | str | None:
            def write_mask(pixels: NDArray[np.uint8]) -> str:
                file = masks / f"{AUTHOR}-{name}-{place}.png"
                file.write_bytes(image_files.encode(pixels[..., None], "png"))
                return file.name

            try:
                return self._form.read(self._plan.value(split, place), self._ids, write_mask)
            except (UnusableImage, OSError) as error:
                return reason_of(error)

        def work(piece: int, send: parallel.Send) -> None:
            part = every[piece * _PIECE : (piece + 1) * _PIECE]
            send(
                [
                    (
                        os.path.normpath(os.path.join(self._below[name], split.files[place])),
                        answer_of(name, split, place),
                    )
                    for name, split, place in part
                ]
            )

        with closing(parallel.run(work, -(-len(every) // _PIECE))) as messages:
            for message in filter(None, messages):
                yield from message
                advance(len(message))
        sync_tree(masks)


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
