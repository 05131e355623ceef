"""An entry of the table of kinds."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any


class UnknownKind(LookupError):
    """There is no kind of this name; the plugin that provides it may not be installed."""

    def __init__(self, name: str) -> None:
        super().__init__(f"unknown kind of dataset {name!r}: the plugin that provides it is not installed")
        self.name = name


@dataclass(frozen=True)
class Kind:
    """A kind of dataset, and of the models that are trained on it.

    ``name`` identifies it in files, ``title`` on pages, and ``route`` in URLs:
    ``/datasets/<route>/new``. Its ``package`` contains modules that are imported on demand:

    ========== =========== ==============================================================
    module     used by     contents
    ========== =========== ==============================================================
    recipe     both        ``Recipe``: a subclass of `digits.core.recipe.CreateDataset`
    reader     both        ``read(recipe, progress)``: the `digits.data.sources.Plan`
    form       the server  ``DatasetForm``: a subclass of `digits.kinds.dataset_form.ImageDatasetForm`
    views      the server  texts and data for pages and JSON; see `digits.kinds.views`
    targets    the worker  balancing, and predictions from a network's outputs; see `digits.kinds.targets`
    metrics    the worker  metrics of the validation; see `digits.kinds.metrics`
    ========== =========== ==============================================================

    and the folder ``templates`` with the partial templates ``form.html`` and ``predictions.html``.
    Neither the package itself nor ``recipe`` and ``reader`` may import Flask or TensorFlow.
    """

    name: str
    title: str
    route: str
    package: str

    def load(self, module: str) -> Any:
        """Import a module of the kind's package."""
        return importlib.import_module(f"{self.package}.{module}")
