"""The weights that a training starts from: finding them, loading them, and reporting which variables are frozen."""

from __future__ import annotations

import logging
from collections.abc import Collection
from pathlib import Path
from typing import Any

from digits.core import recipe as recipes
from digits.core.events import EventLog, Progressed, ReportInterval, Warned, WeightsLoaded
from digits.data.models import pretrained
from digits.data.models.pretrained import WeightsPlaces
from digits.data.models.pretrained_catalog import CATALOG, PREFIX, Pretrained
from digits.worker.failure import UserFault
from digits.worker.network.variables import VariableStore
from digits.worker.training.weights import restore
from digits.worker.training.weights.restore import Frozen, Source

PROGRESS_SECONDS = 0.5
log = logging.getLogger(__name__)


class InitialWeights:
    """The weights in ``recipe``, and those of the models that the network requests with ``digits.pretrained``.

    ImageNet weights are downloaded when they are first needed. ``path`` is that of the recipe's weights; None for
    no weights and for ImageNet weights.
    """

    def __init__(self, recipe: recipes.Train, events: EventLog) -> None:
        self._recipe, self._events = recipe, events
        weights = recipe.weights or ""
        self.path = Path(weights) if weights and not weights.startswith(PREFIX) else None
        self._sources: dict[str, Source] = {}
        # The network of the recipe's weights in Keras, if it is known to be the one that is trained.
        self.application: Any = None

    def _names(self, store: VariableStore) -> list[str]:
        """Return the weights to load, in order: those that the network requests first."""
        return [
            *(f"{PREFIX}{name}" for name in sorted(store.pretrained.imagenet)),
            *filter(None, [self._recipe.weights]),
        ]

    def _source(self, name: str) -> Source:
        """Return the values of ``name``. Raises UserFault if they are missing or unreadable."""
        if name not in self._sources:
            if name.startswith(PREFIX):
                entry = _entry(name)
                self._sources[name] = restore.open_application(self._obtain(entry), entry, self.application)
            else:
                self._sources[name] = restore.open_source(Path(name))
        return self._sources[name]

    def trunk(self, store: VariableStore) -> list[str]:
        """Return the names of the variables of ``store`` that have pretrained values.

        Empty if all pretrained models of the network are frozen. Raises UserFault if there are no pretrained values, or
        if the weights do not fit the network.
        """
        names, variables, parts = self._names(store), store.variables, store.pretrained
        if not names and not parts:
            raise UserFault(
                "Fine-tuning requires pretrained weights.",
                "Choose initial weights, use digits.pretrained in the network, or train from scratch.",
            )
        pretrained_names = {
            each for name in names for each in restore.names_in(self._source(name), variables)
        }
        pretrained_names.update(parts.variables)
        if not pretrained_names and not parts.frozen:
            raise UserFault(
                f"{_title(names[-1])} do not fit this network: no variable has the same name and shape.",
                "Choose weights of this network, or train it from scratch.",
            )
        return [name for name in variables if name in pretrained_names]

    def load(self, store: VariableStore, frozen: Frozen, trained: Collection[str]) -> None:
        """Assign the weights, if any, to the variables of ``store``; the others keep their values.

        Reports the loaded, missing and frozen variables; ``trained`` contains the names of those that the optimizer
        updates. Raises UserFault if the weights are missing or unreadable.
        """
        variables, names = store.variables, self._names(store)
        report = restore.Report(taken={name: name for name in store.pretrained.variables})
        for name in names:
            report = report.followed_by(restore.assign(self._source(name), variables))
        self._sources.clear()  # they take as much memory as the network
        trainable = {name for name, item in variables.items() if item.trainable}
        kept = [name for name in variables if name in frozen or (name in trainable and name not in trained)]
        sources = [*dict.fromkeys(store.pretrained.variables.values()), *map(_title, names)]
        if sources or kept:
            self._events.append(
                WeightsLoaded(
                    ", ".join(sources),
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
        # New layers are expected in fine-tuning and in a network on top of a pretrained one.
        if report.remark and self._recipe.fine_tune is None and not store.pretrained:
            self._events.append(Warned(report.remark))

    def _obtain(self, entry: Pretrained) -> Path:
        recipe = self._recipe
        if not recipe.weights_folder:
            raise UserFault(
                "The recipe does not specify the folder of pretrained weights.",
                "Set weights_folder in its recipe.json.",
            )
        return obtain(entry, WeightsPlaces(Path(recipe.weights_folder), recipe.weights_sources), self._events)


def obtain(entry: Pretrained, places: WeightsPlaces, events: EventLog) -> Path:
    """Return the file with the weights of ``entry``; download it if there is none, and report the progress.

    Raises UserFault if it cannot be downloaded.
    """
    interval = ReportInterval(PROGRESS_SECONDS)

    def progress(fraction: float, action: str) -> None:
        if interval.is_due(fraction == 0.0):
            events.append(Progressed(0.0, doing=f"{action}: {fraction:.0%}" if fraction else action))

    try:
        obtained = pretrained.obtain(entry, places, progress)
    except pretrained.WeightsMissing as error:
        raise UserFault(error.message, error.hint) from error
    if obtained.differs:
        events.append(
            Warned(
                f"{obtained.path} is not the file that Keras publishes: its checksum differs. It is used because "
                "an administrator put it there."
            )
        )
    log.info("ImageNet weights: %s", obtained.path)
    return obtained.path


def _entry(name: str) -> Pretrained:
    name = name.removeprefix(PREFIX)
    if name not in CATALOG:
        raise UserFault(
            f"There are no ImageNet weights called {name!r}.", f"Available: {', '.join(CATALOG)}."
        )
    return CATALOG[name]


def _title(name: str) -> str:
    """Return the weights ``name`` in words."""
    return f"ImageNet weights of {_entry(name).title}" if name.startswith(PREFIX) else Path(name).name
