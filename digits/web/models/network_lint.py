"""Check a network's source code without running it, while the user types.

The check is consistent with the worker: both parse with `digits.core.network.source_code` and share the requirements on
the class in `digits.core.network.contract`. Everything else shows only when the code runs.
"""

from __future__ import annotations

import gc
import json
import resource
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import digits
from digits.core.network import contract, source_code

Diagnostic = dict[str, Any]

# Parsing and compiling hold the GIL, for about 20 ms up to this size. The time to compile nested finally clauses
# grows exponentially with their depth.
QUICK_CHARACTERS = 6_000
CHECK_SECONDS = 20.0
MEMORY_BYTES = 2 << 30
_checking = threading.BoundedSemaphore(2)

_PROGRAM = "import sys; sys.path.append(sys.argv[1]); from digits.web.models.network_lint import main; main()"


def check(text: str) -> list[Diagnostic]:
    """Run `lint`, in a separate process for long texts; returns an empty list if it takes too long."""
    if len(text) <= QUICK_CHARACTERS and "finally" not in text:
        return lint(text)
    command = [sys.executable, "-I", "-S", "-c", _PROGRAM, str(Path(digits.__file__).parents[1])]
    with _checking:
        try:
            done = subprocess.run(
                command,
                input=text.encode("utf-8", "surrogatepass"),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=CHECK_SECONDS,
                check=True,
                env={},
            )
        except subprocess.SubprocessError:
            return []
    diagnostics: list[Diagnostic] = json.loads(done.stdout)
    return diagnostics


def lint(text: str) -> list[Diagnostic]:
    """Return errors as ``{line, column, message, hint, severity}``; lines count from 1, columns from 0.

    Blank text has no errors. Raises MemoryError.
    """
    text = source_code.normalize(text)
    if not text.strip():
        return []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = source_code.parse(text)
            faults = contract.faults_in(tree)
            source_code.compile_tree(tree)  # last, because it modifies the tree
    except SyntaxError as error:
        faults = [source_code.describe_syntax_error(error)]
    return [
        {
            "line": fault.line or 1,
            "column": fault.column,
            "message": fault.message,
            "hint": fault.hint,
            "severity": "error",
        }
        for fault in faults
    ]


def main() -> None:
    """Print the errors of the source code read from standard input as JSON."""
    gc.disable()  # long code has millions of nodes, all of which live until the end
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    try:
        diagnostics = lint(sys.stdin.buffer.read().decode("utf-8", "surrogatepass"))
    except MemoryError:
        diagnostics = []
    sys.stdout.write(json.dumps(diagnostics))
