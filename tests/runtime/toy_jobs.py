"""Small jobs whose task is a few lines of Python, and a store and a scheduler to run them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

from msgspec import field

from digits.core.job import DeviceRequest, Job
from digits.core.recipe import Recipe
from digits.core.status import Status
from digits.core.task import EXIT_DISK_FULL, Task
from digits.runtime.executors.device_ledger import DeviceLedger
from digits.runtime.executors.executor import Executor
from digits.runtime.executors.local import LocalExecutor
from digits.runtime.executors.pools import Executors
from digits.runtime.scheduler import Scheduler
from digits.runtime.store import Store
from digits.runtime.task_runner import TaskRunner
from digits.web.live import messages as live_messages
from tests.waiting import wait_until

# The program of a task; its argument is the task's folder. If that contains the file `hurry`, `slow` is fast.
PROGRAMS = """
import json, os, sys, time
folder = sys.argv[1]
name = json.load(open(folder + '/recipe.json'))['name']
log = open(folder + '/events.jsonl', 'a')
def log_event(**event):
    log.write(json.dumps({'at': time.time(), **event}) + '\\n'); log.flush()
def measure(step):
    log_event(event='measured', stage='train', step=step, epoch=step / 10, values={'loss': 1 / step, 'accuracy': .5})
if name == 'finishes':
    for step in range(1, 11): measure(step)
    log_event(event='progressed', fraction=0.5, seconds_left=1.0)
    log_event(event='saved', epoch=1, step=10, path='snapshot_1.ckpt')
    log_event(event='finished')
elif name == 'slow':
    for step in range(1, 200):
        measure(step)
        if not os.path.exists(folder + '/hurry'): time.sleep(0.02)
    log_event(event='finished')
elif name == 'hangs':
    measure(1)
    while True: time.sleep(0.05)
elif name == 'fails':
    log_event(event='failed', message='Wrong shape.', line=7)
    sys.exit(1)
elif name == 'fails at first':
    if os.path.exists(folder + '/again'):
        measure(2); log_event(event='finished')
    else:
        measure(1); log_event(event='progressed', fraction=0.25)
        open(folder + '/again', 'w'); log_event(event='failed', message='Once.'); sys.exit(1)
elif name == 'ends early':
    measure(1); print('bye', flush=True); os._exit(0)
elif name == 'fills the disk':
    measure(1); print('no space', flush=True); os._exit(%d)
elif name == 'crashes':
    os.kill(os.getpid(), 11)
elif name == 'dies mid-line':
    measure(1); log.write('{"event": "meas'); log.flush(); os._exit(1)
elif name == 'writes noise':
    log.write('noise\\n\\x00\\n{"event": "measured", "step": "x"}\\n'); log.flush(); measure(1); log_event(event='finished')
""".replace("%d", str(EXIT_DISK_FULL))


class ToyRecipe(Recipe, tag="toy"):
    name: str


class ToyJob(Job, kw_only=True, eq=False):
    type: ClassVar[str] = "model"
    program: str = "finishes"
    needed: tuple[str, ...] = ()
    request: DeviceRequest = field(default_factory=lambda: DeviceRequest("training"))

    def recipe_for(self, task: Task) -> Recipe:
        (self.folder / "half").touch()
        return ToyRecipe(name=self.program)

    def needs(self) -> tuple[str, ...]:
        return self.needed

    def device_request(self, task: Task) -> DeviceRequest:
        return self.request

    def clear_away(self) -> None:
        (self.folder / "half").unlink(missing_ok=True)


class Server:
    """A store and a scheduler for a folder, as in a server; a new one can continue in the same folder.

    As a context, it aborts all jobs at the end. ``others`` are executors of other compute targets.
    """

    def __init__(
        self, folder: Path, executor: Executor | None = None, others: Mapping[str, Executor] | None = None
    ) -> None:
        self.executor = executor or LocalExecutor(standby=False, program=[sys.executable, "-c", PROGRAMS])
        self.store = Store(folder, {"model": ToyJob})
        self.store.load()
        self.messages: list[live_messages.Message] = []
        self.ledger = self.executor.ledger = DeviceLedger({"dataset": 1, "training": 1})
        self.runner = TaskRunner(Executors(self.executor, others), may_run=self.store.maintain)
        self.scheduler = Scheduler(
            self.store, self.runner, report=lambda change: self.messages.extend(live_messages.of(change))
        )
        self.scheduler.start()
        self.runner.serve()
        for other in (others or {}).values():
            other.warm_up()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for job in self.store.all(Job):
            self.scheduler.abort(job)
        for job in self.store.all(Job):
            self.wait_for_end(job)
        self.stop()

    def submit(self, program: str, **arguments: Any) -> ToyJob:
        job = self.new(program, **arguments)
        self.scheduler.submit(job)
        return job

    def new(self, program: str, **arguments: Any) -> ToyJob:
        folder = self.store.new_folder()
        tasks = [Task(name="toy", title="Toy")]
        return ToyJob(id=folder.name, folder=folder, name=program, tasks=tasks, program=program, **arguments)

    def wait(self, question: Callable[[], object]) -> None:
        wait_until(question)

    def wait_for_end(self, job: Job) -> Status:
        self.wait(lambda: not job.status.is_running)
        return job.status

    def stop(self) -> None:
        self.scheduler.stop()
        self.runner.close()
        self.store.close()
