"""The latest predictions, in memory, so that users can switch between views without predicting again."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from dataclasses import dataclass

from digits.core.errors import NotFound
from digits.kinds.predictions.rendering import Prediction

MAX_PREDICTIONS = 200
MAX_BYTES = 128 << 20


@dataclass(frozen=True)
class Recent:
    """A prediction of the model job ``job_id`` with the snapshot of this name for users, in ``milliseconds``.

    ``truth`` is the target of the record that it is for, in words.
    """

    job_id: str
    prediction: Prediction
    snapshot: str
    milliseconds: float
    truth: str = ""


class RecentPredictions:
    """At most `MAX_PREDICTIONS` predictions with at most ``max_bytes``, the latest ones, by random names."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._found: OrderedDict[str, Recent] = OrderedDict()
        self._free = max_bytes

    def add(self, recent: Recent) -> str:
        """Return the name of a prediction, which may have been dropped already if it is too large."""
        name = secrets.token_urlsafe(12)
        self._found[name] = recent
        self._free -= recent.prediction.nbytes
        while self._found and (self._free < 0 or len(self._found) > MAX_PREDICTIONS):
            self._free += self._found.popitem(last=False)[1].prediction.nbytes
        return name

    def __contains__(self, name: str) -> bool:
        return name in self._found

    def get(self, name: str) -> Recent:
        """Return the prediction of this name; raises NotFound."""
        try:
            return self._found[name]
        except KeyError:
            raise NotFound(
                "The server no longer has this prediction.", "Predict from the image again."
            ) from None
