"""Computations in native threads: results, errors, and open files in a server whose standard library is patched."""

from __future__ import annotations

import json

import pytest

from digits.web.offload import in_thread

# Wait in a native thread, which needs a hub of gevent, then read files there; print the open files before and after.
PROGRAM = """
from digits.cli.main import patch_standard_library; patch_standard_library()
import json, os, sys, threading
from pathlib import Path
from digits.core import files
from digits.web.offload import in_thread

folder = Path(sys.argv[1], "a", "b")
folder.mkdir(parents=True)
(folder / "file").write_text("text")
semaphore = threading.Semaphore()

def read():
    return files.read_bytes(folder / "file", below=Path(sys.argv[1]))

def wait_and_read():
    with semaphore:
        pass
    threading.Event().wait(0.001)
    return read()

in_thread(read)
counts = [len(os.listdir("/proc/self/fd"))]
for _ in range(50):
    assert in_thread(wait_and_read) == in_thread(read) == b"text"
counts.append(len(os.listdir("/proc/self/fd")))
print(json.dumps(counts))
"""


@pytest.mark.integration
def test_threads_that_wait_leave_no_descriptors(run_clean, tmp_path):
    answer = run_clean("-c", PROGRAM, str(tmp_path))
    assert answer.returncode == 0, answer.stderr
    before, after = json.loads(answer.stdout)
    assert after <= before


def test_errors_are_raised_in_the_calling_greenlet():
    assert in_thread(max, 2, 3) == 3
    with pytest.raises(ZeroDivisionError):
        in_thread(divmod, 1, 0)
