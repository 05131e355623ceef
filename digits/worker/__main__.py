"""``python -m digits.worker TASK_FOLDER`` runs the task in that folder."""

from __future__ import annotations

import sys
from pathlib import Path

from digits.worker.run import keep_output_open, run_task


def main() -> int:
    """Run the task named on the command line; returns the exit code."""
    if len(sys.argv) != 2:
        sys.stderr.write("usage: python -m digits.worker TASK_FOLDER\n")
        return 2
    keep_output_open()
    return run_task(Path(sys.argv[1]).absolute())


if __name__ == "__main__":
    sys.exit(main())
