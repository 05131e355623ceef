"""Networks that do not come to an end."""

from __future__ import annotations

from typing import Any

import pytest

from tests.worker import networks
from tests.worker.lazily import network_watch
from tests.worker.networks import classifier

RETURN = (
    "return slim.fully_connected(slim.flatten(self.x / 100.0), self.nclasses, activation_fn=None, scope='fc')"
)
ENDLESS = {
    "module": networks.LINEAR + "\nwhile True: pass  # here\n",
    "init": networks.LINEAR + "\n    def __init__(self, *given):\n        while True: pass  # here\n",
    "inference": classifier(f"while True: number = 1  # here\n{RETURN}"),
    "a function of the network": classifier(
        f"endless()\n{RETURN}", "def endless():\n    while True: sum([1])  # here\n"
    ),
    "layers": classifier(f"x = self.x\nwhile True: x = tf.nn.relu(x)  # here\n{RETURN}"),
    "loss": networks.LINEAR.replace("accuracy = ", "while True: pass  # here\n        accuracy = "),
    "tf.function": classifier(
        f"endless(self.x)\n{RETURN}",
        "@tf.function(autograph=False)\ndef endless(x):\n    while True: x = x + 1.0  # here\n",
    ),
    "AutoGraph": classifier(
        f"endless(self.x)  # here\n{RETURN}", "@tf.function\ndef endless(x):\n    while True: x = x + 1.0\n"
    ),
    "py_function": classifier(
        f"self.x = tf.ensure_shape(tf.numpy_function(endless, [self.x], tf.float32), self.x.shape)\n{RETURN}",
        "def endless(x):\n    while True: pass  # here\n",
    ),
    "all exceptions caught": classifier(
        f"while True:\n    try: sum([1])  # here\n    except BaseException: pass\n{RETURN}"
    ),
}
WAITING = {
    "sleep": classifier(f"import time; time.sleep(1e6)  # here\n{RETURN}"),
    "short sleeps": classifier(f"import time\nwhile True: time.sleep(0.001)  # here\n{RETURN}"),
    "read": classifier(f"import os; os.read(os.pipe()[0], 1)  # here\n{RETURN}"),
    "lock": classifier(
        f"threading.Lock().__enter__(); lock.acquire()  # here\n{RETURN}",
        "import threading\nlock = threading.Lock(); lock.acquire()\n",
    ),
    "process": classifier(f"import subprocess; subprocess.run(['sleep', '1000'])  # here\n{RETURN}"),
}


@pytest.fixture
def soon(tensorflow: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """End networks after seconds, not minutes."""
    monkeypatch.setattr(network_watch, "NETWORK_SECONDS", 1.5)
    monkeypatch.setattr(network_watch, "LOOK_SECONDS", 0.1)


def line_of(network: str) -> int:
    return next(number for number, line in enumerate(network.splitlines(), 1) if "# here" in line)


@pytest.mark.parametrize("name", ENDLESS)
def test_an_endless_loop_is_reported_with_its_line(soon: None, fail: Any, name: str) -> None:
    failure = fail(ENDLESS[name]).failure
    assert "has been computing" in failure.message, failure
    assert failure.line == line_of(ENDLESS[name])
    assert "endless loop" in failure.hint


@pytest.mark.parametrize("name", WAITING)
def test_an_endless_wait_is_reported_with_its_line(soon: None, fail: Any, name: str) -> None:
    failure = fail(WAITING[name]).failure
    assert "has been waiting" in failure.message, failure
    assert failure.line == line_of(WAITING[name])


def test_checks_report_an_endless_loop_too(soon: None, preflight: Any, visualize: Any) -> None:
    for check in (preflight, visualize):
        outcome = check(ENDLESS["inference"])
        assert outcome.code == 1
        assert outcome.failure.line == line_of(ENDLESS["inference"])
        assert "in inference" in outcome.output


# A thread that never ends, and calls of 0.05 seconds in each step.
PATIENT = classifier(
    f"self.x = tf.ensure_shape(tf.numpy_function(nap, [self.x], tf.float32), self.x.shape)\n{RETURN}",
    """
import threading, time
def stay():
    while True: time.sleep(0.01)
threading.Thread(target=stay, daemon=True).start()
def nap(x):
    time.sleep(0.05)
    return x
""",
)


def test_many_short_calls_and_threads_of_the_network_may_go_on(soon: None, train: Any) -> None:
    train(PATIENT, epochs=5)  # calls of 2 seconds in all
