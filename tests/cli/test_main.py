"""The ``digits`` command: subcommands, help and shell completion."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner, Result

from digits import __version__
from digits.cli.commands import digits

COMMANDS = {"serve", "train", "check", "export", "labels", "download-data"}


def run(*words: str, **variables: str) -> Result:
    """Run the command in this process, without gevent."""
    return CliRunner().invoke(digits, words, env=variables, prog_name="digits")


def test_version(run_clean: Any) -> None:
    answer = run_clean("-m", "digits", "--version")
    assert (answer.returncode, answer.stdout.strip()) == (0, f"digits {__version__}")


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_lists_the_commands(option: str) -> None:
    answer = run(option)
    assert answer.exit_code == 0 and all(f"\n  {command} " in answer.stdout for command in COMMANDS)


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_has_help(command: str) -> None:
    answer = run(command, "-h")
    assert (answer.exit_code, answer.stderr) == (0, "")
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
def test_wrong_usage_is_explained(words: list[str], problem: str) -> None:
    answer = run(*words)
    assert (answer.exit_code, answer.stdout) == (2, "")
    assert problem in answer.stderr


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("digits ", COMMANDS),
        ("digits tr", {"train"}),
        ("digits --po", {"--port"}),
        ("digits --port 80 --de", {"--debug"}),
        ("digits serve --no-lo", {"--no-login"}),
        ("digits train --out", {"--output"}),
    ],
)
def test_the_shell_completes_commands_and_options(line: str, expected: set[str]) -> None:
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
    answer = run(_DIGITS_COMPLETE="bash_complete", **words)
    assert set(answer.stdout.split()) == {f"plain,{word}" for word in expected}


def test_gevent_patches_before_other_imports(run_clean: Any) -> None:
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


def test_other_commands_are_not_patched(run_clean: Any) -> None:
    code = (
        "import sys\n"
        "from digits.cli.main import main\n"
        "try:\n    main(['--version'])\n"
        "finally:\n    print('gevent' in sys.modules)\n"
    )
    assert run_clean("-c", code).stdout.split()[-1] == "False"
