"""Embedding maps: the activations of a layer for records of a split, reduced to two dimensions.

Each is a folder below `FOLDER` in the folder of its model, which appears complete, by one rename. It contains:

- `FILE_NAME`: an `EmbeddingMap`;
- `EMBEDDINGS_FILE`: the activations, float32 [records, dimensions];
- `RECORDS_FILE`: the numbers of the records in the split, int64 [records], in ascending order;
- ``pca.npy`` and ``tsne.npy``: the coordinates by each of the ``methods``, float32 [records, 2];
- `GROUPS_FILE`: the group of each record, such as its class, int32 [records], -1 for none, if the dataset has groups;
- `PREDICTED_FILE`: the predicted class of each record, int32 [records], for classifiers.
"""

from __future__ import annotations

import hashlib
import re
from typing import Annotated, Literal, get_args

import numpy as np
from msgspec import Meta, Struct

from digits.core.recipe import MAX_MAPPED_RECORDS, FileName
from digits.core.schema import Count
from digits.core.splits import Split
from digits.data.models import evaluation
from digits.data.models.result_folders import ArrayFormat, ResultFolders

FOLDER = "embeddings"
FILE_NAME = "map.json"
EMBEDDINGS_FILE = "embeddings.npy"
RECORDS_FILE = "records.npy"
GROUPS_FILE = "groups.npy"
PREDICTED_FILE = "predicted.npy"

Method = Literal["pca", "tsne"]
METHODS: tuple[Method, ...] = get_args(Method)
MAX_LAYER_CHARACTERS = 60
# The embeddings of a map have at most 25 million numbers.
MAX_ARRAY_BYTES = 256 << 20
_UNUSUAL = re.compile(r"(?a:[^\w.-])")


class EmbeddingMap(Struct, frozen=True, kw_only=True):
    """A map of ``records`` of the ``total`` in a split.

    ``dataset_id`` and ``content_hash`` identify the dataset of the records. ``shape`` is that of the output of the
    ``layer`` for one record, and ``dimensions`` the number of values that remain after the mean over its positions.
    ``groups`` are the names of the groups of the dataset. ``methods`` are those that are done; t-SNE is the last one,
    unless ``remark`` says why it is missing. ``variance`` is the fraction of the variance that the map by PCA keeps.
    """

    name: FileName
    snapshot: FileName
    epoch: Annotated[float, Meta(ge=0)]
    dataset_id: str
    content_hash: str
    split: Split
    layer: str
    shape: list[int | None]
    dimensions: Count
    records: Annotated[int, Meta(ge=0, le=MAX_MAPPED_RECORDS)]
    total: Count
    groups: list[str]
    methods: list[Method]
    variance: Annotated[float, Meta(ge=0, le=1)]
    remark: str = ""
    seconds: Annotated[float, Meta(ge=0)]

    @property
    def is_partial(self) -> bool:
        """Whether t-SNE is running or was interrupted."""
        return "tsne" not in self.methods and not self.remark


def name_of(snapshot: str, split: str, other_dataset: str = "", layer: str = "") -> str:
    """Return the name of the map of ``layer``, by default the last one before the output; see `evaluation.name_of`."""
    name = evaluation.name_of(snapshot, split, other_dataset)
    if not layer:
        return name
    plain = _UNUSUAL.sub("_", layer)[:MAX_LAYER_CHARACTERS]
    # Different layers must not share a name.
    suffix = "" if plain == layer else f"-{hashlib.sha256(layer.encode()).hexdigest()[:8]}"
    return f"{name}-{plain}{suffix}"


def _arrays(result: EmbeddingMap) -> dict[str, ArrayFormat]:
    count = result.records
    return {
        EMBEDDINGS_FILE: ArrayFormat(np.dtype(np.float32), (count, result.dimensions)),
        RECORDS_FILE: ArrayFormat(np.dtype(np.int64), (count,)),
        GROUPS_FILE: ArrayFormat(np.dtype(np.int32), (count,)),
        PREDICTED_FILE: ArrayFormat(np.dtype(np.int32), (count,)),
        **{f"{method}.npy": ArrayFormat(np.dtype(np.float32), (count, 2)) for method in METHODS},
    }


MAPS = ResultFolders(
    FOLDER,
    FILE_NAME,
    EmbeddingMap,
    "embedding map",
    key=lambda item: (-item.epoch, item.dataset_id, item.split, item.layer),  # the latest epoch first
    array_bytes=MAX_ARRAY_BYTES,
    arrays=_arrays,
)
folder_of, load, load_all, load_array = MAPS.folder_of, MAPS.load, MAPS.load_all, MAPS.load_array
