"""Images with a target image each, such as a mask, in TFRecord files."""

from __future__ import annotations

from typing import cast

from digits.data.images.images import UnusableImage
from digits.data.records.features import ExampleFeatures, ImageFeature, guess_image, guess_target_image
from digits.data.records.files import RecordFiles
from digits.data.records.tfrecords import TFRecordImages
from digits.data.sources.plan import Progress
from digits.data.sources.target_images import TargetImageSplit
from digits.data.tables.tables import SourceNotes
from digits.kinds.sources.records import NO_TARGET, RecordMapping, divide_records, need_feature, read_records
from digits.kinds.sources.target_image_recipe import CreateWithTargetImages


class TargetImageMapping(RecordMapping):
    """How the records of ``files`` become images with the ``target``, None if they are their own targets."""

    def __init__(self, recipe: CreateWithTargetImages, files: RecordFiles, first: ExampleFeatures) -> None:
        super().__init__(recipe, files, first)
        assert recipe.records is not None
        named = recipe.records.target_feature
        self.target: ImageFeature | None = None
        guess = guess_target_image(first, self.image.name)
        if recipe.needs_targets or named not in ("", NO_TARGET) or (guess and not named):
            chosen = "" if named == NO_TARGET else named
            name = need_feature(first, chosen, guess, f"a {recipe.target_word}")
            self.target = ImageFeature.of(name, first, tuple(recipe.records.shape[:2]))
            self.chosen["target_feature"] = name

    @staticmethod
    def none(recipe: CreateWithTargetImages) -> dict[str, str]:
        return {} if recipe.needs_targets else {"target_feature": "None: the image itself"}

    @staticmethod
    def guess(recipe: CreateWithTargetImages, files: RecordFiles, first: ExampleFeatures) -> dict[str, str]:
        image = files.image or guess_image(first)
        named = recipe.records.image_feature if recipe.records else ""
        return {"image_feature": image, "target_feature": guess_target_image(first, named or image)}

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
