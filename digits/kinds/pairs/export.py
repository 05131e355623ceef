"""Downloads of datasets of image pairs."""

from __future__ import annotations

import numpy as np

from digits.data.images import images
from digits.data.records.records import Record
from digits.kinds.pairs.reader import NAMES
from digits.kinds.versions.export import Export, File


class PairTable(Export):
    """Both images of each pair, and a CSV file of the pairs."""

    name = "csv"
    title = "Images and CSV"
    contents = (
        "One folder of images per split, and a CSV file that lists the two images and the label of each pair."
    )

    def convert(self, split: str, number: int, record: Record) -> list[File]:
        parts = np.split(record.as_array(), 2, axis=2)
        label = int(record.target(self.manifest.target))
        files = [
            (f"{split}/{number:06d}_{side}.png", images.encode(pixels, "png"))
            for side, pixels in zip(("first", "second"), parts, strict=True)
        ]
        names = [name for name, _ in files]
        self.table(f"{split}.csv", ["first", "second", "label"]).add([*names, NAMES[label]])
        return files


FORMATS = (PairTable,)
