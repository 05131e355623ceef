"""The form of an image-to-image dataset."""

from __future__ import annotations

from collections.abc import Iterator

from digits.data.record_features import Features
from digits.data.record_files import RecordFiles
from digits.data.tables import Row
from digits.kinds.image_to_image.reader import TARGET
from digits.kinds.image_to_image.recipe import CreateImageToImage
from digits.kinds.source_summary import SourceSummary
from digits.kinds.target_image_form import TargetImageForm
from digits.kinds.target_image_records import TargetImageMapping, TargetImageRecords, guess
from digits.kinds.target_image_source import FoundTargetImages
from digits.kinds.target_image_summary import TargetImageOverview
from digits.kinds.target_image_tables import TargetImageRows

OWN_TARGETS = "Without target images, each image is its own target."


class DatasetForm(TargetImageForm[CreateImageToImage]):
    """A dataset for image-to-image networks, from a folder of images and, optionally, one of target images."""

    TARGET = TARGET
    NEEDS_TARGETS = CreateImageToImage.needs_targets
    TARGET_FOLDERS = ("targets", "target", "outputs", "output", "labels", "clean")

    def scan_source(self) -> Iterator[SourceSummary]:
        if self.reads_records:
            return self.scan_records(guess, _RecordOverview, {"target_feature": "None: the image itself"})
        if self.reads_table:
            return self.scan_table(_describe_rows)
        folders, suggestion = self.scanned_folders()
        return TargetImageOverview(folders, TARGET, _describe, suggestion).summaries()

    def recipe(self) -> CreateImageToImage:
        return CreateImageToImage(**self.target_image_settings())

    def map_records(
        self, source: TargetImageRecords, files: RecordFiles, first: Features
    ) -> TargetImageMapping:
        return _RecordOverview(source, files, first)


class _RecordOverview(TargetImageMapping):
    """The images and target images in TFRecord files, and their description."""

    def __init__(self, source: TargetImageRecords, files: RecordFiles, first: Features) -> None:
        super().__init__(source, files, first, TARGET, CreateImageToImage.needs_targets)

    def describe(self, summary: SourceSummary) -> None:
        """Add whether there are targets."""
        if self.target is None:
            summary.facts.append(OWN_TARGETS)


def _describe(found: FoundTargetImages, summary: SourceSummary) -> None:
    if not found.folders.has_targets:
        summary.facts.append(OWN_TARGETS)


def _describe_rows(table: TargetImageRows, rows: list[Row[str]], summary: SourceSummary) -> None:
    if table.target == table.image:
        summary.facts.append(OWN_TARGETS)
