"""Measure how long requests block the event loop: the longest CPU time of a single callback, for each route.

    .venv/bin/python benchmarks/event_loop.py [--rows 2000] [--jobs 0] [--slowest 20]

Starts a server with a small dataset, a finished model and models with long event logs: one reported progress twice a
second for a week, one has 400,000 rows of metrics, and one belongs to a hostile network. Sends every route ordinary
requests and large inputs, and prints one line of JSON: the longest callback in milliseconds, the target, and the
slowest requests. Requests that take longer than a second are reported on stderr; with other programs on the machine,
all of them may take ten minutes. ``--rows`` is the length of the model's curves, and ``--jobs`` adds finished jobs. A
running request blocks all others, so this is their maximum delay. The benchmark measures CPU time, which depends little
on the machine's load.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from product import ROOT

TARGET_MILLISECONDS = 50
# The header with the name of a request.
NAME = "X-Benchmark"
WEEK_LINES = 1_200_000
ROWS = 400_000
WEIGHTS_BYTES = 32 << 20
GIVE_UP_SECONDS = 120.0
SLOW_SECONDS = 1.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--jobs", type=int, default=0)
    parser.add_argument("--slowest", type=int, default=20)
    parser.add_argument("--logs", type=float, default=1.0, help="length of the long logs")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        run_server(Path(options.serve), options.rows, options.logs, options.jobs)
        return
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measure(folder, options)))


def measure(folder: str, options: argparse.Namespace) -> dict[str, Any]:
    statuses = {}
    arguments = (folder, "--rows", options.rows, "--logs", options.logs, "--jobs", options.jobs)
    with watched(*arguments) as (_, started, longest):
        for name, request in requests(started):
            began = time.monotonic()
            statuses[name] = send(started["port"], name, *request)
            seconds = time.monotonic() - began
            if seconds > SLOW_SECONDS:
                print(f"{seconds:.1f} s: {name} ({statuses[name]})", file=sys.stderr, flush=True)
    order = sorted(longest, key=longest.__getitem__, reverse=True)[: options.slowest]
    return {
        "worst_callback_ms": round(1000 * max(longest.values()), 1),
        "target_ms": TARGET_MILLISECONDS,
        "requests": len(statuses),
        "server_errors": [name for name, status in statuses.items() if status >= 500],
        "slowest_ms": {name: [round(1000 * longest[name], 1), statuses.get(name)] for name in order},
    }


def run_server(folder: Path, rows: int, logs: float, jobs: int) -> None:
    from digits.cli.main import patch_standard_library

    patch_standard_library()

    from tests.site import open_site, site_settings

    if jobs:
        from simulation import make_jobs

        make_jobs(folder / "jobs", jobs)
    site = open_site(site_settings(folder))
    dataset = site.dataset()
    site.wait_for_end(dataset)
    model = site.finished_model(dataset, rows, uuid.uuid4().bytes * (WEIGHTS_BYTES // 16))
    long = make_models(site, dataset, logs)

    def started() -> dict[str, Any]:
        rules = {
            (str(rule), method) for rule in site.app.url_map.iter_rules() for method in rule.methods or ()
        }
        return {"dataset": dataset, "model": model, "long": long, "rules": sorted(rules)}

    serve(site, started)


@contextlib.contextmanager
def watched(*arguments: object) -> Iterator[tuple[int, dict[str, Any], dict[str, float]]]:
    """Run this script with ``--serve``, which calls `serve`.

    Yield the id of the process and what the server printed at its start. The last item gets the seconds of the longest
    callback for each name when the block ends.
    """
    command = [sys.executable, __file__, "--serve", *map(str, arguments)]
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


Request = tuple[str, str, bytes | None, dict[str, str]]


def requests(started: dict[str, Any]) -> Iterator[tuple[str, Request]]:
    """The name, method, path, body and headers of each request."""
    dataset, model = started["dataset"], started["model"]
    for rule, method in started["rules"]:
        if "<path:" in rule or method in ("DELETE", "OPTIONS", "HEAD") or "try/" in rule:
            continue
        for job_id in (dataset, model):
            path = rule.replace("<job_id>", job_id).replace("<any(jobs, datasets, models):place>", "jobs")
            path = path.replace("<split>", "train").replace("<int:number>", "3").replace("<ending>", "zip")
            if "tensorboard" in path or "savedmodel" in path or "classify" in path:
                continue  # these run in separate processes
            yield f"{method} {rule}", (method, path, None, {"Accept": "text/html"})
    yield from large_requests(dataset, model)
    for name, model_id in started["long"].items():
        for path in ("", "/metrics.json", "/metrics.json?after=0", "/metrics.csv"):
            request = "GET", f"/models/{model_id}{path}", None, {"Accept": "text/html"}
            yield f"{path or 'page'} of the log {name}", request


def large_requests(dataset: str, model: str) -> Iterator[tuple[str, Request]]:
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    page = {**form, "Accept": "text/html"}

    def post(path: str, body: bytes, headers: dict[str, str] = form) -> Request:
        return "POST", path, body, headers

    create = "/models/images/classification"
    for kilobytes in (8, 64, 512, 960):
        for kind, unit in {"x=1": "x=1\n", "x": "x\n", "escapes": '"\n"\n'}.items():
            text = unit * (kilobytes * 1024 // len(unit))
            body = urlencode({"custom_network": text}).encode()
            yield f"lint {kilobytes} KB of {kind}", post("/models/lint", body)
    network = {"model_name": "x", "dataset": dataset, "method": "custom", "custom_network": "x=1\n" * 200_000}
    yield "create with a network of 800 KB", post(create, urlencode(network).encode(), page)
    yield "create with a network of 800 KB, multipart", multipart(create, network)
    yield (
        "lint of nested names",
        post("/models/lint", f"custom_network=class+UserModel(a{'.b' * 900}):+pass".encode()),
    )
    for megabytes in (1, 3, 8, 15):
        fields = b"a=&" * (megabytes * 349_525)
        for path in ("/login", "/static/x.js", "/nothing", create, "/models/customize"):
            yield f"{megabytes} MB of fields to {path}", post(path, fields, page)
        yield f"{megabytes} MB of escapes", post(create, b"a=" + b"%0A" * (megabytes * 349_525), page)
        yield (
            f"{megabytes} MB of nested JSON",
            post("/login", b"[" * (megabytes << 20), {"Content-Type": "application/json"}),
        )
        flat = b"[" + b"[]," * (megabytes * 349_525) + b"0]"
        yield f"{megabytes} MB of flat JSON", post("/login", flat, {"Content-Type": "application/json"})
        parts = {f"field{number}": "" for number in range(megabytes * 900)}
        yield f"{megabytes * 900} parts", multipart("/login", parts)
    rates = ",".join(["0.1"] * 20_000)
    yield "20,000 rates drawn", post("/models/visualize-lr", urlencode({"learning_rate": rates}).encode())
    steps = {"learning_rate": ",".join(["0.1"] * 50), "lr_policy": "multistep"}
    steps["lr_multistep_values"] = ",".join(["50"] * 100)
    yield "50 rates of 100 steps drawn", post("/models/visualize-lr", urlencode(steps).encode())
    wide = {"learning_rate": rates, "lr_multistep_values": rates, "select_gpus_list": "1 ," * 300_000}
    yield "a form of long lists", post(create, urlencode(wide).encode(), page)
    for size in (256, 1024, 4096):
        for encoding in ("png", "jpg", "none"):
            for mode in ("squash", "fill"):
                asked = {"width": size, "height": size, "channels": 3, "mode": mode, "encoding": encoding}
                body = urlencode(asked).encode()
                yield f"{mode} to {size}² as {encoding}", post("/datasets/images/resize-example", body)
    yield "notes of 2 MB", ("PUT", f"/jobs/{model}", urlencode({"job_notes": "<&" * 700_000}).encode(), form)
    many = urlencode([("job_ids[]", f"x{number}") for number in range(100_000)]).encode()
    yield "100,000 jobs aborted", post("/abort_jobs", many)
    upload = b"\r\n" * (15 << 20)
    yield "upload of 30 MB of line ends", multipart("/models/images/classification/classify_one", {}, upload)
    yield "a snapshot of 32 MB as zip", ("GET", f"/models/{model}/download.zip", None, {})
    yield "a snapshot of 32 MB as tar.gz", ("GET", f"/models/{model}/download.tar.gz", None, {})
    yield "a file of 32 MB", ("GET", f"/files/{model}/snapshot_1.ckpt.data-00000-of-00001", None, {})
    yield "long path", ("GET", "/" + "a/" * 3500, None, {"Accept": "text/html"})
    yield "long query", ("GET", "/?" + "q=a&" * 1800, None, {"Accept": "text/html"})
    yield "long headers", ("GET", "/", None, {f"X-{number}": "a" * 60_000 for number in range(80)})
    yield "long cookies", ("GET", "/", None, {"Cookie": "a=b; " * 6_400})


def multipart(path: str, fields: dict[str, str], upload: bytes | None = None) -> Request:
    boundary = uuid.uuid4().hex
    lines = []
    for name, value in fields.items():
        lines += [f"--{boundary}", f'Content-Disposition: form-data; name="{name}"', "", value]
    body = "\r\n".join(lines).encode()
    if upload is not None:
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="image_file"; filename="a"\r\n\r\n'
        body += head.encode() + upload
    body += f"\r\n--{boundary}--\r\n".encode()
    return (
        "POST",
        path,
        body,
        {"Content-Type": f"multipart/form-data; boundary={boundary}", "Accept": "text/html"},
    )


def send(port: int, name: str, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> int:
    """The status of the response; 0 if the connection was closed without one."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=GIVE_UP_SECONDS)
    try:
        connection.putrequest(method, path)
        connection.putheader(NAME, name)
        for header, value in headers.items():
            connection.putheader(header, value)
        if body is not None:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders()
        try:
            connection.send(body or b"")
        except OSError:
            pass  # the response may arrive before the body is complete
        answer = connection.getresponse()
        answer.read()
        return answer.status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


# Long logs


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
        yield bytes(8 << 20) + b"\n"
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
