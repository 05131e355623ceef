"""Predictions of the classes of texts, as for images."""

from __future__ import annotations

from digits.kinds.classification.network import targets


class Targets(targets.Targets):
    """Probabilities of the classes of a text."""

    takes_image = False
