"""Downloads of image-to-image datasets."""

from __future__ import annotations

from digits.data.archives.file_names import numbered_name
from digits.data.images import images
from digits.data.records.records import Record
from digits.kinds.versions.export import Export, File, image_file


class Pairs(Export):
    """Images and target images with the same names."""

    name = "pairs"
    title = "Image pairs"
    contents = "One folder per split, with input images and target images of the same names in two folders."

    def convert(self, split: str, number: int, record: Record) -> list[File]:
        name = numbered_name(number, record.source)
        target = images.encode(record.target(self.manifest.target), "png")
        return [image_file(f"{split}/images/{name}", record), (f"{split}/targets/{name}.png", target)]


FORMATS = (Pairs,)
