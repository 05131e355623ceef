"""The startup message."""

from __future__ import annotations

import re
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from digits.cli.announcement import announcement
from digits.core.settings import Settings
from digits.runtime.tensorflow_support import TensorFlowSupport, find_tensorflow

pytestmark = pytest.mark.integration

HERE = TensorFlowSupport(True)


@pytest.mark.parametrize(
    ("host", "address", "reach"),
    [
        ("127.0.0.1", "http://127.0.0.1:5000/digits/", "this computer only"),
        ("::1", "http://[::1]:5000/digits/", "this computer only"),
        ("0.0.0.0", "http://localhost:5000/digits/", "every computer that can reach"),
        ("192.168.0.2", "http://192.168.0.2:5000/digits/", "every computer that can reach 192.168.0.2"),
    ],
)
def test_the_announcement_shows_the_address_and_who_can_connect(host, address, reach):
    text = announcement(Settings(host=host, url_prefix="/digits"), HERE)
    assert address in text.split()
    assert reach in text
    assert "TensorFlow" not in text


@pytest.mark.parametrize(
    ("settings", "reach", "login"),
    [
        (Settings(), "this computer only", "required for other users of this computer, not for you"),
        (Settings(token="secret"), "this computer only", "required"),
        (Settings(behind_proxy=True), "everyone who can reach the proxy", "required"),
        (Settings(behind_proxy=True, login=False), "everyone who can reach the proxy", "not required"),
        (Settings(login=False), "this computer only", "not required"),
        (Settings(host="0.0.0.0"), "every computer", "required"),
    ],
)
def test_the_announcement_shows_who_must_log_in(settings, reach, login):
    rows = dict(re.findall(r"^  (\w[\w ]*\w)  +(.*)$", announcement(settings, HERE), re.M))
    assert rows["open to"].startswith(reach)
    assert rows["login"].startswith(login)
    assert ("not" in rows["login"].split()) == ("not" in login.split())


def test_the_announcement_explains_why_everyone_must_log_in():
    text = announcement(Settings(), HERE, "secret-word", problem="the kernel does not say")
    assert "required, also for you: the kernel does not say" in text
    assert "login link  http://127.0.0.1:5000/?token=secret-word" in text


def test_root_is_warned():
    assert "runs as root" in announcement(Settings(), HERE, is_root=True)
    assert "root" not in announcement(Settings(jobs_dir=Path("/srv/jobs")), HERE)


def test_a_generated_token_is_part_of_the_address():
    text = announcement(Settings(host="0.0.0.0"), HERE, token="secret-word")
    assert "http://localhost:5000/?token=secret-word" in text.split()


def test_missing_tensorflow_is_announced_with_cause_and_remedy():
    missing = find_tensorflow(lambda name: None)
    lines = announcement(Settings(), missing).splitlines()
    place = lines.index("TensorFlow support is disabled")
    assert "tensorflow is not installed" in lines[place + 1]
    assert "pip install" in lines[place + 2]


def test_an_empty_folder_does_not_count_as_tensorflow():
    leftover = find_tensorflow(lambda name: ModuleSpec(name, None, is_package=True))
    assert not leftover.available
    assert "damaged" in leftover.reason


def test_a_regular_package_counts_as_tensorflow():
    found = find_tensorflow(lambda name: ModuleSpec(name, None, origin=f"/somewhere/{name}/__init__.py"))
    assert found == (True, "", "")
