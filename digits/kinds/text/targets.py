"""Predictions of the classes of texts, as for images."""

from __future__ import annotations

from digits.kinds.classification.targets import Targets

__all__ = ["Targets"]
