"""The view of a prediction that a request asks for, and its options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from werkzeug.datastructures import MultiDict
from wtforms import Form

from digits.core.errors import BadRequest, NotFound
from digits.kinds import Kind, PredictionView, prediction_views
from digits.kinds.predictions.rendering import Prediction, View, check_options
from digits.runtime.offload import in_thread
from digits.web.services import services

# The field of DIGITS 6, and a shorter name.
FIELDS = ("view_extension_id", "view")


@cache
def rendering(view: PredictionView) -> View:
    """Return the part of a view that prepares its template."""
    loaded: View = view.load()
    return loaded


def view_named(name: str) -> PredictionView:
    """Return the view of this name; raises NotFound."""
    match = next((view for view in prediction_views() if view.name == name), None)
    if match is None:
        raise NotFound(f"There is no view “{name}”.")
    return match


def views_for(kind: Kind) -> list[PredictionView]:
    """Return the views that a model of ``kind`` may have."""
    return [view for view in prediction_views() if view.is_for(kind.name)]


def fitting(kind: Kind, prediction: Prediction) -> list[PredictionView]:
    """Return the views that can show ``prediction``."""
    return [view for view in views_for(kind) if rendering(view).fits(prediction)]


@dataclass(frozen=True)
class ViewChoice:
    """A view with options; without a ``view``, that of the kind."""

    kind: Kind
    view: PredictionView | None
    options: Form

    @property
    def name(self) -> str:
        return self.view.name if self.view else ""

    @property
    def template(self) -> str:
        return f"{self.view.template_folder if self.view else self.kind.name}/predictions.html"

    def context(self, prediction: Prediction) -> dict[str, Any]:
        """Return what the view draws; raises BadRequest if it cannot show the prediction."""
        if self.view is None:
            return {}
        drawing = rendering(self.view)
        if not drawing.fits(prediction):
            raise BadRequest(
                f"The view “{self.view.name}” cannot show the outputs of this model.",
                "Choose another view, such as all-raw-data.",
            )
        values: dict[str, Any] = in_thread(drawing.context, prediction, self.options)
        return values

    def as_json(self, prediction: Prediction) -> dict[str, Any]:
        """Return the view for JSON: its name, the options and what it draws; empty without a ``view``."""
        if self.view is None:
            return {}
        return {"view": {"name": self.name, "options": self.options.data, **self.context(prediction)}}


def requested_view(kind: Kind, fields: Mapping[str, Any]) -> ViewChoice:
    """Return the view in the ``fields`` of a request; raises BadRequest if it or an option is not valid."""
    field, name = requested(fields)
    if not name:
        return ViewChoice(kind, None, Form())
    view = next((view for view in views_for(kind) if view.name == name), None)
    if view is None:
        raise BadRequest(
            f"“{field}”: there is no view “{name}” for {kind.title.lower()}.",
            f"Use one of {', '.join(view.name for view in views_for(kind))}, leave it out, "
            "or install the plugin that provides it.",
        )
    return ViewChoice(kind, view, options_of(view, fields))


def requested(fields: Mapping[str, Any]) -> tuple[str, str]:
    """Return the field of a request that names a view, and the name; both empty if there is none."""
    return next(((field, fields[field]) for field in FIELDS if fields.get(field)), ("", ""))


def options_of(view: PredictionView, fields: Mapping[str, Any]) -> Form:
    """Return the options of ``view`` in the ``fields`` of a request; raises BadRequest."""
    form = rendering(view).Options(
        fields if isinstance(fields, MultiDict) else MultiDict(fields), meta={"data_roots": services().roots}
    )
    check_options(form)
    return form
