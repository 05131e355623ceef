from __future__ import annotations

import threading
from pathlib import Path

import gevent
import pytest

from digits.core.job import Job
from digits.core.model_job import ModelJob
from digits.runtime.changes import StatusChanged
from digits.web.services import folder_sizes
from digits.web.services.folder_sizes import FolderSizes
from tests.site import Site


class Sizes(FolderSizes):
    """Sizes of a folder that can be measured only while ``may_end`` is set."""

    def __init__(self, job: Job) -> None:
        super().__init__(lambda job: self.reported.append(job), self._count, lambda: self.now)
        self.job, self.now, self.size = job, 0.0, 7
        self.reported: list[Job] = []
        self.measured: list[Path] = []
        self.may_end = threading.Event()
        self.may_end.set()

    def _count(self, folder: Path) -> int:
        self.measured.append(folder)
        self.may_end.wait()
        return self.size

    def wait_for(self, size: int) -> None:
        """Wait until a page would show ``size``, without starting another measurement."""
        now, self.now = self.now, 0.0
        with gevent.Timeout(30):
            while self.of(self.job) != size:
                gevent.sleep(0.001)
        self.now = now


@pytest.fixture
def sizes(tmp_path: Path) -> Sizes:
    return Sizes(Job(id="20260101-000000-abcd", folder=tmp_path, name="job", tasks=[]))


def test_folder_is_measured_once(sizes: Sizes) -> None:
    assert [sizes.of(sizes.job) for _ in range(3)] == [7, 7, 7]
    assert sizes.measured == [sizes.job.folder] and sizes.reported == []


def test_old_size_is_shown_while_it_is_measured_again(sizes: Sizes) -> None:
    sizes.of(sizes.job)
    sizes.size = 8
    sizes.now += 2 * folder_sizes.FRESH_SECONDS
    assert sizes.of(sizes.job) == 7
    sizes.wait_for(8)
    assert sizes.reported == [sizes.job] and len(sizes.measured) == 2


def test_page_does_not_wait_for_a_large_folder(sizes: Sizes) -> None:
    sizes.may_end.clear()
    assert sizes.of(sizes.job) is None and sizes.of(sizes.job) is None
    sizes.may_end.set()
    sizes.wait_for(7)
    assert len(sizes.measured) == 1 and sizes.reported == [sizes.job]


def test_the_size_of_an_ended_job_is_measured_again(site: Site) -> None:
    model = site.services.store.get(site.finished_model("20260101-000000-abcd"), ModelJob)
    before = site.services.folder_sizes.of(model)
    (model.folder / "weights").write_bytes(b"0" * 1000)
    assert site.services.folder_sizes.of(model) == before is not None
    site.services.report(StatusChanged(model))
    assert site.services.folder_sizes.of(model) == before + 1000


def test_page_without_the_size_of_its_folder(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    model = site.finished_model("20260101-000000-abcd")
    assert "Size on disk" in site.get(f"/models/{model}").text
    monkeypatch.setattr(site.services.folder_sizes, "of", lambda job: None)
    assert "Measuring…" in site.get(f"/models/{model}").text
