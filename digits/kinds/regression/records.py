"""Images and numbers in TFRecord files."""

from __future__ import annotations

from digits.data.records.features import FLOATS, ExampleFeatures, NumberFeature, guess_target, values_of
from digits.data.records.files import RecordFiles
from digits.data.sources.plan import UnusableSource, listed
from digits.kinds.regression.recipe import LARGEST_NUMBER, MAX_TARGETS, CreateRegression
from digits.kinds.sources.records import RecordMapping, need_feature


class NumberMapping(RecordMapping):
    """How the records of ``files`` become images with numbers; ``names`` are those of the numbers.

    Without names of features, all floats of the ``first`` record are targets, or else the integers that
    are most probably one. Raises UnusableSource.
    """

    def __init__(self, recipe: CreateRegression, files: RecordFiles, first: ExampleFeatures) -> None:
        super().__init__(recipe, files, first)
        source = recipe.records
        assert source is not None
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
        self.chosen["target_columns"] = ", ".join(targets)

    def read(self, features: ExampleFeatures) -> list[float]:
        """Return the numbers of a record; raises ValueError with a message."""
        numbers = [float(value) for feature in self._features for value in feature.read(features).ravel()]
        for name, value in zip(self.names, numbers, strict=True):
            if abs(value) > LARGEST_NUMBER:
                raise ValueError(f"{value:g} is out of range ({name})")
        return numbers


def _guess_targets(first: ExampleFeatures, image: str) -> list[str]:
    floats = [name for name in sorted(first) if name != image and values_of(first, name)[0] == FLOATS]
    target = guess_target(first, image)
    return floats or ([target] if target else [])


def _names_of(feature: NumberFeature) -> list[str]:
    if not feature.shape:
        return [feature.name]
    return [f"{feature.name} {number}" for number in range(1, feature.shape[0] + 1)]
