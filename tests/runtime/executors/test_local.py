"""Start, poll, stop and find tasks, with real processes."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

import digits
from digits.core.job import DeviceRequest
from digits.core.settings import Settings
from digits.core.task import Handle
from digits.runtime import task_output
from digits.runtime.executors import processes
from digits.runtime.executors.executor import Exit, Placement
from digits.runtime.executors.local import LocalExecutor, child_environment
from digits.web.services import Services
from tests.failing_disk import small_disk
from tests.shared_executor import ON_CPU
from tests.waiting import has_ended, wait_until

pytestmark = pytest.mark.integration

HANGS = "import time; print('hanging', flush=True); time.sleep(300)"
FINISHES = "import sys, os; print(sys.argv[1]); print(os.environ.get('CUDA_VISIBLE_DEVICES'), os.environ.get('DIGITS_PASSWORD'))"
FILLS_THE_DISK = """
import os, sys
with open('filler', 'wb', buffering=0) as file:
    for size in 4096, 1:
        try:
            while os.path.ismount('.') and file.write(b'x' * size): pass
        except OSError:
            pass
print('no room for this', flush=True)
sys.exit(1)
"""


def running(program: str) -> LocalExecutor:
    return LocalExecutor(standby=False, program=[sys.executable, "-c", program])


def hanging(folder: Path) -> tuple[LocalExecutor, Handle]:
    """Start a task that runs until it is stopped; return when it has printed something."""
    run = running(HANGS)
    handle = run.start(folder, ON_CPU)
    wait_until(lambda: task_output.read(folder)[0])
    return run, handle


def stop(run: LocalExecutor, folder: Path, handle: Handle) -> None:
    run.stop(handle)
    assert wait_for_end(run, folder, handle).stopped
    wait_until(lambda: not run.is_alive(handle))


def wait_for_end(run: LocalExecutor, folder: Path, handle: Handle) -> Exit:
    wait_until(lambda: run.poll(folder, handle) is not None)
    ended = run.poll(folder, handle)
    assert ended is not None
    return ended


def test_a_task_gets_its_folder_and_devices_but_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DIGITS_PASSWORD", "hidden-word")
    run = running(FINISHES)
    handle = run.start(tmp_path, Placement(DeviceRequest(), ("7",)))
    assert wait_for_end(run, tmp_path, handle) == Exit(code=0)
    assert task_output.last_lines(tmp_path, 2) == [str(tmp_path), "7 None"]


SECRETS = "TF_TOKEN_app_example NVIDIA_API_KEY KERAS_TOKEN LC_SECRET XDG_SECRET CUDA_SECRET XLA_SECRET OMP_SECRET".split()
PRINTS_ENVIRONMENT = "import json, os; print(json.dumps(dict(os.environ)))"


@pytest.mark.parametrize("pass_env", [(), ("NVIDIA_API_KEY",)])
def test_a_task_inherits_variables_by_exact_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pass_env: tuple[str, ...]
) -> None:
    for name in SECRETS:
        monkeypatch.setenv(name, "hidden-word")
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "2")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    program = [sys.executable, "-c", PRINTS_ENVIRONMENT]
    run = LocalExecutor(standby=False, program=program, pass_env=pass_env)
    wait_for_end(run, tmp_path, run.start(tmp_path, ON_CPU))
    environment = json.loads(task_output.read(tmp_path)[0])
    assert {name for name, value in environment.items() if value == "hidden-word"} == set(pass_env)
    assert (environment["TF_NUM_INTRAOP_THREADS"], environment["LC_ALL"]) == ("2", "C.UTF-8")


def test_the_setting_adds_a_variable(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NVIDIA_API_KEY", "hidden-word")
    services = Services(replace(settings, pass_env=("NVIDIA_API_KEY",)))
    folder = services.folder / "task"
    folder.mkdir()
    handle = services.executor.start(folder, ON_CPU)
    supervisor = psutil.Process(handle["pid"])
    # Until the new program has started, its environment is empty.
    wait_until(lambda: supervisor.environ().get("NVIDIA_API_KEY") == "hidden-word")
    wait_until(lambda: not services.executor.is_alive(handle))
    services.stop()


def test_relative_folders_of_modules_become_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    found = child_environment({"PYTHONPATH": f"one::/two{os.pathsep}."})["PYTHONPATH"].split(os.pathsep)
    assert found == [str(Path(digits.__file__).parents[1]), f"{tmp_path}/one", "/two", str(tmp_path)]


def test_settings_of_programs_reach_tasks() -> None:
    settings = {"DIGITS_MAX_IMAGE_PIXELS": "5"}
    assert child_environment({**settings, "DIGITS_TOKEN": "secret"}).items() >= settings.items()
    assert "DIGITS_TOKEN" not in child_environment({"DIGITS_TOKEN": "secret"})


def test_modules_beside_a_task_are_not_imported(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('the wrong module')")
    (tmp_path / "recipe.json").write_text('{"task": "nothing"}')
    run = LocalExecutor(standby=False)
    wait_for_end(run, tmp_path, run.start(tmp_path, ON_CPU))
    assert "nothing" in (tmp_path / "events.jsonl").read_text()


def test_files_of_a_task_are_readable_only_by_its_user(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        run = running("import os; open('made', 'w'); os.mkdir('folder'); print('done')")
        wait_for_end(run, tmp_path, run.start(tmp_path, ON_CPU))
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == {"made": 0o600, "folder": 0o700, "output.log": 0o600, "exit.json": 0o600}


def test_another_server_finds_and_stops_a_task(tmp_path: Path) -> None:
    first, second = running(HANGS), running(HANGS)
    handle = first.start(tmp_path, ON_CPU)
    wait_until(lambda: task_output.read(tmp_path)[0])
    assert first.is_alive(handle)
    assert second.poll(tmp_path, handle) is None
    second.stop(handle)
    assert wait_for_end(second, tmp_path, handle).stopped
    wait_until(lambda: first.poll(tmp_path, handle) and not first.is_alive(handle))


def test_a_new_process_can_be_identified_after_the_wait(tmp_path: Path) -> None:
    for number in range(20):
        pid = os.posix_spawn("/bin/sleep", ["sleep", "300"], {"DIGITS_TASK": str(tmp_path)})
        processes.wait_until_identifiable(pid)
        try:
            assert list(processes.processes_in(tmp_path)) == [pid], f"start {number}"
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    processes.wait_until_identifiable(pid)  # returns although the process has ended


def test_a_task_whose_supervisor_was_killed_is_lost(tmp_path: Path) -> None:
    run, handle = hanging(tmp_path)
    psutil.Process(handle["pid"]).kill()
    assert wait_for_end(run, tmp_path, handle) == Exit(lost=True)


def test_an_unrelated_process_with_the_same_pid_is_left_alone(tmp_path: Path) -> None:
    run, handle = hanging(tmp_path)
    changes = [
        ("began", 1),
        ("boot", "another"),
        ("pid", 2**22 + 1),
        ("began", None),
        ("pid", -1),
        ("boot", ["a list"]),
    ]
    for name, value in changes:
        other = {**handle, name: value}
        assert not run.is_alive(other), name
        run.stop(other)
        assert run.poll(tmp_path / "nowhere", other) == Exit(lost=True)
        assert run.is_alive(handle), name
    stop(run, tmp_path, handle)


def test_handles_of_other_versions_and_executors_are_accepted(tmp_path: Path) -> None:
    run = running(HANGS)
    handle = run.start(tmp_path, ON_CPU)
    older = {name: handle[name] for name in ("boot", "pid", "began")}
    assert run.is_alive(older) and run.poll(tmp_path, older) is None
    elsewhere = {"job": 7, "cluster": "physics"}
    run.stop(elsewhere)
    assert not run.is_alive(elsewhere) and run.poll(tmp_path / "nowhere", elsewhere) == Exit(lost=True)
    run.stop(older)
    assert wait_for_end(run, tmp_path, older).stopped


def test_an_old_exit_record_does_not_end_a_new_run(tmp_path: Path) -> None:
    run = running(HANGS)
    (tmp_path / "exit.json").write_text('{"code": 0, "signal": null}')
    handle = run.start(tmp_path, ON_CPU)
    assert run.poll(tmp_path, handle) is None
    stop(run, tmp_path, handle)


def test_a_forged_exit_record_counts_only_after_the_task_has_ended(tmp_path: Path) -> None:
    run, handle = hanging(tmp_path)
    for content in ('{"code": 0, "signal": null, "run": 1}', "{", '{"code": 0}', '{"at": 1e308}'):
        (tmp_path / "exit.json").write_text(content)
        assert run.poll(tmp_path, handle) is None, content
        assert run.find(tmp_path, 1) == handle
    stop(run, tmp_path, handle)


@pytest.mark.parametrize(
    "escape", ["os.fork() or time.sleep(300)", "subprocess.Popen(['sleep', '300'], start_new_session=True)"]
)
def test_a_task_that_kills_its_supervisor_leaves_no_process(tmp_path: Path, escape: str) -> None:
    forges = f"""
import ctypes, json, os, signal, subprocess, sys, time
ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)  # survive the supervisor
open(sys.argv[1] + '/exit.json', 'w').write('{{"code": 0, "signal": null, "run": 1}}')
{escape}
print(os.getpid(), flush=True)
os.kill(os.getppid(), signal.SIGKILL)
time.sleep(300)
"""
    run = running(forges)
    handle = run.start(tmp_path, ON_CPU)
    wait_for_end(run, tmp_path, handle)
    mark = f"DIGITS_TASK={tmp_path}"
    left = [process.pid for process in psutil.process_iter() if mark in _environment(process)]
    assert not left
    assert run.clear(tmp_path, [handle])


def _environment(process: psutil.Process) -> list[str]:
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return []
        return [f"{name}={value}" for name, value in process.environ().items()]
    except psutil.Error:
        return []


def test_a_task_that_suspends_its_supervisor_can_be_stopped(tmp_path: Path) -> None:
    halts = "import os, signal, time; print('hi', flush=True); time.sleep(0.1); "
    run = running(halts + "os.kill(os.getppid(), signal.SIGSTOP); time.sleep(300)")
    handle = run.start(tmp_path, ON_CPU)
    wait_until(lambda: psutil.Process(handle["pid"]).status() == psutil.STATUS_STOPPED)
    run.stop(handle)
    assert wait_for_end(run, tmp_path, handle).stopped


def test_a_damaged_exit_record_is_reported(tmp_path: Path) -> None:
    run = running("")
    for content in ("{", "[]", '{"code": "x", "signal": null}', '{"code": 0, "signal": null, "at": 1e300}'):
        (tmp_path / "exit.json").write_text(content)
        ended = run.poll(tmp_path, None)
        assert ended and ended.lost and "exit.json" in ended.damage, content


# In a file that Python runs when it starts, so that the fork server needs no seconds.
IMPORTS_ANOTHER_TENSORFLOW = """
import time
from digits.worker import run
def import_programs():
    import tensorflow
    time.sleep(0.3)
run.import_programs = import_programs
"""


def test_the_fork_server_starts_tasks_and_is_replaced_after_its_death_or_when_it_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No modules are imported from the server's current folder.
    (tmp_path / "tensorflow.py").write_text("raise ImportError('the wrong module')")
    monkeypatch.chdir(tmp_path)
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "tensorflow.py").touch()
    (modules / "sitecustomize.py").write_text(IMPORTS_ANOTHER_TENSORFLOW)
    monkeypatch.setenv("PYTHONPATH", str(modules))
    run = LocalExecutor(log_file=tmp_path / "fork.log", fork_seconds=1.0)

    def task(name: str) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "recipe.json").write_text('{"task": "nothing"}')
        return folder

    def run_to_end(folder: Path) -> Handle:
        handle = run.start(folder, ON_CPU)
        assert wait_for_end(run, folder, handle).code == 1
        assert (folder / "events.jsonl").read_text().count('"failed"') == 1  # it started once
        assert "nothing" in (folder / "events.jsonl").read_text()
        return handle

    try:
        run.warm_up()
        assert run.fork_server_pid
        psutil.Process(run.fork_server_pid).kill()  # while it imports TensorFlow
        wait_until(lambda: run.fork_server_pid is None)
        run.warm_up()
        wait_until(run.is_warm)
        for number in range(2):
            run_to_end(task(f"task-{number}"))

        halted = psutil.Process(run.fork_server_pid)
        halted.suspend()
        run_to_end(task("while it hangs"))
        assert not halted.is_running()
        wait_until(run.is_warm)
        assert run.fork_server_pid != halted.pid

        assert run.fork_server_pid
        server = psutil.Process(run.fork_server_pid)
        server.kill()
        wait_until(lambda: server.status() == psutil.STATUS_ZOMBIE)
        # The next task starts in a fresh interpreter while the fork server restarts.
        handle = run_to_end(task("after its death"))
        wait_until(run.is_warm)
    finally:
        run.close()
    wait_until(lambda: not run.is_alive(handle))


def test_a_started_task_is_found_without_its_handle(tmp_path: Path) -> None:
    """The server that started it was killed before it could save the handle."""
    first, second = running(HANGS), running(HANGS)
    assert second.find(tmp_path, 2) is None
    handle = first.start(tmp_path, ON_CPU, run=2)
    wait_until(lambda: task_output.read(tmp_path)[0])
    assert second.find(tmp_path, 2) == handle
    second.stop(handle)
    assert wait_for_end(second, tmp_path, handle).stopped
    ended = second.find(tmp_path, 2)
    assert ended and wait_for_end(second, tmp_path, ended).stopped
    second.stop(ended)
    # Another run is not found.
    assert second.find(tmp_path, 3) is None
    wait_until(lambda: not first.is_alive(handle))


def test_the_end_time_does_not_depend_on_who_detects_it(tmp_path: Path) -> None:
    run = running(FINISHES)
    before = time.time()
    handle = run.start(tmp_path, ON_CPU)
    wait_for_end(run, tmp_path, handle)
    after = time.time()
    wait_until(lambda: not run.is_alive(handle))
    for _ in range(2):
        ended = run.poll(tmp_path, handle)
        assert ended and ended.at and before <= ended.at <= after
        (tmp_path / "exit.json").unlink(missing_ok=True)  # and when the supervisor was killed


def test_children_of_a_task_are_killed_even_without_its_supervisor(tmp_path: Path) -> None:
    starts = "import subprocess, time; child = subprocess.Popen(['sleep', '300'], start_new_session=True); "
    run = running(starts + "print(child.pid, flush=True); time.sleep(300)")
    handle = run.start(tmp_path, ON_CPU)
    wait_until(lambda: task_output.read(tmp_path)[0].endswith("\n"))
    child = psutil.Process(int(task_output.read(tmp_path)[0]))
    psutil.Process(handle["pid"]).kill()
    assert wait_for_end(run, tmp_path, handle) == Exit(lost=True)
    wait_until(lambda: has_ended(child))


def test_a_task_is_not_lost_when_file_descriptors_run_out(tmp_path: Path) -> None:
    run, handle = hanging(tmp_path)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, limits[1]))
    try:
        polled = run.poll(tmp_path, handle)
        with pytest.raises(OSError, match="Too many open files"):
            run.stop(handle)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert polled is None
    assert run.poll(tmp_path, handle) is None
    run.stop(handle)
    assert wait_for_end(run, tmp_path, handle).stopped


def test_a_task_that_fills_the_disk_ends_with_that_reason(tmp_path: Path) -> None:
    with small_disk(tmp_path / "task", "size=64k") as is_small:
        run = running(FILLS_THE_DISK)
        handle = run.start(tmp_path / "task", ON_CPU)
        ended = wait_for_end(run, tmp_path / "task", handle)
        assert (ended.code, ended.disk_full) == (1, is_small)


OWNS_A_TASK = """
import sys, time
from pathlib import Path
import digits
from digits.core.job import DeviceRequest
from digits.runtime.executors.executor import Placement
from digits.runtime.executors.local import LocalExecutor
run = LocalExecutor(standby=False, program=[sys.executable, "-c", sys.argv[2]])
for owned in (True, False):
    folder = Path(sys.argv[1]) / str(owned)
    folder.mkdir()
    run.start(folder, Placement(DeviceRequest(), ("cpu",)), owned=owned)
print("started", flush=True)
time.sleep(300)
"""


def test_only_owned_tasks_end_with_their_owner(tmp_path: Path) -> None:
    command = [sys.executable, "-c", OWNS_A_TASK, str(tmp_path), HANGS]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as owner:
        assert owner.stdout and owner.stdout.readline()
        wait_until(lambda: all(task_output.read(tmp_path / name)[0] for name in ("True", "False")))
        owner.kill()
    run = running(HANGS)
    owned, other = (run.find(tmp_path / name, 1) for name in ("True", "False"))
    assert owned and other
    assert wait_for_end(run, tmp_path / "True", owned).stopped
    assert run.poll(tmp_path / "False", other) is None
    run.stop(other)
    assert wait_for_end(run, tmp_path / "False", other).stopped
