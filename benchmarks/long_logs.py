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
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
from product import cpu_seconds
from watched_server import NAME, serve, watched

WEEK_LINES = 1_200_000
ROWS = 400_000
MEGABYTE = 1 << 20
GIVE_UP_SECONDS = 600.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--scale", type=float, default=1.0, help="length of the logs")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        run_server(Path(options.serve), options.scale)
        return
    with tempfile.TemporaryDirectory() as folder:
        for start in ("first", "second"):
            print(json.dumps({"start": start, **measure(folder, options.scale)}), flush=True)


def measure(folder: str, scale: float) -> dict[str, Any]:
    with watched(__file__, folder, "--scale", scale) as (pid, ready, longest):
        port = ready["port"]
        result: dict[str, Any] = {name: ready[name] for name in ("start_cpu_s", "start_s")}
        result["first_page"] = ask(port, "/")
        running = f"/models/{ready['models']['running']}/status"
        while "Running" in ask(port, running, text=True)["text"]:
            time.sleep(0.1)
        result["caught_up_cpu_s"] = round(cpu_seconds(pid) - ready["cpu_before_s"], 2)
        for name, model in ready["models"].items():
            for part in ("", "/metrics.json", "/metrics.json?after=0", "/metrics.csv"):
                result[f"{name}{part or ' page'}"] = ask(port, f"/models/{model}{part}")
        result["home"] = ask(port, "/")
        memory = psutil.Process(pid).memory_info().rss
    slowest = sorted(longest, key=longest.__getitem__, reverse=True)[:12]
    return {
        **result,
        "memory_mb": round(memory / 1e6),
        "worst_callbacks_ms": {name: round(1000 * longest[name], 1) for name in slowest},
    }


def ask(port: int, path: str, text: bool = False) -> dict[str, Any]:
    began = time.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=GIVE_UP_SECONDS)
    try:
        connection.request("GET", path, headers={NAME: path, "Accept": "text/html"})
        answer = connection.getresponse()
        body = answer.read()
    finally:
        connection.close()
    found = {"status": answer.status, "s": round(time.monotonic() - began, 2), "bytes": len(body)}
    return {**found, "text": body.decode()} if text else found


def run_server(folder: Path, scale: float) -> None:
    from digits.cli.main import patch_standard_library

    patch_standard_library()

    from tests.site import open_site, site_settings

    settings = site_settings(folder, health_checks=True, evaluations=True)
    known = folder / "models.json"
    if not known.exists():
        site = open_site(settings)
        dataset = site.dataset()
        site.wait_for_end(dataset)
        known.write_text(json.dumps(make_models(site, dataset, scale)))
        site.services.stop()
    cpu_before, before = time.process_time(), time.monotonic()
    site = open_site(settings)
    ready = {
        "start_cpu_s": round(time.process_time() - cpu_before, 2),
        "start_s": round(time.monotonic() - before, 2),
        "cpu_before_s": cpu_before,
        "models": json.loads(known.read_text()),
    }
    serve(site, lambda: ready)


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
        text = b'{"event":"progressed","at":%.6f,"fraction":%.6f,"seconds_left":%.10f,"doing":"Training"}\n'
        yield text % (at, number / lines, left)
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
