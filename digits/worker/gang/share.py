"""Which records of a step each of several workers computes, and each of its devices."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Share:
    """The records from ``first`` up to ``last`` of a step of ``count`` records: those that one worker computes.

    With ``blends``, each image is blended with the one before it, so the worker also needs the record before its first.
    """

    first: int
    last: int
    count: int
    blends: bool = False

    @property
    def fraction(self) -> float:
        return (self.last - self.first) / self.count

    @property
    def positions(self) -> NDArray[np.int64]:
        """The positions in the step of the records that the worker reads."""
        return np.arange(self.first - self.blends, self.last) % self.count

    def divide(self, parts: int, batches: int) -> list[Share]:
        """Divide it into ``parts``, each of which consists of ``batches`` of equal size."""
        size = (self.last - self.first) // batches
        divided = [bounds(size, number, parts) for number in range(parts)]
        return [
            replace(self, first=self.first + first * batches, last=self.first + last * batches)
            for first, last in divided
        ]


def bounds(count: int, rank: int, workers: int) -> tuple[int, int]:
    """Divide ``count`` things among ``workers``: return the first one of ``rank``, and the first one after its own."""
    return count * rank // workers, count * (rank + 1) // workers
