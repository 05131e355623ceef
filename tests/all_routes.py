"""What tests that send requests to all routes need: names of fields, and a site that starts no processes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any, NoReturn

from flask import Flask

from digits.core.errors import Unavailable
from digits.kinds import all_kinds
from digits.runtime.executors.executor import Exit, OpenLedger
from digits.runtime.executors.pools import Executors
from digits.runtime.request_batches import RequestBatches
from digits.runtime.short_tasks import ShortTasks
from digits.runtime.task_runner import TaskRunner
from digits.web.datasets import views as dataset_views
from digits.web.models.form import ModelForm
from tests.site import Site

FIELD = re.compile(r"""(?:args|form|values|files|sent)(?:\.get|\.getlist)?[\[(,]\s*["']([\w\[\]-]+)["']""")


class NoProcesses:
    """Replaces everything that starts processes: counts calls, and responds as if the process had finished."""

    poll_seconds = stop_seconds = 0.01

    def __init__(self) -> None:
        self.started = 0
        self.ledger = OpenLedger()

    def start(self, folder: Path, devices: Any, **arguments: Any) -> dict[str, Any]:
        self.started += 1
        return {"pid": 0}

    def clear(self, *arguments: Any) -> bool:
        return True

    def output(self, folder: Path, after: int = 0, limit: int = 0) -> tuple[str, int]:
        return "", after

    def poll(self, folder: Path, handle: Any) -> Exit:
        return Exit(code=1)

    def stop(self, *handle: Any) -> None:
        pass

    def warm_up(self) -> None:
        pass

    def close(self) -> None:
        pass

    # As InferenceServers

    def ask(self, folder: Path, request: dict[str, Any]) -> dict[str, Any]:
        self.started += 1
        heat_map = {"method": "grad_cam", "layer": "conv", "label": "left", "max": 1.0, "url": "data:,"}
        generated = {"grid": "data:,", "vectors": [], "width": 1, "height": 1, "classes": [], "images": []}
        return {
            "ok": True,
            "predictions": [["left", 100.0]],
            "generated": generated,
            "heat_map": heat_map,
            "image": "",
            "layer": "conv",
            "default": "conv",
            "shape": [3, 3, 1, 4],
            "milliseconds": 1,
            **{name: [] for name in ("layers", "maps", "outputs", "filters", "epochs")},
        }

    def exchange(
        self, folder: Path, request: dict[str, Any], attached: Sequence[IO[bytes]] = ()
    ) -> tuple[dict[str, Any], list[bytearray]]:
        if request["call"] != "serve":
            values = {"names": ["output"], "omitted": []} if request.get("values") else {}
            return self.ask(folder, request) | values, [bytearray(b"[1.0,0.0]")] if values else []
        self.started += 1
        answers = [{"status": 200, "images": 1, "headers": {}} for _ in request["requests"]]
        return {"answers": answers}, [bytearray(b"{}") for _ in answers]

    def stop_all(self) -> None:
        pass

    # As TensorBoards

    def open(self, *arguments: Any) -> NoReturn:
        self.started += 1
        raise Unavailable("No TensorBoard is started here.")

    def replace_in(self, site: Site) -> None:
        """Stop all processes of a site, and start no others."""
        parts: Any = site.services
        parts.scheduler.stop()  # start no tasks in the background
        parts.runner.close()
        self.ledger = parts.executor.ledger
        parts.executor.close()
        parts.executor = parts.inference = parts.tensorboards = self
        parts.batches = RequestBatches(self.exchange)
        runner = TaskRunner(Executors(parts.executor))
        parts.short_tasks = ShortTasks(parts.folder / "previews", runner, parts.store.discard)


DATASET_FORMS = [kind.load("form").DatasetForm for kind in all_kinds().values()]


@cache
def names_for(app: Flask, rule: str) -> list[str]:
    """Return names of fields and arguments read by the views of a route or their modules."""
    names = set()
    for item in app.url_map.iter_rules():
        if str(item) == rule:
            view = inspect.unwrap(app.view_functions[item.endpoint])
            module = inspect.getsource(inspect.getmodule(view) or view)
            names.update(FIELD.findall(inspect.getsource(view)) or FIELD.findall(module))
            text = inspect.getsource(view)
            if "_form(" in text or "ImageDatasetForm" in text:
                of_datasets = inspect.getmodule(view) is dataset_views
                for form in DATASET_FORMS if of_datasets else [ModelForm]:
                    names.update(name for name in dir(form) if hasattr(getattr(form, name), "field_class"))
    return sorted(names) or ["x"]
