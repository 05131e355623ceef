"""Views of predictions: the built-in ones, and those that plugins add to them."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from digits.kinds.plugins import check_name, missing_templates


@dataclass(frozen=True)
class PredictionView:
    """Another way to show the predictions of models of the ``kinds``, which are names of `digits.kinds.Kind`.

    Users choose it by its ``title``; without ``kinds``, it is for all models. The folder ``templates`` of its
    ``package`` contains ``predictions.html``, a Jinja template; ``predictions`` is the list that
    `digits.kinds.network.targets.Targets.describe` returns. A module ``view`` of the package, if there is one, defines
    ``View``, a subclass of `digits.kinds.predictions.rendering.View`, with options and data for the template.
    """

    name: str
    title: str
    package: str
    kinds: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise ValueError for a name that is not lowercase words with hyphens."""
        check_name(self.name)

    @property
    def identifiers(self) -> Mapping[str, str]:
        """The name, which no two views share."""
        return {"name": self.name}

    @property
    def template_folder(self) -> str:
        """The first part of the names of its templates in the application."""
        return f"view:{self.name}"

    def is_for(self, kind: str) -> bool:
        """Return whether it shows predictions of models of ``kind``."""
        return not self.kinds or kind in self.kinds

    def missing_files(self) -> list[str]:
        """The files that the package lacks; raises whatever importing the package raises."""
        return missing_templates(self.package, ["predictions.html"])

    def load(self) -> Any:
        """Return an instance of the ``View`` of the package, by default of one without options.

        Only the server may call this. Raises whatever importing the module raises.
        """
        name = f"{self.package}.view"
        module = name if importlib.util.find_spec(name) else "digits.kinds.predictions.rendering"
        return importlib.import_module(module).View()
