"""The process that forks the tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

# Refuses to be forked with two threads; serves no request; then imports what the tests of the worker fork from.
SERVES_NOTHING = """
import os, sys, threading
os.environ["OPENBLAS_NUM_THREADS"] = "1"
from digits.worker import forkserver, run
import_programs, run.import_programs = run.import_programs, lambda: None
output, end = os.dup(1), threading.Event()
other = threading.Thread(target=end.wait)
other.start()
assert forkserver.main() == 2
end.set()
other.join()
os.dup2(output, 1)
run.import_programs = import_programs
code = forkserver.main()
before = set(sys.modules)
run.import_programs()
print(code, sorted(set(sys.modules) - before), "tf_slim.nets" in before, file=sys.stderr)
"""


@pytest.mark.tensorflow
def test_tasks_are_forked_with_everything_imported(run_clean: Callable[..., Any]) -> None:
    finished = run_clean("-c", SERVES_NOTHING)
    assert finished.stderr.splitlines()[-1] == "0 [] True", finished.stderr
    refused = '{"error": "2 threads after importing TensorFlow"}\n'
    assert finished.stdout == refused + '{"ready": true}\n'
