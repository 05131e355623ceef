"""A real server that is killed during training, and restarted."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.real_server import (
    PATIENCE_SECONDS,
    SLOW_LINEAR,
    RealServer,
    assert_all_end,
    create_dataset,
    processes_of,
    start_training,
)
from tests.site import bars

# For servers that run few tasks: loading TensorFlow takes seconds.
WITHOUT_FORK_SERVER = "--no-standby"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    bars(tmp_path / "data" / "bars")
    yield tmp_path
    for process in psutil.process_iter(["cmdline"]):
        if any(str(tmp_path) in word for word in process.info["cmdline"] or []):
            process.kill()


@pytest.mark.tensorflow
def test_training_survives_the_death_of_its_server(folder: Path) -> None:
    pace = folder / "pace"  # how long a step takes; empty while the training waits
    pace.write_text("0.02")
    waits = f"while not (pace := open({str(pace)!r}).read()): time.sleep(0.1)"
    network = SLOW_LINEAR.replace("time.sleep(0.02)", f"{waits}\n            time.sleep(float(pace))")
    assert waits in network
    first = RealServer(folder, WITHOUT_FORK_SERVER)
    model = start_training(first, network=network, train_epochs=100, snapshot_interval=50)
    first.wait(lambda: len(first.ask(f"/models/{model}/metrics.json")["train"]["step"]) > 3)
    first.kill()
    log = folder / "jobs" / model / "train" / "events.jsonl"
    written = log.stat().st_size
    second_sight = time.monotonic() + PATIENCE_SECONDS
    while log.stat().st_size <= written:
        assert time.monotonic() < second_sight, "the training stopped with its server"
        time.sleep(0.1)

    pace.write_text("")  # the training must not end while the second server starts
    second = RealServer(folder, WITHOUT_FORK_SERVER)
    try:
        assert second.ask(f"/models/{model}/status")["status"] == "Running"
        pace.write_text("0")
        second.wait(lambda: second.ask(f"/models/{model}/status")["status"] == "Done")
        curves = second.ask(f"/models/{model}/metrics.json")["train"]
        in_the_log = [
            event["step"]
            for event in map(json.loads, log.read_text().splitlines())
            if event["event"] == "measured" and event["stage"] == "train"
        ]
        assert curves["step"] == in_the_log == sorted(set(in_the_log))
        assert second.ask(f"/models/{model}.json")["snapshots"] == [50, 100]
    finally:
        second.stop()


@pytest.mark.tensorflow
def test_a_training_of_an_earlier_server_can_be_aborted(folder: Path) -> None:
    first = RealServer(folder, WITHOUT_FORK_SERVER)
    model = start_training(first, train_epochs=1000)
    first.wait(lambda: first.ask(f"/models/{model}/status")["status"] == "Running")
    first.stop()
    second = RealServer(folder, WITHOUT_FORK_SERVER)
    try:
        handle = json.loads((folder / "jobs" / model / "job.json").read_text())["tasks"][0]["handle"]
        supervisor = psutil.Process(handle["pid"])
        second.ask(f"/models/{model}/abort", sure="yes")
        second.wait(lambda: second.ask(f"/models/{model}/status")["status"] == "Aborted")
        second.wait(lambda: not supervisor.is_running())
    finally:
        second.stop()


ENDLESS = SLOW_LINEAR.replace("        flat = tf", "        while True: pass\n        flat = tf")


def previews(folder: Path) -> list[Path]:
    return list((folder / "jobs" / ".server").glob("previews/*"))


@pytest.mark.tensorflow
@pytest.mark.parametrize("end", [RealServer.kill, pytest.param(RealServer.stop, marks=pytest.mark.nightly)])
def test_no_preflight_outlives_its_server(folder: Path, end: Callable[[RealServer], None]) -> None:
    first = RealServer(folder)
    dataset = create_dataset(first)
    first.wait_until_warm()

    def check() -> Any:
        return first.ask(
            "/models/preflight", dataset=dataset, method="custom", custom_network=ENDLESS, train_epochs=1
        )

    with ThreadPoolExecutor(3) as pool:
        checks = [pool.submit(check) for _ in range(3)]
        # The third one waits for a slot, unless the machine has many cores.
        first.wait(lambda: len(processes_of(folder)) >= 4 and len(previews(folder)) == 3)
        processes = processes_of(folder)
        end(first)
        assert all(isinstance(future.exception(), (OSError, HTTPException)) for future in checks)
    assert_all_end(processes)
    second = RealServer(folder, WITHOUT_FORK_SERVER)
    try:
        assert previews(folder) == []
        assert processes_of(folder) == set()
    finally:
        second.stop()


@pytest.mark.tensorflow
def test_a_suspended_inference_server_of_a_killed_server_is_replaced(folder: Path) -> None:
    first = RealServer(folder)
    first.wait_until_warm()
    model = start_training(first, train_epochs=1)
    first.wait(lambda: first.ask(f"/models/{model}/status")["status"] == "Done")
    image = folder / "data" / "bars" / "left" / "00.png"
    classify = "/models/images/classification/classify_one.json"
    answer = first.ask(classify, job_id=model, image_path=image)["predictions"]
    halted = processes_of(folder / "jobs" / model / "inference")
    assert len(halted) == 2
    for process in halted:
        process.suspend()
    first.kill()
    second = RealServer(folder, WITHOUT_FORK_SERVER)
    try:
        assert second.ask(classify, job_id=model, image_path=image)["predictions"] == answer
        assert_all_end(halted)
        successors = processes_of(folder / "jobs" / model / "inference")
    finally:
        second.stop()
    assert_all_end(successors)


@pytest.mark.tensorflow
@pytest.mark.parametrize("times", [1, pytest.param(3, marks=pytest.mark.nightly)])
def test_an_abort_while_the_fork_server_is_suspended_is_not_lost(folder: Path, times: int) -> None:
    server = RealServer(folder)
    try:
        dataset = create_dataset(server)
        server.wait_until_warm()
        (fork_server,) = (
            child
            for child in psutil.Process(server.process.pid).children()
            if "digits.worker.forkserver" in child.cmdline()
        )
        for action in ("abort", "delete") * times:
            fork_server.suspend()
            goes_on = threading.Timer(0.3, fork_server.resume)
            model = start_training(server, dataset, train_epochs=1000)
            goes_on.start()
            if action == "abort":
                server.ask(f"/models/{model}/abort", sure="yes")
                server.wait_for_status(model, "Aborted")
            else:
                server.ask(f"/jobs/{model}", "DELETE")
                assert not (folder / "jobs" / model).exists()
            goes_on.join()
            assert_all_end(processes_of(folder / "jobs" / model))
        left = {path.name for path in (folder / "jobs").iterdir() if not path.name.startswith(".")}
        assert left - {dataset} == {job["id"] for job in server.ask("/index.json")["models"]}
    finally:
        server.stop()
