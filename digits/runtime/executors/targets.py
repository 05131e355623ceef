"""The clusters that the settings configure, by compute target."""

from __future__ import annotations

from digits.core.settings import Settings
from digits.runtime.executors.cluster import ClusterExecutor
from digits.runtime.executors.ray.executor import RayExecutor
from digits.runtime.executors.slurm.executor import SlurmExecutor


def configured_clusters(settings: Settings) -> dict[str, ClusterExecutor]:
    """Return the executors of the clusters that this server uses, by their compute targets."""
    clusters: dict[str, ClusterExecutor] = {}
    if settings.slurm:
        clusters["slurm"] = SlurmExecutor(
            settings.jobs_dir, pass_env=settings.pass_env, per_owner=settings.cluster_jobs
        )
    if settings.ray:
        clusters["ray"] = RayExecutor(
            settings.jobs_dir,
            settings.ray,
            token=settings.ray_token,
            pass_env=settings.pass_env,
            per_owner=settings.cluster_jobs,
        )
    return clusters
