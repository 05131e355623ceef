"""A trained network: that of a model job, for inference, with the weights of one of its snapshots."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tensorflow as tf

from digits import recipe as recipes
from digits.dataset.manifest import Manifest
from digits.worker import inference, input, network, restore, snapshots
from digits.worker.failure import UserFault
from digits.worker.variables import VariableStore

TRAIN_FOLDER = "train"


@dataclass(frozen=True)
class Trained:
    """``prepare`` makes of pixels [N, H, W, C] what ``traced`` takes; its variables are those of ``store``."""

    manifest: Manifest
    prepare: input.Preparation
    store: VariableStore
    traced: inference.Inference

    def outputs(self, pixels: tf.Tensor) -> object:
        """What the network gives for uint8 or float32 pixels of 0 to 255, [N, H, W, C]."""
        return self.traced.function(self.prepare(pixels))


def load(model_folder: Path, snapshot: str, dataset: Path | None = None) -> Trained:
    """The network of the model job in ``model_folder`` with the weights of ``snapshot``, such as ``snapshot_1.ckpt``.

    ``dataset`` is the folder of its dataset, if that was moved since. Raises UserFault when the network, the
    snapshot or the dataset cannot be loaded, or what the network raises.
    """
    recipe = recipes.load(model_folder / TRAIN_FOLDER, recipes.Train)
    dataset = dataset or Path(recipe.dataset)
    manifest = input.load_manifest(dataset)
    whitening = {"whitening": bool(recipe.augment.get("whitening"))}
    prepare = input.preparation(manifest, dataset, recipe.mean, recipe.crop_size, whitening)
    net = network.load(model_folder / recipe.network, prepare.shape, len(manifest.labels))
    store = VariableStore()
    traced = inference.trace(net, store)
    restored = restore.restore(model_folder / snapshot, store.variables)
    if restored.missing or restored.other_shape:
        raise UserFault(
            f"The snapshot does not fit the network. {restored.remark}",
            "The network's file was changed after the training.",
        )
    net.step.tell(snapshots.step_of(model_folder / snapshot))
    return Trained(manifest, prepare, store, traced)
