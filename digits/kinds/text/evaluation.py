"""Evaluations of text classifiers, as for images."""

from __future__ import annotations

from digits.kinds.classification.evaluation import Evaluation

__all__ = ["Evaluation"]
