"""Loading the weights that a training starts from, and reporting which variables are frozen."""

from __future__ import annotations

import logging
from collections.abc import Collection
from pathlib import Path

from digits.core.events import EventLog, Warned, WeightsLoaded
from digits.worker.network.variables import VariableStore
from digits.worker.training import restore
from digits.worker.training.restore import Frozen

log = logging.getLogger(__name__)


def load(
    source: str | None, store: VariableStore, frozen: Frozen, trained: Collection[str], events: EventLog
) -> None:
    """Assign the weights in ``source`` to the variables of ``store``; None leaves their initial values.

    Reports the loaded, missing and frozen variables; ``trained`` contains the names of those that the optimizer
    updates. Raises UserFault if ``source`` is unreadable.
    """
    variables = store.variables
    report = restore.restore(Path(source), variables) if source else restore.Report()
    trainable = {name for name, item in variables.items() if item.trainable}
    kept = [name for name in variables if name in frozen or (name in trainable and name not in trained)]
    if source or kept:
        events.append(
            WeightsLoaded(
                Path(source).name if source else "",
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
    if report.remark:
        events.append(Warned(report.remark))
