"""Measure the pages of a large dataset: how long the server takes for any page of the images.

    .venv/bin/python benchmarks/explore.py [--records 1000000] [--classes 100] [--requests 300]

Writes a dataset of small images, then requests random pages of all images, of single classes, and of those that match a
search or a range, with random sizes, and images of random records, from the application in this process: without a
network, so that only the server's own time counts. The first request of a split, which reads its index, and the first
request of each search and range are reported separately. The time of the processor, which depends less on other
programs than that of the clock, has the ending ``cpu_ms``. Prints one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil
from product import classification_manifest, record, write_split

from digits.core.status import Status
from digits.core.task import Task
from digits.data.health import health
from digits.data.images.statistics import STATISTICS_DTYPE
from digits.data.manifest import Manifest
from digits.data.records.index import INDEX_DTYPE
from digits.data.records.records import encode_example
from digits.kinds.classification.recipe import CreateClassification, FolderSplit
from digits.kinds.jobs import DatasetJob
from digits.web.app import create_app
from tests.site import site_settings

TARGET_P95_MS = 30
SIDE = 28
SIZES = (10, 25, 50, 100)
QUERIES = (
    "q=img",
    "q=img_00123",
    "q=class+7/",
    "brightness=100:",
    "width=100:200&height=100:200",
    "q=99&brightness=:128",
)
JOB_ID = "20261120-093000-a1b2c3"


def write_dataset(folder: Path, count: int, classes: int) -> Manifest:
    """Write ``count`` records in ``classes`` classes, in random order, to the job's ``folder``."""
    labels = [f"class {number}" for number in range(classes)]
    groups = np.random.default_rng(0).integers(0, classes, count)
    chance = np.random.default_rng(1)
    pixels = chance.integers(0, 256, (classes, SIDE, SIDE, 1), np.uint8)
    examples = [encode_example(record(pixels[group], group, labels)) for group in range(classes)]
    items = (
        (examples[group], group, f"{labels[group]}/IMG_{place:07d}.png".encode())
        for place, group in enumerate(groups.tolist())
    )
    counts = np.bincount(groups, minlength=classes).tolist()
    manifest = classification_manifest(labels, {"train": write_split(folder, "train", counts, items)})
    manifest.save(folder)
    return manifest


def save_health(folder: Path, manifest: Manifest) -> None:
    """Write the result of a health check, without findings."""
    rows = np.zeros(manifest.splits["train"].count, STATISTICS_DTYPE)
    chance = np.random.default_rng(2)
    rows["brightness"] = chance.uniform(0, 256, len(rows))
    rows["width"], rows["height"] = chance.integers(16, 512, (2, len(rows)))
    result = health.Health(content_hash=manifest.content_hash, images=len(rows))
    health.save(folder, result, np.zeros(0, health.RECORD_DTYPE), {"train": rows})


def save_job(folder: Path) -> None:
    task = Task(name="create", title="Create the records")
    for status in (Status.WAIT, Status.RUN, Status.DONE):
        task.move(status)
    recipe = CreateClassification(train=FolderSplit(folder="/photos"))
    job = DatasetJob(id=JOB_ID, folder=folder, name="large", tasks=[task], recipe=recipe)
    job.update_status()
    (folder / "job.json").write_text(json.dumps(job.as_json()))
    (folder / "create").mkdir()


def percentile(milliseconds: list[float], share: float) -> float:
    return round(sorted(milliseconds)[min(len(milliseconds) - 1, int(share * len(milliseconds)))], 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--requests", type=int, default=300)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / JOB_ID
        folder.mkdir()
        manifest = write_dataset(folder, options.records, options.classes)
        save_health(folder, manifest)
        save_job(folder)
        app = create_app(site_settings(Path(name), jobs_dir=Path(name)))
        try:
            print(json.dumps(measure(app.test_client(), options, manifest)))
        finally:
            app.extensions["digits"].stop()


def measure(client, options: argparse.Namespace, manifest: Manifest) -> dict[str, object]:
    chance = random.Random(0)

    def measured(url: str) -> tuple[float, float]:
        began, used = time.perf_counter(), time.process_time()
        response = client.get(url)
        took = 1000 * (time.perf_counter() - began), 1000 * (time.process_time() - used)
        assert response.status_code == 200, (url, response.status_code)
        return took

    explore = f"/datasets/images/classification/explore?job_id={JOB_ID}&db=train"
    first = measured(explore)[0]
    first_of_class = measured(f"{explore}&label=0")[0]
    firsts = [measured(f"{explore}&{query}")[0] for query in QUERIES]
    taken: dict[str, list[tuple[float, float]]] = {
        "page": [],
        "page_of_a_class": [],
        "page_of_a_query": [],
        "picture": [],
    }
    for _ in range(options.requests):
        size = chance.choice(SIZES)
        page = f"&size={size}&page={chance.randrange(options.records // size)}"
        taken["page"].append(measured(f"{explore}{page}"))
        label = chance.randrange(options.classes)
        last = max(1, manifest.splits["train"].counts[label] // size)
        of_class = f"{explore}&size={size}&label={label}&page={chance.randrange(last)}"
        taken["page_of_a_class"].append(measured(of_class))
        taken["page_of_a_query"].append(measured(f"{explore}&{chance.choice(QUERIES)}{page}"))
        number = chance.randrange(options.records)
        taken["picture"].append(measured(f"/datasets/{JOB_ID}/records/train/{number}"))
    figures = {}
    for name, both in taken.items():
        wall, cpu = zip(*both, strict=True)
        figures[f"{name}_p50_ms"] = round(statistics.median(wall), 1)
        figures[f"{name}_p95_ms"] = percentile(list(wall), 0.95)
        figures[f"{name}_p95_cpu_ms"] = percentile(list(cpu), 0.95)
    return {
        "records": options.records,
        "first_page_ms": round(first, 1),
        "first_page_of_a_class_ms": round(first_of_class, 1),
        "first_page_of_a_query_ms": dict(zip(QUERIES, [round(took, 1) for took in firsts], strict=True)),
        **figures,
        "target_p95_ms": TARGET_P95_MS,
        "index_bytes_per_record": INDEX_DTYPE.itemsize,
        "memory_mb": round(psutil.Process().memory_info().rss / 2**20),
    }


if __name__ == "__main__":
    main()
