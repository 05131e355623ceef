"""Evaluations of predicted slopes, as of other numbers."""

from __future__ import annotations

from digits.kinds.regression.evaluation import Evaluation

__all__ = ["Evaluation"]
