"""The form of an image-to-image dataset."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from digits.data.record_features import Features
from digits.data.record_files import RecordFiles
from digits.data.tables import Row
from digits.kinds.image_to_image.reader import TARGET
from digits.kinds.image_to_image.recipe import CreateImageToImage
from digits.kinds.pair_form import PairForm
from digits.kinds.pair_records import NO_TARGET, PairMapping, PairRecords, guess
from digits.kinds.pair_source import FoundPairs
from digits.kinds.pair_summary import summarize_pairs
from digits.kinds.pair_tables import PairRows
from digits.kinds.record_summary import summarize_source
from digits.kinds.source_summary import SourceSummary

OWN_TARGETS = "Without target images, each image is its own target."


class DatasetForm(PairForm[CreateImageToImage]):
    """A dataset for image-to-image networks, from a folder of images and, optionally, one of target images."""

    TARGET = TARGET
    NEEDS_TARGETS = CreateImageToImage.needs_targets
    TARGET_FOLDERS = ("targets", "target", "outputs", "output", "labels", "clean")

    def scan_source(self) -> Iterator[SourceSummary]:
        if self.reads_records:
            self.resolved_source()
            source = self.record_source()
            return summarize_source(source, partial(guess, source), partial(_RecordOverview, source))
        if self.reads_table:
            return self.scan_table(_describe_rows)
        folders, suggestion = self.scanned_folders()
        return summarize_pairs(folders, TARGET, _describe, suggestion)

    def recipe(self) -> CreateImageToImage:
        return CreateImageToImage(**self.pair_settings())

    def map_records(self, source: PairRecords, files: RecordFiles, first: Features) -> PairMapping:
        return _RecordOverview(source, files, first)


class _RecordOverview(PairMapping):
    """The images and target images in TFRecord files, and their description."""

    def __init__(self, source: PairRecords, files: RecordFiles, first: Features) -> None:
        super().__init__(source, files, first, TARGET, CreateImageToImage.needs_targets)

    def describe(self, summary: SourceSummary) -> None:
        """Add whether there are targets, and the choice of none."""
        if self.target is None:
            summary.facts.append(OWN_TARGETS)
        first, *names = summary.options["target_feature"]
        if first[0] == "" and names and names[0][0] != NO_TARGET:
            summary.options["target_feature"] = [first, (NO_TARGET, "None: the image itself"), *names]


def _describe(found: FoundPairs, summary: SourceSummary) -> None:
    if not found.folders.has_targets:
        summary.facts.append(OWN_TARGETS)


def _describe_rows(table: PairRows, rows: list[Row[str]], summary: SourceSummary) -> None:
    if table.target == table.image:
        summary.facts.append(OWN_TARGETS)
