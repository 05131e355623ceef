"""An entry of the table of kinds."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from digits.kinds.plugins import check_name, missing_templates

SERVER_MODULES = ("recipe", "reader", "form", "views")
# The modules that may import TensorFlow. A kind without metrics or an evaluation has the default ones.
NETWORK_MODULES = ("targets", "metrics", "evaluation")
MODULES = (*SERVER_MODULES, "network.targets")
_OPTIONAL = ("network.metrics", "network.evaluation")
TEMPLATES = ("form.html", "predictions.html")


class UnknownKind(LookupError):
    """There is no kind of this name; the plugin that provides it may not be installed."""

    def __init__(self, name: str) -> None:
        super().__init__(f"unknown kind of dataset {name!r}: the plugin that provides it is not installed")
        self.name = name


@dataclass(frozen=True)
class Kind:
    """A kind of dataset, and of the models that are trained on it.

    ``name`` identifies it in files, ``title`` on pages, and ``route`` in URLs:
    ``/datasets/<route>/new``. Names are lowercase words with hyphens, and routes two of them with a slash:
    ``image-tagging``, ``images/tagging``. ``metric`` is the validation metric that compares models and selects the
    best snapshot of a training. Its ``package`` contains modules that are imported on demand; those that it lacks
    are taken from the package ``like``, if that is given:

    ================== =========== ======================================================
    module             used by     contents
    ================== =========== ======================================================
    recipe             both        ``Recipe``: a subclass of `digits.core.recipe.CreateDataset`
    reader             both        ``read(recipe, progress)``: the `digits.data.sources.plan.Plan`; optional:
                                   ``group_records(names, values)``: the groups of records with new labels or numbers
    form               the server  ``DatasetForm``: a subclass of `digits.kinds.forms.dataset.ImageDatasetForm`
    views              both        texts and data for pages and JSON, and the directions of metrics; see
                                   `digits.kinds.views`
    export             the server  ``FORMATS`` of downloads; optional, see `digits.kinds.versions.export`
    network.targets    the worker  predictions from a network's outputs; see `digits.kinds.network.targets`
    network.metrics    the worker  metrics of the validation; optional, see `digits.kinds.network.metrics`
    network.evaluation the worker  errors and details of evaluations; optional, see `digits.kinds.network.evaluation`
    ================== =========== ======================================================

    and the folder ``templates`` with the partial templates ``form.html`` and ``predictions.html``, and with
    ``input.html`` if `digits.kinds.views.Views.has_input`. The folder ``networks``, if there is one, contains standard
    networks. Only the modules in the folder ``network`` may import TensorFlow, and only ``form`` Flask.
    """

    name: str
    title: str
    route: str
    package: str
    metric: str = "loss"
    like: str = ""

    def __post_init__(self) -> None:
        """Raise ValueError for a name or a route of another form."""
        check_name(self.name)
        if self.route.count("/") != 1:
            raise ValueError(f"the route {self.route!r} must consist of two names with a slash between them")
        for part in self.route.split("/"):
            check_name(part)

    @property
    def identifiers(self) -> Mapping[str, str]:
        """The name and the route, which no two kinds share."""
        return {"name": self.name, "route": self.route}

    def missing_files(self) -> list[str]:
        """Return the modules and templates missing from the package; raises any exception raised by importing it."""
        modules = [name for name in MODULES if self._find(name) is None]
        modules += [f"network.{name}" for name in NETWORK_MODULES if self._is_misplaced(name)]
        files = [f"{name.replace('.', '/')}.py" for name in dict.fromkeys(modules)]
        return [*files, *missing_templates(self.package, TEMPLATES)]

    def lower_is_better(self, metric: str) -> bool:
        """Return whether lower values of the validation metric ``metric`` are better; see `Views.lower_is_better`."""
        return bool(self.load("views").Views().lower_is_better(metric))

    def load(self, module: str) -> Any:
        """Import a module of the kind."""
        return importlib.import_module(self._find(module) or f"{self.package}.{module}")

    def load_optional(self, module: str) -> Any:
        """Import a module of the kind; returns None if the module does not exist."""
        name = self._find(module)
        return importlib.import_module(name) if name else None

    def _find(self, module: str) -> str | None:
        """Return the full name of a module: in the package, in that of `like`, or the default one."""
        packages = [self.package, self.like, "digits.kinds" if module in _OPTIONAL else ""]
        names = (f"{package}.{module}" for package in packages if package)
        return next((name for name in names if _exists(name)), None)

    def _is_misplaced(self, module: str) -> bool:
        """Return whether a module for the worker is not in the folder ``network``, and would be ignored."""
        return _exists(f"{self.package}.{module}") and not _exists(f"{self.package}.network.{module}")


def _exists(module: str) -> bool:
    """Return whether there is a module of this name; raises any exception raised by importing its packages."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError as error:
        if error.name != module.rpartition(".")[0]:
            raise
        return False
