"""The table of the kinds of datasets and models. To add a kind, write its package and one line here.

Plugins add theirs through the entry points ``digits.plugins.data``, and views of predictions through
``digits.plugins.view``.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from digits.kinds.builtin_views import BUILT_IN_VIEWS
from digits.kinds.kind import SERVER_MODULES, Kind, UnknownKind
from digits.kinds.plugins import Refusal, cannot_import, forbid_imports, load_plugins
from digits.kinds.predictions.view import PredictionView

DATA_PLUGINS = "digits.plugins.data"
VIEW_PLUGINS = "digits.plugins.view"

BUILT_IN = (
    Kind(
        "image-classification",
        "Image classification",
        "images/classification",
        "digits.kinds.classification",
        metric="accuracy",
    ),
    Kind(
        "image-multilabel",
        "Multi-label classification",
        "images/multilabel",
        "digits.kinds.multilabel",
        metric="map",
        like="digits.kinds.regression",
    ),
    Kind("image-regression", "Image regression", "images/regression", "digits.kinds.regression", metric="r2"),
    Kind(
        "image-object-detection",
        "Object detection",
        "images/detection",
        "digits.kinds.detection",
        metric="map",
    ),
    Kind(
        "image-segmentation",
        "Semantic segmentation",
        "images/segmentation",
        "digits.kinds.segmentation",
        metric="miou",
    ),
    Kind(
        "image-processing",
        "Image-to-image",
        "images/processing",
        "digits.kinds.image_to_image",
        metric="psnr",
    ),
    Kind("image-gan", "Image generation", "images/gan", "digits.kinds.gan", like="digits.kinds.generic"),
    Kind("image-pairs", "Image pairs", "images/pairs", "digits.kinds.pairs", metric="auc"),
    Kind(
        "text-classification",
        "Text classification",
        "text/classification",
        "digits.kinds.text",
        metric="accuracy",
        like="digits.kinds.classification",
    ),
    Kind("generic", "Ready-made TFRecords", "images/generic", "digits.kinds.generic"),
    Kind(
        "image-gradients",
        "Image gradients",
        "images/gradients",
        "digits.kinds.gradients",
        metric="r2",
        like="digits.kinds.regression",
    ),
)


def all_kinds() -> Mapping[str, Kind]:
    """Return all kinds by name: the built-in ones, then those of plugins."""
    return _kinds()[0]


def default_kind() -> Kind:
    """Return the first kind of the table."""
    return BUILT_IN[0]


def kind_named(name: str) -> Kind:
    """Return the kind named ``name``; raises UnknownKind."""
    try:
        return all_kinds()[name]
    except KeyError:
        raise UnknownKind(name) from None


def prediction_views() -> list[PredictionView]:
    """Return all views of predictions: the built-in ones, then those of plugins."""
    return _prediction_views()[0]


def refused_plugins() -> list[Refusal]:
    """Return the installed plugins that could not be loaded, with the reasons."""
    return [*_kinds()[1], *_prediction_views()[1]]


def check_plugins_for_server() -> None:
    """Import the modules of plugins that the server uses, and remove the kinds that fail from the table.

    One broken plugin would otherwise break the pages that concern all kinds, and one that imports TensorFlow
    would load it into the server.
    """
    with forbid_imports(
        ("keras", "tensorflow"), "the server does not load it; import it only in the folder network"
    ):
        views, refusals = _prediction_views()
        for view in views[len(BUILT_IN_VIEWS) :]:
            try:
                view.load()
            except (Exception, SystemExit) as error:
                views.remove(view)
                refusals.append(cannot_import(f"{view.title} ({view.package})", error))
        kinds, refusals = _kinds()
        for kind in list(kinds.values())[len(BUILT_IN) :]:
            try:
                for module in SERVER_MODULES:
                    kind.load(module)
                kind.load_optional("export")
            except (Exception, SystemExit) as error:
                del kinds[kind.name]
                refusals.append(cannot_import(f"{kind.title} ({kind.package})", error))


@functools.cache
def _kinds() -> tuple[dict[str, Kind], list[Refusal]]:
    plugins, refusals = load_plugins(DATA_PLUGINS, Kind, BUILT_IN)
    return {kind.name: kind for kind in (*BUILT_IN, *plugins)}, refusals


@functools.cache
def _prediction_views() -> tuple[list[PredictionView], list[Refusal]]:
    plugins, refusals = load_plugins(VIEW_PLUGINS, PredictionView, BUILT_IN_VIEWS)
    return [*BUILT_IN_VIEWS, *plugins], refusals


__all__ = [
    "BUILT_IN",
    "BUILT_IN_VIEWS",
    "DATA_PLUGINS",
    "VIEW_PLUGINS",
    "Kind",
    "PredictionView",
    "Refusal",
    "UnknownKind",
    "all_kinds",
    "check_plugins_for_server",
    "default_kind",
    "kind_named",
    "prediction_views",
    "refused_plugins",
]
