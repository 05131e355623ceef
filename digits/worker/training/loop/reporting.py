"""Reporting a training: progress and metrics as events, in TensorBoard's logs, and in the output."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from digits.core.events import EventLog, Measured, Progressed, ReportInterval
from digits.worker.training.loop.tensorboard_log import TensorBoardLog

TENSORBOARD_FOLDER = "tb"

# Minimum interval between progress reports, in seconds.
PROGRESS_SECONDS = 0.5

log = logging.getLogger(__name__)


class Reports:
    """The reports of a training.

    ``train_board`` and ``val_board`` are its TensorBoard logs, which may be the same one.
    """

    def __init__(
        self,
        events: EventLog,
        train_board: TensorBoardLog,
        val_board: TensorBoardLog,
    ) -> None:
        self.events = events
        self.train_board, self.val_board = train_board, val_board
        self._interval = ReportInterval(PROGRESS_SECONDS)

    def progress(self, done: float, doing: str, seconds_left: float | None = None, now: bool = False) -> None:
        """Report what the training is ``doing`` after a part of it, 0 to 1, is ``done``; rarely, unless ``now``."""
        if self._interval.is_due(now):
            self.events.append(Progressed(round(done, 6), seconds_left, doing))

    def training(self, rows: Sequence[Measured]) -> None:
        """Report rows of training metrics."""
        if rows:
            self._metrics("Training", self.train_board, rows)

    def validation(self, step: int, epoch: float, values: Mapping[str, float]) -> None:
        """Report the metrics of a validation."""
        row = Measured("val", step, round(epoch, 6), dict(values))
        self._metrics("Validation", self.val_board, [row])

    def _metrics(self, title: str, board: TensorBoardLog, rows: Sequence[Measured]) -> None:
        self.events.append(*rows)
        board.scalars([(row.step, row.values) for row in rows])
        numbers = ", ".join(f"{name} = {value:.6g}" for name, value in rows[-1].values.items())
        log.info("%s (epoch %.6g): %s", title, rows[-1].epoch, numbers)

    def flush(self) -> None:
        """Make TensorBoard's logs durable."""
        for board in {self.train_board, self.val_board}:
            board.sync()


@contextlib.contextmanager
def opened(
    job_folder: Path,
    events: EventLog,
    *,
    resumed_after: int | None,
    validates: bool,
    is_silent: bool = False,
) -> Iterator[Reports]:
    """Open the reports of the job in ``job_folder``.

    ``resumed_after`` invalidates the points of later steps in TensorBoard's logs; None for a new training. Silent
    reports write no such logs.
    """
    folder = job_folder / TENSORBOARD_FOLDER
    with contextlib.ExitStack() as stack:
        train_board = stack.enter_context(TensorBoardLog(folder / "train", resumed_after, is_silent))
        val_board = train_board
        if validates:
            val_board = stack.enter_context(TensorBoardLog(folder / "val", resumed_after, is_silent))
        yield Reports(events, train_board, val_board)
