"""Check the health of a finished dataset: damaged files, duplicates, unusual images and groups.

Each process compares one shard at a time with its hash and sends the statistics of its images; the findings are derived
from those of all records. The processes have the lowest priority, so that they do not delay other tasks.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from digits.core.events import EventLog, Progressed
from digits.core.files import UnreadableFile
from digits.core.recipe import CheckDataset
from digits.core.splits import SPLITS
from digits.data import manifest as manifests
from digits.data import parallel
from digits.data.health import findings as health_findings
from digits.data.health import health
from digits.data.images.statistics import SHAPE_LENGTH, STATISTICS_DTYPE, describe
from digits.data.manifest import HEALTH_FILE, Manifest
from digits.data.records.index import DamagedRecords
from digits.data.records.records import SplitReader
from digits.data.sources.plan import listed
from digits.worker.failure import UserFault
from digits.worker.input.damage import damaged_records
from digits.worker.tasks import background

# Records whose statistics are sent together.
CHUNK_RECORDS = 256


def run(recipe: CheckDataset, task_folder: Path, events: EventLog) -> dict[str, Any]:
    """Check the dataset in the recipe's folder, and write the result there.

    If files are damaged, raises UserFault and removes an earlier result, which describes other records.
    """
    started = time.monotonic()
    job_folder = Path(recipe.dataset)
    try:
        manifest = manifests.load(job_folder)
        with ExitStack() as opened:
            readers: dict[str, SplitReader] = {
                name: opened.enter_context(SplitReader(job_folder, manifest.splits[name]))
                for name in SPLITS
                if name in manifest.splits
            }
            statistics, shapes = _measure(manifest, readers, recipe.processes, events)
            groups = {name: reader.groups for name, reader in readers.items()}
    except UnreadableFile as error:
        (job_folder / HEALTH_FILE).unlink(missing_ok=True)
        raise damaged_records(job_folder, error) from None
    events.append(Progressed(1.0, None, "Searching for duplicates"))
    seconds = round(time.monotonic() - started, 3)
    result = health_findings.find(
        manifest, statistics, shapes, groups, seconds, appearance=recipe.appearance, counts=recipe.counts
    )
    with background.reporting_full_disk("the result"):
        health.save(job_folder, result.health, result.records, statistics)
    return {"images": result.health.images, "findings": len(result.health.findings)}


@dataclass(frozen=True)
class _Piece:
    """Records ``start`` to ``stop`` of a split, which are those of its ``shard``."""

    split: str
    shard: int
    start: int
    stop: int


@dataclass(frozen=True)
class _Described:
    """The statistics and shapes of records of ``split`` from ``start`` on."""

    split: str
    start: int
    rows: NDArray[Any]
    shapes: NDArray[np.int8]


def _measure(
    manifest: Manifest, readers: dict[str, SplitReader], processes: int | None, events: EventLog
) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[np.int8]]]:
    """Return the statistics and shapes of the records of each split.

    Raises DamagedRecords with all damaged shards.
    """
    pieces = [
        _Piece(name, shard, start, stop)
        for name, reader in readers.items()
        for shard, (start, stop) in enumerate(_shard_bounds(reader))
    ]
    statistics = {name: np.zeros(len(reader), STATISTICS_DTYPE) for name, reader in readers.items()}
    shapes = {name: np.zeros((len(reader), SHAPE_LENGTH), np.int8) for name, reader in readers.items()}
    total = sum(len(reader) for reader in readers.values())

    def work(number: int, send: parallel.Send) -> None:
        background.lower_priority()
        piece = pieces[number]
        reader = readers[piece.split]
        try:
            reader.verify(piece.shard)  # also reads the shard into the file cache
        except DamagedRecords as error:
            send(error)
            return
        for start in range(piece.start, piece.stop, CHUNK_RECORDS):
            stop = min(start + CHUNK_RECORDS, piece.stop)
            records = map(reader.read, range(start, stop))
            send(_Described(piece.split, start, *describe(records, stop - start, manifest.target)))

    progress = background.ItemProgress(events, "Checking images", total)
    damaged: list[DamagedRecords] = []
    try:
        with closing(parallel.run(work, len(pieces), processes=processes)) as messages:
            for message in messages:
                if isinstance(message, DamagedRecords):
                    damaged.append(message)
                if isinstance(message, _Described):
                    part = slice(message.start, message.start + len(message.rows))
                    statistics[message.split][part] = message.rows
                    shapes[message.split][part] = message.shapes
                    progress.advance(len(message.rows))
    except parallel.ProcessDied as death:
        raise UserFault(
            f"A process that checks images ended early ({death.reason}).", "Check the dataset again."
        ) from death
    if damaged:
        raise DamagedRecords(listed(sorted(map(str, damaged))))
    return statistics, shapes


def _shard_bounds(reader: SplitReader) -> list[tuple[int, int]]:
    """Return the first record of each shard, and that after its last."""
    ends = np.cumsum([len(reader.offsets(shard)) for shard in range(len(reader.shards))]).tolist()
    return list(zip([0, *ends[:-1]], ends, strict=True))
