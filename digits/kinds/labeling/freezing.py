"""Make the recipe of a dataset from labels, in a process of its own: ``python -m digits.kinds.labeling.freezing``.

The labels are written into the folder of the new job, as files that the reader of the kind reads, so that the dataset
remains when the labels change or are deleted.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from msgspec import Struct

from digits.core.errors import BadRequest, TookTooLong
from digits.core.files import UnreadableFile, sync_tree
from digits.core.machine.programs import Program, reply, take
from digits.core.recipe import CreateDataset, Frozen
from digits.core.splits import SPLIT_TITLES, SPLITS
from digits.data.archives.writing import as_file
from digits.data.images import images as image_files
from digits.data.images.images import UnusableImage
from digits.data.images.masks import open_mask, pixels_of
from digits.data.parallel import available_cores
from digits.data.targets.mask import IGNORED
from digits.kinds.advice.recommendation import Resources
from digits.kinds.forms.dataset_recommendation import SourceFacts, recommend_dataset
from digits.kinds.forms.scanning import settings_of
from digits.kinds.labeling.answers import LabelClass
from digits.kinds.labeling.export import LabelExport
from digits.kinds.labeling.forms import Files, form_of
from digits.kinds.recipes import build_recipe

FOLDER = "labels"
SECONDS = 600


class Request(Struct):
    """The ``folder`` of the labels, what their job says of them, and the ``target``: the folder of the new job.

    ``settings`` are those of the recipe that the user has chosen; others are recommended for the ``device``.
    """

    folder: str
    target: str
    kind: str
    root: str
    classes: list[LabelClass]
    frozen: Frozen
    settings: dict[str, Any]
    device: Literal["cpu", "gpu"] = "cpu"


def freeze(request: Request) -> CreateDataset:
    """Run the program, and return the recipe; raises DigitsError."""
    with Program(__name__, request) as program:
        if (recipe := program.answer()) is None:
            raise TookTooLong("The labels could not be written in time.", "Use a faster disk.")
    return build_recipe(recipe)


def write(request: Request) -> CreateDataset:
    """Write the usual download of the labels in this process, and return the recipe that names its files.

    Raises BadRequest, UnreadableFile and OSError.
    """
    form, folder = form_of(request.kind), Path(request.target, FOLDER)
    export = LabelExport(Path(request.folder), request.classes, form, request.frozen.cursor, form.formats[0])
    names, counts = export.categories, export.counts
    for name, content in export.entries():
        target = folder / name
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if isinstance(content, tuple):
            _copy_mask(content[0], target, export.indexes, len(request.classes))
        else:
            with open(target, "xb") as file, as_file(content) as source:
                shutil.copyfileobj(source, file)
    export.close()
    if not counts["train"]:
        raise BadRequest(
            f"No training image is labeled yet; {counts.total():,} others are.",
            "Label more images. The split of each one is fixed.",
        )
    form.check_training([names[number] for number in export.trained & names.keys()])
    present, missing = (
        [split for split in SPLITS if bool(counts[split]) is is_there] for is_there in (True, False)
    )
    files = form.source(Files(request.root, folder, export.columns, [*names.values()], present))
    sync_tree(folder)
    remarks = [f"No {SPLIT_TITLES[split].lower()} image is labeled yet." for split in missing]
    facts = SourceFacts(request.kind, sizes=export.sizes, are_gray=export.are_gray, splits=SPLITS)
    resources = Resources(device=request.device, cores=available_cores())
    return build_recipe(
        {
            "task": "create-dataset",
            "kind": request.kind,
            "seed": secrets.randbelow(2**31),
            "pct_val": 0,
            "pct_test": 0,
            "notes": [*remarks, *export.remarks()],
            "frozen": msgspec.to_builtins(request.frozen),
            **settings_of(recommend_dataset(facts, resources), set()),
            **request.settings,
            **files,
        }
    )


def _copy_mask(source: Path, target: Path, indexes: Mapping[int, int], classes: int) -> None:
    """Link a mask, or if some of the ``classes`` were deleted, write it with the ``indexes`` of the others."""
    if len(indexes) == classes:
        try:
            os.link(source, target, follow_symlinks=False)
        except OSError:  # not on all file systems, and not for any number of links
            shutil.copyfile(source, target)
        return
    try:
        pixels = pixels_of(open_mask(source))
    except UnusableImage as error:
        raise UnreadableFile(f"the mask {source.name} is damaged: {error.reason}") from error
    table = np.full(256, IGNORED, np.uint8)
    table[[*indexes]] = [*indexes.values()]
    target.write_bytes(image_files.encode(table[pixels][..., None], "png"))


def _answer(request: Request) -> dict[str, Any]:
    try:
        return write(request).as_json()
    except UnreadableFile as error:
        raise BadRequest(f"The labels cannot be read: {error}.") from error
    except ValueError as error:
        raise BadRequest(f"The settings are not valid: {error}.") from error


if __name__ == "__main__":
    request = take(Request, SECONDS)
    reply(lambda: _answer(request))
