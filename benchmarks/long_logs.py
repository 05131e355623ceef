#!/usr/bin/env python3
"""Measure pages, restarts and memory of a server whose jobs have long event logs.

    .venv/bin/python benchmarks/long_logs.py

The first training reported progress twice a second for a week, the second has 400,000 rows of metrics, and the third
has a week-long log and was running when the server stopped. The fourth belongs to a hostile network. The server starts
twice. The benchmark measures CPU time, which depends little on the machine's load.
"""

from __future__ import annotations

import argparse
import http.client
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

WEEK_LINES = 1_200_000
ROWS = 400_000
MEGABYTE = 1 << 20
GIVE_UP_SECONDS = 600.0
LABEL = "X-Benchmark"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--scale", type=float, default=1.0, help="length of the logs")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(Path(options.serve), options.scale)
        return
    with tempfile.TemporaryDirectory() as folder:
        for start in ("first", "second"):
            print(json.dumps({"start": start, **measure(folder, options.scale)}), flush=True)


def measure(folder: str, scale: float) -> dict[str, Any]:
    command = [sys.executable, __file__, "--serve", folder, "--scale", str(scale)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    try:
        ready = json.loads(process.stdout.readline())
        server = psutil.Process(process.pid)
        first_page = ask(ready["port"], "/")
        result: dict[str, Any] = {
            "start_cpu_s": ready["cpu_s"],
            "start_s": ready["s"],
            "first_page": first_page,
        }
        while "Running" in str(
            ask(ready["port"], f"/models/{ready['models']['running']}/status", text=True)["text"]
        ):
            time.sleep(0.1)
        result["caught_up_cpu_s"] = round(sum(server.cpu_times()[:2]) - ready["cpu_before_s"], 2)
        for name, model in ready["models"].items():
            for path in (
                f"/models/{model}",
                f"/models/{model}/metrics.json",
                f"/models/{model}/metrics.json?after=0",
            ):
                result[f"{name}{path.removeprefix(f'/models/{model}') or ' page'}"] = ask(ready["port"], path)
            result[f"{name}/metrics.csv"] = ask(ready["port"], f"/models/{model}/metrics.csv")
        result["home"] = ask(ready["port"], "/")
        memory = server.memory_info().rss
    finally:
        process.send_signal(signal.SIGTERM)
    worst = json.loads(process.stdout.readlines()[-1])
    process.wait()
    slowest = sorted(worst, key=worst.__getitem__, reverse=True)[:12]
    return {
        **result,
        "memory_mb": round(memory / 1e6),
        "worst_callbacks_ms": {name: round(1000 * worst[name], 1) for name in slowest},
    }


def ask(port: int, path: str, text: bool = False) -> dict[str, Any]:
    began = time.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=GIVE_UP_SECONDS)
    try:
        connection.request("GET", path, headers={LABEL: path, "Accept": "text/html"})
        answer = connection.getresponse()
        body = answer.read()
    finally:
        connection.close()
    found = {"status": answer.status, "s": round(time.monotonic() - began, 2), "bytes": len(body)}
    return {**found, "text": body.decode()} if text else found


def serve(folder: Path, scale: float) -> None:
    """Run the server to measure; print its port and models, and finally the longest callbacks."""
    from digits.cli.main import patch_standard_library

    patch_standard_library()

    from digits.core.settings import Settings
    from digits.web import loop_watch
    from digits.web.app import load_templates
    from digits.web.server import http as servers
    from tests.site import open_site

    settings = Settings(
        port=0,
        login=False,
        jobs_dir=folder / "jobs",
        data_roots=(folder / "data",),
        samples_dir=folder / "samples",
        state_dir=folder / "state",
        logfile_filename=folder / "digits.log",
        standby=False,
    )
    known = folder / "models.json"
    if not known.exists():
        site = open_site(settings)
        dataset = site.dataset()
        site.wait_for_end(dataset)
        known.write_text(json.dumps(make_models(site, dataset, scale)))
        site.services.stop()
    models = json.loads(known.read_text())
    worst: dict[str, float] = {}

    def note(label: str, seconds: float, cpu_seconds: float) -> None:
        worst[label] = max(cpu_seconds, worst.get(label, 0.0))

    cpu_before, before = time.process_time(), time.monotonic()
    site = open_site(settings)
    started = {"cpu_s": round(time.process_time() - cpu_before, 2), "s": round(time.monotonic() - before, 2)}
    watch = loop_watch.LoopWatch(note)
    labeled = watch.wrap(site.app)
    header = f"HTTP_{LABEL.upper().replace('-', '_')}"
    loop_watch.request_line = lambda environ: environ.get(header, "unnamed")

    def begin(port: int) -> None:
        load_templates(site.app)
        ready = {"port": port, "models": models, "cpu_before_s": cpu_before, **started}
        print(json.dumps(ready), flush=True)
        watch.start()

    servers.serve(labeled, ("127.0.0.1", 0), socketio=site.services.live.socketio, on_start=begin)
    watch.stop()
    site.services.stop()
    print(json.dumps(worst))


def make_models(site: Any, dataset: str, scale: float) -> dict[str, str]:
    """Create the models, and return their ids by name."""
    logs = {
        "week": week(scale),
        "rows": rows(scale),
        "hostile": hostile(scale),
        "running": week(scale),
    }
    models = {}
    for name, lines in logs.items():
        models[name] = site.finished_model(dataset, 1)
        folder = site.services.store.folder / models[name]
        with open(folder / "train" / "events.jsonl", "wb") as log:
            log.writelines(lines)
        if name == "running":
            body = json.loads((folder / "job.json").read_text())
            for history in (body["history"], body["tasks"][0]["history"]):
                history.pop()
            body["tasks"][0]["handle"] = {"boot": "of long ago", "pid": 12345, "began": 100, "run": 1}
            (folder / "job.json").write_text(json.dumps(body))
    return models


def week(scale: float = 1.0) -> Iterator[bytes]:
    """Yield the log of a week-long training that reported progress twice a second."""
    lines = int(WEEK_LINES * scale)
    for number in range(lines):
        at = 1.7e9 + number / 2
        left = (lines - number) / 2
        yield (
            b'{"event":"progressed","at":%.6f,"fraction":%.6f,"seconds_left":%.10f,"doing":"Training"}\n'
            % (
                at,
                number / lines,
                left,
            )
        )
        if number % 240 == 0:
            yield row(number, lines)


def rows(scale: float = 1.0) -> Iterator[bytes]:
    """Yield a log with many rows of metrics."""
    count = int(ROWS * scale)
    return (row(number, count) for number in range(count))


def row(number: int, count: int) -> bytes:
    values = {
        "loss": 2.0 / (1 + number / 1000) + 0.1 * ((number * 7919) % 101) / 101,
        "accuracy": 0.5 + number / count / 2,
        "learning_rate": 0.01,
        "images_per_second": 1234.5678 + number % 17,
    }
    body = {"event": "measured", "at": 1.7e9 + number / 2, "stage": "train", "step": number + 1}
    return json.dumps({**body, "epoch": (number + 1) / count * 30, "values": values}).encode() + b"\n"


def hostile(scale: float = 1.0) -> Iterator[bytes]:
    """Yield a log whose lines are as large or as expensive as possible."""
    turns = max(1, int(3 * scale))

    def line(event: str, **fields: Any) -> bytes:
        return json.dumps({"event": event, "at": 1.7e9, **fields}, separators=(",", ":")).encode() + b"\n"

    names = {f"m{number}": number / 7 for number in range(40_000)}
    layer = {"name": "n", "type": "t", "shape": [1], "parameters": 1}
    taken = {f"v{number}": "w" for number in range(60_000)}
    for turn in range(turns):
        yield line("measured", stage="train", step=turn, epoch=turn, values=names)
        yield line("built", layers=[layer] * 18_000, parameters=1)
        yield line(
            "weights_loaded",
            source="s",
            taken=taken,
            missing=[],
            of_other_shape={},
            unused=[],
            frozen=[],
            no_weights=[],
        )
        yield line("counted", split="train", labels=["c"] * 120_000, counts=[1] * 120_000)
        yield line("warned", message="<&" * 500_000)
        yield line("skipped", path="<" * 1_000_000, reason="r")
        yield line("usage_sampled", cpu_percent=1, memory_bytes=1, gpus=[{"i": 1}] * 90_000)
        yield line("finished", result={"x": [1] * 450_000})
        yield line("progressed", fraction=0.5, doing="x" * 1_000_000)
        yield b"[" * 1_000_000 + b"\n"
        yield bytes(8 * MEGABYTE) + b"\n"
        for step in range(1000):  # a thousand metrics, each in separate rows
            yield line(
                "measured", stage="val", step=step, epoch=1, values={f"v{step}": 1.0, f"v{step // 2}": 2.0}
            )
        yield line("measured", stage="val", step=5, epoch=1, values={"v5": 1.0}) * 5000
        yield line("resumed", step=turn, epoch=1) * 5000
        for number in range(3000):
            yield line("saved", epoch=number, step=1, path=f"{turn} {number}")


if __name__ == "__main__":
    main()
