"""Measure predictions for client programs: one at a time, and from many clients at the same time.

    .venv/bin/python benchmarks/serving.py IMAGES [--clients 32] [--seconds 5] [--turns 3] [--network lenet] [--side 28]
        [--channels 1] [--training-images 2000] [--against PYTHON]

IMAGES is a folder of grayscale images with one subfolder per class, such as the test split of MNIST. Starts a
separate server, trains the network for one epoch, and measures

- classify_one over HTTP from one client with one connection, warm: the median and the 99th percentile in
  milliseconds;
- the rate at which CLIENTS clients get predictions for one image each from POST /models/ID/predict, and that at which
  they get the constant answer of GET /health, in turns; and the ratio;
- for ResNet-50 (--network resnet50 --side 224 --channels 3), also the rate of keras.Model.predict of the same network
  on arrays in memory, in batches of CLIENTS, in turns with the others, and the ratio to it;
- with --against, also the rates of LitServe and BentoML with the exported Keras model and the same requests, in turns,
  and the ratio to the faster one. PYTHON is an interpreter for which keras, tensorflow, pillow, litserve and bentoml
  are installed. The network must consist of Keras layers, such as --network keras-lenet, LeNet in Keras.

Prints one line of JSON, with the CPU time per answer of the web server and of all its other processes, in milliseconds.
The clients run in a process of their own, on the same machine.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import http.client
import json
import multiprocessing
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import psutil
from product import Product, cpu_seconds, product, quantiles

SINGLE_REQUESTS = 1000
START_SECONDS = 120
KERAS_LENET = """
import keras


class UserModel(Tower):
    @model_property
    def inference(self):
        layers = [
            keras.layers.Rescaling(0.0125),
            keras.layers.Conv2D(20, 5, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Conv2D(50, 5, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(500, activation="relu"),
            keras.layers.Dropout(0.5),
            keras.layers.Dense(self.nclasses),
        ]
        return keras.Sequential(layers)(self.x, training=self.is_training)

    @model_property
    def loss(self):
        return digits.classification_loss(self.inference, self.y)
"""
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
    parser.add_argument("--against", metavar="PYTHON")
    options = parser.parse_args()
    pictures = sorted(options.images.rglob("*.png"))[:: max(1, 10_000 // 200)]
    bodies = [
        json.dumps({"instances": [{"b64": base64.b64encode(path.read_bytes()).decode()}]}).encode()
        for path in pictures
    ]
    with (
        tempfile.TemporaryDirectory() as folder,
        product(Path(folder), "--no-login", "--data-root", options.images.resolve()) as server,
        contextlib.ExitStack() as others,
    ):
        model = _train(server, options)
        fields = [{"job_id": model, "image_path": str(path)} for path in pictures]
        classify = "/models/images/classification/classify_one.json"
        server.seconds(classify, fields[0])  # starts the inference server
        seconds = _classify_one(server.address, classify, fields)
        targets = {
            "constant": Target(server.pid, server.address, "/health", []),
            "predict": Target(server.pid, server.address, f"/models/{model}/predict", bodies),
        }
        if options.against:
            file = _exported(server, model, Path(folder))
            for name in ("litserve", "bentoml"):
                targets[name] = others.enter_context(_other_server(options.against, name, file, bodies))
        keras_rate = others.enter_context(_keras(options))
        turns: dict[str, list[Taken]] = {name: [] for name in targets}
        keras_rates = []
        for _ in range(options.turns):
            for name, target in targets.items():
                turns[name].append(target.measure(options))
            if keras_rate is not None:
                keras_rates.append(keras_rate())
    rates = {name: statistics.median(turn.per_second for turn in taken) for name, taken in turns.items()}
    result: dict[str, Any] = {
        "network": options.network,
        "classify_one_ms": quantiles(seconds, 2),
        "clients": options.clients,
        "per_second": {name: _round(rate) for name, rate in rates.items()},
        "cpu_ms": {name: _median_ms(taken) for name, taken in turns.items()},
        "ratio": _round(rates["predict"] / rates["constant"]),
    }
    if keras_rates:
        result["keras_predict_per_second"] = _round(statistics.median(keras_rates))
        result["ratio_to_keras_predict"] = _round(rates["predict"] / statistics.median(keras_rates))
    if options.against:
        fastest = max(rates["litserve"], rates["bentoml"])
        result["ratio_to_other_servers"] = _round(rates["predict"] / fastest)
    print(json.dumps(result))


@dataclass(frozen=True)
class Taken:
    """The rate of answers, and the CPU time of each in a server and in the processes that it started, in seconds."""

    per_second: float
    server: float
    others: float


@dataclass(frozen=True)
class Target:
    """A path of the server with process ``pid`` at ``address``, and the ``bodies`` to send in turn; none for GET.

    One that ``pauses`` is stopped between its turns: LitServe polls its queues while nobody asks.
    """

    pid: int
    address: str
    path: str
    bodies: list[bytes]
    pauses: bool = False

    def measure(self, options: argparse.Namespace) -> Taken:
        """Let clients in another process send requests."""
        self.signal(signal.SIGCONT)
        context = multiprocessing.get_context("spawn")
        receiving, sending = context.Pipe(duplex=False)
        arguments = (sending, self.address, self.path, self.bodies, options.clients, options.seconds)
        process = context.Process(target=_run_clients, args=arguments)
        server, others = self._cpu_seconds()
        process.start()
        sending.close()  # so that the next line fails if the clients do
        answers = receiving.recv()
        process.join()
        server_after, others_after = self._cpu_seconds()
        if self.pauses:
            self.signal(signal.SIGSTOP)
        return Taken(
            answers / options.seconds, (server_after - server) / answers, (others_after - others) / answers
        )

    def signal(self, number: int) -> None:
        process = psutil.Process(self.pid)
        for one in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                one.send_signal(number)

    def _cpu_seconds(self) -> tuple[float, float]:
        children = psutil.Process(self.pid).children(recursive=True)
        return cpu_seconds(self.pid), sum(cpu_seconds(child.pid) for child in children)


def _median_ms(turns: list[Taken]) -> list[float]:
    server, others = (
        statistics.median(getattr(turn, name) for turn in turns) for name in ("server", "others")
    )
    return [_round(1000 * server), _round(1000 * others)]


def _train(server: Product, options: argparse.Namespace) -> str:
    """Return the id of a model after an epoch."""
    limit = {"folder_train_max_per_class": options.training_images // 10}
    dataset = server.dataset_of(options.images, options.side, options.channels, **limit)
    settings = {"select_gpu": "cpu", "crop_size": "", "batch_size": None}
    if options.network == "keras-lenet":
        settings |= {"method": "custom", "custom_network": KERAS_LENET, "batch_size": 64}
    return server.model_of(dataset, options.network, **settings)


def _exported(server: Product, model: str, folder: Path) -> Path:
    """Return the Keras file of a model."""
    archive = server.download(server.export(model, "keras").url, folder / "export.zip")
    with zipfile.ZipFile(archive) as files:
        (name,) = (name for name in files.namelist() if name.endswith(".keras"))
        return Path(files.extract(name, folder))


@contextlib.contextmanager
def _other_server(python: str, name: str, model: Path, bodies: list[bytes]) -> Iterator[Target]:
    """Run LitServe or BentoML with a Keras model until the block ends."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [python, str(Path(__file__).with_name("other_servers.py")), name, str(model), str(port)]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "BENTOML_DO_NOT_TRACK": "True"}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    target = Target(process.pid, f"http://127.0.0.1:{port}", "/predict", bodies, pauses=True)
    try:
        give_up = time.monotonic() + START_SECONDS
        while True:
            try:
                request = urllib.request.Request(
                    target.address + target.path, bodies[0], {"Content-Type": "application/json"}
                )
                urllib.request.urlopen(request).read()
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > give_up:
                    raise
                time.sleep(0.2)
        target.signal(signal.SIGSTOP)
        yield target
    finally:
        if process.poll() is None:
            target.signal(signal.SIGKILL)
        process.wait()


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


@contextlib.contextmanager
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
