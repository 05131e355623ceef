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

    A run is interrupted after ``minutes``. Fields from ``partition`` on are Slurm's. Fields without a value leave the
    choice to the scheduler. Forms and ``digits train`` show the titles and descriptions.
    """

    target: Annotated[_Name, Meta(title="Run on", description="The compute target.")] = LOCAL
    workers: Annotated[
        int,
        Meta(
            ge=1,
            le=MAX_WORKERS,
            title="Workers",
            description="Processes that share a training, with the same curves. On this machine, they divide the "
            "chosen GPUs equally; on a cluster, each has a node.",
        ),
    ] = 1
    cpus: Annotated[_Amount | None, Meta(title="Cores", description="CPU cores for each worker.")] = None
    memory_mb: Annotated[
        _Amount | None, Meta(title="Memory", description="Memory for each worker in MiB.")
    ] = None
    minutes: Annotated[
        _Amount | None,
        Meta(title="Time limit", description="Minutes after which the cluster interrupts a run."),
    ] = None
    partition: Annotated[_Name, Meta(title="Partition", description="A group of nodes.")] = ""
    account: Annotated[_Name, Meta(title="Account", description="The account that is charged.")] = ""
    qos: Annotated[_Name, Meta(title="QoS", description="The quality of service.")] = ""
    options: Annotated[
        tuple[_Option, ...],
        Meta(max_length=20, title="Additional options", description="Options of sbatch, one per line."),
    ] = ()
