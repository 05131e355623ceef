"""Commands of schedulers, in a process like the server's."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

PROGRAM = """
from digits.cli.main import patch_standard_library
patch_standard_library()
import os
from digits.runtime.executors.cluster import Unreachable
from digits.runtime.executors.commands import Commands
from digits.runtime.offload import in_thread

commands = Commands(os.environ, seconds=1)
print(in_thread(commands.run, "sh", "-c", "echo out; echo err >&2; exit 3"))
for command in (["sleep", "60"], ["no-such-command"]):
    try:
        in_thread(commands.run, *command)
    except Unreachable as error:
        print(error)
"""


@pytest.mark.integration
def test_commands_run_in_threads_of_a_process_with_gevent(
    run_clean: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    done = run_clean("-c", PROGRAM)
    assert done.stdout.splitlines() == [
        "(3, 'out\\nerr')",
        "sleep did not end within 1 s",
        "the command no-such-command is not installed",
    ], done.stderr
