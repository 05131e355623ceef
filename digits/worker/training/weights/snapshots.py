"""Snapshots: checkpoints whose tensors carry the names of the variables.

A snapshot is a TensorFlow checkpoint of version 2, ``snapshot_<epoch>.ckpt`` with the
files ``.index`` and ``.data-00000-of-00001``. It holds the network's variables under
their own names (``model/conv1/weights``), the optimizer's under ``optimizer/…`` and
``global_step``. The index is renamed into place last, so a snapshot without an index is incomplete.

Besides the snapshots of epochs there are resume snapshots, ``resume_<step>.ckpt``: the newest one and the one
before it. A resume point beside a snapshot (see `digits.core.resume_point`) marks it as usable to resume from.

TensorFlow stores a checksum of every tensor and of every block of the index, and verifies it on
reading, so no further checksums are needed to detect damage.

Renaming a layer freezes it: a variable with the name of a variable in the snapshot plus `FROZEN_SUFFIX` gets
its value and is not trained.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tensorflow as tf

from digits.core import files, resume_point
from digits.worker.failure import UserFault, first_line

STEP_NAME = "global_step"
FROZEN_SUFFIX = "_not_in_use"
_DATA, _INDEX = ".data-00000-of-00001", ".index"
_OF_EPOCH = re.compile(r"snapshot_(\d+(?:\.\d+)?)\.ckpt")
_TO_RESUME = re.compile(r"resume_\d+\.ckpt")


def prefix(folder: Path, epoch: float) -> Path:
    """Return the prefix of the snapshot after ``epoch`` epochs: ``snapshot_1.ckpt``, ``snapshot_0.5.ckpt``."""
    number = f"{epoch:.6f}".rstrip("0").rstrip(".")
    return folder / f"snapshot_{number}.ckpt"


def resume_prefix(folder: Path, step: int) -> Path:
    """Return the prefix of the resume snapshot after ``step`` steps."""
    return folder / f"resume_{step}.ckpt"


def of_epochs(folder: Path) -> list[tuple[float, Path]]:
    """Epoch and prefix of the complete snapshots of epochs in ``folder``, the newest first."""
    matches = [(match, path) for path in _complete(folder) if (match := _OF_EPOCH.fullmatch(path.name))]
    return sorted(((float(match[1]), path) for match, path in matches), reverse=True)


def remove(target: Path) -> None:
    """Remove a snapshot, its index before its data, so that an interrupted removal leaves no complete one."""
    for suffix in (resume_point.SUFFIX, _INDEX, _DATA):
        Path(f"{target}{suffix}").unlink(missing_ok=True)


def remove_resume_snapshots(folder: Path, kept: Collection[str]) -> None:
    """Remove all resume snapshots except those named in ``kept``."""
    names = {path.name.partition(".ckpt")[0] + ".ckpt" for path in folder.glob("resume_*.ckpt*")}
    for name in names - set(kept):
        if _TO_RESUME.fullmatch(name):
            remove(folder / name)


def remove_incomplete(folder: Path) -> None:
    """Remove incomplete files of a killed training; no other process may be using ``folder``."""
    for name in ("snapshot_", "resume_"):
        for path in folder.glob(f".{name}*.tmp*"):
            path.unlink(missing_ok=True)
        for path in folder.glob(f"{name}*.ckpt{_DATA}"):
            if not path.with_name(path.name.removesuffix(_DATA) + _INDEX).exists():
                path.unlink(missing_ok=True)


def _complete(folder: Path) -> list[Path]:
    return [path.with_name(path.name.removesuffix(_INDEX)) for path in folder.glob(f"*.ckpt{_INDEX}")]


def save(target: Path, variables: Mapping[str, tf.Variable], step: int) -> None:
    """Write the variables and the ``step`` number durably as the snapshot with prefix ``target``."""
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    names = [*variables, STEP_NAME]
    tensors = [variable.read_value() for variable in variables.values()]
    tensors.append(tf.constant(step, tf.int64))
    try:
        tf.raw_ops.SaveV2(
            prefix=str(temporary), tensor_names=names, shape_and_slices=[""] * len(names), tensors=tensors
        )
        for suffix in (_DATA, _INDEX):
            files.sync_file(Path(f"{temporary}{suffix}"))
        if Path(f"{target}{_INDEX}").exists():
            # An old index or resume point must not refer to new data.
            remove(target)
            files.sync_folder(target.parent)
        for suffix in (_DATA, _INDEX):
            os.replace(f"{temporary}{suffix}", f"{target}{suffix}")
            files.sync_folder(target.parent)
    except BaseException:
        # TensorFlow adds suffixes to the given name for its temporary files.
        for path in target.parent.glob(f"{temporary.name}*"):
            path.unlink(missing_ok=True)
        if not Path(f"{target}{_INDEX}").exists():
            remove(target)
        raise


def is_disk_full(error: BaseException) -> bool:
    """Return whether a snapshot or a related file could not be written because the disk is full."""
    if isinstance(error, tf.errors.ResourceExhaustedError):  # also raised if memory runs out
        return "No space left" in str(error) or "quota exceeded" in str(error)
    return files.is_disk_full(error)


# Exceptions that TensorFlow raises for missing, truncated or altered files.
_UNREADABLE = (tf.errors.OpError, ValueError, RuntimeError, LookupError, OSError, MemoryError)


def restore_exactly(source: Path, variables: Mapping[str, tf.Variable]) -> None:
    """Restore all variables from a snapshot of the same network; raises UserFault."""
    with _opened(source) as reader:
        shapes = reader.get_variable_to_shape_map()
        wrong = [name for name, variable in variables.items() if shapes.get(name) != variable.shape.as_list()]
        if wrong:
            raise UserFault(
                f"The training cannot resume from {source.name}: it does not match {listed(wrong)}.",
                "The network or its settings have changed; start a new training.",
            )
        for name, variable in variables.items():
            variable.assign(reader.get_tensor(name))


def fault(source: Path) -> str:
    """Return why the snapshot with prefix ``source`` cannot be restored; empty if it is intact."""
    try:
        reader = tf.train.load_checkpoint(str(source))
        for name in reader.get_variable_to_shape_map():
            reader.get_tensor(name)
    except _UNREADABLE as error:
        return _damage(source, error)
    return ""


def newest_intact(folder: Path) -> Path | None:
    """Return the prefix of the newest intact epoch snapshot in ``folder``; None if there is none."""
    return next((path for _, path in of_epochs(folder) if not fault(path)), None)


def choose_another(damaged: Path) -> str:
    """Return a hint that suggests an intact snapshot in the folder of the ``damaged`` one; empty if there is none."""
    intact = newest_intact(damaged.parent)
    return f"Choose {intact.name}, which is intact." if intact else ""


def step_of(source: Path) -> int:
    """Return the step number of a snapshot; 0 if it does not contain one. Raises UserFault."""
    with _opened(source) as reader:
        return int(reader.get_tensor(STEP_NAME)) if reader.has_tensor(STEP_NAME) else 0


@contextmanager
def _opened(source: Path) -> Iterator[Any]:
    """Open a checkpoint; errors in the block that uses it become a UserFault."""
    try:
        yield tf.train.load_checkpoint(str(source))
    except _UNREADABLE as error:
        raise UserFault(_damage(source, error), choose_another(source)) from error


def _damage(source: Path, error: BaseException) -> str:
    return f"The snapshot {source.name} is damaged: {first_line(error)}"


def listed(names: list[str], most: int = 8) -> str:
    """Return the first names, and how many more there are."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")
