"""Finished datasets that tests write directly, without creating them from a source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from digits.data.manifest import Manifest, SplitRecords
from digits.data.records.records import Record, ShardWriter, encode_example, shard_name
from digits.data.targets.target import Target


def write_dataset(
    folder: Path, kind: str, target: Target, splits: Mapping[str, Sequence[Record]], channels: int = 1
) -> Manifest:
    """Write a dataset with one shard for each split into ``folder``, and return its manifest."""
    folder.mkdir(parents=True, exist_ok=True)
    written = {}
    for name, records in splits.items():
        with ShardWriter(folder / shard_name(name, 0, 1)) as shard:
            for record in records:
                shard.add(encode_example(record))
        written[name] = SplitRecords(
            count=len(records), bytes=shard.size_bytes, shards=[shard.path.name], hashes=[shard.sha256]
        )
    first = next(iter(splits.values()))[0]
    manifest = Manifest(
        kind=kind,
        width=first.width,
        height=first.height,
        channels=channels,
        encoding="png",
        resize_mode="squash",
        target=target,
        splits=written,
        mean_pixel=[0.0] * channels,
    )
    manifest.save(folder)
    return manifest
