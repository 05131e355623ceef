"""Metrics of text classification: those of image classification."""

from __future__ import annotations

from digits.kinds.classification.metrics import Metrics

__all__ = ["Metrics"]
