"""Measure how long requests block the event loop: the longest CPU time of a single callback, for each route.

    .venv/bin/python benchmarks/event_loop.py [--rows 2000] [--jobs 0] [--slowest 20]

Starts a server with a small dataset and a finished model, sends every route ordinary requests and
large inputs, and prints one line of JSON: the longest callback in milliseconds, the target, and the slowest
requests. Requests that take longer than a second are reported on stderr; with other programs on the machine, all
of them may take ten minutes. ``--rows`` is the length of the model's curves; ``--jobs`` adds finished jobs. A running
request blocks all others, so this is their maximum delay. The benchmark measures CPU time, which depends little on
the machine's load.
"""

from __future__ import annotations

import argparse
import http.client
import json
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from watched_server import NAME, serve, watched

TARGET_MILLISECONDS = 50
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
    with watched(__file__, *arguments) as (_, started, longest):
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

    from long_logs import make_models

    from tests.site import open_site, site_settings

    if jobs:
        from many_jobs import make_jobs

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


if __name__ == "__main__":
    main()
