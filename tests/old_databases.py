"""Datasets in the layout that DIGITS 6 wrote: databases of an image and a label each, a labels file, a mean image."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import h5py
import lmdb
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from digits.data.databases.caffe_pb2 import BlobProto, Datum
from digits.data.databases.convert import OldDataset as OldDataset

Pixels = NDArray[np.uint8]
WIDTH, HEIGHT = 8, 6
NAMES = ("cold", "warm", "green")


def picture(number: int, channels: int = 3) -> Pixels:
    """An image of class ``number % 3``, uint8 [height, width, channels]."""
    noise = np.random.default_rng(number).integers(0, 40, (HEIGHT, WIDTH, channels), np.uint8)
    noise[..., (2, 0, 1)[number % 3] % channels] += 200
    return noise


def encode(pixels: Pixels, encoding: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels.squeeze()).save(file, encoding, **({"quality": 90} if encoding == "JPEG" else {}))
    return file.getvalue()


def datum(pixels: Pixels, label: int, encoding: str = "none") -> bytes:
    """A record as DIGITS wrote it: pixels are [channels, height, width] with blue first; files are as usual."""
    height, width, channels = pixels.shape
    if encoding == "none":
        planes = pixels.transpose(2, 0, 1)
        data = (planes[[2, 1, 0]] if channels == 3 else planes).tobytes()
    else:
        data = encode(pixels, encoding)
    return bytes(
        Datum(
            channels=channels,
            height=height,
            width=width,
            data=data,
            label=label,
            encoded=encoding != "none",
        ).SerializeToString()
    )


def numbers(values: Any, label: int = 0) -> bytes:
    """A record of float32 [channels, height, width]."""
    array = np.asarray(values, np.float32)
    channels, height, width = array.shape
    return bytes(
        Datum(
            channels=channels, height=height, width=width, float_data=array.ravel(), label=label
        ).SerializeToString()
    )


def write_lmdb(folder: Path, values: Iterable[bytes], *, key: str = "{:08d}_{}") -> Path:
    """Write records with keys such as ``00000012_0``: the number of the record and its class."""
    folder.mkdir(parents=True)
    with lmdb.open(str(folder), map_size=1 << 30) as database, database.begin(write=True) as transaction:
        for number, value in enumerate(values):
            transaction.put(key.format(number, number % 3).encode(), value)
    (folder / "lock.mdb").unlink()
    return folder


def write_hdf5(folder: Path, count: int, *, per_file: int = 4, compression: str | None = None) -> Path:
    """Write files of ``per_file`` images, and their list with paths below a folder of jobs."""
    folder.mkdir(parents=True)
    names = []
    for start in range(0, count, per_file):
        chosen = range(start, min(start + per_file, count))
        names.append(f"{start}.h5")
        with h5py.File(folder / names[-1], "w") as file:
            images = np.stack([picture(number).transpose(2, 0, 1) for number in chosen]).astype(np.float32)
            file.create_dataset("data", data=images, chunks=True, compression=compression)
            labels = np.array([number % 3 for number in chosen], np.float32)
            file.create_dataset("label", data=labels, chunks=True, compression=compression)
    lines = [f"../20170401-120000-abcd/{folder.name}/{name}\n" for name in names]
    (folder / "list.txt").write_text("".join(lines))
    return folder


def write_arrays(folder: Path, arrays: Iterable[Any], *, per_file: int = 4) -> Path:
    """Write HDF5 files without ``label``: ``per_file`` images [height, width, channels] or vectors each, and their list."""
    folder.mkdir(parents=True)
    values = [np.asarray(array) for array in arrays]
    names = [f"{start}.h5" for start in range(0, len(values), per_file)]
    for start, name in zip(range(0, len(values), per_file), names, strict=True):
        chosen = values[start : start + per_file]
        planes = [array.transpose(2, 0, 1) if array.ndim == 3 else array for array in chosen]
        with h5py.File(folder / name, "w") as file:
            file.create_dataset("data", data=np.stack(planes).astype(np.float32))
    (folder / "list.txt").write_text("".join(f"{name}\n" for name in names))
    return folder


def write_mean(path: Path, mean: NDArray[Any]) -> Path:
    """Write a mean image [height, width, channels] as DIGITS did: rounded, and blue first."""
    planes = np.rint(mean).transpose(2, 0, 1)
    planes = planes[::-1] if len(planes) == 3 else planes
    blob = BlobProto(
        num=1,
        channels=planes.shape[0],
        height=planes.shape[1],
        width=planes.shape[2],
        data=planes.ravel().tolist(),
    )
    path.write_bytes(blob.SerializeToString())
    return path


def write_job(
    folder: Path, *, encoding: str = "PNG", backend: str = "lmdb", channels: int = 3, train: int = 12
) -> Path:
    """Write the folder of a dataset job with ``train`` images for training and six for validation."""
    folder.mkdir(parents=True)
    pictures = [picture(number, channels) for number in range(train + 6)]
    for name, first, last in (("train_db", 0, train), ("val_db", train, train + 6)):
        if backend == "hdf5":
            write_hdf5(folder / name, last - first)
        else:
            chosen = range(first, last)
            write_lmdb(folder / name, [datum(pictures[item], item % 3, encoding) for item in chosen])
    (folder / "labels.txt").write_text("".join(f"{name}\n" for name in NAMES))
    write_mean(folder / "mean.binaryproto", np.mean(pictures[:train], axis=0))
    (folder / "status.pickle").write_bytes(b"cos\nsystem\n(S'exit 1'\ntR.")
    return folder
