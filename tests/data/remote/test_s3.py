"""Downloads from S3."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from digits.data.remote import client
from digits.data.remote.client import FetchFailed
from digits.data.remote.fetch import News, Request, Source
from tests import s3_server
from tests.s3_server import BUCKET

pytestmark = pytest.mark.integration

# Keys that are no names of files, or of two files with the same name.
BAD_KEYS = {"../up.png": b"1", "a//b.png": b"2", "a": b"3", "a/b.png": b"4", "x" * 300: b"5", "empty/": b""}


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("bucket")
    for number in range(25):
        (folder / f"{number}.png").write_bytes(b"image")
    with s3_server.running() as address:
        s3_server.upload(address, folder, "many")
        nothing = tmp_path_factory.mktemp("nothing")
        s3_server.upload(address, nothing, "odd", **BAD_KEYS)
        s3_server.upload(address, nothing, "nested", **{f"{'a/' * 40}b.png": b"image"})
        yield address


def fetch(endpoint: str, address: str, target: Path, *, is_folder: bool = True, **settings: Any) -> News:
    values: dict[str, Any] = {
        "allowed": ["s3://*", endpoint],
        "max_bytes": 10**7,
        "max_files": 5000,
        **settings,
    }
    source = Source(address=address, path=str(target), is_folder=is_folder)
    *_, last = client.run(
        Request(sources=[source], endpoint=endpoint, access_key="key", secret_key="not-so-secret", **values)
    )
    return last


def test_all_pages_of_a_folder_are_downloaded(endpoint: str, tmp_path: Path) -> None:
    news = fetch(endpoint, f"s3://{BUCKET}/many", tmp_path / "copy", max_bytes=125)
    assert len(list((tmp_path / "copy").iterdir())) == news.total_files == 25
    assert news.bytes == news.total_bytes == 125
    fetch(endpoint, f"s3://{BUCKET}/many/7.png", tmp_path / "one.png", is_folder=False)
    assert (tmp_path / "one.png").read_bytes() == b"image"


def test_keys_that_are_no_file_names_are_left_out(endpoint: str, tmp_path: Path) -> None:
    news = fetch(endpoint, f"s3://{BUCKET}/odd", tmp_path / "copy")
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["a"]
    assert "4 remote files were ignored" in news.warnings[0] and "../up.png" in news.warnings[0]


def test_folders_count_as_files(endpoint: str, tmp_path: Path) -> None:
    fetch(endpoint, f"s3://{BUCKET}/nested", tmp_path / "copy", max_files=41)
    with pytest.raises(FetchFailed, match="more than 40 files and folders"):
        fetch(endpoint, f"s3://{BUCKET}/nested", tmp_path / "other", max_files=40)


def test_messages_name_the_mistake(endpoint: str, tmp_path: Path) -> None:
    for address, limit, words in (
        ("s3://missing/images", 10**7, "bucket of s3://missing/images does not exist"),
        (f"s3://{BUCKET}/nothing", 10**7, "contains no objects"),
        (f"s3://{BUCKET}/many", 100, "exceeds 100 Bytes"),
    ):
        with pytest.raises(FetchFailed) as failure:
            fetch(endpoint, address, tmp_path / "copy", max_bytes=limit)
        assert words in failure.value.sentences


def test_a_private_endpoint_must_be_listed(endpoint: str, tmp_path: Path) -> None:
    port = endpoint.rpartition(":")[2]
    for allowed, words in (
        (["s3://*"], "does not allow"),
        (["s3://*", f"http://*:{port}"], "private address"),
    ):
        with pytest.raises(FetchFailed) as failure:
            fetch(endpoint, f"s3://{BUCKET}/many", tmp_path / "copy", allowed=allowed)
        assert words in failure.value.sentences
