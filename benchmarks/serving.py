"""Measure predictions for client programs: one at a time, and from many clients at the same time.

    .venv/bin/python benchmarks/serving.py IMAGES [--clients 32] [--seconds 5] [--turns 3] [--network lenet] [--side 28]
        [--channels 1] [--training-images 2000]

IMAGES is a folder of grayscale images with one subfolder per class, such as the test split of MNIST. Starts a
separate server, trains the network for one epoch, and measures

- classify_one over HTTP from one client with one connection, warm: the median and the 99th percentile in
  milliseconds;
- the rate at which CLIENTS clients get predictions for one image each from POST /models/ID/predict, and that at which
  they get the constant answer of GET /health, in turns; and the ratio;
- for ResNet-50 (--network resnet50 --side 224 --channels 3), also the rate of keras.Model.predict of the same network
  on arrays in memory, in batches of CLIENTS, in turns with the others, and the ratio to it.

Prints one line of JSON. The clients run in a process of their own, on the same machine.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import http.client
import json
import multiprocessing
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from product import product, quantiles

SINGLE_REQUESTS = 1000
# Reads the number of seconds from a line, and prints the rate of images per second that Keras predicts.
KERAS = """
import sys, time
import keras, numpy as np
side, channels, batch = map(int, sys.argv[1:])
model = keras.applications.ResNet50(weights=None, input_shape=(side, side, channels), classes=10)
pixels = np.random.default_rng(0).uniform(0, 255, (2 * batch, side, side, channels)).astype(np.float32)
model.predict(pixels, batch, verbose=0)
print("ready", flush=True)
for line in sys.stdin:
    count, began = 0, time.perf_counter()
    while time.perf_counter() - began < float(line):
        model.predict(pixels, batch, verbose=0)
        count += len(pixels)
    print(count / (time.perf_counter() - began), flush=True)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("images", type=Path)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--network", default="lenet")
    parser.add_argument("--side", type=int, default=28)
    parser.add_argument("--channels", type=int, default=1, choices=(1, 3))
    parser.add_argument("--training-images", type=int, default=2000)
    options = parser.parse_args()
    pictures = sorted(options.images.rglob("*.png"))[:: max(1, 10_000 // 200)]
    with (
        tempfile.TemporaryDirectory() as folder,
        product(Path(folder), "--no-login", "--data-root", options.images.resolve()) as server,
    ):
        limit = {"folder_train_max_per_class": options.training_images // 10}
        dataset = server.dataset_of(options.images, options.side, options.channels, **limit)
        model = server.model_of(dataset, options.network, select_gpu="cpu", crop_size="", batch_size=None)
        bodies = [
            json.dumps({"instances": [{"b64": base64.b64encode(path.read_bytes()).decode()}]}).encode()
            for path in pictures
        ]
        fields = [{"job_id": model, "image_path": str(path)} for path in pictures]
        classify = "/models/images/classification/classify_one.json"
        server.seconds(classify, fields[0])  # starts the inference server
        seconds = _classify_one(server.address, classify, fields)
        rates: dict[str, list[float]] = {"predict": [], "constant": []}
        predict = (f"/models/{model}/predict", bodies)
        constant: tuple[str, list[bytes]] = ("/health", [])
        with _keras(options) as keras_rate:
            for _ in range(options.turns):
                for name, (path, sent) in (("constant", constant), ("predict", predict)):
                    rates[name].append(_rate(server.address, path, sent, options))
                if keras_rate is not None:
                    rates.setdefault("keras", []).append(keras_rate())
    result = {
        "network": options.network,
        "classify_one_ms": quantiles(seconds, 2),
        "clients": options.clients,
        "constant_per_second": _round(statistics.median(rates["constant"])),
        "predictions_per_second": _round(statistics.median(rates["predict"])),
        "ratio": _round(statistics.median(rates["predict"]) / statistics.median(rates["constant"])),
    }
    if "keras" in rates:
        result["keras_predict_per_second"] = _round(statistics.median(rates["keras"]))
        result["ratio_to_keras_predict"] = _round(
            statistics.median(rates["predict"]) / statistics.median(rates["keras"])
        )
    print(json.dumps(result))


def _classify_one(address: str, path: str, fields: list[dict[str, str]]) -> list[float]:
    """Return the seconds of each request over one connection."""
    connection = http.client.HTTPConnection(urlsplit(address).netloc)
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    seconds = []
    for number in range(SINGLE_REQUESTS):
        body = urlencode(fields[number % len(fields)])
        begun = time.perf_counter()
        connection.request("POST", path, body, headers)
        answer = connection.getresponse()
        answer.read()
        seconds.append(time.perf_counter() - begun)
        assert answer.status == 200, answer.status
    connection.close()
    return seconds


@contextmanager
def _keras(options: argparse.Namespace) -> Iterator[Callable[[], float] | None]:
    """Start a process that predicts with Keras; return a function that measures its rate, or None."""
    if options.network != "resnet50":
        yield None
        return
    sizes = map(str, (options.side, options.channels, options.clients))
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1"}
    with subprocess.Popen(
        [sys.executable, "-c", KERAS, *sizes],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
    ) as process:
        assert process.stdin and process.stdout
        seconds, rates = process.stdin, process.stdout
        rates.readline()  # until the network is built

        def measure() -> float:
            print(options.seconds, file=seconds, flush=True)
            return float(rates.readline())

        yield measure
        seconds.close()


def _round(value: float) -> float:
    return round(value, 2)


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


if __name__ == "__main__":
    main()
