"""Files for TensorBoard's embedding projector, which shows them without a checkpoint.

Each map is a folder below ``projector`` in the log folder, with `TENSORS_FILE`, `METADATA_FILE`, `SPRITE_FILE` and
`ENTRY_FILE`, its part of the configuration in the log folder. See
https://github.com/tensorflow/tensorboard/blob/master/tensorboard/plugins/projector/projector_config.proto.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from digits.core.files import make_folder, remove_tree, write_bytes
from digits.data.images.images import arrange

FOLDER = "projector"
CONFIG_FILE = "projector_config.pbtxt"
TENSORS_FILE = "tensors.tsv"
METADATA_FILE = "metadata.tsv"
SPRITE_FILE = "sprite.png"
ENTRY_FILE = "entry.pbtxt"
# TensorBoard itself reduces vectors with more dimensions to this number before it maps them.
MAX_DIMENSIONS = 200
# Browsers refuse larger textures.
MAX_SPRITE_PIXELS = 8192
MAX_THUMBNAIL_PIXELS = 64
_BREAKS = str.maketrans("\t\r\n", "   ")


def write(
    log_folder: Path,
    name: str,
    values: NDArray[np.float32],
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    thumbnails: Sequence[Image.Image] = (),
) -> None:
    """Write the map ``name`` of ``values`` [records, dimensions], instead of an earlier one with this name.

    ``rows`` are the metadata of the records, two or more ``columns``, and ``thumbnails`` their images of one size, if
    they have any. Raises OSError.
    """
    make_folder(log_folder)
    target = log_folder / FOLDER / name
    remove_tree(target)
    target.mkdir(parents=True)
    with open(target / TENSORS_FILE, "w", encoding="utf-8") as file:
        np.savetxt(file, values, fmt="%.6g", delimiter="\t")
    lines = ["\t".join(str(cell).translate(_BREAKS) for cell in row) for row in (columns, *rows)]
    (target / METADATA_FILE).write_text("\n".join(lines) + "\n", encoding="utf-8", errors="replace")
    entry = [
        f'tensor_name: "{name}"',
        f'tensor_path: "{FOLDER}/{name}/{TENSORS_FILE}"',
        f'metadata_path: "{FOLDER}/{name}/{METADATA_FILE}"',
    ]
    if thumbnails:
        (target / SPRITE_FILE).write_bytes(draw_sprite(thumbnails))
        width, height = thumbnails[0].size
        size = f"single_image_dim: {width} single_image_dim: {height}"
        entry.append(f'sprite {{ image_path: "{FOLDER}/{name}/{SPRITE_FILE}" {size} }}')
    write_bytes(target / ENTRY_FILE, f"embeddings {{ {' '.join(entry)} }}\n".encode())
    entries = sorted((log_folder / FOLDER).glob(f"*/{ENTRY_FILE}"))
    write_bytes(log_folder / CONFIG_FILE, b"".join(path.read_bytes() for path in entries))


def thumbnail_size(width: int, height: int, count: int) -> tuple[int, int]:
    """Return the thumbnail size in pixels at which ``count`` images fit into one sprite."""
    across = math.ceil(math.sqrt(count))
    largest = min(MAX_THUMBNAIL_PIXELS, MAX_SPRITE_PIXELS // across)
    scale = min(1.0, largest / max(width, height))
    return max(1, round(width * scale)), max(1, round(height * scale))


def draw_sprite(thumbnails: Sequence[Image.Image]) -> bytes:
    """Arrange ``thumbnails`` of equal size in a square grid, as TensorBoard expects; return a PNG file."""
    across = math.ceil(math.sqrt(len(thumbnails)))
    tiles = np.stack([np.asarray(thumbnail) for thumbnail in thumbnails])
    sprite = Image.fromarray(arrange(tiles, across, rows=across, background=0))
    file = io.BytesIO()
    sprite.save(file, "PNG", compress_level=1)
    return file.getvalue()
