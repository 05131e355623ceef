"""The weights that a training starts from: finding them, loading them, and reporting which variables are frozen."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from functools import cached_property
from pathlib import Path

import tensorflow as tf

from digits.core import recipe as recipes
from digits.core.events import EventLog, Progressed, ReportInterval, Warned, WeightsLoaded
from digits.data import pretrained
from digits.data.pretrained import WeightsPlaces
from digits.data.pretrained_catalog import CATALOG, PREFIX, Pretrained
from digits.worker.failure import UserFault
from digits.worker.network.variables import VariableStore
from digits.worker.training import restore
from digits.worker.training.restore import Frozen, Source

PROGRESS_SECONDS = 0.5
log = logging.getLogger(__name__)


class InitialWeights:
    """The weights in ``recipe``: a path, or an entry of the catalog, which is downloaded when it is first needed.

    ``path`` is None for no weights and for an entry of the catalog.
    """

    def __init__(self, recipe: recipes.Train, events: EventLog) -> None:
        self._recipe, self._events = recipe, events
        name = recipe.weights or ""
        self._entry = _entry(name.removeprefix(PREFIX)) if name.startswith(PREFIX) else None
        self.path = Path(name) if name and self._entry is None else None

    @property
    def is_given(self) -> bool:
        """Whether the training starts from weights."""
        return bool(self._recipe.weights)

    @property
    def title(self) -> str:
        """The source of the weights, for the user."""
        if self._entry:
            return f"ImageNet weights of {self._entry.title}"
        return self.path.name if self.path else ""

    @cached_property
    def source(self) -> Source:
        """The values. Raises UserFault if they are missing or unreadable."""
        if self._entry is None:
            assert self.path is not None
            return restore.open_source(self.path)
        return restore.open_application(self._obtain(self._entry), self._entry)

    def trunk(self, variables: Mapping[str, tf.Variable]) -> list[str]:
        """Return the names of ``variables`` that have a value in the weights. Raises UserFault if none has."""
        names = restore.names_in(self.source, variables)
        if not names:
            raise UserFault(
                f"The weights {self.title} do not fit this network: no variable has the same name and shape.",
                "Choose weights of this network, or train it from scratch.",
            )
        return names

    def load(self, store: VariableStore, frozen: Frozen, trained: Collection[str]) -> None:
        """Assign the weights, if any, to the variables of ``store``; the others keep their initial values.

        Reports the loaded, missing and frozen variables; ``trained`` contains the names of those that the optimizer
        updates. Raises UserFault if the weights are missing or unreadable.
        """
        variables = store.variables
        report = restore.assign(self.source, variables) if self.is_given else restore.Report()
        trainable = {name for name, item in variables.items() if item.trainable}
        kept = [name for name in variables if name in frozen or (name in trainable and name not in trained)]
        if self.is_given or kept:
            self._events.append(
                WeightsLoaded(
                    self.title,
                    report.taken,
                    report.missing,
                    report.other_shape,
                    report.unused,
                    kept,
                    [name for name in variables if name not in trainable and name not in frozen],
                )
            )
        for name, other in report.taken.items():
            log.info("%s: loaded from %s", name, other)
        # A fine-tuning is expected to have a new head.
        if report.remark and self._recipe.fine_tune is None:
            self._events.append(Warned(report.remark))

    def _obtain(self, entry: Pretrained) -> Path:
        recipe, interval = self._recipe, ReportInterval(PROGRESS_SECONDS)
        if not recipe.weights_folder:
            raise UserFault(
                "The recipe does not say where pretrained weights are.",
                "Set weights_folder in its recipe.json.",
            )

        def progress(fraction: float, action: str) -> None:
            if interval.is_due(fraction == 0.0):
                self._events.append(
                    Progressed(0.0, doing=f"{action}: {fraction:.0%}" if fraction else action)
                )

        places = WeightsPlaces(Path(recipe.weights_folder), recipe.weights_sources)
        try:
            found = pretrained.obtain(entry, places, progress)
        except pretrained.WeightsMissing as error:
            raise UserFault(error.message, error.hint) from error
        if found.differs:
            self._events.append(
                Warned(
                    f"{found.path} is not the file that Keras publishes: its checksum differs. It is used because an "
                    "administrator put it there."
                )
            )
        log.info("ImageNet weights: %s", found.path)
        return found.path


def _entry(name: str) -> Pretrained:
    if name not in CATALOG:
        raise UserFault(
            f"There are no ImageNet weights called {name!r}.", f"Available: {', '.join(CATALOG)}."
        )
    return CATALOG[name]
