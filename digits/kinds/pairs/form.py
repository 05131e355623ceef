"""The form of a dataset of pairs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wtforms.validators import DataRequired

from digits.core.recipe import CreateDataset
from digits.core.splits import SPLITS
from digits.data.images.lists import visible_entries
from digits.data.sources.class_folders import refuse_other_layouts
from digits.data.sources.declared_splits import describe_splits, inner_root, named_splits, split_folders
from digits.data.sources.plan import UnusableSource
from digits.data.tables.tables import MAX_HEADER_BYTES, TableFile
from digits.kinds.forms.dataset import SharesForm, required_integer
from digits.kinds.forms.fields import AllowedFiles, check_images, choices, optional_path, select, text_field
from digits.kinds.forms.source import Beside, FormSource, folders_beside
from digits.kinds.forms.tables import omit_default_folder, read_folders, tables_beside
from digits.kinds.pairs.reader import read_rows
from digits.kinds.pairs.recipe import CreatePairs

# The fields of the sources of the splits.
SOURCE_FIELDS: dict[str, str] = dict(zip(SPLITS, ("pair_source", "val_source", "test_source"), strict=True))


class Pairs(FormSource):
    """CSV files of pairs, or folders of classes."""

    path = "pair_source"
    names = ("*_source", "image_folder")
    own = ("{}_source",)

    def read(self, form: Any) -> dict[str, Any]:
        return read_folders(form, "source")

    def fill(self, form: Any, recipe: CreatePairs) -> None:
        super().fill(form, recipe)
        omit_default_folder(form, dict(recipe.sources().values()))

    def complete(self, form: Any) -> None:
        root = Path(form.text_of(self.path))
        if not root.is_dir():
            return
        folders = {} if self.own_splits(form) else self._splits(form, split_folders(root))
        if "train" in folders and len(folders) > 1:
            form.set(**{SOURCE_FIELDS[split]: str(path) for split, path in folders.items()})
            form.notes.append(describe_splits(folders))
        else:
            refuse_other_layouts(root)

    def find_beside(self, form: Any) -> dict[str, Beside]:
        source = Path(form.text_of(self.path))
        if source.is_file():
            return tables_beside(form, source, "{}_source", lambda path: _open(path, path.parent).columns)

        def find(root: Path) -> dict[str, Beside]:
            folders = self._splits(form, named_splits(root))
            return {split: Beside(path, {SOURCE_FIELDS[split]: str(path)}) for split, path in folders.items()}

        return folders_beside(form, source, find)

    def _splits(self, form: Any, folders: Mapping[str, Path]) -> dict[str, Path]:
        """Return the allowed ones of the ``folders`` that contain folders, those of classes."""
        found = {split: inner_root(path) for split, path in folders.items()}
        return {
            split: path
            for split, path in found.items()
            if form.meta.data_roots.contain(path)
            and any(entry.is_dir() for entry in visible_entries(str(path)))
        }

    def check(self, form: Any, recipe: CreatePairs) -> None:
        sources = recipe.sources()
        check_images(form, (SOURCE_FIELDS[split] for split in sources))
        for split, (source, folder) in sources.items():
            if not os.path.isdir(source):
                try:
                    _open(Path(source), Path(folder))
                except UnusableSource as error:
                    form.add_error(SOURCE_FIELDS[split], error.sentences)


def _open(path: Path, folder: Path) -> TableFile:
    """Open the beginning of a CSV file of pairs; raises UnusableSource."""
    return read_rows(path, folder, MAX_HEADER_BYTES)[1]


class DatasetForm(SharesForm[CreatePairs]):
    """A dataset of pairs, from a CSV file or from a folder of classes."""

    RECIPE = CreatePairs
    SOURCES = (Pairs(),)

    pair_source = text_field(
        "Source", CreatePairs, "source", DataRequired("Enter a CSV file or a folder."), AllowedFiles()
    )
    image_folder = optional_path("Image folder", CreatePairs, "folder", "folder")
    val_source = text_field("Validation source", CreatePairs, "val_source", AllowedFiles())
    test_source = text_field("Test source", CreatePairs, "test_source", AllowedFiles())
    pair_count = required_integer("Training pairs", CreatePairs, "pairs")
    # The two images of a record have more channels than an image file.
    encoding = select("Encoding", choices(("none", "None (raw pixels)")), CreateDataset, "encoding", "none")
