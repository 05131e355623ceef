"""Metrics of gradients: those of regression."""

from __future__ import annotations

from digits.kinds.regression.metrics import Metrics

__all__ = ["Metrics"]
