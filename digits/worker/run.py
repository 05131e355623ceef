"""Runs one task in this process: from the recipe in its folder to its last event.

The table below lists the programs of the worker. A program is imported only for a recipe that needs it, so that a
task without tensors does not load TensorFlow.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from digits.core import files
from digits.core import recipe as recipes
from digits.core.events import EventLog, Finished, LogInUse
from digits.core.files import is_disk_full
from digits.core.machine import garbage_collection
from digits.core.task import (
    EVENTS_FILE,
    EXIT_BUSY,
    EXIT_DISK_FULL,
    EXIT_FAILED,
    EXIT_PARTNER_LOST,
    RESTARTED_VARIABLE,
)
from digits.kinds.recipes import load_recipe
from digits.worker import network_watch, stopping
from digits.worker.failure import PartnerLost, Stopped, UserFault, describe
from digits.worker.gang.rendezvous import Rendezvous, SilentLog

LOG_FORMAT = "%(asctime)s [%(levelname)s] %(message)s"
# Of the workers of a gang that do not lead: what they have in common with the first one is logged once.
PARTNER_LOG_FORMAT = "%(asctime)s [%(levelname)s] Worker {rank}: %(message)s"

# Task name: class of its recipe, module with ``run(recipe, task_folder, events)``.
PROGRAMS: dict[str, tuple[type[recipes.Recipe], str]] = {
    "create-dataset": (recipes.CreateDataset, "digits.worker.tasks.create_dataset"),
    "list-images": (recipes.ListImages, "digits.worker.tasks.list_images"),
    "propose-labels": (recipes.ProposeLabels, "digits.worker.tasks.propose_labels"),
    "check-dataset": (recipes.CheckDataset, "digits.worker.tasks.check_dataset"),
    "check-labels": (recipes.CheckLabels, "digits.worker.tasks.check_labels"),
    "train": (recipes.Train, "digits.worker.training.loop.trainer"),
    "preflight": (recipes.Preflight, "digits.worker.tasks.preflight"),
    "visualize": (recipes.Visualize, "digits.worker.tasks.visualize"),
    "preview-augmentation": (recipes.PreviewAugmentation, "digits.worker.tasks.preview_augmentation"),
    "export": (recipes.Export, "digits.worker.tasks.export"),
    "obtain-weights": (recipes.ObtainWeights, "digits.worker.tasks.obtain_weights"),
    "import-model": (recipes.ImportModel, "digits.worker.tasks.import_model"),
    "predict": (recipes.Predict, "digits.worker.tasks.predict"),
    "evaluate": (recipes.Evaluate, "digits.worker.tasks.evaluate"),
    "map-embeddings": (recipes.MapEmbeddings, "digits.worker.tasks.map_embeddings"),
    "serve-inference": (recipes.ServeInference, "digits.worker.tasks.serve_inference"),
}


def run_task(task_folder: Path) -> int:
    """Run the recipe in ``task_folder``; return the exit code.

    0 after a Finished event, 1 after a Failed event, 143 without either when the process was stopped by SIGTERM;
    `EXIT_BUSY` if another process is working on the task; `EXIT_DISK_FULL` if the disk is too full to log the last
    events; `EXIT_PARTNER_LOST` after a Failed event if another process of the gang was lost.
    """
    _flush_every_line()
    meeting = Rendezvous(task_folder)
    level = logging.INFO if meeting.is_lead else logging.WARNING
    line = LOG_FORMAT if meeting.is_lead else PARTNER_LOG_FORMAT.format(rank=meeting.rank)
    logging.basicConfig(stream=sys.stdout, level=level, format=line, force=True)
    try:
        events = EventLog(task_folder / EVENTS_FILE) if meeting.is_lead else SilentLog(meeting)
    except LogInUse as error:
        logging.error(error)
        return EXIT_BUSY
    except OSError as error:
        if not is_disk_full(error):
            raise
        logging.error("The disk is full: the task's log could not be created.")
        return EXIT_DISK_FULL
    code = stopping.EXIT_STOPPED
    with contextlib.suppress(Stopped), stopping.handle_sigterm(task_folder if meeting.is_lead else None):
        code = _run(task_folder, events, meeting)
    try:
        events.close()
    except OSError as error:
        if not is_disk_full(error):
            raise
        logging.error("The disk is full: the task's result could not be logged.")
        return code if code == stopping.EXIT_STOPPED else EXIT_DISK_FULL
    return code


def import_programs() -> None:
    """Import everything that tasks need, in a process that forks one for each task. Runs no operation."""
    for _, module in PROGRAMS.values():
        _import(module)
    with garbage_collection.paused():
        importlib.import_module("digits.worker.compat.compat_module").tensorflow()


def _run(task_folder: Path, events: EventLog, meeting: Rendezvous) -> int:
    try:
        name = recipes.task_of(task_folder)
        if name not in PROGRAMS:
            raise UserFault(f"There is no task called {name!r}.")
        recipe_class, module = PROGRAMS[name]
        is_dataset = recipe_class is recipes.CreateDataset  # whose recipe class depends on its kind
        recipe = load_recipe(task_folder) if is_dataset else recipes.load(task_folder, recipe_class)
        if type(recipe) is recipes.Train and RESTARTED_VARIABLE in os.environ:
            recipe.resume = True
        # Keras would load both for adapters that no network uses: a quarter of the time until a training begins.
        with _hidden("sklearn", "scipy") if type(recipe) is recipes.Train else contextlib.nullcontext():
            program = _import(module)
        with network_watch.watched(events):
            result = program.run(recipe, task_folder, events)
    except (Stopped, KeyboardInterrupt):
        # When a process of a gang fails, the others are stopped.
        if meeting.is_lead and (failure := meeting.failure_of_another()):
            events.append(failure)
        raise Stopped from None
    except PartnerLost as error:
        if meeting.is_lead:
            events.append(meeting.failure_of_another() or describe(error))
        return EXIT_PARTNER_LOST
    except BaseException as error:
        events.append(describe(error))
        with contextlib.suppress(OSError, ValueError):  # the network may have closed its output
            traceback.print_exc()
        return EXIT_FAILED
    events.append(Finished(result=result or {}))
    return 0


def _import(module: str) -> ModuleType:
    with garbage_collection.paused():
        return importlib.import_module(module)


@contextlib.contextmanager
def _hidden(*packages: str) -> Iterator[None]:
    """Have imports of ``packages`` fail inside, as if they were not installed, except those imported before."""
    hidden = [package for package in packages if package not in sys.modules]
    sys.modules |= dict.fromkeys(hidden)  # type: ignore[arg-type]
    try:
        yield
    finally:
        for package in hidden:
            del sys.modules[package]


def keep_output_open() -> None:
    """Print through separate descriptors, so that a network that closes 1 and 2 does not disable the output."""
    for name, number in (("stdout", 1), ("stderr", 2)):
        descriptor = files.move_to_high_descriptor(os.dup(number))
        stream = open(descriptor, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)


def _flush_every_line() -> None:
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(line_buffering=True, errors="backslashreplace")
