"""Views of predictions that plugins add to those of the kinds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from digits.kinds.plugins import check_name, missing_templates


@dataclass(frozen=True)
class PredictionView:
    """Another way to show the predictions of models of the ``kinds``, which are names of `digits.kinds.Kind`.

    Users choose it by its ``title``. The folder ``templates`` of its ``package`` contains ``predictions.html``, a
    Jinja template; ``predictions`` is the list that `digits.kinds.targets.Targets.describe` returns.
    """

    name: str
    title: str
    package: str
    kinds: tuple[str, ...]

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

    def missing_files(self) -> list[str]:
        """The files that the package lacks; raises whatever importing the package raises."""
        return missing_templates(self.package, ["predictions.html"])
