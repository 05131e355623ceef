"""Large requests to all routes of a server that runs as a separate program, and what they cost it.

The program (``python -m tests.large_requests FOLDER COUNT``) serves a site with a dataset of images, one of texts and a model
for each, which starts no processes. `LargeRequests` draws requests with bodies of up to 70 MB in many
shapes. `Costs` measures how much the memory of the server grows during a request, and how long ``/health`` waits
meanwhile.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote, urlencode

ROOT = Path(__file__).resolve().parents[1]
MAX_BYTES = 70_000_000
# Below the data root, with the names of their files.
LARGE_FOLDERS = {"photos": "IMG_20240{0}_{0:06}.jpg", "long": "ab" * 92 + "{0:06}.jpg"}
GIVE_UP_SECONDS = 120.0

WITH_BODY = ("POST", "PUT", "PATCH")
FORM = "application/x-www-form-urlencoded"
TYPES = [
    FORM,
    "application/json",
    "application/octet-stream",
    "text/csv",
    "application/offset+octet-stream",
    "",
]
# Repeated to fill a field, a file, a body or a header.
UNITS = [
    "x", "0", "9", "[", "[]", "{", '{"":', "[0],", "0,", "0.5,", "1e9,", "x,", "x;", "x\n", "\n", "\r\n", " ", ",", "\t",
    "a=b&", "&", "%0A", "+", "%", "é", "\0", '"', '"a"\n', '""', "'", "\\", "/", "../", "a/", "(", ")", "((", "a.", "a(",
    "x=1\n", "class a:\n pass\n", "def f(): pass\n", "# ", "<", "<b>", "&lt;", "*", "**", "`", "![", "[a](b)", "-", "=", ":",
    "a,b\n", '"a","b"\n', "left/00.png,left/01.png\n", "left\n", "label:left ", "AND ", "1-2,", "🙂", "\u202e", "A", "a ",
    "AAAA", '{"b64":"AAAA"},', "[[[0,0,0]]],", '"1",', "null,", "--x\r\n", "\x89PNG\r\n\x1a\n",
]  # fmt: skip
HEADERS = ["Accept", "Cookie", "Range", "If-None-Match", "If-Modified-Since", "Accept-Language", "Authorization",
           "Upload-Metadata", "Referer", "X-Fragment", "User-Agent"]  # fmt: skip
# How fields, files and bodies begin.
HEADS = [
    "",
    "[",
    "{",
    '{"instances":[',
    '{"inputs":[',
    '{"instances":[{"b64":"',
    '{"username":',
    "\x89PNG\r\n\x1a\n",
    "PK\3\4",
]


@dataclass
class Request:
    """A request; its body is ``head``, then ``unit`` repeated up to ``size`` bytes, then ``tail``."""

    method: str
    path: str
    headers: dict[str, str] = field(default_factory=dict)
    head: bytes = b""
    unit: bytes = b""
    size: int = 0
    tail: bytes = b""

    @property
    def body(self) -> bytes:
        return self.head + self.unit * (self.size // max(1, len(self.unit))) + self.tail

    @property
    def is_streamed_upload(self) -> bool:
        return self.path.startswith("/uploads/")

    def __str__(self) -> str:
        kind = self.headers.get("Content-Type", "").partition(";")[0]
        return f"{self.method} {self.path[:90]} {kind} {self.head[:60]!r} + {self.unit[:20]!r} up to {self.size:,}"


@dataclass
class Server:
    """The running program: its process, port, routes with their methods and field names, and jobs."""

    process: subprocess.Popen[str]
    port: int
    routes: list[tuple[str, str, list[str]]]
    datasets: list[str]
    models: list[str]
    kinds: list[str]
    folder: str
    data: str

    @property
    def pid(self) -> int:
        return self.process.pid


@contextlib.contextmanager
def large_server(folder: Path, large_count: int = 0) -> Iterator[Server]:
    """Run the program with its files and its log in ``folder``, and ``large_count`` files in each of `LARGE_FOLDERS`."""
    command = [sys.executable, "-m", "tests.large_requests", str(folder), str(large_count)]
    with (
        open(folder / "server.log", "w") as log,
        subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        ) as process,
    ):
        assert process.stdout
        try:
            line = process.stdout.readline()
            assert line, (folder / "server.log").read_text()
            yield Server(process, **json.loads(line))
        finally:
            process.terminate()


def random_request(server: Server, random: Random) -> Request:
    """Return a request to one of the routes, of a size between a few kilobytes and 70 MB."""
    # Two of three to routes that read bodies.
    routes = random.choice([server.routes, *[[item for item in server.routes if item[1] in WITH_BODY]] * 2])
    route = random.choice(routes)
    rule, method, names = route
    number = random.randrange(len(server.models))
    ids = [server.datasets[number], server.models[number]]
    own = ids[1] if "model" in rule else ids[0]

    def part(match: re.Match[str]) -> str:
        converter, _, name = match[1].rpartition(":")
        if converter == "kind":
            return random.choice(server.kinds)
        if converter.startswith("any("):
            return random.choice(converter[4:-1].split(", "))
        if name == "job_id" or "id" in name:
            return own
        if random.random() < 0.2:
            return quote(random.choice(UNITS) * random.randint(1, 500), safe="")[:3000]
        return {"split": "train", "number": "3", "ending": "zip", "name": "bars"}.get(name, "0")

    path = re.sub(r"<([^>]*)>", part, rule)
    unit = random.choice(UNITS)
    size = int(10 ** random.uniform(3.5, math.log10(MAX_BYTES)))
    fields = {"job_id": own, "dataset": ids[0]}
    fields |= {
        random.choice(names): random.choice(["1", "0", "left", *ids]) for _ in range(random.randrange(4))
    }
    name = random.choice(names)
    fields.pop(name, None)
    headers = {"Accept": random.choice(["text/html", "application/json"])}
    if random.random() < 0.15:
        line = "".join(mark for mark in unit if mark.isprintable() and mark.isascii()) or "a"
        headers[random.choice(HEADERS)] = line * (random.randint(100, 28_000) // len(line))
    if method not in WITH_BODY:
        query = urlencode([*fields.items(), (name, unit * 7000)])[: random.choice([200, 6000])]
        return Request(method, f"{path}?{query}", headers)
    if "/uploads/" in path:
        headers |= {"Tus-Resumable": "1.0.0", "Upload-Offset": "0"}
    if random.random() < 0.3:
        path, fields = f"{path}?{urlencode(fields)}", {}
    shape = random.choice(["file", "file", "field", "parts", "form", "raw", "raw"])
    raw = unit.encode("utf-8", "replace")
    if shape == "form":
        encoded = random.choice([raw, quote(unit).encode()])
        return Request(
            method,
            path,
            {**headers, "Content-Type": FORM},
            f"{urlencode(fields)}&{name}=".encode(),
            encoded,
            size,
        )
    if shape == "raw":
        head = random.choice(HEADS).encode("latin-1")
        return Request(method, path, {**headers, "Content-Type": random.choice(TYPES)}, head, raw, size)
    headers["Content-Type"] = "multipart/form-data; boundary=x"
    head = b"".join(_part(key, value.encode()) for key, value in fields.items())
    if shape == "parts":
        return Request(
            method, path, headers, head, _part(name, raw, random.choice(["", "a.png"])), size, b"--x--\r\n"
        )
    filename = ""
    if shape == "file":
        filename = f"a.{random.choice(['csv', 'png', 'zip', 'tar.gz', 'txt', 'npy'])}"
        uploaded = [item for item in names if item.endswith(("file", "archive", "files"))]
        name = random.choice([*uploaded, "image_file"])
    start = random.choice(HEADS).encode("latin-1")
    return Request(
        method, path, headers, head + _part(name, start, filename)[:-2], raw, size, b"\r\n--x--\r\n"
    )


def hard_requests(server: Server) -> list[Request]:
    """Requests that once took much memory or time: to the model of images, or to that of texts."""
    images, texts = server.models
    json_, forms = {"Content-Type": "application/json"}, {"Content-Type": "multipart/form-data; boundary=x"}
    form = {"Content-Type": FORM}
    serve = f"/models/{images}/predict"

    def upload(path: str, name: str, unit: bytes, size: int) -> Request:
        head = _part("job_id", images.encode()) + _part(name, b"", "a.csv")[:-2]
        return Request("POST", path, forms, head, unit, size, b"\r\n--x--\r\n")

    tensor = b'{"inputs":[{"name":"x","datatype":"UINT8","data":[1],"shape":['
    return [
        Request("POST", serve, json_, tensor, b"1,", 600_000, b"1]}]}"),
        Request("POST", serve, json_, b'{"instances":[', b"[],", 30_000_000, b"0]}"),
        Request("POST", "/pretrained_models/new", form, b"a=", b"b", 30_000_000),
        Request("POST", f"/models/{images}/predictions", form, b"a=", b"%5B", 4_400_000),
        Request(
            "POST", "/models/preflight", form, f"dataset={server.datasets[0]}&freeze=".encode(), b"[", 4096
        ),
        Request("POST", "/models/visualize-lr", forms, b"", b"--x\r\n", 4_900_000, b"--x--"),
        Request("POST", "/jobs/x", forms, b"", _part("a", b"x" * 1_000_000), 60_000_000, b"--x--\r\n"),
        upload(f"/models/{texts}/predictions.json", "text_list_file", b"\n", 6_000_000),
        upload(f"/models/{images}/predictions.json", "image_list", b"\n", 6_000_000),
        upload(f"/models/{images}/predict", "image", b"\0", 60_000_000),
    ]


def large_inputs(server: Server) -> list[Request]:
    """Requests for folders of thousands of similar names, and with as many changes as fit into a request."""
    images, _ = server.models
    dataset = server.datasets[0]
    forms, form = {"Content-Type": "multipart/form-data; boundary=x"}, {"Content-Type": FORM}
    predict = "/models/images/classification/classify_one.json"
    requests = []
    for folder in LARGE_FOLDERS:
        place = f"{server.data}/{folder}"
        for wrong in (f"{place}/IMG_20240101_1234567.jpg", f"{place}/{'ba' * 92}x.jpg", f"{place}/a"):
            fields = {"job_id": images, "image_path": wrong, "image_folder": wrong, "db_path": wrong}
            requests += [
                Request("GET", f"/models/image?{urlencode({'path': wrong})}"),
                Request("GET", f"/autocomplete/path?{urlencode({'query': wrong})}"),
                Request("GET", f"/models/images/classification/infer_one?{urlencode(fields)}"),
                Request("POST", predict, form, urlencode(fields).encode()),
                Request("POST", f"/models/{images}/predictions.json", form, urlencode(fields).encode()),
                Request(
                    "POST", "/datasets/images/resize-example", form, urlencode({"example": wrong}).encode()
                ),
            ]
        requests.append(Request("GET", f"/autocomplete/path?{urlencode({'query': f'{place}/'})}"))
        head = _part("job_id", images.encode()) + _part("image_folder", place.encode())
        head += _part("image_list", b"", "a.txt")[:-2]
        path = f"/models/{images}/predictions.json"
        requests.append(Request("POST", path, forms, head, b"IMG_1.jpg\n", 4_000_000, b"\r\n--x--\r\n"))
    changes = json.dumps({f"train/{number}": {"exclude": True} for number in range(100_000)})
    edits = json.dumps({"exclude": [["train", number] for number in range(250_000)]})
    for path, name, text in (
        (f"/datasets/{dataset}/pending-edits.json", "changes", changes),
        (f"/datasets/{dataset}/versions.json", "edits", edits),
    ):
        body = _part("dataset_name", b"x") + _part(name, text.encode()) + b"--x--\r\n"
        requests.append(Request("POST", path, forms, body))
    return requests


def _part(name: str, value: bytes, filename: str = "") -> bytes:
    file = f'; filename="{filename}"' if filename else ""
    head = f'--x\r\nContent-Disposition: form-data; name="{name}"{file}\r\n\r\n'
    return head.encode() + value + b"\r\n"


def send(server: Server, request: Request) -> int:
    """Return the status of the response; 0 if the connection was closed without one."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=GIVE_UP_SECONDS)
    try:
        connection.putrequest(request.method, request.path)
        for name, value in request.headers.items():
            connection.putheader(name, value)
        body = request.body
        if request.method not in ("GET", "HEAD"):
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders()
        with contextlib.suppress(OSError):  # the response may arrive before the body is complete
            connection.send(body)
        answer = connection.getresponse()
        while answer.read(1 << 20):
            pass
        return answer.status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


class Costs:
    """Measures one request after another: the growth of the server's memory and the longest wait of ``/health``.

    The wait is measured by a separate program, in seconds; of the time in which the server did not run because other
    programs did, it counts nothing.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        command = [sys.executable, "-c", _PROBE, str(server.port), str(server.pid)]
        self._probe = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def measure(self, request: Request) -> tuple[int, int, float]:
        """Send ``request``; return the status, the growth in bytes, and the longest wait in seconds."""
        self._longest_wait()
        Path(f"/proc/{self._server.pid}/clear_refs").write_text("5")  # forget the peak
        before = self._memory("VmRSS")
        status = send(self._server, request)
        return status, self._memory("VmHWM") - before, self._longest_wait()

    def __enter__(self) -> Costs:
        return self

    def __exit__(self, *_: object) -> None:
        self._probe.communicate()

    def _memory(self, name: str) -> int:
        status = Path(f"/proc/{self._server.pid}/status").read_text()
        match = re.search(rf"^{name}:\s+(\d+) kB", status, re.MULTILINE)
        assert match
        return int(match[1]) * 1024

    def _longest_wait(self) -> float:
        assert self._probe.stdin and self._probe.stdout
        self._probe.stdin.write("\n")
        self._probe.stdin.flush()
        return float(self._probe.stdout.readline())


_PROBE = """
import http.client, pathlib, sys, threading, time
port, pid = map(int, sys.argv[1:])
longest, since = 0.0, None
def cpu():
    total = 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            total += int((task / "schedstat").read_text().split()[0])
        except OSError:
            pass
    return total / 1e9
def ask():
    global longest, since
    connection = http.client.HTTPConnection("127.0.0.1", port)
    while True:
        before, since = cpu(), time.monotonic()
        try:
            connection.request("GET", "/health")
            connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            connection.close()
            continue
        seconds = time.monotonic() - since
        if seconds > 0.02:
            longest = max(longest, min(seconds, cpu() - before))
        time.sleep(0.005)
threading.Thread(target=ask, daemon=True).start()
for line in sys.stdin:
    time.sleep(0.02)
    print(longest, flush=True)
    longest = 0.0
"""


def main(folder: Path, large_count: int) -> None:
    from gevent import monkey

    monkey.patch_all()

    from digits.kinds import all_kinds
    from digits.kinds.classification.recipe import CreateClassification, FolderSplit
    from digits.kinds.text.recipe import CreateText
    from digits.web.app import create_app, load_pages
    from digits.web.server import http as servers
    from tests.all_routes import NoProcesses, names_for
    from tests.site import Site, site_settings

    settings = site_settings(folder, max_upload=2**30)
    settings.data_roots[0].mkdir()
    for name, pattern in LARGE_FOLDERS.items():
        large = settings.data_roots[0] / name
        large.mkdir()
        for number in range(large_count):
            os.close(os.open(large / pattern.format(number), os.O_CREAT | os.O_WRONLY, 0o600))
    app = create_app(settings)
    site = Site(app, app.test_client(), settings.data_roots[0])
    recipes = [
        CreateClassification(train=FolderSplit(folder=str(site.data))),
        CreateText(table="topics.csv", width=48),
    ]
    datasets = [_finished_dataset(site, recipe) for recipe in recipes]
    models = [site.finished_model(dataset) for dataset in datasets]
    assert site.post(f"/models/{models[0]}/promote.json", name="bars").status_code == 200
    NoProcesses().replace_in(site)
    site.app.testing = False

    def begin(port: int) -> None:
        load_pages(app)
        routes = sorted(
            {
                (str(rule), method, tuple(names_for(app, str(rule))))
                for rule in app.url_map.iter_rules()
                for method in rule.methods or ()
                # Keep the jobs.
                if not (method == "DELETE" and "job_id" in str(rule)) and not str(rule).startswith("/static/")
            }
        )
        kinds = [kind.route for kind in all_kinds().values()]
        started = {"port": port, "routes": routes, "datasets": datasets, "models": models, "kinds": kinds}
        places = {"folder": str(folder), "data": str(settings.data_roots[0])}
        print(json.dumps(started | places), flush=True)

    servers.serve(app, ("127.0.0.1", 0), socketio=site.services.live.socketio, on_start=begin)


def _finished_dataset(site: Any, recipe: Any) -> str:
    """Add a finished dataset with three records, and return its id."""
    from digits.core.status import Status
    from digits.data.records.records import Record
    from digits.data.targets.target import Target
    from digits.kinds.jobs import DatasetJob
    from tests.datasets import write_dataset

    folder = site.services.store.new_folder()
    size = (1, recipe.width, 3) if recipe.kind == "text" else (16, 16, 3)
    target = Target(feature="image/class/label", dtype="int64", names=["left", "right"], classes=True)
    records = [
        Record(bytes(math.prod(size)), "raw", *size, {"image/class/label": [number % 2]})
        for number in range(3)
    ]
    write_dataset(folder, recipe.kind, target, {"train": records, "val": records}, channels=3)
    (task, *_) = tasks = DatasetJob.first_tasks()
    for status in (Status.WAIT, Status.RUN, Status.DONE):
        task.move(status)
    job = DatasetJob(id=folder.name, folder=folder, name="data", recipe=recipe, tasks=tasks)
    job.update_status()
    site.services.store.add(job)
    return str(job.id)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
