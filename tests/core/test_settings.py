"""Settings from options, environment variables and defaults, and errors that name an invalid one."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from digits.core.settings import LoginPolicy, Settings, SettingsError, described_settings, read_settings


def test_the_default_address_is_local():
    settings = read_settings({})
    assert (settings.host, settings.port, settings.is_local) == ("127.0.0.1", 5000, True)
    assert settings.url_prefix == "" and not settings.debug and settings.standby


def test_a_checkout_stores_jobs_in_its_own_folder(root):
    assert read_settings({}).jobs_dir == root / "jobs"


def test_an_installed_program_stores_jobs_in_the_home_folder(monkeypatch, tmp_path):
    monkeypatch.setattr("digits.core.settings.checkout_folder", lambda: None)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert read_settings({}).jobs_dir == tmp_path / "digits" / "jobs"
    assert read_settings({}).samples_dir == tmp_path / "digits" / "samples"


def test_an_option_overrides_a_variable():
    environment = {"DIGITS_PORT": "6000", "DIGITS_LOGFILE_LEVEL": "ERROR"}
    settings = read_settings(environment, {"port": "7000", "logfile_level": None})
    assert (settings.port, settings.logfile_level) == (7000, "error")


@pytest.mark.parametrize(
    ("variable", "value", "field", "meaning"),
    [
        ("DIGITS_JOBS_DIR", "/srv/../srv/jobs", "jobs_dir", Path("/srv/jobs")),
        ("DIGITS_JOBS_DIR", "~/jobs", "jobs_dir", Path.home() / "jobs"),
        ("DIGITS_DATA_ROOTS", "/a:/b::", "data_roots", (Path("/a"), Path("/b"))),
        ("DIGITS_ALLOWED_HOSTS", "Digits.example, other", "allowed_hosts", ("digits.example", "other")),
        ("DIGITS_URL_PREFIX", "digits/", "url_prefix", "/digits"),
        ("DIGITS_URL_PREFIX", "/", "url_prefix", ""),
        ("DIGITS_STANDBY", "0", "standby", False),
        ("DIGITS_BEHIND_PROXY", "Yes", "behind_proxy", True),
        ("DIGITS_SERVER_NAME", " lab ", "server_name", "lab"),
    ],
)
def test_variables_are_parsed(variable, value, field, meaning):
    assert getattr(read_settings({variable: value}), field) == meaning


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("DIGITS_PORT", "http"),
        ("DIGITS_PORT", "65536"),
        ("DIGITS_PORT", "-1"),
        ("DIGITS_PORT", "٣"),
        ("DIGITS_STANDBY", "perhaps"),
        ("DIGITS_LOGFILE_LEVEL", "loud"),
        ("DIGITS_URL_PREFIX", "/a/../b"),
        ("DIGITS_URL_PREFIX", "a//b"),
        ("DIGITS_JOBS_DIR", " "),
        ("DIGITS_JOBS_DIR", "s3://bucket/jobs"),
        ("DIGITS_DATA_ROOTS", "s3://bucket/images"),
    ],
)
def test_an_invalid_value_is_refused_by_name(variable, value):
    with pytest.raises(SettingsError, match=variable):
        read_settings({variable: value})


@pytest.mark.parametrize("name", ["token", "password"])
def test_secrets_have_no_option(name):
    """Every user of a machine can read the command lines of its processes."""
    assert [row.option for row in described_settings() if row.name == name] == [None]


def test_debug_mode_requires_a_local_address():
    with pytest.raises(SettingsError, match="loopback"):
        Settings(debug=True, host="0.0.0.0")
    with pytest.raises(SettingsError, match="proxy"):
        Settings(debug=True, behind_proxy=True)
    assert Settings(debug=True, host="localhost").debug


@pytest.mark.parametrize(
    ("host", "is_local"),
    [("127.0.0.1", True), ("127.5.0.1", True), ("::1", True), ("localhost", True)]
    + [(host, False) for host in ("0.0.0.0", "::", "192.168.0.2", "digits.example", "")],
)
def test_local_means_loopback(host, is_local):
    assert Settings(host=host).is_local is is_local


@pytest.mark.parametrize(
    ("options", "policy"),
    [
        ({}, LoginPolicy.OTHER_USERS),
        ({"host": "::1"}, LoginPolicy.OTHER_USERS),
        ({"token": "secret"}, LoginPolicy.EVERYBODY),
        ({"password": "secret"}, LoginPolicy.EVERYBODY),
        ({"behind_proxy": True}, LoginPolicy.EVERYBODY),
        ({"host": "0.0.0.0"}, LoginPolicy.EVERYBODY),
        ({"host": "192.168.0.2", "behind_proxy": True}, LoginPolicy.EVERYBODY),
        ({"login": False}, LoginPolicy.NOBODY),
        ({"login": False, "behind_proxy": True}, LoginPolicy.NOBODY),
    ],
)
def test_who_must_log_in(options, policy):
    assert Settings(**options).login_policy is policy


def test_disabling_login_must_be_explicit():
    assert read_settings({"DIGITS_LOGIN": "0"}).login_policy is LoginPolicy.NOBODY
    assert read_settings({}, {"login": False}).login_policy is LoginPolicy.NOBODY


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.168.1.2", "digits.example", "localhost.example"])
def test_other_computers_must_always_log_in(host):
    with pytest.raises(SettingsError, match="run programs as you"):
        Settings(login=False, host=host)


@pytest.mark.parametrize("secret", ["token", "password"])
def test_a_secret_without_a_login_is_refused(secret):
    with pytest.raises(SettingsError, match="--no-login"):
        Settings(login=False, **{secret: "open sesame"})


@pytest.mark.parametrize("names", ["TF_*", "A B", "1A", "DIGITS_TOKEN", "A=b"])
def test_tasks_inherit_variables_by_exact_name_only(names):
    with pytest.raises(SettingsError, match="exact names"):
        read_settings({"DIGITS_PASS_ENV": names})
    assert read_settings({"DIGITS_PASS_ENV": "HF_HOME, MY_1"}).pass_env == ("HF_HOME", "MY_1")


def test_jobs_and_samples_are_always_readable(tmp_path):
    settings = Settings(data_roots=(), jobs_dir=tmp_path / "jobs", samples_dir=tmp_path / "samples")
    assert settings.readable_roots == (tmp_path / "jobs", tmp_path / "samples")


def test_every_setting_is_described_once():
    rows = described_settings()
    assert [row.name for row in rows] == [field.name for field in dataclasses.fields(Settings)]
    assert len({row.variable for row in rows}) == len(rows)
    options = [row.option for row in rows if row.option]
    assert len(set(options)) == len(options) == len(rows) - 3
    assert all(row.help.endswith(".") and row.default_text for row in rows)
