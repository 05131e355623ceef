"""Images and numbers in TFRecord files."""

from __future__ import annotations

from digits.data.record_features import FLOATS, Features, NumberFeature, guess_image, guess_target, values_of
from digits.data.record_files import RecordFiles
from digits.data.sources import Progress, SplitPlan, Unusable, UnusableSource, listed
from digits.kinds.record_source import RecordSplits, first_record, need_feature
from digits.kinds.regression.recipe import LARGEST_NUMBER, MAX_TARGETS, NumberRecords


class NumberMapping:
    """How the records of ``files`` become images with numbers; ``names`` are those of the numbers.

    Without names of features in ``source``, all floats of the ``first`` record are targets, or else the integers that
    are most probably one. Raises UnusableSource.
    """

    def __init__(self, source: NumberRecords, files: RecordFiles, first: Features) -> None:
        self.image = source.map_image(files, first)
        targets = source.target_features or _guess_targets(first, self.image.name)
        if not targets:
            need_feature(first, "", "", "a number")
        try:
            self._features = [
                NumberFeature.of(need_feature(first, name, "", "a number"), first) for name in targets
            ]
        except ValueError as error:
            raise UnusableSource(
                f"The first record cannot be used: {error}.", "Choose other targets."
            ) from None
        self.names = [name for feature in self._features for name in _names_of(feature)]
        if len(self.names) > MAX_TARGETS:
            raise UnusableSource(
                f"{listed(targets)} contain {len(self.names):,} numbers per image.",
                f"Use at most {MAX_TARGETS}.",
            )
        self.chosen = {"image_feature": self.image.name, "target_columns": ", ".join(targets)}

    def read(self, features: Features) -> list[float]:
        """Return the numbers of a record; raises ValueError with a message."""
        found = [float(value) for feature in self._features for value in feature.read(features).ravel()]
        for name, value in zip(self.names, found, strict=True):
            if abs(value) > LARGEST_NUMBER:
                raise ValueError(f"{value:g} is out of range ({name})")
        return found


def guess(source: NumberRecords, files: RecordFiles, first: Features) -> dict[str, str]:
    """Return the feature that each field of the form has by default, or an empty string."""
    return {"image_feature": files.image or guess_image(first)}


def _guess_targets(first: Features, image: str) -> list[str]:
    floats = [name for name in sorted(first) if name != image and values_of(first, name)[0] == FLOATS]
    target = guess_target(first, image)
    return floats or ([target] if target else [])


def _names_of(feature: NumberFeature) -> list[str]:
    if not feature.shape:
        return [feature.name]
    return [f"{feature.name} {number}" for number in range(1, feature.shape[0] + 1)]


def read(
    source: NumberRecords, max_unusable_percent: float, progress: Progress, unusable: list[Unusable]
) -> tuple[dict[str, SplitPlan], list[str]]:
    """Return the records of each split with their numbers, and the names of the numbers; raises UnusableSource.

    Skipped records are added to ``unusable``.
    """
    files = source.find()
    mapping = NumberMapping(source, files, first_record(files.splits["train"]))
    records = RecordSplits(files, mapping.image, mapping.read, max_unusable_percent)
    found = {name: records.collect(name, progress) for name in files.splits}
    unusable += records.unusable
    splits = {
        name: SplitPlan(records.images(name), names, values, source=records.describe(name))
        for name, (names, values) in found.items()
    }
    return splits, mapping.names
