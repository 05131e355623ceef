"""The program of a Slurm job (see `digits.runtime.executors.node_job`), which runs on the first of its nodes.

    python -P -S -m digits.runtime.executors.slurm.batch FOLDER TOKEN WORKERS PROGRAM ARGUMENT…

It starts one supervisor per node with ``srun``. After a preemption, a time limit or the loss of a node, a run is queued
again.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from digits.runtime.executors.node_job import NodeJob, Record, say

# Slurm has this long to end a job that is queued again, or to answer that request.
REQUEUE_SECONDS = 600.0
RETRY_SECONDS = 2.0

# Numbers the node, and becomes the supervisor.
_ON_NODE = 'export DIGITS_NODE="$SLURM_PROCID"; exec "$@"'


class Job(NodeJob):
    """One attempt of a run as a Slurm job."""

    title = "Slurm"
    advice = "Request a longer time limit, or a partition without preemption"

    def nodes(self) -> str:
        return os.environ.get("SLURM_JOB_NODELIST", "")

    def _run_supervisors(self, command: list[str]) -> None:
        count = str(self._workers)
        step = ["srun", "--kill-on-bad-exit=1", "--export=ALL", "--input=none", "--mpi=none"]
        step += [f"--nodes={count}", f"--ntasks={count}", "--ntasks-per-node=1"]
        if cpus := os.environ.get("SLURM_CPUS_PER_TASK"):  # which srun does not inherit
            step.append(f"--cpus-per-task={cpus}")
        self._save("running")
        code = subprocess.call([*step, "/bin/sh", "-c", _ON_NODE, "sh", *command])
        say(f"srun ended with code {code}")

    def _start_again(self, record: Record | None) -> int:
        job_id = os.environ["SLURM_JOB_ID"]
        self._save("interrupted")
        deadline = time.monotonic() + REQUEUE_SECONDS
        was_asked = False
        while time.monotonic() < deadline:  # until Slurm ends this program
            job = _ask_slurm(job_id)
            state = job.get("JobState", "")
            is_newer = int(job.get("Restarts", "0")) > int(os.environ.get("SLURM_RESTART_COUNT", "0"))
            # A controller that crashes may forget the request: then the job is still running.
            if not (is_newer or (was_asked and state != "RUNNING")):
                is_ending = state in ("COMPLETING", "CANCELLED") and job.get("Reason") == "None"
                if is_ending and job.get("PreemptTime", "None") == "None":
                    return self._end_canceled(record)
                code, text = scontrol("requeue", job_id)
                was_asked |= code == 0
                if code == 0:
                    say("queued again after an interruption")
                elif not ("contact" in text or "timed out" in text):
                    say(f"Slurm does not queue it again: {text.strip()}")
                    break  # and the server submits it again
            time.sleep(RETRY_SECONDS)
        return 1


def _ask_slurm(job_id: str) -> dict[str, str]:
    """Return the fields of a job, or none if the controller does not answer."""
    text = scontrol("show", "job", job_id, "--oneliner")[1]
    fields = (word.partition("=") for word in text.split())
    return {name: value for name, _, value in fields}


def scontrol(*arguments: str) -> tuple[int, str]:
    """Return the exit code and the output of ``scontrol``."""
    done = subprocess.run(["scontrol", *arguments], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


if __name__ == "__main__":
    # Slurm signals the supervisors as well, which stop the task; this program records how it ended.
    signal.signal(signal.SIGTERM, lambda *_: None)
    sys.exit(Job(*sys.argv[1:]).main())
