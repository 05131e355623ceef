"""The command line as a person meets it: in a process of its own."""

from __future__ import annotations

import re
import socket
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from digits import __version__
from digits.cli import announcement
from digits.core.settings import Settings, described_settings
from digits.runtime.tensorflow_support import TensorFlowSupport, find_tensorflow

pytestmark = pytest.mark.integration

HERE = TensorFlowSupport(True)


def test_version(run_clean):
    answer = run_clean("-m", "digits", "--version")
    assert (answer.returncode, answer.stdout.strip()) == (0, f"digits {__version__}")


def test_help_names_every_option(run_clean):
    answer = run_clean("-m", "digits", "serve", "--help")
    assert answer.returncode == 0
    for row in described_settings():
        assert row.option is None or row.option in answer.stdout
        assert row.option is None or row.variable in answer.stdout


def test_serving_is_what_happens_without_a_command(run_clean):
    answer = run_clean("-m", "digits", "--port", "seventy")
    assert (answer.returncode, answer.stdout) == (2, "")
    assert (
        answer.stderr
        == "digits: --port: takes a number from 0 to 65535; 0 means any free port, not 'seventy'\n"
    )


def test_a_wrong_secret_is_not_repeated(run_clean):
    answer = run_clean("-m", "digits", DIGITS_PORT="x", DIGITS_PASSWORD="open sesame")
    assert answer.returncode == 2
    assert "sesame" not in answer.stderr + answer.stdout


def test_a_port_in_use_is_told_with_a_way_out(run_clean, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        answer = run_clean("-m", "digits", "-p", str(port), "--log-file", str(tmp_path / "digits.log"))
    assert answer.returncode == 2
    assert f"port {port} is in use" in answer.stderr
    assert f"--port {port + 1}" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_a_foreign_address_is_told(run_clean, tmp_path):
    answer = run_clean("-m", "digits", "--host", "192.0.2.1", "--log-file", str(tmp_path / "digits.log"))
    assert answer.returncode == 2
    assert "cannot listen on 192.0.2.1" in answer.stderr


def test_a_log_file_that_was_asked_for_must_be_writable(run_clean, tmp_path):
    (tmp_path / "file").touch()
    answer = run_clean("-m", "digits", "--log-file", str(tmp_path / "file" / "digits.log"))
    assert answer.returncode == 2
    assert "log file" in answer.stderr and "Traceback" not in answer.stderr


@pytest.mark.parametrize(
    ("host", "address", "reach"),
    [
        ("127.0.0.1", "http://127.0.0.1:5000/digits/", "this computer only"),
        ("::1", "http://[::1]:5000/digits/", "this computer only"),
        ("0.0.0.0", "http://localhost:5000/digits/", "every computer that can reach"),
        ("192.168.0.2", "http://192.168.0.2:5000/digits/", "every computer that can reach 192.168.0.2"),
    ],
)
def test_the_announcement_says_where_and_to_whom(host, address, reach):
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
def test_the_announcement_says_who_has_to_log_in(settings, reach, login):
    rows = dict(re.findall(r"^  (\w[\w ]*\w)  +(.*)$", announcement(settings, HERE), re.M))
    assert rows["open to"].startswith(reach)
    assert rows["login"].startswith(login)
    assert ("not" in rows["login"].split()) == ("not" in login.split())


def test_the_announcement_says_why_everybody_has_to_log_in():
    text = announcement(Settings(), HERE, "secret-word", problem="/proc/net/tcp cannot be read")
    assert "required, also for you: /proc/net/tcp cannot be read" in text
    assert "login link  http://127.0.0.1:5000/?token=secret-word" in text


def test_root_is_warned():
    assert "runs as root" in announcement(Settings(), HERE, is_root=True)
    assert "root" not in announcement(Settings(jobs_dir=Path("/srv/jobs")), HERE)


def test_a_token_that_was_made_is_part_of_the_address():
    text = announcement(Settings(host="0.0.0.0"), HERE, token="secret-word")
    assert "http://localhost:5000/?token=secret-word" in text.split()


def test_missing_tensorflow_is_announced_with_why_and_remedy():
    missing = find_tensorflow(lambda name: None)
    lines = announcement(Settings(), missing).splitlines()
    place = lines.index("TensorFlow support is disabled")
    assert "tensorflow is not installed" in lines[place + 1]
    assert "pip install" in lines[place + 2]


def test_an_empty_folder_is_not_tensorflow():
    leftover = find_tensorflow(lambda name: ModuleSpec(name, None, is_package=True))
    assert not leftover.available
    assert "damaged" in leftover.reason


def test_a_program_of_that_name_is_tensorflow():
    found = find_tensorflow(lambda name: ModuleSpec(name, None, origin=f"/somewhere/{name}/__init__.py"))
    assert found == (True, "", "")


def test_gevent_patches_before_anything_else_is_loaded(run_clean):
    code = (
        "import sys, types\n"
        "seen = []\n"
        "from gevent import monkey\n"
        "monkey.patch_all = lambda: seen.append(sorted(m for m in sys.modules if m.startswith(('digits', 'flask'))))\n"
        "from digits.cli import main\n"
        "try:\n    main(['serve', '--port', 'x'])\n"
        "except SystemExit:\n    print(seen)\n"
    )
    assert run_clean("-c", code).stdout.strip() == "[['digits', 'digits.cli']]"


def test_other_commands_are_not_patched(run_clean):
    code = (
        "import sys\n"
        "from digits.cli import main\n"
        "try:\n    main(['--version'])\n"
        "finally:\n    print('gevent' in sys.modules)\n"
    )
    assert run_clean("-c", code).stdout.split()[-1] == "False"
