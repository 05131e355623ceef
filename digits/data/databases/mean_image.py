"""Mean images (BlobProto) as Caffe and DIGITS 4 to 6 wrote them: [channels, height, width], blue first."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from digits.core.files import UnreadableFile, open_plain
from digits.data.databases.caffe_pb2 import BlobProto
from digits.data.sources.plan import UnusableSource, show

MAX_MEAN_BYTES = 1 << 30


def read_mean(path: Path, below: Path | None = None) -> NDArray[np.float32]:
    """Return the mean image in ``path``, a ``mean.binaryproto``: [height, width, channels], red first.

    Raises UnusableSource.
    """
    place = show(path.name)
    try:
        with open_plain(path, below=below) as file:
            data = file.read(MAX_MEAN_BYTES + 1)
        blob = BlobProto.FromString(data)
    except (UnreadableFile, OSError) as error:
        raise UnusableSource(f"{place} cannot be read: {error}.") from error
    except DecodeError as error:
        raise _not_a_mean(place) from error
    values = np.array(blob.data or blob.double_data, np.float32)
    dims = list(blob.shape.dim) or [blob.num, blob.channels, blob.height, blob.width]
    if len(dims) == 4 and dims[0] == 1:
        dims = dims[1:]
    if len(dims) != 3 or min(dims) < 1 or math.prod(dims) != len(values) or not np.isfinite(values).all():
        raise _not_a_mean(place)
    planes = values.reshape(dims)
    return (planes[::-1] if dims[0] == 3 else planes).transpose(1, 2, 0)


def _not_a_mean(place: str) -> UnusableSource:
    return UnusableSource(
        f"{place} is damaged or not a Caffe mean image.", "Remove it; the mean image is recomputed anyway."
    )
