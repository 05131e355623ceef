"""Predictions of gradients: two numbers, as of regression."""

from __future__ import annotations

from digits.kinds.regression.targets import Targets

__all__ = ["Targets"]
