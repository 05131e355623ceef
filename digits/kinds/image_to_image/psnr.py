"""The scale of the peak signal-to-noise ratio (PSNR)."""

from __future__ import annotations

# The PSNR of an image that equals its target, in dB.
MAX_PSNR = 100.0
