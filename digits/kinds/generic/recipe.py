"""The recipe of a dataset of ready-made TFRecord files."""

from __future__ import annotations

from typing import Literal

from msgspec import field

from digits.core.schema import Positive
from digits.data.sources.shares import CreateWithShares


class CreateGeneric(CreateWithShares, kw_only=True):
    """Read an input and optionally a target from each record of TFRecord files.

    ``train``, ``val`` and ``test`` are paths of files, folders or patterns: see `digits.data.records.files`.

    ``input_feature`` is an image, or numbers of the shape ``input_shape``; ``target_feature`` are numbers of the shape
    ``target_shape``, or "-" for no target. Empty ones are detected. Inputs are float32 arrays of ``shape`` (height,
    width, channels), or else images, which must all have the same size, unless they are resized because of ``resize``.
    """

    kind: str = "generic"
    train: str
    val: str = ""
    test: str = ""
    input_feature: str = ""
    input_shape: list[Positive] = field(default_factory=list)
    target_feature: str = ""
    target_shape: list[Positive] = field(default_factory=list)
    dtype: Literal["uint8", "float32"] = "uint8"
    shape: list[Positive] = field(default_factory=list)
    resize: bool = False


Recipe = CreateGeneric
