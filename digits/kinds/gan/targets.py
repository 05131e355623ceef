"""Predictions of networks that do not generate images from latent vectors, such as encoders: raw numbers."""

from __future__ import annotations

from digits.kinds.generic.targets import Targets

__all__ = ["Targets"]
