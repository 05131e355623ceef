"""Make the recipe of a dataset from labels, in a process of its own: ``python -m digits.kinds.labeling.freezing``.

The labels are written into the folder of the new job, as files that the reader of the kind reads, so that the dataset
remains when the labels change or are deleted.
"""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from msgspec import Struct

from digits.core.errors import BadRequest, TookTooLong
from digits.core.files import UnreadableFile, sync_tree
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
from digits.kinds.labeling.answers import form_of
from digits.kinds.labeling.collection import Collection
from digits.kinds.labeling.export import LabelExport
from digits.kinds.labeling.job import LabelClass
from digits.kinds.labeling.log import MASKS_FOLDER
from digits.kinds.labeling.processes import answer, ask
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
    late = TookTooLong("The labels could not be written in time.", "Use a faster disk.")
    return build_recipe(ask(__name__, request, late))


def write(request: Request) -> CreateDataset:
    """Write the files in this process, and return the recipe; raises BadRequest, UnreadableFile and OSError."""
    return _Freezing(request).recipe()


class _Freezing:
    """Writes the usual download of the labels, and names its files in the recipe."""

    def __init__(self, request: Request) -> None:
        self.request, self.form = request, form_of(request.kind)
        self.folder = Path(request.target, FOLDER)
        self.collection = Collection(
            Path(request.folder), request.classes, self.form.field, request.frozen.cursor
        )

    def recipe(self) -> CreateDataset:
        """Write all files, and name them."""
        collection, request = self.collection, self.request
        export = LabelExport(collection, self.form.formats[0])
        for name, content in export.entries():
            target = self.folder / name
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if isinstance(content, tuple):
                self._copy_mask(content[0], target)
            else:
                with open(target, "xb") as file, as_file(content) as source:
                    shutil.copyfileobj(source, file)
        export.close()
        counts = collection.counts
        if not counts["train"]:
            raise BadRequest(
                f"No training image is labeled yet; {counts.total():,} others are.",
                "Label more images. The split of each one is fixed.",
            )
        if self.form.field == "label" and len(collection.trained) < 2:
            (name,) = (collection.names[number] for number in collection.trained)
            raise BadRequest(
                f"All labeled training images have the class “{name}”.", "Label some of another class, too."
            )
        if self.form.field == "objects" and not collection.trained:
            raise BadRequest("No labeled training image has an object.", "Draw some objects first.")
        sync_tree(self.folder)
        missing = [SPLIT_TITLES[split].lower() for split in SPLITS if not counts[split]]
        return build_recipe(
            {
                "task": "create-dataset",
                "kind": request.kind,
                "seed": secrets.randbelow(2**31),
                "pct_val": 0,
                "pct_test": 0,
                "notes": [
                    *(f"No {title} image is labeled yet." for title in missing),
                    *collection.remarks(),
                ],
                "frozen": msgspec.to_builtins(request.frozen),
                **self._recommended(),
                **request.settings,
                **self._source(),
            }
        )

    def _copy_mask(self, source: Path, target: Path) -> None:
        """Link a mask, or if classes were deleted, write it with the indexes of the others."""
        indexes = self.collection.indexes
        if len(indexes) == len(self.request.classes):
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

    def _source(self) -> dict[str, Any]:
        """Return how the recipe of the kind names the files."""
        root, columns = self.request.root, self.collection.columns
        present = [split for split in SPLITS if self.collection.counts[split]]
        tables = {split: str(self.folder / f"{split}.csv") for split in present}
        style = {"delimiter": ",", "header": "yes", "image_column": columns[0]}
        of_table = {
            "table": tables["train"],
            "folder": root,
            **style,
            **{f"{split}_table": tables[split] for split in present[1:]},
        }
        if self.form.field == "objects":
            files = {split: str(self.folder / f"annotations/instances_{split}.json") for split in present}
            others = {f"{split}_labels": files[split] for split in present[1:]}
            return {
                "images": root,
                "labels": files["train"],
                "format": "coco",
                "val_min_box_size": 0,
                **others,
            }
        if self.form.field == "label":
            splits = {split: {"file": file, "folder": root} for split, file in tables.items()}
            # The first validation images may show a class that no training image shows yet.
            names = [*self.collection.names.values()]
            return {
                "files": {"type": "csv", **style, "label_column": columns[1], **splits},
                "class_names": names,
            }
        if self.form.field == "labels":
            return {**of_table, "label_columns": columns[1:], "layout": "columns"}
        if self.form.field == "numbers":
            return {**of_table, "target_columns": columns[1:]}
        list_of_names = self.folder / "classes.txt"
        list_of_names.write_text(
            "".join(f"{name}\n" for name in self.collection.names.values()), encoding="utf-8"
        )
        folders = {"images": root, "targets": str(self.folder / MASKS_FOLDER)}
        pairs: dict[str, Any] = {split: {**folders, "pairs": file} for split, file in tables.items()}
        return {**pairs, "class_labels_file": str(list_of_names), "are_indexes": True}

    def _recommended(self) -> dict[str, Any]:
        """Return the recommended settings of images."""
        collection = self.collection
        facts = SourceFacts(
            self.request.kind, sizes=collection.sizes, are_gray=collection.are_gray, splits=SPLITS
        )
        resources = Resources(device=self.request.device, cores=available_cores())
        return settings_of(recommend_dataset(facts, resources), set())


def _answer(request: Request) -> dict[str, Any]:
    try:
        return write(request).as_json()
    except UnreadableFile as error:
        raise BadRequest(f"The labels cannot be read: {error}.") from error
    except ValueError as error:
        raise BadRequest(f"The settings are not valid: {error}.") from error


if __name__ == "__main__":
    answer(Request, _answer, SECONDS)
