"""``digits serve`` as a subprocess: options, settings and startup errors."""

from __future__ import annotations

import socket

from digits.core.settings import described_settings


def test_help_names_every_option(run_clean):
    answer = run_clean("-m", "digits", "serve", "--help")
    assert answer.returncode == 0
    for row in described_settings():
        assert row.option is None or row.option in answer.stdout
        assert row.option is None or row.variable in answer.stdout


def test_serve_is_the_default_command(run_clean):
    answer = run_clean("-m", "digits", "--port", "seventy")
    assert (answer.returncode, answer.stdout) == (2, "")
    assert (
        answer.stderr
        == "digits: --port: takes a number from 0 to 65535; 0 means any free port, not 'seventy'\n"
    )


def test_an_invalid_secret_is_not_printed(run_clean):
    answer = run_clean("-m", "digits", DIGITS_PORT="x", DIGITS_PASSWORD="open sesame")
    assert answer.returncode == 2
    assert "sesame" not in answer.stderr + answer.stdout


def test_a_port_in_use_is_reported_with_a_remedy(run_clean, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        answer = run_clean("-m", "digits", "-p", str(port), "--log-file", str(tmp_path / "digits.log"))
    assert answer.returncode == 2
    assert f"port {port} is in use" in answer.stderr
    assert f"--port {port + 1}" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_an_unavailable_address_is_reported(run_clean, tmp_path):
    answer = run_clean("-m", "digits", "--host", "192.0.2.1", "--log-file", str(tmp_path / "digits.log"))
    assert answer.returncode == 2
    assert "cannot listen on 192.0.2.1" in answer.stderr


def test_the_log_file_must_be_writable(run_clean, tmp_path):
    (tmp_path / "file").touch()
    answer = run_clean("-m", "digits", "--log-file", str(tmp_path / "file" / "digits.log"))
    assert answer.returncode == 2
    assert "log file" in answer.stderr and "Traceback" not in answer.stderr


def test_repeated_options_make_a_list(run_clean, tmp_path):
    answer = run_clean(
        "-m",
        "digits",
        "serve",
        "--pass-env",
        "FIRST",
        "--pass-env",
        "second value",
        "--log-file",
        str(tmp_path / "log"),
    )
    assert answer.returncode == 2
    assert "'FIRST,second value'" in answer.stderr


def test_an_option_overrides_the_environment(run_clean):
    answer = run_clean(
        "-m", "digits", "--no-login", "--host", "0.0.0.0", DIGITS_LOGIN="1", DIGITS_HOST="localhost"
    )
    assert answer.returncode == 2
    assert "login: cannot be disabled if others can reach 0.0.0.0" in answer.stderr
