"""The server's log: on the terminal and in a rotating file."""

from __future__ import annotations

import logging
from logging.handlers import RotatingFileHandler
from pathlib import Path

from digits.core.settings import Settings, SettingsError

FILE_BYTES = 10_000_000
KEPT_FILES = 10


class _Format(logging.Formatter):
    """``2026-11-20 09:30:00 [20261120-093000-a1b2c3] [INFO] text``; the job only if the record has a ``job_id``."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(job)s[%(levelname)s] %(message)s", "%Y-%m-%d %H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name is the library's
        job_id = getattr(record, "job_id", None)
        record.job = f"[{job_id}] " if job_id else ""
        return super().formatMessage(record)


def start_logging(settings: Settings) -> None:
    """Send all log records of this process to standard error and to the log file of the settings.

    Raises SettingsError if an explicitly configured file is not writable; if the default file is not writable, logs
    a warning and continues without it.
    """
    root = logging.getLogger()
    root.setLevel(logging.DEBUG if settings.debug else settings.logfile_level.upper())
    _add(root, logging.StreamHandler())
    try:
        _add(root, _file_handler(settings.logfile_filename))
    except OSError as error:
        if settings.logfile_filename != Settings().logfile_filename:
            raise SettingsError(f"log file: {settings.logfile_filename}: {error.strerror}") from None
        logging.getLogger(__name__).warning("No log file: %s: %s", settings.logfile_filename, error.strerror)


def _file_handler(path: Path) -> logging.Handler:
    path.parent.mkdir(parents=True, exist_ok=True)
    return RotatingFileHandler(path, maxBytes=FILE_BYTES, backupCount=KEPT_FILES - 1, encoding="utf-8")


def _add(root: logging.Logger, handler: logging.Handler) -> None:
    handler.setFormatter(_Format())
    root.addHandler(handler)
