"""The form of an image-to-image dataset."""

from __future__ import annotations

from digits.data.record_features import ExampleFeatures
from digits.data.tables import Row
from digits.kinds.form_source import method_field
from digits.kinds.image_to_image.recipe import CreateImageToImage
from digits.kinds.record_form import Records
from digits.kinds.source_summary import SourceSummary
from digits.kinds.target_image_form import Folders, Table, TargetImageForm
from digits.kinds.target_image_recipe import TargetImageRecords
from digits.kinds.target_image_records import TargetImageMapping
from digits.kinds.target_image_source import FoundTargetImages
from digits.kinds.target_image_tables import TargetImageRows

OWN_TARGETS = "Without target images, each image is its own target."


class _RecordOverview(TargetImageMapping):
    """The images and target images in TFRecord files, and their description."""

    def check(self, features: ExampleFeatures) -> None:
        """Raise ValueError with a message if a record has no target."""
        self.read(features)

    def describe(self, summary: SourceSummary) -> None:
        """Add whether there are targets."""
        if self.target is None:
            summary.facts.append(OWN_TARGETS)


def _describe(recipe: CreateImageToImage, pairs: FoundTargetImages, summary: SourceSummary) -> None:
    if not pairs.folders.has_targets:
        summary.facts.append(OWN_TARGETS)


def _describe_rows(
    recipe: CreateImageToImage, table: TargetImageRows, rows: list[Row[str]], summary: SourceSummary
) -> None:
    if not table.has_targets:
        summary.facts.append(OWN_TARGETS)


class DatasetForm(TargetImageForm[CreateImageToImage]):
    """A dataset for image-to-image networks, from a folder of images and, optionally, one of target images."""

    RECIPE = CreateImageToImage
    SOURCES = (
        Folders(("targets", "target", "outputs", "output", "labels", "clean"), _describe),
        Table(_describe_rows),
        Records(
            TargetImageRecords,
            _RecordOverview,
            none={"target_feature": "None: the image itself"},
        ),
    )

    method = method_field(SOURCES)
