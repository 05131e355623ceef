"""Images with a target image each, such as a mask, in TFRecord files."""

from __future__ import annotations

from typing import cast

from msgspec import structs

from digits.data.images.images import UnusableImage
from digits.data.records.features import ExampleFeatures, ImageFeature, guess_target_image
from digits.data.records.files import RecordFiles
from digits.data.records.tfrecords import TFRecordImages
from digits.data.sources.plan import Progress
from digits.data.sources.target_images import TargetImageSplit
from digits.data.tables.tables import SourceNotes
from digits.kinds.sources.records import NO_TARGET, RecordMapping, divide_records, need_feature, read_records
from digits.kinds.sources.target_image_recipe import CreateWithTargetImages, TargetImageRecords


class TargetImageMapping(RecordMapping):
    """How the records of ``files`` become images with the ``target``, None if they are their own targets."""

    FEATURES = RecordMapping.FEATURES | {"target_feature": "target_feature"}

    def __init__(
        self,
        recipe: CreateWithTargetImages,
        source: TargetImageRecords,
        files: RecordFiles,
        first: ExampleFeatures,
    ) -> None:
        super().__init__(recipe, source, files, first)
        self.target: ImageFeature | None = None
        if recipe.needs_targets or source.target_feature not in ("", NO_TARGET):
            name = need_feature(first, source.target_feature, f"a {recipe.target_word}")
            self.target = ImageFeature.of(name, first, tuple(source.shape[:2]))

    @staticmethod
    def none(recipe: CreateWithTargetImages) -> dict[str, str]:
        return {} if recipe.needs_targets else {"target_feature": "None: the image itself"}

    @classmethod
    def propose(
        cls, source: TargetImageRecords, files: RecordFiles, first: ExampleFeatures
    ) -> TargetImageRecords:
        source = super().propose(source, files, first)
        target = source.target_feature or guess_target_image(first, source.image_feature)
        return structs.replace(source, target_feature=target)

    def read(self, features: ExampleFeatures) -> None:
        """Raise ValueError with a message if a record has no target."""
        if self.target is not None and self.target.name not in features:
            raise UnusableImage(f"it has no feature “{self.target.name}”")


def plan_records(
    recipe: CreateWithTargetImages, progress: Progress, notes: SourceNotes
) -> dict[str, TargetImageSplit]:
    """Return the splits of ``recipe.records``, with the names of the records as targets; raises UnusableSource.

    Skipped records are added to ``notes``.
    """
    mapping, files = read_records(recipe, TargetImageMapping, progress, notes)
    splits = {}
    for name, split in files.items():
        images = cast(TFRecordImages, split.images)
        target_images = TFRecordImages(
            images.root, mapping.target or images.image, images.offsets, images.compressed
        )
        splits[name] = TargetImageSplit(
            images, split.files, list(split.files), source=split.source, target_images=target_images
        )
    return divide_records(splits, recipe)
