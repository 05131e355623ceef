"""Start the workers of a training on nodes of a Ray cluster: the only module that imports Ray.

It runs in the entrypoint of a job, with a Python that has Ray in the version of the cluster. A placement group reserves
all nodes at the same time. On each, an actor starts a supervisor, which ends with the actor.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any, Self

import ray
from ray import cloudpickle
from ray.exceptions import RayError
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from digits.runtime import supervisor
from digits.runtime.executors.node_job import NODE_VARIABLE
from digits.runtime.executors.ray import rank

# Ray's workers on the nodes cannot import this package.
for _module in (sys.modules[__name__], rank, supervisor):
    cloudpickle.register_pickle_by_value(_module)


class _Rank(rank.Rank):
    """The actor of one worker, which sees the GPUs that Ray has given to it."""

    def __init__(self, command: list[str], variables: Mapping[str, str]) -> None:
        gpus = os.environ.get("CUDA_VISIBLE_DEVICES", "") if ray.get_gpu_ids() else ""
        super().__init__(command, {**variables, "CUDA_VISIBLE_DEVICES": gpus})


class Gang:
    """The workers of a training, each with its ``resources``: numbers of CPU and GPU, and bytes of memory."""

    has_failed = False

    def __init__(self, workers: int, resources: dict[str, float]) -> None:
        ray.init(log_to_driver=False)
        self._group = placement_group([resources] * workers, strategy="STRICT_SPREAD")
        actor = ray.remote(_Rank)
        self._actors = [
            actor.options(
                num_cpus=resources["CPU"],
                num_gpus=resources.get("GPU", 0),
                memory=resources.get("memory"),
                max_concurrency=2,  # for `stop` during `wait`
                scheduling_strategy=PlacementGroupSchedulingStrategy(self._group, node),
            )
            for node in range(workers)
        ]
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
        for node, actor in enumerate(self._actors):
            self._ranks.append(actor.remote(command, {**os.environ, NODE_VARIABLE: str(node)}))
        self._left = [one.wait.remote() for one in self._ranks]

    def have_ended(self, seconds: float) -> bool:
        ended, self._left = ray.wait(self._left, timeout=seconds)
        for one in ended:
            try:
                self.has_failed |= ray.get(one) != 0
            except RayError:  # its node is lost
                self.has_failed = True
        return not self._left

    def stop(self) -> None:
        for one in self._ranks:
            one.stop.remote()
