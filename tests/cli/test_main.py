"""The ``digits`` command as a subprocess: subcommands, help and shell completion."""

from __future__ import annotations

import pytest

from digits import __version__


def test_version(run_clean):
    answer = run_clean("-m", "digits", "--version")
    assert (answer.returncode, answer.stdout.strip()) == (0, f"digits {__version__}")


def test_help_lists_the_commands(run_clean):
    for option in ("-h", "--help"):
        answer = run_clean("-m", "digits", option)
        assert answer.returncode == 0
        for command in ("serve", "train", "check", "export", "download-data"):
            assert f"\n  {command} " in answer.stdout


@pytest.mark.parametrize("command", ["serve", "train", "check", "export", "download-data"])
def test_every_command_has_help(run_clean, command):
    answer = run_clean("-m", "digits", command, "-h")
    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout.startswith(f"Usage: digits {command} ")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["trian"], "No such command 'trian'"),
        (["train"], "Missing argument 'JOB'"),
        (["--prot", "80"], "No such option '--prot'"),
        (["export", "job", "folder", "--epoch", "last"], "'last' is not a valid float"),
    ],
)
def test_wrong_usage_is_explained(run_clean, words, problem):
    answer = run_clean("-m", "digits", *words)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert problem in answer.stderr


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("digits ", {"serve", "train", "check", "export", "download-data"}),
        ("digits tr", {"train"}),
        ("digits --po", {"--port"}),
        ("digits --port 80 --de", {"--debug"}),
        ("digits serve --no-lo", {"--no-login"}),
        ("digits train --out", {"--output"}),
    ],
)
def test_the_shell_completes_commands_and_options(run_clean, line, expected):
    code = "from digits.cli.main import main; main()"
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
    answer = run_clean("-c", code, _DIGITS_COMPLETE="bash_complete", **words)
    assert set(answer.stdout.split()) == {f"plain,{word}" for word in expected}


def test_gevent_patches_before_other_imports(run_clean):
    code = (
        "import sys, types\n"
        "seen = []\n"
        "from gevent import monkey\n"
        "monkey.patch_all = lambda: seen.append(sorted(m for m in sys.modules if m.startswith(('digits', 'flask'))))\n"
        "from digits.cli.main import main\n"
        "try:\n    main(['serve', '--port', 'x'])\n"
        "except SystemExit:\n    print(seen)\n"
    )
    assert (
        run_clean("-c", code).stdout.strip()
        == "[['digits', 'digits.cli', 'digits.cli.default_command', 'digits.cli.main']]"
    )


def test_other_commands_are_not_patched(run_clean):
    code = (
        "import sys\n"
        "from digits.cli.main import main\n"
        "try:\n    main(['--version'])\n"
        "finally:\n    print('gevent' in sys.modules)\n"
    )
    assert run_clean("-c", code).stdout.split()[-1] == "False"
