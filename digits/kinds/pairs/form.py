"""The form of a dataset of pairs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from wtforms.validators import DataRequired

from digits.core.recipe import CreateDataset
from digits.core.splits import SPLITS
from digits.data.sources.class_folders import refuse_other_layouts
from digits.data.sources.plan import UnusableSource
from digits.data.tables.tables import MAX_HEADER_BYTES
from digits.kinds.forms.dataset import SharesForm, required_integer
from digits.kinds.forms.fields import AllowedFiles, check_images, choices, optional_path, select, text_field
from digits.kinds.forms.source import FormSource
from digits.kinds.forms.tables import omit_default_folder, read_folders
from digits.kinds.pairs.reader import read_rows
from digits.kinds.pairs.recipe import CreatePairs

# The fields of the sources of the splits.
SOURCE_FIELDS = dict(zip(SPLITS, ("pair_source", "val_source", "test_source"), strict=True))


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
        if os.path.isdir(form.text_of(self.path)):
            refuse_other_layouts(Path(form.text_of(self.path)))

    def check(self, form: Any, recipe: CreatePairs) -> None:
        sources = recipe.sources()
        check_images(form, (SOURCE_FIELDS[split] for split in sources))
        for split, (source, folder) in sources.items():
            if not os.path.isdir(source):
                try:
                    read_rows(Path(source), Path(folder), MAX_HEADER_BYTES)
                except UnusableSource as error:
                    form.add_error(SOURCE_FIELDS[split], error.sentences)


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
