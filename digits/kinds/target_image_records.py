"""Images with a target image each, such as a mask, in TFRecord files."""

from __future__ import annotations

from digits.data.images import UnusableImage
from digits.data.record_features import Features, ImageFeature, guess_image, guess_target_image
from digits.data.record_files import RecordFiles
from digits.data.shares import CreateWithShares
from digits.data.sources import Progress, Unusable
from digits.data.target_images import TargetImageSplit
from digits.data.tfrecords import RecordImages
from digits.kinds.record_source import (
    NO_TARGET,
    RecordSource,
    RecordSplits,
    divide_records,
    first_record,
    need_feature,
)


class TargetImageRecords(RecordSource, kw_only=True, frozen=True):
    """TFRecord files with an image and the target image ``target_feature`` each.

    An empty feature is detected; with `NO_TARGET`, images are their own targets.
    """

    target_feature: str = ""


class TargetImageMapping:
    """How the records of ``files`` become images with the ``target``, None if they are their own targets.

    ``word`` is the word for a target image, which is required if ``is_required``. Raises UnusableSource.
    """

    def __init__(
        self, source: TargetImageRecords, files: RecordFiles, first: Features, word: str, is_required: bool
    ) -> None:
        self.image = source.map_image(files, first)
        self.target: ImageFeature | None = None
        self.chosen = {"image_feature": self.image.name}
        guess = guess_target_image(first, self.image.name)
        if (
            is_required
            or source.target_feature not in ("", NO_TARGET)
            or (guess and not source.target_feature)
        ):
            chosen = "" if source.target_feature == NO_TARGET else source.target_feature
            name = need_feature(first, chosen, guess, f"a {word}")
            self.target = ImageFeature.of(name, first, tuple(source.shape[:2]))
            self.chosen["target_feature"] = name

    def check(self, features: Features) -> None:
        """Raise ValueError with a message if a record has no target."""
        if self.target is not None and self.target.name not in features:
            raise UnusableImage(f"it has no feature “{self.target.name}”")


def guess(source: TargetImageRecords, files: RecordFiles, first: Features) -> dict[str, str]:
    """Return the feature that each field of the form has by default, or an empty string."""
    image = files.image or guess_image(first)
    return {
        "image_feature": image,
        "target_feature": guess_target_image(first, source.image_feature or image),
    }


def plan_records(
    recipe: CreateWithShares,
    source: TargetImageRecords,
    progress: Progress,
    *,
    word: str,
    is_required: bool,
    unusable: list[Unusable],
) -> dict[str, TargetImageSplit]:
    """Return the splits of ``source``, with the names of the records as targets; raises UnusableSource.

    Skipped records are added to ``unusable``.
    """
    files = source.find()
    recipe.shares(files.splits)
    mapping = TargetImageMapping(source, files, first_record(files.splits["train"]), word, is_required)
    records = RecordSplits(files, mapping.image, mapping.check, recipe.max_unusable_percent)
    names = {split: records.collect(split, progress)[0] for split in files.splits}
    unusable += records.unusable
    splits = {}
    for split, found in names.items():
        images = records.images(split)
        target = mapping.target or images.image
        splits[split] = TargetImageSplit(
            images,
            found,
            list(found),
            source=records.describe(split),
            target_images=RecordImages(images.root, target, images.offsets, images.compressed),
        )
    return divide_records(splits, recipe)
