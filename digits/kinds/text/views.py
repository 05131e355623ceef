"""Pages and JSON of text classification."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from digits.core.errors import BadRequest
from digits.data.manifest import Manifest
from digits.data.records import Record
from digits.data.tables import Dialect
from digits.kinds.classification.views import Views as ClassificationViews
from digits.kinds.text.characters import Encoding
from digits.kinds.text.lines import parse_rows, read_rows
from digits.kinds.text.reader import TEXT_FEATURE, usable_rows
from digits.kinds.views import InputRequest

# The file of the field `test_data_file`.
TEXTS = "test_data"


class Views(ClassificationViews):
    """Classes and texts."""

    invitation = "Assign each text to one class, such as its topic or language. From CSV files."
    infer_title = "Classify a text"
    record = "text"
    records = "texts"
    shows_images = False
    checks_appearance = False
    # The pixels are indexes of characters.
    transformations = ()
    has_input = True
    takes_image = False

    def tiles(self, manifest: Manifest) -> list[tuple[str, str]]:
        return [*super().tiles(manifest), ("Characters per text", f"{manifest.width:,}")]

    def draw_record(self, recipe: Any, record: Record) -> dict[str, Any]:
        found = [text for text in record.features.get(TEXT_FEATURE, []) if isinstance(text, bytes)]
        return {"text": found[0].decode("utf-8", "replace") if found else ""}

    def describe_input(self, manifest: Manifest) -> str:
        return f"{manifest.width:,} characters"

    def describe_dataset(self, manifest: Manifest) -> str:
        return f"{super().describe_dataset(manifest)} of texts"

    def read_input(self, recipe: Any, request: InputRequest) -> NDArray[np.uint8]:
        text = " ".join(request.fields.get("snippet", "").split())
        if not text:
            raise BadRequest("Enter a text.", "The field is “snippet”.")
        return Encoding(recipe.alphabet, recipe.width).encode(text)

    def read_inputs(self, recipe: Any, request: InputRequest) -> Iterable[NDArray[np.uint8]] | None:
        file = request.files.get(TEXTS)
        if file is None:
            return None
        dialect: Dialect = recipe.dialect
        if isinstance(file, bytes):
            rows = parse_rows(io.BytesIO(file), f"{TEXTS}_file", dialect.delimiter)
        else:
            rows = read_rows(file, dialect.delimiter)
        encoding = Encoding(recipe.alphabet, recipe.width)
        # Without classes, the texts are in the first column.
        texts = (row.text if len(row.cells) > 1 else row.label for row in usable_rows(rows, dialect))
        return map(encoding.encode, texts)

    def dataset_json(self, manifest: Manifest) -> dict[str, Any]:
        return {**super().dataset_json(manifest), "max_chars_per_sample": manifest.width}
