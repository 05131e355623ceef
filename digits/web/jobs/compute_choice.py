"""The compute targets that forms offer, and the check of the chosen one before a job is queued."""

from __future__ import annotations

import re

from digits.core.job import DeviceRequest
from digits.kinds.forms.compute import ComputeFields
from digits.web.services import services

# The form field to which a scheduler's message refers, by words in the message; the first match applies.
_ABOUT = {
    r"--\w": "compute_options",
    r"\baccount\b": "compute_account",
    r"\bpartition\b": "compute_partition",
    r"\bqos\b": "compute_qos",
    r"time ?limit": "compute_minutes",
    r"\bmemory\b": "compute_memory_mb",
    r"\bgres\b|generic resource|\bgpus?\b": "select_gpu_count",
    r"node count|\bworkers\b": "compute_workers",
    r"\bcpus?\b|processors|\bcores?\b": "compute_cpus",
    r"feature|constraint|\boptions?\b": "compute_options",
}


def offer_targets(form: ComputeFields) -> None:
    """Offer the targets of this server."""
    form.offer_targets(services().clusters.titles)


def partitions_of_clusters() -> dict[str, list[str]]:
    """Return the names of the partitions of each cluster whose scheduler has answered, the default one first."""
    clusters = services().clusters
    overviews = {name: clusters.state(name).overview for name in clusters.names}
    return {name: [*overview.partitions] for name, overview in overviews.items() if overview}


def check_target(form: ComputeFields, request: DeviceRequest) -> None:
    """Add an error to the valid ``form`` of a job if the scheduler of its target would refuse the ``request``."""
    clusters = services().clusters
    if request.compute.target not in clusters.titles:
        form.compute_target.errors = ["This server has no such compute target. Choose another one."]
        return
    refused = clusters.refusal(request)
    if refused is None:
        return
    about = next(
        (name for words, name in _ABOUT.items() if name in form and re.search(words, refused.message, re.I)),
        "compute_target",
    )
    sentences = f"{refused.message.rstrip('.')}. {refused.hint}".strip()
    form[about].errors = [*form[about].errors, sentences]
