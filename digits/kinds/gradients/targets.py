"""Predictions of gradients: two numbers, as in regression."""

from __future__ import annotations

from digits.kinds.regression.targets import Targets

__all__ = ["Targets"]
