"""Upload an archive with interruptions, and many small files, to a server of its own.

    python benchmarks/upload.py [--gigabytes 2] [--cuts 3] [--folder FOLDER]

Reports the memory of the server before and at its peak, the throughput as a ratio to a plain copy of the same file on
the same disk, the longest block of the event loop, and whether the checksum of the received data is that of the file.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import http.client
import io
import json
import multiprocessing
import os
import random
import re
import shutil
import socket
import tarfile
import tempfile
import time
import urllib.parse
import zipfile
from pathlib import Path
from typing import Any

import psutil
from product import WITH_BACKGROUND_TASKS, Product, product

TUS = {"Tus-Resumable": "1.0.0"}
PIECE_BYTES = 1 << 20
CHUNK_BYTES = 8 << 20
SMALL_FILES = 2000
SMALL_BYTES = 8000


class Server:
    """A server, and the peak of its memory."""

    def __init__(self, started: Product) -> None:
        self.host, self._pid = urllib.parse.urlsplit(started.address).netloc, started.pid
        self._peak = multiprocessing.Value("q")
        self._slowest = multiprocessing.Value("d")
        # In a process of its own, so that it does not wait for the client.
        self._watch = multiprocessing.Process(
            target=watch, args=(self.host, started.pid, self._peak, self._slowest), daemon=True
        )
        self._watch.start()

    @property
    def memory(self) -> int:
        return int(psutil.Process(self._pid).memory_info().rss)

    @property
    def peak(self) -> int:
        """The largest memory since `reset`."""
        return int(self._peak.value)

    @property
    def slowest_answer(self) -> float:
        """The longest time for an answer to another request since `reset`, in seconds."""
        return float(self._slowest.value)

    def reset(self) -> None:
        self._peak.value, self._slowest.value = 0, 0.0

    def stop(self) -> None:
        self._watch.terminate()
        self._watch.join()


def watch(host: str, pid: int, peak: Any, slowest: Any) -> None:
    """Record the memory of the server, and how long it takes to answer another request."""
    while True:
        try:
            peak.value = max(peak.value, psutil.Process(pid).memory_info().rss)
            began = time.monotonic()
            connection = http.client.HTTPConnection(host, timeout=60)
            connection.request("GET", "/health")
            connection.getresponse().read()
            connection.close()
            slowest.value = max(slowest.value, time.monotonic() - began)
        except (OSError, psutil.Error, http.client.HTTPException):
            return
        time.sleep(0.05)


def ask(server: Server, method: str, path: str, headers: dict[str, str] | None = None) -> Any:
    connection = http.client.HTTPConnection(server.host, timeout=60)
    connection.request(method, path, headers={**TUS, "Accept": "application/json", **(headers or {})})
    answer = connection.getresponse()
    answer.body = answer.read()  # type: ignore[attr-defined]
    connection.close()
    return answer


def create(server: Server, length: int, name: str) -> str:
    encoded = base64.b64encode(name.encode()).decode()
    answer = ask(
        server,
        "POST",
        "/uploads",
        {"Upload-Length": str(length), "Upload-Metadata": f"filename {encoded}", "Content-Length": "0"},
    )
    assert answer.status == 201, answer.body
    return str(answer.headers["Location"])


def send_until(server: Server, address: str, path: Path, stop: int, *, in_parts: bool) -> None:
    """Send the file from the server's offset, and cut the connection at byte ``stop``."""
    size = path.stat().st_size
    with open(path, "rb") as file:
        while True:
            offset = int(ask(server, "HEAD", address).headers["Upload-Offset"])
            if offset >= min(stop, size):
                return
            length = min(CHUNK_BYTES, size - offset) if in_parts else size - offset
            host, port = server.host.split(":")
            with socket.create_connection((host, int(port))) as connection:
                if not send_chunk(connection, server, address, file, offset, length, stop):
                    return


def send_chunk(
    connection: socket.socket,
    server: Server,
    address: str,
    file: Any,
    offset: int,
    length: int,
    stop: int,
) -> bool:
    """Send a chunk; return False if the connection is to be cut within it."""
    headers = {
        **TUS,
        "Host": server.host,
        "Upload-Offset": str(offset),
        "Content-Type": "application/offset+octet-stream",
        "Content-Length": str(length),
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    connection.sendall(f"PATCH {address} HTTP/1.1\r\n{lines}\r\n".encode())
    sent = 0
    while sent < length and offset + sent < stop:
        try:
            sent += connection.sendfile(file, offset + sent, min(PIECE_BYTES, length - sent))
        except ConnectionError:  # refused; the response says why
            break
    if offset + sent >= stop and sent < length:
        return False
    status = connection.recv(4096).split()[1]
    if status != b"204":
        # The server still reads what the cut connection has sent.
        assert status in (b"423", b"409"), status
        time.sleep(0.1)
    return True


def finished(server: Server, address: str) -> dict[str, Any]:
    while True:
        state: dict[str, Any] = json.loads(ask(server, "GET", address).body)
        if state["state"] in ("ready", "failed"):
            return state
        time.sleep(0.1)


def sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def measure_large(server: Server, folder: Path, gigabytes: float, cuts: int, *, in_parts: bool) -> None:
    source = folder / "large.bin"
    if not source.exists():
        with open(source, "wb") as file:
            for _ in range(int(gigabytes * 1000)):
                file.write(os.urandom(1_000_000))
        with zipfile.ZipFile(folder / "large.zip", "w") as archive:
            archive.write(source, "data/large.bin")
    path = folder / "large.zip"
    began = time.monotonic()
    shutil.copyfile(path, folder / "copy")
    with open(folder / "copy", "rb") as copy:
        os.fsync(copy.fileno())
    copied = time.monotonic() - began
    (folder / "copy").unlink()

    server.reset()
    before = server.memory
    size = path.stat().st_size
    places = [*sorted(random.Random(0).sample(range(size // 10, size), cuts)), size]
    address = create(server, size, "large.zip")
    began = time.monotonic()
    for place in places:
        send_until(server, address, path, place, in_parts=in_parts)
    seconds = time.monotonic() - began
    slowest = server.slowest_answer
    state = finished(server, address)
    assert state["state"] == "ready", state
    same = sha256(Path(state["folder"]) / "large.bin") == sha256(source)
    kind = f"in parts of {CHUNK_BYTES / 1e6:.0f} MB" if in_parts else "in one request"
    rate, plain = size / seconds / 1e6, size / copied / 1e6
    print(
        f"{size / 1e9:.1f} GB {kind}, {cuts} cuts: {rate:.0f} MB/s, {rate / plain:.2f} of a plain copy ({plain:.0f} "
        f"MB/s); checksum {'equal' if same else 'DIFFERENT'}; memory {before / 1e6:.0f} MB before, "
        f"{server.peak / 1e6:.0f} MB at the peak; slowest answer to another request {slowest * 1000:.0f} ms"
    )
    ask(server, "DELETE", address)


def measure_small(server: Server) -> None:
    """The browser sends many files as one tar archive."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for number in range(SMALL_FILES):
            info = tarfile.TarInfo(f"images/class {number % 10}/{number}.png")
            info.size = SMALL_BYTES
            archive.addfile(info, io.BytesIO(os.urandom(SMALL_BYTES)))
    with tempfile.NamedTemporaryFile() as packed:
        packed.write(file.getvalue())
        packed.flush()
        began = time.monotonic()
        size = os.path.getsize(packed.name)
        address = create(server, size, "images.tar")
        send_until(server, address, Path(packed.name), size, in_parts=True)
        sent = time.monotonic() - began
        state = finished(server, address)
        ready = time.monotonic() - began
    assert state["files"] == SMALL_FILES, state
    print(f"{SMALL_FILES} files of {SMALL_BYTES} bytes: sent in {sent:.2f} s, ready after {ready:.2f} s")
    ask(server, "DELETE", address)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--cuts", type=int, default=3)
    parser.add_argument(
        "--folder", type=Path, help="where to put the files; by default the folder for temporary files"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = Path(name)
        with product(folder, "--no-standby", *WITH_BACKGROUND_TASKS) as started:
            server = Server(started)
            try:
                measure_small(server)
                for in_parts in (False, True):
                    measure_large(server, folder, arguments.gigabytes, arguments.cuts, in_parts=in_parts)
            finally:
                server.stop()
            stalls = re.findall(r"event loop blocked.*", started.log.read_text())
            print(f"blocks of the event loop longer than 0.25 s: {len(stalls)}", *stalls, sep="\n  ")


if __name__ == "__main__":
    main()
