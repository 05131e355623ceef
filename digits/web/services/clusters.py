"""The clusters on which jobs can run: what their schedulers report, and checks of their setup and of forms."""

from __future__ import annotations

import itertools
import logging
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import gevent

from digits.core.compute import LOCAL
from digits.core.files import make_folder
from digits.core.job import DeviceRequest
from digits.core.task import Failure
from digits.kinds.forms.compute import ComputeFields
from digits.runtime.executors.cluster import ClusterExecutor, Finding, Overview
from digits.runtime.executors.folder_check import check_folder
from digits.runtime.offload import in_thread

log = logging.getLogger(__name__)

LOCAL_TITLE = "This machine"
# A page waits this long for a scheduler, whose commands may take 20 seconds, after it was asked.
PATIENCE_SECONDS = 2.0
FRESH_SECONDS = 5.0
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


@dataclass
class Check:
    """A check of a cluster: its ``findings`` so far, and the Unix time ``at`` which it began."""

    at: float = field(default_factory=time.time)
    findings: list[Finding] = field(default_factory=list)
    is_running: bool = True


@dataclass
class ClusterState:
    """What is known of a cluster: the latest overview, why the scheduler did not answer since, and the latest check.

    Without an ``overview`` or a ``problem``, the scheduler has not answered yet. ``at`` is the Unix time of the
    overview.
    """

    overview: Overview | None = None
    at: float | None = None
    problem: str = ""
    check: Check | None = None


class Clusters:
    """The clusters of the server by target. ``folder`` must be on the file system that their nodes share."""

    def __init__(self, executors: Mapping[str, ClusterExecutor], folder: Path) -> None:
        self._executors, self._folder = executors, folder
        self._states = {name: ClusterState() for name in executors}
        self._fresh_until: dict[str, float] = {}
        self._asked_at: dict[str, float] = {}
        self._asking: dict[str, gevent.Greenlet] = {}
        self._checking: dict[str, gevent.Greenlet] = {}

    @property
    def names(self) -> list[str]:
        """The targets that are clusters."""
        return [*self._executors]

    @property
    def titles(self) -> dict[str, str]:
        """The titles of all targets of the server by name, that of its own machine first."""
        return {LOCAL: LOCAL_TITLE} | {name: executor.title for name, executor in self._executors.items()}

    def state(self, name: str) -> ClusterState:
        """Return the state of a cluster, which is at most a few seconds old, unless its scheduler takes longer."""
        state = self._states[name]
        now = time.monotonic()
        if self._fresh_until.get(name, 0.0) <= now and name not in self._asking:
            self._asked_at[name] = now
            self._asking[name] = gevent.spawn(self._ask, name)
        if name in self._asking:
            self._asking[name].join(max(0.0, self._asked_at[name] + PATIENCE_SECONDS - now))
        return state

    def nodes(self, name: str, folder: Path) -> str:
        """Return the nodes of the latest run of the task in ``folder``; empty if unknown."""
        return self._executors[name].nodes(folder) if name in self._executors else ""

    def check(self, name: str) -> None:
        """Check a cluster in the background, unless it is being checked."""
        if name not in self._checking:
            self._states[name].check = check = Check()
            self._checking[name] = gevent.spawn(self._run_check, name, check)

    def partitions(self) -> dict[str, list[str]]:
        """Return the names of the partitions of each cluster whose scheduler has answered, the default one first."""
        overviews = {name: self.state(name).overview for name in self.names}
        return {name: [*overview.partitions] for name, overview in overviews.items() if overview}

    def check_target(self, form: ComputeFields, request: DeviceRequest) -> None:
        """Add an error to the valid ``form`` of a job if the scheduler of its target would refuse the ``request``."""
        if request.compute.target not in self.titles:
            form.compute_target.errors = ["This server has no such compute target. Choose another one."]
            return
        refused = self._refusal(request)
        if refused is None:
            return
        about = next(
            (
                name
                for words, name in _ABOUT.items()
                if name in form and re.search(words, refused.message, re.I)
            ),
            "compute_target",
        )
        sentences = f"{refused.message.rstrip('.')}. {refused.hint}".strip()
        form[about].errors = [*form[about].errors, sentences]

    def _refusal(self, request: DeviceRequest) -> Failure | None:
        """Return why the scheduler of the request's target would refuse it, or why it cannot be asked."""
        executor = self._executors.get(request.compute.target)
        if executor is None:
            return None
        try:
            make_folder(self._folder)
            return in_thread(executor.refusal, self._folder, request)
        except OSError as error:
            return Failure(str(error), "Try again, or choose another target.")

    def close(self) -> None:
        """Report nothing more. Threads that wait for a scheduler end by its time limits."""
        gevent.killall([*self._asking.values(), *self._checking.values()], block=False)

    def _ask(self, name: str) -> None:
        state = self._states[name]
        try:
            state.overview, state.problem = in_thread(self._executors[name].overview), ""
            state.at = time.time()
        except OSError as error:
            state.problem = str(error)
        except Exception as error:
            log.exception("the overview of %s failed", name)
            state.problem = f"{type(error).__name__}: {error}"
        finally:
            self._fresh_until[name] = time.monotonic() + FRESH_SECONDS
            del self._asking[name]

    def _run_check(self, name: str, check: Check) -> None:
        try:
            make_folder(self._folder)
            findings = itertools.chain(self._executors[name].check(self._folder), check_folder(self._folder))
            while (finding := in_thread(next, findings, None)) is not None:
                check.findings.append(finding)
        except Exception as error:
            if not isinstance(error, OSError):
                log.exception("the check of %s failed", name)
            remedy = "Correct this, and check again."
            check.findings.append(
                Finding(title="The check ended early", is_ok=False, detail=str(error), remedy=remedy)
            )
        finally:
            check.is_running = False
            self._fresh_until.pop(name, None)
            del self._checking[name]
