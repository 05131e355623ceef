"""Downloads of images for GANs."""

from __future__ import annotations

from digits.data.archives.file_names import numbered_name
from digits.data.records.records import Record
from digits.kinds.versions.export import Export, File, image_file


class Attributes(Export):
    """Images and, if they have attributes, a file in the format of CelebA."""

    name = "celeba"
    title = "Images and attributes"
    contents = "A folder of images, and an attributes file in the format of CelebA if there are attributes."

    def convert(self, split: str, number: int, record: Record) -> list[File]:
        file = image_file(f"{split}/{numbered_name(number, record.source)}", record)
        names = self.manifest.target.names
        if names:
            flags = ["1" if value else "-1" for value in record.target(self.manifest.target)]
            lines = self.lines(f"{split}.txt")
            if not lines.tell():
                lines.write(f"{self.manifest.splits[split].count}\n{' '.join(names)}\n".encode())
            lines.write(f"{file[0]} {' '.join(flags)}\n".encode())
        return [file]


FORMATS = (Attributes,)
