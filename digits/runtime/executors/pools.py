"""Pools of tasks: how many tasks run at the same time on one machine, and on which executor they run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from digits.core.compute import LOCAL, MAX_WORKERS, Compute
from digits.core.job import DeviceRequest
from digits.core.task import Handle
from digits.runtime.executors.executor import Executor

# In a handle: the name of the executor that made it, if it is not the local one.
_EXECUTOR_KEY = "executor"


@dataclass(frozen=True)
class Pool:
    """Tasks that share a limit.

    At most ``limit(cores)`` of them run on this machine at the same time, not counting those with GPUs of their own.
    With ``runs_on_cluster``, they run on the compute target of their job, where up to ``max_workers`` processes may
    share one of them; otherwise always on this machine.
    """

    limit: Callable[[int], int] = lambda cores: 1
    runs_on_cluster: bool = False
    max_workers: int = 1


MAX_INFERENCE_SERVERS = 4

# By the names in `DeviceRequest.pool`. The models of a sweep are trainings, each a job of its own.
POOLS: dict[str, Pool] = {
    "dataset": Pool(runs_on_cluster=True),
    # A training on the CPU uses about four cores efficiently.
    "training": Pool(lambda cores: max(1, cores // 4), runs_on_cluster=True, max_workers=MAX_WORKERS),
    "evaluation": Pool(runs_on_cluster=True),
    "embedding": Pool(runs_on_cluster=True),
    "health": Pool(runs_on_cluster=True),
    "export": Pool(runs_on_cluster=True),
    "activity": Pool(runs_on_cluster=True),
    # People wait for these: a cluster would take longer to start them than they take to run.
    "prediction": Pool(),
    "short": Pool(lambda cores: max(2, cores // 4)),
    # Inference servers are asked over a socket in a folder of this machine.
    "inference": Pool(lambda cores: MAX_INFERENCE_SERVERS),
}


def limits() -> dict[str, int]:
    """Return the number of tasks in each pool that may run at the same time on this machine."""
    cores = os.cpu_count() or 1
    return {name: pool.limit(cores) for name, pool in POOLS.items()}


class Executors:
    """The executors of a server: the local one, which uses this machine, and ``others`` by their compute targets."""

    def __init__(self, local: Executor, others: Mapping[str, Executor] | None = None) -> None:
        self.local = local
        self._by_name = {LOCAL: local, **(others or {})}

    def __iter__(self) -> Iterator[Executor]:
        return iter(self._by_name.values())

    @property
    def targets(self) -> Mapping[str, Executor]:
        """The executors by name, the local one first."""
        return self._by_name

    @property
    def stop_seconds(self) -> float:
        """The longest time in which processes normally exit."""
        return max(executor.stop_seconds for executor in self)

    def of(self, request: DeviceRequest) -> Executor:
        """Return the executor of a new run.

        Raises ValueError if this server does not have its target, or if its pool permits fewer workers.
        """
        pool, compute = POOLS.get(request.pool, Pool()), request.compute
        if compute.workers > pool.max_workers:
            raise ValueError(f"{compute.workers} workers cannot share a task of the pool “{request.pool}”")
        name = compute.target if pool.runs_on_cluster else LOCAL
        if name not in self._by_name:
            raise ValueError(f"this server has no compute target “{name}”, only {', '.join(self._by_name)}")
        return self._by_name[name]

    def available(self, compute: Compute) -> Compute:
        """Return ``compute``, or that of this machine if the server does not have its target any more."""
        return compute if compute.target in self._by_name else Compute()

    def of_run(self, request: DeviceRequest, handle: Handle | None) -> Executor:
        """Return the executor of a run: the one that made its ``handle``, even if new runs use another one."""
        if handle is None:
            return self.of(request)
        return self._by_name.get(str(handle.get(_EXECUTOR_KEY, LOCAL)), self.local)

    def signed(self, executor: Executor, handle: Handle) -> Handle:
        """Return ``handle`` with the name of the ``executor`` that made it."""
        name = next(name for name, known in self._by_name.items() if known is executor)
        return handle if name == LOCAL else {**handle, _EXECUTOR_KEY: name}
