"""Routes that contain the kind of a dataset, such as ``/datasets/images/classification/new``."""

from __future__ import annotations

import logging
import re

from flask import Flask
from jinja2 import ChoiceLoader, PackageLoader, PrefixLoader
from werkzeug.routing import BaseConverter

from digits.kinds import Kind, all_kinds, check_plugins_for_server, prediction_views, refused_plugins

log = logging.getLogger(__name__)


def add_kinds(app: Flask) -> None:
    """Enable ``<kind:kind>`` in the routes of ``app``, and add the kinds' templates as ``<name>/<file>``.

    Logs the plugins that could not be loaded.
    """
    check_plugins_for_server()
    for refusal in refused_plugins():
        log.error("The plugin %s was not loaded. %s %s", refusal.plugin, refusal.reason, refusal.hint)
    app.url_map.converters["kind"] = _converter()
    packages = {kind.name: kind.package for kind in all_kinds().values()}
    packages |= {view.template_folder: view.package for view in prediction_views()}
    loaders = {name: PackageLoader(package) for name, package in packages.items()}
    own = app.jinja_loader
    app.jinja_loader = ChoiceLoader([*([own] if own else []), PrefixLoader(loaders)])


def _converter() -> type[BaseConverter]:
    by_route = {kind.route: kind for kind in all_kinds().values()}

    class KindConverter(BaseConverter):
        """Matches the routes of kinds, which contain slashes."""

        regex = f"(?:{'|'.join(re.escape(route) for route in by_route)})"
        part_isolating = False

        def to_python(self, value: str) -> Kind:
            return by_route[value]

        def to_url(self, value: Kind) -> str:
            return value.route

    return KindConverter
