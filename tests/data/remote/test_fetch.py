"""Downloads from web servers, including ones that are broken or malicious."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from digits.data.remote import client
from digits.data.remote.client import FetchFailed
from digits.data.remote.fetch import News, Request, Source
from tests import odd_web_server
from tests.odd_web_server import redirect_to


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("served")
    for name in ("cats/a b.png", "cats/ö#1?.png", "dogs/deep/2.png"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(odd_web_server.PNG)
    with odd_web_server.running(folder) as address:
        yield address


@pytest.fixture(scope="module")
def other_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with odd_web_server.running(tmp_path_factory.mktemp("private")) as address:
        yield address


def fetch(address: str, target: Path, allowed: list[str] | None = None, **limits: Any) -> News:
    """Download a folder to ``target``, by default from a server that is allowed by its name."""
    values: dict[str, Any] = {"max_bytes": 10_000_000, "max_files": 1000, **limits}
    host = "/".join(address.split("/")[:3])
    stall_seconds = values.pop("stall_seconds", 30)
    request = Request(
        sources=[Source(address=address, path=str(target))],
        allowed=[host] if allowed is None else allowed,
        **values,
    )
    *_, last = client.run(request, stall_seconds=stall_seconds)
    return last


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def port_of(address: str) -> str:
    return address.rpartition(":")[2]


def test_a_folder_is_downloaded_with_its_folders_and_names(server: str, tmp_path: Path) -> None:
    news = fetch(f"{server}/files", tmp_path / "copy")
    assert files_in(tmp_path / "copy") == ["cats/a b.png", "cats/ö#1?.png", "dogs/deep/2.png"]
    assert (tmp_path / "copy/dogs/deep/2.png").read_bytes() == odd_web_server.PNG
    assert (news.files, news.total_files, news.bytes) == (3, 3, 3 * len(odd_web_server.PNG))


def test_links_that_lead_out_of_the_folder_are_not_followed(server: str, tmp_path: Path) -> None:
    news = fetch(f"{server}/odd", tmp_path / "copy")
    # The file “a” has the name of the folder “a”.
    assert files_in(tmp_path) in (["copy/a/x.png"], ["copy/a"])
    assert "ignored" in news.warnings[0]
    assert not any(path.startswith(("/private", "/up")) for path in odd_web_server.log_of(server))


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("forbidden", "denied (403)"),
        ("nothing-here", "does not exist (404)"),
        ("files/cats/a%20b.png", "not a folder"),
        ("endless", "more than 50 files"),
        ("deep", "more than 50 files"),
        ("huge", "exceeds 1.0 MB"),
        ("one_missing", "gone.png does not exist"),
        (redirect_to("file:///etc/passwd"), "“file:” are not supported"),
        (redirect_to("http://169.254.169.254/latest/"), "does not allow"),
        ("redirect/loop", "redirects more than 5 times"),
    ],
)
def test_the_message_for_a_bad_server(path: str, words: str, server: str, tmp_path: Path) -> None:
    with pytest.raises(FetchFailed) as failure:
        fetch(f"{server}/{path}", tmp_path / "copy", max_files=50, max_bytes=1_000_000)
    assert words in failure.value.sentences


@pytest.mark.parametrize(
    ("path", "name", "reason"),
    [("one_missing", "gone.png", "does not exist"), ("one_failing", "bad.png", "answered 503")],
)
def test_a_few_files_that_cannot_be_read_are_listed(
    path: str, name: str, reason: str, server: str, tmp_path: Path
) -> None:
    news = fetch(f"{server}/{path}", tmp_path / "copy", max_failed_percent=10.0)
    assert len(files_in(tmp_path / "copy")) == 9
    [(failed, why)] = news.failed
    assert failed == str(tmp_path / "copy" / name) and reason in why


def test_a_connection_that_is_cut_is_made_again(server: str, tmp_path: Path) -> None:
    fetch(f"{server}/cut", tmp_path / "copy")
    assert (tmp_path / "copy/1.png").read_bytes() == odd_web_server.PNG
    assert odd_web_server.log_of(server).count("/cut/1.png") == 3


def test_a_slow_server_is_read_and_a_silent_one_given_up(server: str, tmp_path: Path) -> None:
    fetch(f"{server}/slow", tmp_path / "copy")
    assert files_in(tmp_path / "copy") == ["1.png"]
    with pytest.raises(FetchFailed, match="sent nothing for 1 seconds"):
        fetch(f"{server}/silent", tmp_path / "other", stall_seconds=1)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "127.1", "2130706433", "0", "0.0.0.0", "[::ffff:127.0.0.1]", "[::1]"]
)
def test_private_addresses_are_refused_unless_listed(host: str, other_server: str, tmp_path: Path) -> None:
    port = port_of(other_server)
    with pytest.raises(FetchFailed, match="private address"):
        fetch(f"http://{host}:{port}/files", tmp_path / "copy", [f"http://*:{port}"])
    assert odd_web_server.log_of(other_server) == []


def test_a_redirect_is_checked_like_an_address(server: str, other_server: str, tmp_path: Path) -> None:
    port = port_of(other_server)
    for name in ("127.0.0.1", "localhost"):
        path = redirect_to(f"http://{name}:{port}/files/")
        for allowed, words in (
            ([server], "does not allow"),
            ([server, f"http://*:{port}"], "private address 127.0.0.1"),
        ):
            with pytest.raises(FetchFailed) as failure:
                fetch(f"{server}/{path}", tmp_path / "copy", allowed)
            assert words in failure.value.sentences
    assert odd_web_server.log_of(other_server) == []


def test_a_list_without_downloads(server: str, tmp_path: Path) -> None:
    news = fetch(f"{server}/files", tmp_path / "copy", only_list=True)
    assert news.folders == {"cats": 2, "dogs/deep": 1} and not (tmp_path / "copy").exists()
    assert fetch(f"{server}/endless", tmp_path / "copy", only_list=True).is_partial
