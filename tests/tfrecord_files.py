"""Small TFRecord files of other programs, for tests."""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from digits.data.records.example_pb2 import Example
from digits.data.records.records import masked_checksum

COLORS = {"red": (200, 30, 30), "blue": (30, 30, 200)}


def example(**features: Any) -> bytes:
    """Serialize an Example; names contain ``__`` for a slash, and values are single or lists, which may be empty."""
    made = Example()
    for name, value in features.items():
        values = value if isinstance(value, (list, tuple)) else [value]
        feature = made.features.feature[name.replace("__", "/")]
        if not values:
            continue
        if isinstance(values[0], bytes):
            feature.bytes_list.value.extend(values)
        elif isinstance(values[0], int):
            feature.int64_list.value.extend(values)
        else:
            feature.float_list.value.extend(values)
    return bytes(made.SerializeToString(deterministic=True))


def frame(payload: bytes) -> bytes:
    length = len(payload).to_bytes(8, "little")
    return length + masked_checksum(length) + payload + masked_checksum(payload)


def write_records(path: Path, payloads: Iterable[bytes], compression: str = "") -> Path:
    """Write a TFRecord file, plain or with the ``compression`` gzip or zlib."""
    data = b"".join(map(frame, payloads))
    compress = {"": bytes, "gzip": gzip.compress, "zlib": zlib.compress}[compression]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(compress(data))
    return path


def picture(color: str = "red", size: tuple[int, int] = (8, 6), form: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.new("RGB", size, COLORS[color]).save(file, form)
    return file.getvalue()


def colored(count: int) -> list[bytes]:
    """Records in the layout of the TensorFlow models: red and blue images with a number and a text."""
    names = list(COLORS)
    return [
        example(
            image__encoded=picture(names[number % 2]),
            image__format=b"png",
            image__height=6,
            image__width=8,
            image__class__label=number % 2,
            image__class__text=names[number % 2].encode(),
        )
        for number in range(count)
    ]


def prepare_tfds(folder: Path, *, train: int = 8, test: int = 4, file_format: str = "tfrecord") -> Path:
    """Write a folder as TensorFlow Datasets does; the files of train are two shards."""
    folder.mkdir(parents=True)
    records = [
        example(image=picture(list(COLORS)[number % 2]), label=number % 2, id=f"{number}".encode())
        for number in range(train + test)
    ]
    half = train // 2
    parts = {
        "spots-train.tfrecord-00000-of-00002": records[:half],
        "spots-train.tfrecord-00001-of-00002": records[half:train],
        "spots-test.tfrecord-00000-of-00001": records[train:],
    }
    for name, payloads in parts.items():
        write_records(folder / name, payloads)
    template = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
    info = {
        "name": "spots",
        "version": "1.0.0",
        "fileFormat": file_format,
        "splits": [
            {"name": "train", "shardLengths": ["4", "4"], "filepathTemplate": template},
            {"name": "test", "shardLengths": ["4"], "filepathTemplate": template},
            {"name": "unsupervised", "shardLengths": ["4"], "filepathTemplate": template},
        ],
    }
    package = "tensorflow_datasets.core.features"
    shape = {"dimensions": ["6", "8", "3"]}
    features = {
        "pythonClassName": f"{package}.features_dict.FeaturesDict",
        "featuresDict": {
            "features": {
                "id": {"pythonClassName": f"{package}.text_feature.Text", "text": {}},
                "image": {
                    "pythonClassName": f"{package}.image_feature.Image",
                    "image": {"shape": shape, "dtype": "uint8", "encodingFormat": "png"},
                },
                "label": {
                    "pythonClassName": f"{package}.class_label_feature.ClassLabel",
                    "classLabel": {"numClasses": "2"},
                },
            }
        },
    }
    (folder / "dataset_info.json").write_text(json.dumps(info))
    (folder / "features.json").write_text(json.dumps(features))
    (folder / "label.labels.txt").write_text("Red spot\nBlue spot\n")
    return folder


def ramps(count: int, side: int = 8) -> list[np.ndarray[Any, np.dtype[np.uint8]]]:
    """Grayscale images that get brighter to the right, each with another slope."""
    across = np.arange(side)[None, :] / side
    return [np.tile((across * (100 + 10 * number)).astype(np.uint8), (side, 1)) for number in range(count)]
