"""The error for damaged records of a dataset, which names the dataset and the file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from digits.core.files import UnreadableFile
from digits.core.job import name_of
from digits.worker.failure import UserFault


def damaged_records(dataset: Path, damage: object) -> UserFault:
    """Return the error for records in the folder ``dataset`` that cannot be read; ``damage`` names the file."""
    return UserFault(
        f"The records of the dataset “{name_of(dataset)}” are damaged: {damage}.",
        "Restore the file from a backup, or clone the dataset to create it again.",
    )


@contextmanager
def reporting_damage(dataset: Path) -> Iterator[None]:
    """Raise UserFault in place of the UnreadableFile of a manifest or of records."""
    try:
        yield
    except UnreadableFile as error:
        raise damaged_records(dataset, error) from None
