"""Metrics of GANs: those that the network reports."""

from __future__ import annotations

from digits.kinds.generic.metrics import Metrics

__all__ = ["Metrics"]
