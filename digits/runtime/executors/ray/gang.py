"""Start the workers of a training on nodes of a Ray cluster: the only module that imports Ray.

It runs in the entrypoint of a job, with a Python that has Ray in the version of the cluster. A placement group reserves
all nodes at the same time. On each, an actor starts a supervisor, which ends with the actor.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any, Self

import ray
from ray import cloudpickle
from ray.exceptions import RayError
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from digits.runtime import supervisor
from digits.runtime.executors.node_job import NODE_VARIABLE

# Ray's workers on the nodes cannot import this package.
for _module in (sys.modules[__name__], supervisor):
    cloudpickle.register_pickle_by_value(_module)


class _Rank:
    """The actor of one worker."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        # Ray has set the GPUs of this actor.
        gpus = os.environ.get("CUDA_VISIBLE_DEVICES", "") if ray.get_gpu_ids() else ""
        own = {"CUDA_VISIBLE_DEVICES": gpus, supervisor.OWNER_VARIABLE: supervisor.owner_id(os.getpid())}
        null = subprocess.DEVNULL
        self._process = subprocess.Popen(
            command, env={**environment, **own}, stdin=null, stdout=null, stderr=null, start_new_session=True
        )

    def wait(self) -> int:
        return self._process.wait()

    def stop(self) -> None:
        self._process.terminate()


class Gang:
    """The workers of a training, each with its ``resources``: numbers of CPU and GPU, and bytes of memory."""

    has_failed = False

    def __init__(self, workers: int, resources: dict[str, float]) -> None:
        ray.init(log_to_driver=False)
        self._resources = resources
        self._group = placement_group([resources] * workers, strategy="STRICT_SPREAD")
        self._workers = workers
        self._ranks: list[Any] = []
        self._left: list[Any] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        remove_placement_group(self._group)
        ray.shutdown()

    def has_nodes(self, seconds: float) -> bool:
        """Wait for the nodes for at most ``seconds``; return whether all are reserved."""
        return bool(self._group.wait(seconds))

    def start(self, command: list[str]) -> None:
        """Start ``command`` on each node."""
        actor = ray.remote(_Rank)
        for node in range(self._workers):
            options = actor.options(
                num_cpus=self._resources.get("CPU", 0),
                num_gpus=self._resources.get("GPU", 0),
                memory=self._resources.get("memory"),
                max_concurrency=2,  # for `stop` during `wait`
                scheduling_strategy=PlacementGroupSchedulingStrategy(self._group, node),
            )
            self._ranks.append(options.remote(command, {**os.environ, NODE_VARIABLE: str(node)}))
        self._left = [rank.wait.remote() for rank in self._ranks]

    def have_ended(self, seconds: float) -> bool:
        ended, self._left = ray.wait(self._left, timeout=seconds)
        for one in ended:
            try:
                self.has_failed |= ray.get(one) != 0
            except RayError:  # its node is lost
                self.has_failed = True
        return not self._left

    def stop(self) -> None:
        for rank in self._ranks:
            rank.stop.remote()
