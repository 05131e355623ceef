"""Builds a network without training it: a table of its layers and a graph for TensorBoard.

The loss of the training network is built too, with its gradients, so that its mistakes are found before the
training starts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from digits.core import recipe as recipes
from digits.core.events import Built, EventLog
from digits.worker import network_loader
from digits.worker.input.feeds import load_manifest
from digits.worker.input.preparation import Preparation
from digits.worker.network import inference
from digits.worker.network.variables import VariableStore
from digits.worker.randomness.streams import Randomness
from digits.worker.tasks import background
from digits.worker.training.loop.tensorboard_log import TensorBoardLog, readable_graph
from digits.worker.training.step.optimizers import Optimizer
from digits.worker.training.step.step_function import StepFunction
from digits.worker.training.step.training_step import Phase, StepOptions, TrainingStep


def run(recipe: recipes.Visualize, task_folder: Path, events: EventLog) -> dict[str, Any]:
    """Build the network of ``recipe`` for its dataset's images. Raises UserFault, or whatever the network
    raises.
    """
    background.hide_gpus()
    scratch = task_folder.parent
    dataset = Path(recipe.dataset)
    manifest = load_manifest(dataset)
    prepare = Preparation(
        np.zeros(1, np.float32), recipe.crop_size or None, manifest.shape, image_dtype=manifest.dtype
    )
    net = network_loader.load_for(manifest, dataset, scratch / recipe.network, prepare.shape)
    store = VariableStore(empty=True)
    shown, _ = inference.trace_for_display(net, store)
    options = StepOptions(Phase(Optimizer(recipes.Solver())), seed=0)
    StepFunction(TrainingStep(net, store, prepare, Randomness(0), options))
    with TensorBoardLog(scratch / "tb") as board:
        board.graph(readable_graph(shown.function))
    events.append(Built(layers=shown.layers, parameters=store.parameters))
    return {"parameters": store.parameters}
