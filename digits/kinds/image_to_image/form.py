"""The form of an image-to-image dataset."""

from __future__ import annotations

from digits.data.records.features import ExampleFeatures
from digits.data.tables.tables import Row
from digits.kinds.forms.records import Records
from digits.kinds.forms.source import method_field
from digits.kinds.forms.summary import SourceSummary
from digits.kinds.forms.target_images import Folders, Table, TargetImageForm
from digits.kinds.image_to_image.recipe import CreateImageToImage
from digits.kinds.sources.target_image_recipe import TargetImageRecords
from digits.kinds.sources.target_image_records import TargetImageMapping
from digits.kinds.sources.target_image_tables import TargetImageRows
from digits.kinds.sources.target_images import FoundTargetImages

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
