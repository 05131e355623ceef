"""Pages and JSON of text classification."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from digits.core.errors import BadRequest
from digits.data.manifest import Manifest
from digits.data.records.records import Record
from digits.data.tables.tables import Dialect
from digits.data.tables.text_rows import MAX_UPLOADED_LINES, open_upload, parse_rows, read_lines
from digits.kinds.classification.views import Views as ClassificationViews
from digits.kinds.text.characters import Encoding
from digits.kinds.text.reader import TEXT_FEATURE, usable_rows
from digits.kinds.views import InputRecord, InputRequest

# The files of the fields `test_data_file`, a table like that of the dataset, and `text_list_file`, one text per line.
TEXTS = "test_data"
LINES = "text_list"


class Views(ClassificationViews):
    """Classes and texts."""

    guide = "text.md"
    invitation = "Assign each text to one class, such as its topic or language. From CSV files."
    infer_title = "Classify a text"
    record = "text"
    records = "texts"
    shows_images = False
    checks_appearance = False
    # The pixels are indexes of characters.
    transformations = ()
    has_input = True
    has_inputs = True
    takes_image = False

    def tiles(self, manifest: Manifest) -> list[tuple[str, str]]:
        return [*super().tiles(manifest), ("Characters per text", f"{manifest.width:,}")]

    def draw_record(self, recipe: Any, record: Record) -> dict[str, Any]:
        texts = [text for text in record.features.get(TEXT_FEATURE, []) if isinstance(text, bytes)]
        return {"text": texts[0].decode("utf-8", "replace") if texts else ""}

    def separate_of(self, recipe: Any) -> dict[str, Any]:
        return {"val": recipe.val_table, "test": recipe.test_table}

    def describe_input(self, manifest: Manifest) -> str:
        return f"{manifest.width:,} characters"

    def describe_dataset(self, manifest: Manifest) -> str:
        return f"{super().describe_dataset(manifest)} of texts"

    def read_input(self, recipe: Any, request: InputRequest) -> NDArray[np.uint8]:
        text = " ".join(request.fields.get("snippet", "").split())
        if not text:
            raise BadRequest("Enter a text.", "The field is “snippet”.")
        return Encoding(recipe.alphabet, recipe.width).encode(text)

    def read_inputs(self, recipe: Any, request: InputRequest) -> Iterable[InputRecord] | None:
        encoding = Encoding(recipe.alphabet, recipe.width)
        texts: Iterator[tuple[str, str]]
        if LINES in request.files:
            texts = ((text, "") for text in _lines(request.files[LINES]))
        elif TEXTS in request.files:
            texts = _cells(request.files[TEXTS], recipe.dialect)
        else:
            return None
        return (InputRecord(text, encoding.encode(text), label) for text, label in texts)

    def dataset_json(self, manifest: Manifest) -> dict[str, Any]:
        return {**super().dataset_json(manifest), "max_chars_per_sample": manifest.width}


def _lines(file: bytes | Path) -> Iterator[str]:
    """Yield the lines of a text file that are not blank; raises UnusableSource."""
    name = f"{LINES}_file"
    with open_upload(file, name) as opened:
        yield from read_lines(opened, name)


def _cells(file: bytes | Path, dialect: Dialect) -> Iterator[tuple[str, str]]:
    """Yield the texts in a table and their classes, which are empty without a column of classes."""
    name = f"{TEXTS}_file"
    with open_upload(file, name) as opened:
        rows = parse_rows(opened, name, dialect.delimiter, max_lines=MAX_UPLOADED_LINES)
        for row in usable_rows(rows, dialect):
            yield (row.text, row.label) if len(row.cells) > 1 else (row.label, "")
