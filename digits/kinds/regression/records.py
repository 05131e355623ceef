"""Images and numbers in TFRecord files."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from digits.data.records.features import FLOATS, ExampleFeatures, NumberFeature, guess_target, values_of
from digits.data.records.files import RecordFiles
from digits.data.sources.plan import UnusableSource, listed
from digits.kinds.regression.recipe import LARGEST_NUMBER, MAX_TARGETS, NumberRecords
from digits.kinds.sources.records import RecordMapping, need_feature


class NumberMapping(RecordMapping):
    """How the records of ``files`` become images with numbers; ``names`` are those of the numbers."""

    FEATURES = RecordMapping.FEATURES | {"target_features": "target_columns"}

    def __init__(
        self, recipe: Any, source: NumberRecords, files: RecordFiles, first: ExampleFeatures
    ) -> None:
        super().__init__(recipe, source, files, first)
        targets = source.target_features or [""]
        try:
            self._features = [
                NumberFeature.of(need_feature(first, name, "a number"), first) for name in targets
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

    def read(self, features: ExampleFeatures) -> list[float]:
        """Return the numbers of a record; raises ValueError with a message."""
        numbers = [float(value) for feature in self._features for value in feature.read(features).ravel()]
        for name, value in zip(self.names, numbers, strict=True):
            if abs(value) > LARGEST_NUMBER:
                raise ValueError(f"{value:g} is out of range ({name})")
        return numbers

    @classmethod
    def propose(cls, source: NumberRecords, files: RecordFiles, first: ExampleFeatures) -> NumberRecords:
        """Propose all floats as targets, or else the integers that are most probably one."""
        source = super().propose(source, files, first)
        image = source.image_feature
        floats = [name for name in sorted(first) if name != image and values_of(first, name)[0] == FLOATS]
        found = source.target_features or floats or list(filter(None, [guess_target(first, image)]))
        return structs.replace(source, target_features=found)


def _names_of(feature: NumberFeature) -> list[str]:
    if not feature.shape:
        return [feature.name]
    return [f"{feature.name} {number}" for number in range(1, feature.shape[0] + 1)]
