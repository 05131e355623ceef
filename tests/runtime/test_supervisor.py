"""The supervisor as a real process that runs misbehaving programs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from digits.core.task import RESTARTED_VARIABLE, WORKERS_VARIABLE
from digits.runtime import supervisor, task_output
from tests.failing_disk import small_disk
from tests.waiting import has_ended, wait_until

pytestmark = pytest.mark.integration

# Misbehaving programs, by name.
FINISHES = "print('hello')"
FAILS = "import sys; print('why', file=sys.stderr); sys.exit(3)"
SEGFAULTS = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
HANGS = "import time; print('hanging', flush=True); time.sleep(300)"
IGNORES_STOP = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(300)"
FLOODS = "import sys\nfor n in range(3000): sys.stdout.write('x' * 7999 + '\\n')\nprint('the end')"
CLOSES_OUTPUT = "import os, time; os.close(1); os.close(2); time.sleep(0.3)"
FILLS_THE_DISK = """
import os, sys
open('full', 'wb').close()
with open('filler', 'wb', buffering=0) as file:
    for size in 4096, 1:
        try:
            while os.path.ismount('.') and file.write(b'x' * size): pass
        except OSError:
            pass
print('too late', flush=True)
sys.exit(1)
"""
# Simulates a full disk where none can be mounted: once the file `full` exists, writing and creating files fails.
FULL_DISK = """
import errno, os, runpy, sys
sys.argv = sys.argv[1:]
folder, real_open, real_write = sys.argv[1], os.open, os.write
def refuse():
    if os.path.exists(folder + '/full'):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
def fake_write(descriptor, data):
    refuse()
    return real_write(descriptor, data)
def audit(event, arguments):
    if event == 'open' and arguments[2] & os.O_CREAT and str(arguments[0]).startswith(folder):
        refuse()
os.write = fake_write
sys.addaudithook(audit)
runpy.run_path(sys.argv[0], run_name='__main__')
"""
LEAVES_CHILDREN = """
import os, signal, sys, time
reading, writing = os.pipe()
for number in range(6):
    if os.fork() == 0:
        if number % 2:
            os.setsid()
            if os.fork():
                os._exit(0)
        if number % 3 == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.write(1, b'child %d ' % os.getpid())
        os.write(writing, b'.')
        time.sleep(300)
for number in range(6): os.read(reading, 1)
print('left', flush=True)
"""


def start(folder: Path, program: str) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-I",
        "-S",
        supervisor.__file__,
        str(folder),
        "--",
        sys.executable,
        "-c",
        program,
    ]
    return subprocess.Popen(command, start_new_session=True)


def wait_for_output(folder: Path, words: str) -> None:
    wait_until(lambda: words in task_output.read(folder)[0])


def ended(folder: Path, process: subprocess.Popen[bytes]) -> dict[str, Any]:
    assert process.wait(timeout=30) == 0  # the outcome is in a file
    body: dict[str, Any] = json.loads((folder / supervisor.EXIT_FILE).read_text())
    return body


@pytest.mark.parametrize(
    ("program", "code", "number"),
    [(FINISHES, 0, None), (FAILS, 3, None), (SEGFAULTS, None, signal.SIGSEGV), (CLOSES_OUTPUT, 0, None)],
    ids=["finishes", "fails", "segfaults", "closes its output"],
)
def test_reports_how_a_program_ended(
    tmp_path: Path, program: str, code: int | None, number: int | None
) -> None:
    record = ended(tmp_path, start(tmp_path, program))
    assert (record["code"], record["signal"], record["stopped"]) == (code, number, False)
    assert record["max_memory_bytes"] > 1_000_000


def test_keeps_output_of_both_streams(tmp_path: Path) -> None:
    ended(tmp_path, start(tmp_path, FAILS))
    assert task_output.read(tmp_path) == ("why\n", 4)


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(HANGS, id="hangs"),
        # Waits for the grace period of production.
        pytest.param(IGNORES_STOP, id="ignores the stop signal", marks=pytest.mark.nightly),
    ],
)
def test_stops_a_program(tmp_path: Path, program: str) -> None:
    process = start(tmp_path, program)
    wait_for_output(tmp_path, "n" if program is HANGS else "deaf")
    process.terminate()
    record = ended(tmp_path, process)
    assert record["stopped"]
    assert record["signal"] == (signal.SIGTERM if program is HANGS else signal.SIGKILL)


# Runs the supervisor with a grace period of 0.2 s, and at most 0.5 s or as the first argument says.
IMPATIENT = """
import sys
sys.path.insert(0, sys.argv[1])
from digits.runtime import supervisor
supervisor.GRACE_SECONDS, supervisor.MAX_GRACE_SECONDS = 0.2, float(sys.argv[2])
supervisor.main(sys.argv[3:])
"""
SAVES_SLOWLY = """
import signal, sys, time
def save(*_):
    time.sleep(0.5)
    print('saved', flush=True)
    sys.exit(3)
signal.signal(signal.SIGTERM, save)
{}
print('ready', flush=True)
time.sleep(300)
"""
RESERVES = "open('stop_seconds', 'w').write('{}')"


def stop_impatiently(folder: Path, program: str, most: float) -> tuple[dict[str, Any], str]:
    root = str(Path(supervisor.__file__).parents[2])
    command = [sys.executable, "-I", "-S", "-c", IMPATIENT, root, str(most), str(folder), "--"]
    process = subprocess.Popen([*command, sys.executable, "-c", program], start_new_session=True)
    wait_for_output(folder, "ready")
    process.terminate()
    return ended(folder, process), task_output.read(folder)[0]


def test_a_program_that_takes_long_to_save_its_state_gets_the_time(tmp_path: Path) -> None:
    record, text = stop_impatiently(tmp_path, SAVES_SLOWLY.format(RESERVES.format(60)), most=60)
    assert (record["code"], record["signal"], record["stopped"], "saved" in text) == (3, None, True, True)


@pytest.mark.parametrize(
    "reserved",
    [
        "nan",
        "1e300",
        None,
        *(pytest.param(text, marks=pytest.mark.nightly) for text in ("", "soon", "-1", "9" * 40)),
    ],
    ids=lambda text: text and text[:5],
)
def test_a_program_cannot_delay_its_end_without_limit(tmp_path: Path, reserved: str | None) -> None:
    reserves = "import os; os.mkfifo('stop_seconds')" if reserved is None else RESERVES.format(reserved)
    deaf = f"{reserves}\n{IGNORES_STOP.replace('deaf', 'ready')}"
    record, _ = stop_impatiently(tmp_path, deaf, most=0.3)
    assert record["stopped"] and record["signal"] == signal.SIGKILL


def test_kills_leftover_processes_of_a_program(tmp_path: Path) -> None:
    record = ended(tmp_path, start(tmp_path, LEAVES_CHILDREN))
    text, _ = task_output.read(tmp_path)
    children = [int(number) for number in re.findall(r"child (\d+)", text)]
    assert len(children) == 6
    assert not [pid for pid in children if psutil.pid_exists(pid)]
    assert record["orphans_killed"] >= 6


def test_keeps_the_beginning_and_the_end_of_a_flood(tmp_path: Path) -> None:
    ended(tmp_path, start(tmp_path, FLOODS))
    kept = sum(path.stat().st_size for path in tmp_path.glob("output*.log"))
    assert kept <= supervisor.HEAD_BYTES + supervisor.KEPT_SEGMENTS * supervisor.SEGMENT_BYTES
    assert task_output.last_lines(tmp_path, 1) == ["the end"]
    text, end = task_output.read(tmp_path, 0, limit=100_000_000)
    assert end == 3000 * 8000 + len("the end\n")
    assert "bytes left out" in text
    assert text.startswith("xxx")


REMOVES_OUTPUT = """
import os, sys, time
print('before', flush=True); time.sleep(0.3)
for name in os.listdir('.'):
    if name.startswith('output'): os.unlink(name)
{then}
print('after', flush=True); time.sleep(0.3)
for _ in range(400): sys.stdout.write('x' * 7999 + chr(10))
print('the end', flush=True)
"""
THEN = {
    "nothing": "",
    "a folder": "os.mkdir('output.7.log'); os.mkdir('output.log')",
    "a link": "os.symlink('/etc/passwd', 'output.7.log')",
    "a pipe": "os.mkfifo('output.7.log')",
}


@pytest.mark.parametrize(
    "then",
    [
        "nothing",
        "a link",
        *(pytest.param(then, marks=pytest.mark.nightly) for then in ("a folder", "a pipe")),
    ],
)
def test_a_task_that_removes_its_output_is_not_lost(tmp_path: Path, then: str) -> None:
    process = start(
        tmp_path, f"import os; os.chdir({str(tmp_path)!r})" + REMOVES_OUTPUT.format(then=THEN[then])
    )
    record = ended(tmp_path, process)
    assert (record["code"], record["signal"]) == (0, None)
    assert task_output.last_lines(tmp_path, 1) == ["the end"]
    if then == "nothing":
        assert task_output.read(tmp_path, 0, 10**8)[0].startswith("[… 7 bytes left out …]\nafter\n")
    # The next run starts whatever the folder contains.
    (tmp_path / "output.log").unlink(missing_ok=True) if then != "a folder" else None
    assert ended(tmp_path, start(tmp_path, FINISHES))["code"] == 0


def test_child_dies_with_its_supervisor(tmp_path: Path) -> None:
    process = start(tmp_path, HANGS)
    wait_for_output(tmp_path, "hanging")
    (child,) = psutil.Process(process.pid).children()
    process.kill()
    process.wait(timeout=10)
    wait_until(lambda: has_ended(child))


def test_output_is_read_from_the_last_offset(tmp_path: Path) -> None:
    (tmp_path / "output.log").write_bytes(b"one\n")
    text, offset = task_output.read(tmp_path)
    with open(tmp_path / "output.log", "ab") as file:
        file.write(b"\x1b[31mtwo\x1b[0m\r\n\x00three")
    assert (text, offset) == ("one\n", 4)
    assert task_output.read(tmp_path, offset)[0] == "two\nthree"


def test_output_is_never_read_through_a_symlink(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    os.symlink(tmp_path / "secret", tmp_path / "output.log")
    assert task_output.read(tmp_path) == ("", 0)


def test_a_new_run_discards_the_output_of_the_last_one(tmp_path: Path) -> None:
    ended(tmp_path, start(tmp_path, FLOODS))
    assert list(tmp_path.glob("output.*.log"))
    ended(tmp_path, start(tmp_path, FINISHES))
    assert task_output.read(tmp_path) == ("hello\n", 6)


def test_a_full_disk_does_not_prevent_the_exit_record(tmp_path: Path) -> None:
    with small_disk(tmp_path / "task", "size=64k") as is_small:
        folder = tmp_path / "task"
        if is_small:
            process = start(folder, FILLS_THE_DISK)
        else:
            words = [supervisor.__file__, str(folder), "--", sys.executable, "-c", FILLS_THE_DISK]
            command = [sys.executable, "-I", "-S", "-c", FULL_DISK, *words]
            process = subprocess.Popen(command, start_new_session=True)
        record = ended(folder, process)
        assert (record["code"], record["disk_full"]) == (1, True)
        assert not list(folder.glob(f"{supervisor.EXIT_FILE}.*"))


def test_a_program_may_remove_any_file_in_its_folder(tmp_path: Path) -> None:
    removes = f"import os\nfor name in os.listdir('.'): os.unlink(name)\n{FLOODS}".replace(
        "print(", "[os.unlink(name) for name in os.listdir('.')]; print("
    )
    record = ended(tmp_path, start(tmp_path, removes))
    assert (record["code"], record["disk_full"]) == (0, False)


def test_a_disk_too_full_for_the_exit_record_fails_before_the_start(tmp_path: Path) -> None:
    with small_disk(tmp_path / "task", "size=4k,nr_inodes=2") as is_small:
        folder = tmp_path / "task" if is_small else tmp_path / "missing"
        if is_small:
            (folder / "another").touch()
        with pytest.raises(OSError, match="No s"):
            supervisor.reserve_exit(str(folder))


def test_a_run_that_starts_again_continues_its_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for word in ("first", "second", "third"):
        ended(tmp_path, start(tmp_path, f"print('{word}')"))
        monkeypatch.setenv(RESTARTED_VARIABLE, "1")
    assert task_output.read(tmp_path)[0] == "first\nsecond\nthird\n"
    monkeypatch.delenv(RESTARTED_VARIABLE)
    ended(tmp_path, start(tmp_path, "print('fourth')"))
    assert task_output.read(tmp_path)[0] == "fourth\n"


def test_each_node_of_a_gang_has_its_own_record_and_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(WORKERS_VARIABLE, "2")
    program = "import os, sys; print(os.environ['DIGITS_RANK']); sys.exit(int(os.environ['DIGITS_RANK']))"
    for node in (0, 1):
        monkeypatch.setenv(supervisor.NODE_VARIABLE, str(node))
        assert start(tmp_path, program).wait(timeout=30) == node
        assert json.loads((tmp_path / f"exit.{node}.json").read_text())["code"] == node
    assert not (tmp_path / supervisor.EXIT_FILE).exists()
    assert task_output.read(tmp_path)[0] == "0\n"
    assert (tmp_path / "rank-1.log").read_text() == "1\n"
