"""The process that forks the tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

# Serves no request, then imports what the tests of the worker fork from.
SERVES_NOTHING = """
import os, sys
os.environ["OPENBLAS_NUM_THREADS"] = "1"
from digits.worker import forkserver, run
code = forkserver.main()
before = set(sys.modules)
run.import_programs()
print(code, sorted(set(sys.modules) - before), "tf_slim.nets" in before, file=sys.stderr)
"""


@pytest.mark.tensorflow
def test_tasks_are_forked_with_everything_imported(run_clean: Callable[..., Any]) -> None:
    finished = run_clean("-c", SERVES_NOTHING)
    assert finished.stderr.splitlines()[-1] == "0 [] True", finished.stderr
    assert finished.stdout == '{"ready": true}\n'
