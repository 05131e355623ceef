"""Metrics of image classification: networks report their own, such as the accuracy."""

from __future__ import annotations

from digits.kinds import metrics


class Metrics(metrics.Metrics):
    """No further metrics."""
