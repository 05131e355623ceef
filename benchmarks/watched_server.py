"""A server whose longest callbacks are measured, in CPU time, by the name that each request has in a header."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

from product import ROOT

NAME = "X-Benchmark"


@contextlib.contextmanager
def watched(script: str, *arguments: object) -> Iterator[tuple[int, dict[str, Any], dict[str, float]]]:
    """Run ``script --serve``, which calls `serve`.

    Yield the id of the process and what the server printed at its start. The last item gets the seconds of the longest
    callback for each name when the block ends.
    """
    command = [sys.executable, script, "--serve", *map(str, arguments)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    longest: dict[str, float] = {}
    try:
        yield process.pid, json.loads(process.stdout.readline()), longest
    finally:
        process.send_signal(signal.SIGTERM)
    longest.update(json.loads(process.stdout.readlines()[-1]))
    process.wait()


def serve(site: Any, started: Callable[[], dict[str, Any]]) -> None:
    """Serve a site; print its port with what ``started`` returns, and finally the longest callbacks."""
    from digits.web import loop_watch
    from digits.web.app import load_pages
    from digits.web.server import http as servers

    longest: dict[str, float] = {}

    def note(label: str, seconds: float, cpu_seconds: float) -> None:
        longest[label] = max(cpu_seconds, longest.get(label, 0.0))

    watch = loop_watch.LoopWatch(note)
    labeled = watch.wrap(site.app)
    header = f"HTTP_{NAME.upper().replace('-', '_')}"
    loop_watch.request_line = lambda environ: environ.get(header, "unnamed")

    def begin(port: int) -> None:
        load_pages(site.app)
        print(json.dumps({"port": port, **started()}), flush=True)
        longest.clear()
        watch.start()

    servers.serve(labeled, ("127.0.0.1", 0), socketio=site.services.live.socketio, on_start=begin)
    watch.stop()
    site.close()
    with contextlib.suppress(BrokenPipeError):  # the benchmark was interrupted
        print(json.dumps(longest), flush=True)
