"""Targets: the values that a network learns to predict for an image, and that it finds as ``Tower.y``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from digits.core.schema import Count


class TargetSpec(Struct, frozen=True, kw_only=True):
    """The target of a record: an array of ``dtype`` and ``shape``, stored as the record's ``feature``.

    ``names`` are those of the classes, of the numbers, or of the labels. A target with ``classes`` holds class
    indexes, 0 to ``len(names) - 1``; one that is ``multi_hot`` holds 1 for each label of the record, and 0 for the
    others. ``mean`` and ``std`` are those of each number over the train split.
    """

    feature: Annotated[str, Meta(pattern=r"^(?a:[\w/.-]{1,100})\Z")]
    dtype: Literal["float32", "int64"]
    shape: Annotated[list[Count], Meta(max_length=4)] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    classes: bool = False
    multi_hot: bool = False
    mean: list[float] = field(default_factory=list)
    std: list[float] = field(default_factory=list)

    @property
    def outputs(self) -> int:
        """The number of outputs of a network for this target: ``Tower.nclasses``."""
        return len(self.names)

    @property
    def labels(self) -> list[str]:
        """The names of the classes; empty for other targets."""
        return self.names if self.classes else []

    def describe(self, value: Any) -> str:
        """A target in words: the name of the class, the names of the labels, or each number with its name."""
        if self.classes:
            return dict(enumerate(self.names)).get(int(value), "unknown class")
        numbers = [value] if not self.shape else list(value)
        if self.multi_hot and set(numbers) <= {0, 1}:
            found = (name for name, number in zip(self.names, numbers, strict=False) if number)
            return ", ".join(found) or "no labels"
        return ", ".join(f"{name} {number:.6g}" for name, number in zip(self.names, numbers, strict=False))

    def __post_init__(self) -> None:
        """Raise ValueError if the parts contradict each other."""
        if self.classes and (self.dtype != "int64" or not self.names):
            raise ValueError("target: class indexes are int64 and have names")
        if self.multi_hot and (self.dtype != "float32" or self.shape != [len(self.names)]):
            raise ValueError("target: labels are float32, one number for each name")
        if len(self.mean) != len(self.std) or len(self.mean) not in (0, len(self.names)):
            raise ValueError("target: mean and std do not match the names")


def class_index(labels: list[str]) -> TargetSpec:
    """The target of image classification: the index of a class, int64 scalar."""
    return TargetSpec(feature="image/class/label", dtype="int64", names=labels, classes=True)


def numbers(names: list[str], mean: list[float], std: list[float]) -> TargetSpec:
    """The target of regression: one number for each of ``names``, float32 [len(names)]."""
    return TargetSpec(
        feature="target/numbers", dtype="float32", shape=[len(names)], names=names, mean=mean, std=std
    )


def label_set(labels: list[str], mean: list[float], std: list[float]) -> TargetSpec:
    """The target of multi-label classification: zeros and ones, float32 [len(labels)]."""
    return TargetSpec(
        feature="target/labels",
        dtype="float32",
        shape=[len(labels)],
        names=labels,
        multi_hot=True,
        mean=mean,
        std=std,
    )
