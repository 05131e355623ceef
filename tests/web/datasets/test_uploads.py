"""Uploads over the tus protocol, from the first byte to a dataset."""

from __future__ import annotations

import base64
import errno
import io
import json
import os
import random
import shutil
import time
import zipfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import gevent
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from digits.core.settings import Settings
from digits.data.archives.unpacking import Limits
from digits.web.services.upload_store import UploadStore
from tests.failing_disk import failing_disk
from tests.power_loss import Recording, write
from tests.site import Site, bars, open_site, site_settings

TUS = {"Tus-Resumable": "1.0.0"}
# Each example unpacks an archive in another process.
EXAMPLES = int(os.environ.get("DIGITS_EXAMPLES", "30")) // 5
CHUNK_TYPE = "application/offset+octet-stream"


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A zip archive of three classes of images, in a folder."""
    folder = bars(tmp_path_factory.mktemp("images"))
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as packed:
        for path in sorted(folder.rglob("*.png")):
            packed.write(path, f"bars/{path.relative_to(folder)}")
    return file.getvalue()


@pytest.fixture(scope="module")
def shared_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site for tests that leave no uploads."""
    opened = open_site(site_settings(tmp_path_factory.mktemp("uploads")))
    yield opened
    opened.close()


def create(site: Site, length: object, name: str = "bars.zip", **headers: str) -> Any:
    encoded = base64.b64encode(name.encode()).decode()
    fields = {**TUS, "Upload-Length": str(length), "Upload-Metadata": f"filename {encoded}", **headers}
    return site.client.post("/uploads", headers=fields)


def send(site: Site, address: str, offset: object, data: bytes, **headers: str) -> Any:
    fields = {**TUS, "Upload-Offset": str(offset), **headers}
    return site.client.patch(address, headers=fields, data=data, content_type=CHUNK_TYPE)


def offset_of(site: Site, address: str) -> int:
    answer = site.client.head(address, headers=TUS)
    assert answer.status_code == 200
    assert answer.headers["Cache-Control"] == "no-store"
    return int(answer.headers["Upload-Offset"])


def upload(site: Site, data: bytes, name: str = "bars.zip") -> dict[str, Any]:
    """Upload ``data`` and return its final state."""
    address = create(site, len(data), name).headers["Location"]
    assert send(site, address, 0, data).status_code == 204
    return finished(site, address)


def finished(site: Site, address: str) -> dict[str, Any]:
    site.wait(lambda: site.json(address)["state"] in ("ready", "failed"))
    state: dict[str, Any] = site.json(address)
    return state


def folders(site: Site) -> list[Path]:
    return sorted((site.services.folder / "archives").iterdir())


def test_an_uploaded_archive_becomes_a_dataset(site: Site, archive: bytes) -> None:
    state = upload(site, archive)
    folder = Path(state["folder"])
    assert state["state"] == "ready"
    assert (state["name"], state["files"], folder.name) == ("bars.zip", 24, "bars")
    assert sorted(path.name for path in folder.iterdir()) == ["left", "middle", "right"]
    # Temporary files are removed shortly after the upload becomes ready.
    site.wait(lambda: sorted(path.name for path in folder.parents[1].iterdir()) == ["bars", "upload.json"])
    job = site.dataset(folder_train=state["folder"])
    refused = site.client.delete(f"/uploads/{state['id']}")
    assert refused.status_code == 403
    assert site.wait_for_end(job) == "Done"
    assert site.client.delete(f"/uploads/{state['id']}").status_code == 204
    assert folders(site) == []


def test_a_table_is_found_in_an_upload(site: Site) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as packed:
        packed.writestr("levels.csv", "image,level\na.png,1\n")
        packed.writestr("a.png", b"x")
    state = upload(site, file.getvalue(), "levels.zip")
    assert state["tables"] == [f"{state['folder']}/levels.csv"]
    page = site.get("/uploads", headers={"Accept": "text/html"}).text
    assert "levels.zip" in page
    listed = site.get("/uploads", headers={"Accept": "application/json"}).get_json()
    assert [item["id"] for item in listed["uploads"]] == [state["id"]]


def test_the_server_describes_itself(shared_site: Site) -> None:
    answer = shared_site.client.options("/uploads")
    assert answer.status_code == 204
    assert answer.headers["Tus-Version"] == "1.0.0"
    assert answer.headers["Tus-Extension"] == "creation,termination,expiration"
    assert int(answer.headers["Tus-Max-Size"]) > 0


def test_another_version_of_the_protocol_is_refused(shared_site: Site) -> None:
    for headers in ({}, {"Tus-Resumable": "0.2.2"}):
        answer = shared_site.client.post("/uploads", headers={**headers, "Upload-Length": "5"})
        assert answer.status_code == 412
        assert answer.headers["Tus-Version"] == "1.0.0"


STEPS = st.tuples(
    st.sampled_from(["whole", "cut", "misplaced"]),
    st.integers(1, 9000),
    st.floats(0, 0.99),
)


@settings(max_examples=EXAMPLES)
@given(steps=st.lists(STEPS, max_size=5))
def test_an_interrupted_upload_resumes_at_its_offset(
    shared_site: Site, archive: bytes, steps: list[tuple[str, int, float]]
) -> None:
    """Connections are cut at random places; offsets are wrong."""
    site = shared_site
    address = create(site, len(archive)).headers["Location"]
    offset = 0
    for action, size, share in [*steps, ("whole", len(archive), 0.0)]:
        chunk = archive[offset : offset + size]
        if action == "misplaced":
            assert send(site, address, offset + size, b"").status_code == 409
        elif action == "cut":
            arrived = int(share * len(chunk))
            send_part(site, address, offset, chunk, arrived)  # nobody receives the response
            offset += arrived
        else:
            assert send(site, address, offset, chunk).status_code == 204
            offset += len(chunk)
        assert offset_of(site, address) == offset
        if offset == len(archive):
            break
    state = finished(site, address)
    assert (state["state"], state["files"]) == ("ready", 24)
    assert site.client.delete(address, headers=TUS).status_code == 204


def send_part(site: Site, address: str, offset: int, chunk: bytes, arrived: int) -> Any:
    """Send only the first ``arrived`` bytes of a chunk."""
    return site.client.patch(
        address,
        headers={**TUS, "Upload-Offset": str(offset)},
        content_type=CHUNK_TYPE,
        input_stream=io.BytesIO(chunk[:arrived]),
        content_length=len(chunk),
    )


def test_a_restarted_server_continues_to_unpack(settings: Settings, archive: bytes) -> None:
    site = open_site(settings)
    address = create(site, len(archive)).headers["Location"]
    send(site, address, 0, archive)
    site.close()
    site = open_site(settings)
    assert finished(site, address)["files"] == 24
    site.close()


def test_a_complete_upload_of_a_killed_server_is_unpacked(settings: Settings, archive: bytes) -> None:
    """Killed between the last byte and the record of it, and after the archive was unpacked."""
    site = open_site(settings)
    address = create(site, len(archive)).headers["Location"]
    unpacked = upload(site, archive)
    site.close()
    archives = settings.jobs_dir / ".server" / "archives"
    (archives / address.rpartition("/")[2] / "data").write_bytes(archive)
    (archives / unpacked["id"] / "data").write_bytes(archive)
    left = settings.jobs_dir / ".server" / "uploads" / "0123456789abcdef"  # of an import
    left.mkdir(parents=True)
    site = open_site(settings)
    assert offset_of(site, address) == len(archive)
    assert finished(site, address)["files"] == 24
    assert not (archives / unpacked["id"] / "data").exists()
    assert not left.exists()
    site.close()


def test_too_many_open_files_at_a_start_cost_no_upload(settings: Settings, archive: bytes) -> None:
    site = open_site(settings)
    state = upload(site, archive)
    site.close()
    with failing_disk(settings.jobs_dir, errno.EMFILE, 1, lambda path: "upload.json" in path):
        open_site(settings).close()
    site = open_site(settings)
    assert site.json(f"/uploads/{state['id']}")["state"] == "ready"
    site.close()


def test_a_complete_upload_waits_for_space(
    shared_site: Site, archive: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = shared_site
    address = create(site, len(archive)).headers["Location"]
    with failing_disk(site.services.folder, errno.ENOSPC, 1, lambda path: "upload.json" in path):
        answer = send(site, address, 0, archive, Accept="application/json")
        assert answer.status_code == 507
        assert "The upload is complete" in answer.get_json()["error"]["message"]
        assert site.client.head(address, headers=TUS).status_code == 507
        state = site.json(address)
        assert (state["state"], state["offset"]) == ("unpacking", len(archive))
        assert "The disk is full" in state["error"]
        assert "Waiting" in site.get("/uploads", headers={"Accept": "text/html"}).text
    # Now its state can be saved, but there is not enough space for the files.
    full = Limits(10**9, 1000, 200, spare_bytes=1 << 60)
    with monkeypatch.context() as patch:
        patch.setattr(Limits, "of", lambda settings: full)
        assert send(site, address, len(archive), b"").status_code == 204
        site.wait(lambda: site.client.head(address, headers=TUS).status_code == 507)
    monkeypatch.setattr("digits.web.services.upload_store.RETRY_SECONDS", 0.01)
    assert finished(site, address)["state"] == "ready"
    assert offset_of(site, address) == len(archive)
    site.client.delete(address)


def test_a_second_writer_is_refused(shared_site: Site, archive: bytes) -> None:
    site = shared_site
    address = create(site, len(archive)).headers["Location"]
    answers = []

    class Rest(io.BytesIO):
        """Data between whose parts another request arrives."""

        def read(self, size: int | None = -1, /) -> bytes:
            if not answers:
                answers.append(send(site, address, 0, b"other"))
            return super().read(size)

        def readinto(self, buffer: Any, /) -> int:
            data = self.read(len(buffer))
            buffer[: len(data)] = data
            return len(data)

    first = site.app.test_client().patch(
        address,
        headers={**TUS, "Upload-Offset": "0"},
        content_type=CHUNK_TYPE,
        input_stream=Rest(archive[:100]),
        content_length=100,
    )
    assert (first.status_code, answers[0].status_code) == (204, 423)
    assert offset_of(site, address) == 100
    site.client.delete(address)


def test_invalid_requests_are_refused(shared_site: Site) -> None:
    site = shared_site
    for length in ("", "-1", "1e3", "9" * 30):
        assert create(site, length).status_code == 400
    assert create(site, 0).status_code == 400
    assert create(site, site.services.settings.max_upload + 1).status_code == 413
    assert create(site, 5, **{"Upload-Metadata": "filename ###"}).status_code == 400
    address = create(site, 5).headers["Location"]
    assert send(site, address, "x", b"12345").status_code == 400
    assert send(site, address, 0, b"123456").status_code == 413
    wrong_type = site.client.patch(address, headers={**TUS, "Upload-Offset": "0"}, data=b"12345")
    assert wrong_type.status_code == 415
    assert offset_of(site, address) == 0
    assert site.client.delete(address).status_code == 204
    unknown = site.client.head(address, headers=TUS)
    assert (unknown.status_code, unknown.headers["Tus-Resumable"]) == (404, "1.0.0")


def test_a_refused_archive_names_the_reason_and_leaves_nothing(shared_site: Site, archive: bytes) -> None:
    state = upload(shared_site, archive[:-300])
    assert (state["state"], state["folder"]) == ("failed", None)
    assert "truncated" in state["error"]
    assert shared_site.client.head(f"/uploads/{state['id']}", headers=TUS).status_code == 410
    (folder,) = folders(shared_site)
    # The state may still be being saved.
    shared_site.wait(lambda: [path.name for path in folder.iterdir()] == ["upload.json"])
    shared_site.client.delete(f"/uploads/{state['id']}")
    assert folders(shared_site) == []


def zip_named(names: list[str], encoding: str) -> bytes:
    """A zip archive whose names do not state their ``encoding``."""
    places = {f"{number:0>{len(name.encode(encoding))}}": name for number, name in enumerate(names)}
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as packed:
        for place in places:
            packed.writestr(f"{place}/1.png", b"x")
    data = file.getvalue()
    for place, name in places.items():
        data = data.replace(f"{place}/".encode(), f"{name}/".encode(encoding))
    return data


def test_a_guessed_encoding_of_names_is_noted_and_an_unclear_one_is_refused(shared_site: Site) -> None:
    state = upload(shared_site, zip_named(["猫", "狗"], "gbk"))
    assert {path.name for path in Path(state["folder"]).iterdir()} == {"猫", "狗"}
    assert "Chinese (GBK)" in state["notes"][0]
    shared_site.client.delete(f"/uploads/{state['id']}")
    state = upload(shared_site, zip_named(["고양이", "강아지", "자동차"], "cp949"), "korean.zip")
    assert (state["state"], "cp949 (“고양이/1.png”)" in state["error"]) == ("failed", True)
    shared_site.client.delete(f"/uploads/{state['id']}")


def test_the_encoding_of_names_can_be_sent_with_an_archive(shared_site: Site) -> None:
    data = zip_named(["人"], "cp932")
    pairs = {"filename": "x.zip", "encoding": "Shift_JIS"}
    metadata = ",".join(f"{key} {base64.b64encode(text.encode()).decode()}" for key, text in pairs.items())
    address = create(shared_site, len(data), **{"Upload-Metadata": metadata}).headers["Location"]
    assert send(shared_site, address, 0, data).status_code == 204
    assert Path(finished(shared_site, address)["folder"]).name == "人"
    unknown = metadata.replace(base64.b64encode(b"Shift_JIS").decode(), base64.b64encode(b"utf-7").decode())
    answer = create(shared_site, len(data), **{"Upload-Metadata": unknown})
    assert (answer.status_code, "encoding" in answer.text) == (400, True)
    shared_site.client.delete(address)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("../../x.zip", "x.zip"),
        ("C:\\a\\b.zip", "b.zip"),
        ("..", "upload"),
        ("\x00\n", "upload"),
        ("data", "data"),
    ],
)
def test_names_are_only_shown(shared_site: Site, archive: bytes, name: str, shown: str) -> None:
    state = upload(shared_site, archive, name)
    assert (state["name"], state["state"]) == (shown, "ready")
    assert folders(shared_site) == [shared_site.services.folder / "archives" / state["id"]]
    shared_site.client.delete(f"/uploads/{state['id']}")


def test_uploads_belong_to_the_user_who_has_logged_in(settings: Settings, archive: bytes) -> None:
    site = open_site(settings)
    site.client.set_cookie("username", "ada")
    state = upload(site, archive)
    assert state["owner"] == "ada"
    address = f"/uploads/{state['id']}"
    site.client.set_cookie("username", "grace")
    assert site.client.head(address, headers=TUS).status_code == 404
    assert site.client.delete(address).status_code == 404
    assert site.get("/uploads", headers={"Accept": "application/json"}).get_json() == {"uploads": []}
    site.client.set_cookie("username", "ada")
    assert site.client.delete(address).status_code == 204
    site.close()


def test_the_size_of_uploads_is_limited(tmp_path: Path) -> None:
    site = open_site(site_settings(tmp_path, max_upload=1000))
    assert [create(site, size).status_code for size in (1000, 1001)] == [201, 413]
    site.close()


def test_the_number_of_uploads_is_limited(tmp_path: Path) -> None:
    site = open_site(site_settings(tmp_path, max_uploads=2))
    at_once = [gevent.spawn(create, site, 5) for _ in range(3)]
    assert sorted(request.get().status_code for request in at_once) == [201, 201, 400]
    assert create(site, 5).status_code == 400
    site.close()


def test_expired_uploads_are_removed(settings: Settings, archive: bytes) -> None:
    site = open_site(settings)
    used, unused = upload(site, archive), upload(site, archive)
    site.wait_for_end(site.dataset(folder_train=used["folder"]))
    address = create(site, 5).headers["Location"]
    site.close()
    site = open_site(settings)
    assert len(folders(site)) == 3
    site.close()
    clock = settings.jobs_dir / ".server" / "running-time.json"
    clock.write_text(json.dumps({"seconds": json.loads(clock.read_text())["seconds"] + 8 * 86400}))
    site = open_site(settings)
    assert [path.name for path in folders(site)] == [used["id"]]
    assert site.client.head(address, headers=TUS).status_code == 410
    assert site.get(f"/uploads/{unused['id']}", headers={"Accept": "application/json"}).status_code == 410
    site.close()


@pytest.mark.parametrize("days", [-20_000, -1, 10, 20_000])
def test_a_clock_that_is_wrong_removes_no_upload(
    settings: Settings, archive: bytes, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    def start() -> Site:
        return open_site(settings)

    wrong, right = (lambda: 1.8e9 + 86400 * days), (lambda: 1.8e9)
    for clocks in ((right, wrong, right), (wrong, right, right)):
        monkeypatch.setattr(time, "time", clocks[0])
        site = start()
        state = upload(site, archive)
        address = create(site, len(archive)).headers["Location"]
        send(site, address, 0, archive[:500])
        site.close()
        for clock in clocks[1:]:
            monkeypatch.setattr(time, "time", clock)
            site = start()
            site.services.uploads.remove_expired()
            assert offset_of(site, address) == 500
            assert site.json(f"/uploads/{state['id']}")["state"] == "ready"
            site.close()


def test_received_data_survives_a_power_loss(
    settings: Settings, archive: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = open_site(settings)
    place = site.services.folder / "archives"
    chance = random.Random(0)
    recording = Recording(place, tmp_path / "recording")
    recording.start(monkeypatch)
    address = create(site, len(archive)).headers["Location"]
    ends = [400, 401, 900, len(archive) - 1]
    states = [recording.surviving()]
    for start, end in pairwise([0, *ends]):
        assert send(site, address, start, archive[start:end]).status_code == 204
        states.append(recording.surviving())
    site.close()
    monkeypatch.undo()
    monkeypatch.setattr("digits.web.services.upload_store.boot_id", lambda: "of the next start")

    def offset_after(state: dict[str, bytes | None]) -> int:
        """The offset of the upload in a server that starts with this ``state``."""
        shutil.rmtree(place)
        write(state, place)
        store = UploadStore(place, settings, lambda text, only_open: [], shutil.rmtree)
        store.start()
        (found,) = store.list(None)
        store.stop()
        assert found.data.read_bytes() == archive[: found.offset]
        return found.offset

    assert [offset_after(state) for state in states] == [0, *ends]
    later = [
        moment
        for moment in recording.moments()
        if f"{address.rpartition('/')[2]}/upload.json" in moment.names
    ]
    for moment in chance.sample(later, 12):
        for state in recording.states(moment, chance):
            offset_after(state)


def test_a_killed_server_loses_no_data(settings: Settings, archive: bytes) -> None:
    site = open_site(settings)
    address = create(site, len(archive)).headers["Location"]
    send(site, address, 0, archive[:1000])
    site.close()
    folder = settings.jobs_dir / ".server" / address.replace("uploads", "archives").strip("/")
    (folder / "data").write_bytes(archive[:1100])  # 100 bytes of a request that it did not finish
    site = open_site(settings)
    assert offset_of(site, address) == 1100
    site.close()


def test_a_full_disk_is_reported(shared_site: Site, monkeypatch: pytest.MonkeyPatch, archive: bytes) -> None:
    site = shared_site
    usage = shutil.disk_usage(site.data)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    answer = create(site, 5000, Accept="application/json")
    assert answer.status_code == 507
    assert "does not have enough space for 5.0 kB" in answer.get_json()["error"]["message"]
    monkeypatch.undo()
    assert folders(site) == []


def test_a_disk_that_fills_up_keeps_the_data(shared_site: Site, archive: bytes) -> None:
    site = shared_site
    address = create(site, len(archive)).headers["Location"]
    send(site, address, 0, archive[:1000])
    with failing_disk(site.services.folder, 28, 1):
        assert send(site, address, 1000, archive[1000:]).status_code == 507
    assert offset_of(site, address) == 1000
    assert send(site, address, 1000, archive[1000:]).status_code == 204
    assert finished(site, address)["state"] == "ready"
    site.client.delete(address)
