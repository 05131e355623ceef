"""Where a job runs, and with which resources of a cluster."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

LOCAL = "local"
MAX_WORKERS = 64

# As in the names of Slurm's partitions and accounts.
_Name = Annotated[str, Meta(pattern=r"^(?a:[\w.-]{0,64})\Z")]
_Amount = Annotated[int, Meta(ge=1, le=10_000_000)]
_Option = Annotated[str, Meta(pattern=r"^--[a-z][a-z0-9-]*(=[^\x00-\x1f]*)?\Z", max_length=200)]


class Compute(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The compute ``target`` of a job, by its name in `digits.runtime.executors.pools.Executors`, and its share of it.

    ``workers`` processes share a training; on a cluster, each has a node of its own, with ``cpus`` cores and
    ``memory_mb`` MiB. A run is interrupted after ``minutes``. The other fields are Slurm's; ``options`` are further
    options of ``sbatch``, such as ``--constraint=a100``. Fields without a value leave the choice to the scheduler.
    """

    target: _Name = LOCAL
    workers: Annotated[int, Meta(ge=1, le=MAX_WORKERS)] = 1
    cpus: _Amount | None = None
    memory_mb: _Amount | None = None
    minutes: _Amount | None = None
    partition: _Name = ""
    account: _Name = ""
    qos: _Name = ""
    options: Annotated[tuple[_Option, ...], Meta(max_length=20)] = ()
