"""Compare forecasts of several workers with the speed of trainings, on a Slurm cluster on this machine.

    .venv/bin/python benchmarks/forecast.py [--workers 2 4] [--networks lenet convolutions] [--repeats 2]

Each node may use one core of this machine, in turn. For each network and number of workers, prints a line of JSON with
the speed-up that a measurement on the nodes forecasts, with its interval, and that of trainings. Measurements and
trainings with one and with all workers alternate, because other programs may slow this machine down.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from workers import CLASSIFIER, CONVOLUTIONS, LENET

from tests.real_server import RealServer, create_dataset
from tests.slurm_cluster import SlurmCluster

NETWORKS = {"lenet": LENET, "convolutions": CONVOLUTIONS}
# Trainings take about as long with each network.
EPOCHS = {"lenet": 12, "convolutions": 3}
WARM_UP_ROWS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=[*NETWORKS])
    parser.add_argument("--repeats", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, cores = Path(name), sorted(os.sched_getaffinity(0))
        draw_images(folder / "data" / "noise")
        with SlurmCluster(folder / "cluster", nodes=max(options.workers), cores=cores) as cluster:
            server = RealServer(folder, "--slurm", "--no-standby", environment=cluster.environment)
            try:
                dataset = create_dataset(server, "noise", 28, folder_pct_val=0, resize_channels=1)
                for network in options.networks:
                    for workers in options.workers:
                        print(
                            json.dumps(compare(server, dataset, network, workers, options.repeats)),
                            flush=True,
                        )
            finally:
                server.stop()


def compare(server: RealServer, dataset: str, network: str, workers: int, repeats: int) -> dict[str, Any]:
    fields = {
        "dataset": dataset,
        "method": "custom",
        "custom_network": CLASSIFIER.format(lines=NETWORKS[network]),
        "batch_size": 64,
        "train_epochs": EPOCHS[network],
        "val_interval": 0,
        "snapshot_interval": 0,
        "learning_rate": 0.001,
        "random_seed": 1,
        "select_gpu": "cpu",
        "compute_target": "slurm",
        "compute_memory_mb": 1000,
    }
    forecasts, speeds = [], []
    for _ in range(repeats):
        forecasts.append(measure(server, compute_workers=workers, **fields))
        one = train(server, compute_workers=1, **fields)
        several = train(server, compute_workers=workers, **fields)
        speeds.append((one, several))
    found = [several / one for one, several in speeds]
    return {
        "network": network,
        "workers": workers,
        "forecast": [round(item["speedup"], 3) for item in forecasts],
        "interval": [[round(item["low"], 3), round(item["high"], 3)] for item in forecasts],
        "training": [round(ratio, 3) for ratio in found],
        "images_per_second": [[round(speed) for speed in pair] for pair in speeds],
        "error": round(
            statistics.median(item["speedup"] for item in forecasts) / statistics.median(found) - 1, 3
        ),
        "load": round(os.getloadavg()[0], 1),
        "message": forecasts[-1]["message"],
    }


def measure(server: RealServer, **fields: Any) -> dict[str, Any]:
    """Return the forecast of a measurement on the nodes."""
    state = server.ask("/models/measurements", **fields)
    while state["state"] in ("waiting", "running"):
        time.sleep(0.5)
        state = server.ask(f"/models/measurements/{state['id']}")
    assert state["state"] == "done", state
    return dict(state["workers"])


def train(server: RealServer, **fields: Any) -> float:
    """Return the median throughput of a training, in images per second."""
    model = server.ask("/models/images/classification.json", model_name="measured", **fields)["id"]
    while (status := server.ask(f"/models/{model}/status")["status"]) not in ("Done", "Error", "Aborted"):
        time.sleep(0.5)
    assert status == "Done", server.ask(f"/models/{model}.json")
    rows = csv.DictReader(server.read(f"/models/{model}/metrics.csv").splitlines())
    speeds = [float(row["images_per_second"]) for row in rows if row.get("images_per_second")]
    return statistics.median(speeds[WARM_UP_ROWS:])


def draw_images(folder: Path, classes: int = 4, each: int = 375) -> None:
    """Write images of 28 by 28 pixels with noise."""
    import numpy as np
    from PIL import Image

    random = np.random.default_rng(1)
    for label in range(classes):
        (folder / str(label)).mkdir(parents=True)
        for number in range(each):
            pixels = random.integers(0, 256, (28, 28), np.uint8)
            Image.fromarray(pixels).save(folder / str(label) / f"{number}.png")


if __name__ == "__main__":
    main()
