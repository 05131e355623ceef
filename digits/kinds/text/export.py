"""Downloads of text datasets."""

from __future__ import annotations

from digits.data.records.index import DamagedRecords
from digits.data.records.records import Record
from digits.kinds.text.reader import TEXT_FEATURE
from digits.kinds.versions.export import Export, File


class Texts(Export):
    """One CSV file of classes and texts per split."""

    name = "csv"
    title = "CSV"
    contents = "One CSV file of classes and texts per split."

    def convert(self, split: str, number: int, record: Record) -> list[File]:
        target = self.manifest.target
        texts = record.features.get(TEXT_FEATURE, ())
        label = int(record.target(target))
        if not texts or not isinstance(texts[0], bytes) or not 0 <= label < len(target.names):
            raise DamagedRecords(f"record of {record.filename!r} has no text or class")
        row = [target.names[label], texts[0].decode("utf-8", "replace")]
        self.table(f"{split}.csv", ["class", "text"]).add(row)
        return []


FORMATS = (Texts,)
