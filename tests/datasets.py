"""Finished datasets that tests write directly, without creating them from a source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from digits.data.images import images
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
    size = {"width": first.width, "height": first.height}
    manifest = manifest_of(target, channels=channels, kind=kind, splits=written, **size)
    manifest.save(folder)
    return manifest


def manifest_of(target: Target, *, side: int = 1, channels: int = 1, **fields: Any) -> Manifest:
    """Return the manifest of a dataset for classification, unless ``fields`` are different."""
    defaults: dict[str, Any] = {
        "kind": "image-classification",
        "width": side,
        "height": side,
        "channels": channels,
        "encoding": "png",
        "resize_mode": "squash",
        "splits": {},
        "mean_pixel": [0.0] * channels,
    }
    return Manifest(target=target, **defaults | fields)


def photos(folder: Path, *names: str) -> Path:
    """Write an image for each of ``names``, no two of which are equal, and return the folder."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng([*name.encode()]).integers(0, 255, (20, 20, 3), np.uint8)
        path.write_bytes(images.encode(pixels, "png"))
    return folder
