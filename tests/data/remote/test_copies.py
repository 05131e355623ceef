"""Copies of remote files in the folder of a job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from digits.core.remote import Credentials, CredentialStore, RemoteSources
from digits.data.remote.client import FetchFailed
from digits.data.remote.copies import Copies
from digits.data.remote.fetch import News, Request


class Progress:
    """Collects what is reported."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def reading(self, what: str) -> None:
        self.lines.append(what)

    def downloaded(self, fraction: float, what: str, seconds_left: float | None = None) -> None:
        self.lines.append(f"{fraction:.0%} {what}")

    def warn(self, message: str) -> None:
        self.lines.append(message)


def test_credentials_reach_the_program_once(tmp_path: Path) -> None:
    path = CredentialStore(tmp_path / "keys").save("job", Credentials(access_key="key", secret_key="secret"))
    copies = Copies(RemoteSources(folders=["s3://b"], credentials=str(path)), tmp_path)
    requests: list[Request] = []
    failed = [(f"{copies.paths['s3://b']}/x/1.png", "denied")]

    def run(request: Request) -> Iterator[News]:
        requests.append(request)
        yield News(listed=4)
        yield News(listed=4, total_files=4, files=1, bytes=10, total_bytes=40)
        yield News(total_files=4, files=4, bytes=40, total_bytes=40)
        end = {"is_finished": True, "warnings": ["Careful."], "failed": failed}
        yield News(total_files=4, files=4, bytes=40, total_bytes=40, **end)

    progress = Progress()
    assert copies.fetch(progress, run=run) == [("s3://b/x/1.png", "denied")]
    assert (requests[0].access_key, requests[0].secret_key) == ("key", "secret")
    assert progress.lines[1:] == [
        "Listing s3://b: 4 files and folders",
        "25% Downloading: 1 of 4 files, 10 Bytes of 40 Bytes",
        "100% Downloading: 4 of 4 files, 40 Bytes of 40 Bytes",
        "Careful.",
    ]
    with pytest.raises(FetchFailed) as failure:
        copies.fetch(progress, run=run)
    assert "enter them again" in failure.value.sentences and len(requests) == 1


def test_texts_show_addresses_instead_of_copies(tmp_path: Path) -> None:
    sources = RemoteSources(
        folders=["https://h:8080/a%20b", "https://h:8080/a%20b/c"], files=["s3://b/t.csv"]
    )
    copies = Copies(sources, tmp_path)
    assert copies.paths["https://h:8080/a%20b"] == str(tmp_path / "remote/https/h:8080/a b")
    text = f"No image in {copies.paths['https://h:8080/a%20b/c']}/x, see {copies.paths['s3://b/t.csv']}."
    assert copies.show(text) == "No image in https://h:8080/a%20b/c/x, see s3://b/t.csv."
