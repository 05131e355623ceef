"""A real server that is killed during training, and restarted."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.real_server import (
    SLOW_LINEAR,
    RealServer,
    assert_all_end,
    create_dataset,
    processes_of,
    start_training,
)
from tests.site import bars
from tests.waiting import wait_until

# For servers that run few tasks: loading TensorFlow takes seconds.
WITHOUT_FORK_SERVER = "--no-standby"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    bars(tmp_path / "data" / "bars")
    yield tmp_path
    for process in psutil.process_iter(["cmdline"]):
        if any(str(tmp_path) in word for word in process.info["cmdline"] or []):
            process.kill()


def server_folder(folder: Path) -> Path:
    return folder / "jobs" / ".server"


def previews(folder: Path) -> list[Path]:
    return list(server_folder(folder).glob("previews/*"))


ENDLESS = SLOW_LINEAR.replace("        flat = tf", "        while True: pass\n        flat = tf")


@contextlib.contextmanager
def endless_checks(server: RealServer, dataset: str) -> Iterator[None]:
    """Check networks endlessly, until the body ends the server, which must end these checks."""

    def check() -> Any:
        return server.ask(
            "/models/preflight", dataset=dataset, method="custom", custom_network=ENDLESS, train_epochs=1
        )

    folder = server.folder
    with ThreadPoolExecutor(3) as pool:
        checks = [pool.submit(check) for _ in range(3)]
        # The third one waits for a slot, unless the machine has many cores.
        server.wait(lambda: len(processes_of(server_folder(folder))) >= 4 and len(previews(folder)) == 3)
        processes = processes_of(server_folder(folder))
        yield
        assert all(isinstance(future.exception(), (OSError, HTTPException)) for future in checks)
    assert_all_end(processes)


def abort_while_the_fork_server_is_suspended(server: RealServer, dataset: str, times: int = 1) -> None:
    """Check that neither an abort nor a deletion of trainings that are being started is lost."""
    (fork_server,) = (
        child
        for child in psutil.Process(server.process.pid).children()
        if "digits.worker.forkserver" in child.cmdline()
    )
    jobs = server.folder / "jobs"
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
            assert not (jobs / model).exists()
        goes_on.join()
        assert_all_end(processes_of(jobs / model))
    left = {path.name for path in jobs.iterdir() if not path.name.startswith(".")}
    assert left - {dataset} == {job["id"] for job in server.ask("/index.json")["models"]}


@pytest.mark.tensorflow
def test_a_training_survives_the_death_of_its_server_but_checks_do_not(folder: Path) -> None:
    pace = folder / "pace"  # how long a step takes; empty while the training waits
    pace.write_text("0.02")
    waits = f"while not (pace := open({str(pace)!r}).read()): time.sleep(0.1)"
    network = SLOW_LINEAR.replace("time.sleep(0.02)", f"{waits}\n            time.sleep(float(pace))")
    assert waits in network
    first = RealServer(folder)
    dataset = create_dataset(first)
    first.wait_until_warm()
    abort_while_the_fork_server_is_suspended(first, dataset)

    # An inference server that is suspended, a training that runs, and checks.
    ended = start_training(first, dataset, train_epochs=1)
    first.wait_for_status(ended, "Done")
    image = folder / "data" / "bars" / "left" / "00.png"
    classify = "/models/images/classification/classify_one.json"
    answer = first.ask(classify, job_id=ended, image_path=image)["predictions"]
    halted = processes_of(folder / "jobs" / ended / "inference")
    assert len(halted) == 2
    for process in halted:
        process.suspend()
    model = start_training(first, dataset, network=network, train_epochs=100, snapshot_interval=50)
    first.wait(lambda: len(first.ask(f"/models/{model}/metrics.json")["train"]["step"]) > 3)
    with endless_checks(first, dataset):
        first.kill()

    log = folder / "jobs" / model / "train" / "events.jsonl"
    written = log.stat().st_size
    wait_until(lambda: log.stat().st_size > written)  # otherwise, the training stopped with its server
    pace.write_text("")  # the training must not end while the second server starts
    second = RealServer(folder, WITHOUT_FORK_SERVER)
    try:
        assert previews(folder) == []
        assert processes_of(server_folder(folder)) == set()
        assert second.ask(f"/models/{model}/status")["status"] == "Running"
        pace.write_text("0")
        second.wait_for_status(model, "Done")
        curves = second.ask(f"/models/{model}/metrics.json")["train"]
        in_the_log = [
            event["step"]
            for event in map(json.loads, log.read_text().splitlines())
            if event["event"] == "measured" and event["stage"] == "train"
        ]
        assert curves["step"] == in_the_log == sorted(set(in_the_log))
        assert second.ask(f"/models/{model}.json")["snapshots"] == [50, 100]
        assert second.ask(classify, job_id=ended, image_path=image)["predictions"] == answer
        assert_all_end(halted)
        successors = processes_of(folder / "jobs" / ended / "inference")
    finally:
        second.stop()
    assert_all_end(successors)


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


@pytest.mark.nightly
@pytest.mark.tensorflow
def test_no_check_outlives_a_server_that_is_stopped_nor_any_abort_is_lost(folder: Path) -> None:
    server = RealServer(folder)
    dataset = create_dataset(server)
    server.wait_until_warm()
    abort_while_the_fork_server_is_suspended(server, dataset, times=3)
    with endless_checks(server, dataset):
        server.stop()
    assert processes_of(folder) == set()
