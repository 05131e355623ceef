"""The form of an image-to-image dataset."""

from __future__ import annotations

from collections.abc import Iterator

from digits.kinds.image_to_image.reader import TARGET
from digits.kinds.image_to_image.recipe import CreateImageToImage
from digits.kinds.pair_form import PairForm
from digits.kinds.pair_source import FoundPairs
from digits.kinds.pair_summary import summarize_pairs
from digits.kinds.source_summary import SourceSummary


class DatasetForm(PairForm[CreateImageToImage]):
    """A dataset for image-to-image networks, from a folder of images and, optionally, one of target images."""

    TARGET_FOLDERS = ("targets", "target", "outputs", "output", "labels", "clean")

    def scan_source(self) -> Iterator[SourceSummary]:
        folders, suggestion = self.scanned_folders()
        return summarize_pairs(folders, TARGET, _describe, suggestion)

    def recipe(self) -> CreateImageToImage:
        return CreateImageToImage(**self.pair_settings())


def _describe(found: FoundPairs, summary: SourceSummary) -> None:
    if not found.folders.targets:
        summary.facts.append("Without target images, each image is its own target.")
