"""Measure predictions for client programs: one at a time, and from many clients at the same time.

    .venv/bin/python benchmarks/serving.py IMAGES [--clients 32] [--seconds 5] [--turns 3] [--network lenet] [--side 28]

IMAGES is a folder of grayscale images with one subfolder per class, such as the test split of MNIST. Starts a
separate server, trains the network for one epoch, and measures

- classify_one over HTTP from one client, warm: the median and the 99th percentile in milliseconds;
- the rate at which CLIENTS clients get predictions for one image each from POST /models/ID/predict, and that at which
  they get the constant answer of GET /health, in turns; and the ratio.

Prints one line of JSON. The clients run in a process of their own, on the same machine.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import multiprocessing
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

ROOT = Path(__file__).resolve().parent.parent
SINGLE_REQUESTS = 300
MAX_TRAINING_IMAGES = 2000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("images", type=Path)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--network", default="lenet")
    parser.add_argument("--side", type=int, default=28)
    options = parser.parse_args()
    pictures = sorted(options.images.rglob("*.png"))[:: max(1, 10_000 // 200)]
    with tempfile.TemporaryDirectory() as folder, server(Path(folder), options.images) as address:
        model = _model(address, options)
        bodies = [
            json.dumps({"instances": [{"b64": base64.b64encode(path.read_bytes()).decode()}]}).encode()
            for path in pictures
        ]
        fields = [{"job_id": model, "image_path": str(path)} for path in pictures]
        classify = "/models/images/classification/classify_one.json"
        get(address, classify, fields[0])  # starts the inference server
        seconds = []
        for number in range(SINGLE_REQUESTS):
            begun = time.perf_counter()
            get(address, classify, fields[number % len(fields)])
            seconds.append(time.perf_counter() - begun)
        rates: dict[str, list[float]] = {"predict": [], "constant": []}
        predict, constant = (f"/models/{model}/predict", bodies), ("/health", [])
        for _ in range(options.turns):
            for name, (path, sent) in (("constant", constant), ("predict", predict)):
                rates[name].append(_rate(address, path, sent, options))
    quantiles = statistics.quantiles(seconds, n=100)
    result = {
        "network": options.network,
        "classify_one_ms": {"p50": _round(1000 * quantiles[49]), "p99": _round(1000 * quantiles[98])},
        "clients": options.clients,
        "constant_per_second": _round(statistics.median(rates["constant"])),
        "predictions_per_second": _round(statistics.median(rates["predict"])),
        "ratio": _round(statistics.median(rates["predict"]) / statistics.median(rates["constant"])),
    }
    print(json.dumps(result))


def _round(value: float) -> float:
    return round(value, 2)


def _model(address: str, options: argparse.Namespace) -> str:
    """Create a dataset, train the network for one epoch, and return the id of the model."""
    sides = {"resize_width": options.side, "resize_height": options.side, "resize_channels": 1}
    limit = {"folder_train_max_per_class": MAX_TRAINING_IMAGES // 10}
    source = {"method": "folder", "folder_train": options.images, "dataset_name": "Serving"}
    dataset = get(address, "/datasets/images/classification.json", source | sides | limit)["id"]
    wait_for(address, dataset)
    settings = {"method": "standard", "standard_networks": options.network, "train_epochs": 1}
    fields = {"model_name": "Serving", "dataset": dataset, "select_gpu": "cpu"}
    model = str(get(address, "/models/images/classification.json", settings | fields)["id"])
    wait_for(address, model)
    return model


def wait_for(address: str, job: str) -> None:
    while (status := get(address, f"/jobs/{job}/status")["status"]) not in ("Done", "Error", "Aborted"):
        time.sleep(0.2)
    assert status == "Done", status


def _rate(address: str, path: str, bodies: list[bytes], options: argparse.Namespace) -> float:
    """Return the number of answers per second to clients in another process."""
    context = multiprocessing.get_context("spawn")
    receiving, sending = context.Pipe(duplex=False)
    arguments = (sending, address, path, bodies, options.clients, options.seconds)
    process = context.Process(target=_run_clients, args=arguments)
    process.start()
    answers = receiving.recv()
    process.join()
    return float(answers / options.seconds)


def _run_clients(
    sending: Any, address: str, path: str, bodies: list[bytes], clients: int, seconds: float
) -> None:
    sending.send(asyncio.run(_clients(address, path, bodies, clients, seconds)))


async def _clients(address: str, path: str, bodies: list[bytes], clients: int, seconds: float) -> int:
    begun = time.monotonic()
    counts = await asyncio.gather(
        *(
            _client(address, path, bodies[number:] + bodies[:number], begun + seconds)
            for number in range(clients)
        )
    )
    return sum(counts)


async def _client(address: str, path: str, bodies: list[bytes], end: float) -> int:
    """Send requests over one connection until ``end``; return the number of answers."""
    place = urlsplit(address)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    count = 0
    while time.monotonic() < end:
        body = bodies[count % len(bodies)] if bodies else b""
        head = f"{'POST' if bodies else 'GET'} {path} HTTP/1.1\r\nHost: {place.netloc}\r\n"
        if bodies:
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        writer.write(head.encode() + b"\r\n" + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        assert b" 200 " in answer[:20], answer
        length = re.search(rb"(?i)content-length: (\d+)", answer)
        assert length
        await reader.readexactly(int(length[1]))
        count += 1
    writer.close()
    return count


@contextmanager
def server(folder: Path, images: Path) -> Iterator[str]:
    places = ["--jobs-dir", folder / "jobs", "--state-dir", folder / "state", "--log-file", folder / "log"]
    options = ["--port", "0", "--no-login", "--no-evaluations", "--data-root", images.resolve()]
    command = [sys.executable, "-m", "digits", *map(str, options + places)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    try:
        yield next(match for line in process.stdout if (match := re.search(r"address\s+(\S+)/", line)))[1]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def get(address: str, path: str, fields: dict[str, Any] | None = None) -> Any:
    body = urlencode(fields).encode() if fields else None
    request = urllib.request.Request(address + path, body, {"Accept": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


if __name__ == "__main__":
    main()
