"""``digits serve`` as a subprocess: options, settings and startup errors."""

from __future__ import annotations

import socket

import pytest

from digits.core.settings import described_settings


def test_help_names_every_option(run_clean):
    answer = run_clean("-m", "digits", "serve", "--help")
    assert answer.returncode == 0
    for row in described_settings():
        assert row.option is None or row.option in answer.stdout
        assert row.option is None or row.variable in answer.stdout


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


@pytest.mark.parametrize(
    ("options", "variables", "problem"),
    [
        (
            ["--port", "seventy"],
            {},
            "digits: --port: takes a number from 0 to 65535; 0 means any free port, not 'seventy'\n",
        ),
        (["serve", "--pass-env", "FIRST", "--pass-env", "second value"], {}, "'FIRST,second value'"),
        (["--host", "192.0.2.1"], {}, "cannot listen on 192.0.2.1"),
        (["--log-file", "/dev/null/digits.log"], {}, "log file"),
        # An option overrides a variable.
        (
            ["--no-login", "--host", "0.0.0.0"],
            {"DIGITS_LOGIN": "1", "DIGITS_HOST": "localhost"},
            "login: cannot be disabled if others can reach 0.0.0.0",
        ),
    ],
    ids=["number", "list", "address", "log file", "login"],
)
def test_an_invalid_option_is_refused_also_without_the_name_of_the_command(
    run_clean, tmp_path, options, variables, problem
):
    variables = {"DIGITS_LOGFILE_FILENAME": str(tmp_path / "digits.log"), **variables}
    answer = run_clean("-m", "digits", *options, **variables)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert problem in answer.stderr and "Traceback" not in answer.stderr
