"""The result of a search for wrong labels: ``label-check.json`` in the dataset's folder, and an array beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta, Struct
from numpy.typing import NDArray

from digits.core.files import UnreadableFile, read_json, write_json
from digits.core.schema import Count, Fraction
from digits.core.splits import SPLITS, Split
from digits.data.arrays import load_rows, write_array
from digits.data.health.health import MAX_LISTED, Finding, Text
from digits.data.health.label_errors import LABEL_ERROR_DTYPE
from digits.data.manifest import LABEL_CHECK_FILE, LABEL_ERRORS_FILE, Manifest, Sha256

FINDING = "label_errors"


class LabelCheck(Struct, frozen=True, kw_only=True):
    """The wrong labels in the dataset with ``content_hash``, according to a model.

    ``accuracy`` is the fraction of the records of each split whose most likely class is the given one.
    """

    content_hash: Sha256
    model_id: Text
    model_name: Text
    snapshot: Text
    images: Count
    accuracy: dict[Split, Fraction]
    seconds: Annotated[float, Meta(ge=0)]
    finding: Finding


def describe(suspects: NDArray[Any], images: int, model_name: str, is_unseen: bool = False) -> Finding:
    """Return the finding of the records ``suspects``, an array of `LABEL_ERROR_DTYPE`, among all ``images``.

    If ``is_unseen``, training records were predicted from the others.
    """
    learned = (
        "Training images were compared with the other ones instead, because it has learned their labels."
        if is_unseen
        else "It was trained on the labels of the training split and finds few errors there; it has not seen the other "
        "splits."
    )
    listed = [(SPLITS[row["split"]], int(row["number"])) for row in suspects[:MAX_LISTED]]
    counts = np.bincount(suspects["split"], minlength=len(SPLITS)).tolist()
    return Finding(
        id=FINDING,
        title="Likely wrong labels",
        explanation=f"The model “{model_name[:200]}” confidently predicts a different class. {learned} "
        "Review each image: the model may be wrong.",
        severity="warning",
        count=len(suspects),
        fraction=len(suspects) / images if images else 0.0,
        splits={name: count for name, count in zip(SPLITS, counts, strict=True) if count},
        records=listed,
        removable=listed,
        removable_count=len(suspects),
    )


def save(job_folder: Path, check: LabelCheck, suspects: NDArray[Any]) -> None:
    """Write the result, the array ``suspects`` of `LABEL_ERROR_DTYPE` first."""
    write_array(job_folder / LABEL_ERRORS_FILE, suspects)
    write_json(job_folder / LABEL_CHECK_FILE, {"schema": 1, **msgspec.to_builtins(check)}, type(check))


def load(job_folder: Path, manifest: Manifest) -> LabelCheck:
    """Load the result for the dataset of ``manifest``; raises UnreadableFile if it is missing, damaged or outdated."""
    check = read_json(job_folder / LABEL_CHECK_FILE, LabelCheck, below=job_folder)
    if check.content_hash != manifest.content_hash:
        raise UnreadableFile(f"{LABEL_CHECK_FILE} describes other records")
    return check


def load_errors(job_folder: Path, manifest: Manifest) -> NDArray[Any]:
    """Return the records with wrong labels, an array of `LABEL_ERROR_DTYPE`, most likely errors first.

    Raises UnreadableFile.
    """
    rows = load_rows(job_folder / LABEL_ERRORS_FILE, below=job_folder, dtype=LABEL_ERROR_DTYPE)
    counts = np.array([manifest.splits[name].count if name in manifest.splits else 0 for name in SPLITS])
    classes = len(manifest.target.names)
    is_valid = (rows["split"] < len(SPLITS)) & (rows["given"] < classes) & (rows["suggested"] < classes)
    if not np.all(is_valid) or np.any(rows["number"] >= counts[rows["split"]]):
        raise UnreadableFile(f"{LABEL_ERRORS_FILE} describes other records")
    return rows
