"""Create a dataset from a local folder, a web folder and S3, and compare the times.

    python benchmarks/remote.py FOLDER [--images 3000] [--latency 0]

FOLDER has a folder of images for each class, such as one written by ``digits download-data mnist``. The servers run on
this machine: Python's own web server and moto, which are much slower than real ones. With ``--latency``, the web server
waits for so many milliseconds before each answer, like a distant one. Reports the time from the start of the task to
the finished dataset, and the memory of its processes at the peak.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from product import ROOT, peak_memory

from digits.core.recipe import CreateDataset
from digits.core.remote import Credentials, CredentialStore, RemoteSources
from digits.kinds.classification.recipe import CreateClassification, FolderSplit
from tests import s3_server

WEB_SERVER = """
import functools, http.server, sys, time
class Handler(http.server.SimpleHTTPRequestHandler):
    def do_GET(self):
        time.sleep(float(sys.argv[2]) / 1000)
        super().do_GET()
    def log_message(self, *arguments):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=sys.argv[1]))
print(server.server_address[1], flush=True)
server.serve_forever()
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--images", type=int, default=3000)
    parser.add_argument("--latency", type=float, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        source = Path(place) / "images"
        count = choose(arguments.folder, source, arguments.images)
        local, memory = create(recipe(str(source)))
        print(f"{count} images from a local folder: {local:.1f} s, {memory / 1e6:.0f} MB")
        web, memory = from_web(source, arguments.latency)
        print(f"from a web folder: {web:.1f} s ({web / local:.1f} times as long), {memory / 1e6:.0f} MB")
        with s3_server.running(page=1000) as endpoint:
            s3_server.upload(endpoint, source, "images")
            address = f"s3://{s3_server.BUCKET}/images"
            keys = CredentialStore(Path(place) / "keys").save(
                "s3", Credentials(access_key="a", secret_key="b")
            )
            s3, memory = create(recipe(address, ["s3://*", endpoint], endpoint, str(keys)))
        print(f"from S3: {s3:.1f} s ({s3 / local:.1f} times as long), {memory / 1e6:.0f} MB")


def choose(folder: Path, target: Path, count: int) -> int:
    """Copy about ``count`` images, as many of each class; return their number."""
    classes = sorted(path for path in folder.iterdir() if path.is_dir())
    copied = 0
    for item in classes:
        (target / item.name).mkdir(parents=True)
        for path in sorted(item.iterdir())[: count // len(classes)]:
            shutil.copy(path, target / item.name)
            copied += 1
    return copied


def recipe(
    folder: str, allowed: list[str] | None = None, endpoint: str = "", credentials: str = ""
) -> CreateDataset:
    remote = RemoteSources(
        folders=[folder],
        allowed=allowed or [],
        max_bytes=10**11,
        max_files=10**6,
        endpoint=endpoint,
        credentials=credentials,
    )
    return CreateClassification(
        train=FolderSplit(folder=folder),
        width=28,
        height=28,
        channels=1,
        seed=1,
        remote=remote if allowed else None,
    )


def from_web(source: Path, latency: float) -> tuple[float, int]:
    server = subprocess.Popen(
        [sys.executable, "-c", WEB_SERVER, str(source), str(latency)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        address = f"http://127.0.0.1:{server.stdout.readline().strip()}"
        return create(recipe(address, [address]))
    finally:
        server.kill()
        server.wait()


def create(what: CreateDataset) -> tuple[float, int]:
    """Run the task; return its time in seconds, and the peak of the memory of its processes in bytes."""
    with tempfile.TemporaryDirectory() as job:
        task = Path(job) / "create"
        task.mkdir()
        what.save(task)
        began = time.monotonic()
        process = subprocess.Popen([sys.executable, "-m", "digits.worker", str(task)], cwd=ROOT)
        with peak_memory(process.pid) as peak:
            code = process.wait()
        seconds = time.monotonic() - began
        if code:
            sys.exit((task / "events.jsonl").read_text())
        return seconds, peak[0]


if __name__ == "__main__":
    main()
