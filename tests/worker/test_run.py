"""The process of a task: exit codes, events on disk, and forbidden imports."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from digits.core import events
from digits.core.task import EXIT_DISK_FULL
from tests.worker import networks


def test_an_unknown_task_is_an_error(tmp_path: Path, run_clean: Callable[..., Any]) -> None:
    (tmp_path / "recipe.json").write_text('{"task": "sing"}')
    finished = run_clean("-m", "digits.worker", str(tmp_path))
    assert finished.returncode == 1
    (failed,) = events.read(tmp_path / "events.jsonl")[0]
    assert "'sing'" in failed.message


def test_a_missing_recipe_is_an_error(tmp_path: Path, run_clean: Callable[..., Any]) -> None:
    assert run_clean("-m", "digits.worker", str(tmp_path)).returncode == 1
    (failed,) = events.read(tmp_path / "events.jsonl")[0]
    assert "recipe.json" in failed.message


def test_a_missing_argument_is_an_error(run_clean: Callable[..., Any]) -> None:
    finished = run_clean("-m", "digits.worker")
    assert finished.returncode == 2
    assert "usage" in finished.stderr


# The disk is full when a task's event log is created or written.
WITHOUT_ROOM = """
import errno, os, sys
from pathlib import Path
room, folder = int(sys.argv[1]), Path(sys.argv[2])
real = {name: getattr(os, name) for name in ('open', 'write')}
def open_(path, flags, *arguments, **named):
    if room < 0 and str(path).endswith('events.jsonl'):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return real['open'](path, flags, *arguments, **named)
def write(descriptor, data):
    if os.readlink(f'/proc/self/fd/{descriptor}').endswith('events.jsonl'):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return real['write'](descriptor, data)
os.open, os.write = open_, write
from digits.worker.run import run_task
sys.exit(run_task(folder))
"""


@pytest.mark.parametrize("room", [-1, 0], ids=["no room for the log", "no room in the log"])
def test_a_disk_too_full_for_events_is_reported_by_the_exit_code(
    tmp_path: Path, run_clean: Callable[..., Any], room: int
) -> None:
    (tmp_path / "recipe.json").write_text('{"task": "sing"}')
    finished = run_clean("-c", WITHOUT_ROOM, str(room), str(tmp_path))
    assert finished.returncode == EXIT_DISK_FULL, finished.stderr
    assert "The disk is full" in finished.stdout


# Imports what a training needs without some packages, which can be imported later; then what all tasks need. Runs one,
# as ``python -m digits.worker`` does, and prints the web packages it imported.
RUNS_COLD = """
import runpy, sys
from digits.worker import run
with run._hidden('sklearn', 'scipy'):
    run._import(run.PROGRAMS['train'][1])
assert 'keras' in sys.modules and not {'sklearn', 'scipy'} & set(sys.modules)
import scipy.sparse
from sklearn import metrics
with run._hidden('sklearn', 'scipy'):
    assert sys.modules['sklearn'].metrics is metrics
run.import_programs()
try:
    runpy.run_module('digits.worker', run_name='__main__', alter_sys=True)
finally:
    packages = {name.split('.')[0] for name in sys.modules}
    print('imported:', sorted(packages & {'flask', 'gevent', 'werkzeug', 'flask_socketio', 'jinja2'}))
"""


@pytest.mark.tensorflow
def test_a_cold_process_trains_and_imports_no_server_nor_hidden_packages(
    model: Any, run_clean: Callable[..., Any]
) -> None:
    task = model(networks.LINEAR, epochs=1)
    finished = run_clean("-W", "error::UserWarning", "-c", RUNS_COLD, str(task))
    assert finished.returncode == 0, finished.stderr
    assert isinstance(events.read(task / "events.jsonl")[0][-1], events.Finished)
    assert finished.stdout.splitlines()[-1] == "imported: []"


# AutoGraph writes a file for the function it converts.
REWRITTEN = networks.LINEAR.replace(
    "class UserModel",
    """import glob, tempfile

@tf.function
def halved(x):
    if tf.reduce_max(x) > 0:
        return x / 2
    return x

class UserModel""",
).replace(
    "self.x / 100.0)", "halved(self.x) / 50.0); print('files:', glob.glob(tempfile.gettempdir() + '/*.py'))"
)


def test_temporary_files_are_created_in_the_task_folder_and_removed(train: Any) -> None:
    outcome = train(REWRITTEN, epochs=1)
    folder = outcome.job_folder / "train"
    assert f"files: ['{folder}/tmp-" in outcome.output
    assert not list(folder.glob("tmp-*"))


def test_running_a_task_does_not_import_tensorflow_by_default(run_clean: Callable[..., Any]) -> None:
    finished = run_clean(
        "-c", "import sys, digits.worker.run; print([name for name in sys.modules if 'tensorflow' in name])"
    )
    assert finished.stdout.strip() in ("[]", "['digits.runtime.tensorflow_support']"), finished.stderr


# Whatever the network does while it loads, the process must end soon after the signal.
STUBBORN = {
    "sleeps": "import time\ntime.sleep(1000)\n",
    "swallows everything": (
        "import time\nwhile True:\n    try:\n        time.sleep(1)\n    except BaseException:\n        pass\n"
    ),
}


@pytest.mark.parametrize("habit", STUBBORN)
def test_networks_that_ignore_signals_are_stopped(model: Any, start: Any, habit: str) -> None:
    task = start(model("print('loading', flush=True)\n" + STUBBORN[habit]))
    while "loading" not in task.output():
        assert task.poll() is None
        time.sleep(0.01)
    task.stop()
    outcome = task.wait(seconds=10)
    assert outcome.code == 143
    assert not outcome.of(events.Failed)


def test_a_network_that_raises_at_a_later_step(fail: Any) -> None:
    """The error of a running graph names the line that created the operation."""
    network = networks.classifier(
        """
def check(x):
    if os.path.exists('../fail'):
        raise ValueError('the sensor burned out')
    open('../fail', 'w').close()
    return x
x = tf.py_func(check, [self.x], tf.float32)
x = tf.reshape(x, [-1, 144])
return slim.fully_connected(x, self.nclasses, activation_fn=None)
"""
    )
    outcome = fail(network, val_interval=0, epochs=1000)
    assert "the sensor burned out" in outcome.failure.message
    assert outcome.failure.line == 7
    assert outcome.of(events.Measured)


def test_a_network_that_ends_the_process_in_a_step(model: Any, start: Any) -> None:
    """Earlier events are on disk, and no event reports an end."""
    network = networks.classifier(
        """
def leave(x):
    if os.path.exists('../leave'):
        os._exit(9)
    open('../leave', 'w').close()
    return x
x = tf.reshape(tf.py_func(leave, [self.x], tf.float32), [-1, 144])
return slim.fully_connected(x, self.nclasses, activation_fn=None)
"""
    )
    outcome = start(model(network, val_interval=0, epochs=1000)).wait()
    assert outcome.code == 9
    assert outcome.of(events.Measured)
    assert not outcome.of(events.Failed) and not outcome.of(events.Finished)
