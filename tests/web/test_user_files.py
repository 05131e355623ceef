"""No view lists a folder of users or of a job, or reads a file of users, in the event loop, whatever its size.

Routes are taken from the application, and field names from its forms and source, so new routes are covered
automatically. File accesses are counted where they happen, so no time is measured.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from digits.core.model_job import ModelJob
from digits.core.status import Status
from digits.kinds import all_kinds
from digits.kinds.jobs import DatasetJob
from tests.all_routes import NoProcesses, names_for
from tests.site import Site, open_site, site_settings

pytestmark = pytest.mark.integration

LISTING = ("os.scandir", "os.listdir")
# Names of fields that a view reads before others.
PATHS = re.compile("path|folder|list|archive")
WITH_BODY = ("POST", "PUT", "PATCH")


class Accesses:
    """What this thread does while it `counts`: it lists folders below ``folder``, or opens files below ``files``."""

    def __init__(self) -> None:
        self.folder = self.files = ""
        self.found: list[tuple[str, str]] = []
        self._thread = threading.get_native_id()
        sys.addaudithook(self._hear)

    @contextmanager
    def counts(self, site: Site) -> Iterator[list[tuple[str, str]]]:
        self.folder, self.files, self.found = str(site.data.parent), str(site.data), []
        try:
            yield self.found
        finally:
            self.folder = ""

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.folder or event not in (*LISTING, "open") or threading.get_native_id() != self._thread:
            return
        path = str(arguments[0])
        if path.startswith(self.folder) and (event in LISTING or path.startswith(self.files)):
            self.found.append((event, path))


ACCESSES: list[Accesses] = []


@pytest.fixture(scope="module")
def accesses() -> Accesses:
    # A hook cannot be removed.
    if not ACCESSES:
        ACCESSES.append(Accesses())
    return ACCESSES[0]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    opened = open_site(site_settings(tmp_path_factory.mktemp("user-files")))
    assert opened.wait_for_end(opened.dataset()) == "Done"
    NoProcesses().replace_in(opened)
    yield opened
    opened.services.stop()


@pytest.fixture(scope="module")
def folder(site: Site) -> Path:
    """A folder of users with images."""
    folder = site.data / "mine"
    for name in ("train/cat", "train/dog", "val/cat"):
        (folder / name).mkdir(parents=True)
        Image.new("L", (4, 4)).save(folder / name / "1.png")
    return folder


def requests(site: Site, folder: Path) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yield the method, path and fields of requests to every route: with paths of folders and files in all fields."""
    (dataset,) = [job.id for job in site.services.store.all(DatasetJob) if job.status is Status.DONE]
    values = [str(folder), str(folder / "missing"), str(folder / "train/cat/1.png")]
    rules = sorted(
        (str(rule), method)
        for rule in site.app.url_map.iter_rules()
        for method in {"GET", *WITH_BODY} & set(rule.methods or ())
    )
    for rule, method in rules:
        if rule.startswith("/static/") or "<path:" in rule:
            continue
        names = names_for(site.app, rule)
        for value in values:
            models = [job.id for job in site.services.store.all(ModelJob) if job.snapshots()]
            model = models[0] if models else site.finished_model(dataset)
            own = model if "model" in rule else dataset

            def part(match: re.Match[str], own: str = own) -> str:
                converter, _, name = match[1].rpartition(":")
                if converter == "kind":
                    return next(iter(all_kinds().values())).route
                if converter.startswith("any("):
                    return converter[4:-1].split(", ")[0]
                if "id" in name:
                    return own
                return {"split": "train", "number": "1", "ending": "zip"}.get(name, "x")

            path = re.sub(r"<([^>]*)>", part, rule)
            fields = dict.fromkeys(names, value) | {"job_id": own, "dataset": dataset}
            yield method, path, fields
            if any(word in rule for word in ("classify", "infer", "predictions", "top_n")):
                for name in names:
                    if PATHS.search(name):
                        yield method, path, {name: value, "job_id": own, "dataset": dataset}


def test_no_view_reads_files_of_users_in_the_event_loop(site: Site, folder: Path, accesses: Accesses) -> None:
    found: dict[str, set[str]] = {}
    count = 0
    for method, path, fields in requests(site, folder):
        with accesses.counts(site) as seen:
            arguments = {"data": fields} if method in WITH_BODY else {"query_string": fields}
            site.client.open(path, method=method, headers={"Accept": "application/json"}, **arguments).close()
        count += 1
        for event, name in seen:
            found.setdefault(f"{method} {re.sub('[0-9-]{15,}[0-9a-f]+', 'ID', path)}", set()).add(
                f"{event} {Path(name).relative_to(site.data.parent)}"
            )
    print(count)
    for place, names in found.items():
        print(place, sorted(names)[:5])
    assert not found
