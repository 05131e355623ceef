"""The types and shapes of a dataset's features, for other programs that read its records."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from digits.data.records.records import Record, all_features
from digits.data.targets.target import Target

_BYTES, _INTEGERS, _FLOATS = "string", "int64", "float32"


@dataclass
class FeatureShapes:
    """The types of the features seen so far, and the number of values in each; None if that differs."""

    types: dict[str, str] = field(default_factory=dict)
    lengths: dict[str, int | None] = field(default_factory=dict)
    _seen: set[tuple[Any, ...]] = field(default_factory=set, compare=False, repr=False)

    def add(self, record: Record) -> None:
        """Add the features of a record."""
        # Most records of a dataset have the same features as an earlier one.
        own = record.features
        names_and_lengths = (bool(record.source_mode), *own, *map(len, own.values()))
        if names_and_lengths in self._seen:
            return
        self._seen.add(names_and_lengths)
        for name, values in all_features(record).items():
            if len(values):
                self.types.setdefault(name, _type_of(values[0]))
            self._add_length(name, len(values))

    def merge(self, other: FeatureShapes) -> None:
        """Merge the features that ``other`` has seen."""
        self.types = other.types | self.types
        for name, length in other.lengths.items():
            self._add_length(name, length)

    def _add_length(self, name: str, length: int | None) -> None:
        if self.lengths.setdefault(name, length) != length:
            self.lengths[name] = None

    def as_json(self, target: Target) -> dict[str, Any]:
        """Return the dtype and shape of each feature as TensorFlow names them.

        The shape of a single value is ``[]``. A length that differs between records is ``null``:
        `tf.io.VarLenFeature` reads such a feature, `tf.io.FixedLenFeature` the others.
        """
        return {
            name: {"dtype": self.types.get(name, _BYTES), "shape": self._shape(name, target)}
            for name in sorted(self.lengths)
        }

    def _shape(self, name: str, target: Target) -> list[int | None]:
        length = self.lengths[name]
        shape = target.stored_shape if name == target.feature else []
        if shape and math.prod(shape) == length:
            return list(shape)
        return [] if length == 1 else [length]


def _type_of(value: Any) -> str:
    if isinstance(value, bytes):
        return _BYTES
    return (
        _FLOATS
        if isinstance(value, float) or getattr(value, "dtype", None) in ("float32", "float64")
        else _INTEGERS
    )
