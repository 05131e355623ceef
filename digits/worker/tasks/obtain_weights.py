"""Find or download ImageNet weights before a training needs them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from digits.core import recipe as recipes
from digits.core.events import EventLog
from digits.data.models.pretrained import WeightsPlaces
from digits.data.models.pretrained_catalog import CATALOG
from digits.worker.training.weights.initial_weights import obtain


def run(recipe: recipes.ObtainWeights, task_folder: Path, events: EventLog) -> dict[str, Any]:
    """Obtain the weights of ``recipe``; the result has their ``path``. Raises UserFault if they are unavailable."""
    places = WeightsPlaces(Path(recipe.weights_folder), recipe.weights_sources)
    return {"path": str(obtain(CATALOG[recipe.name], places, events))}
