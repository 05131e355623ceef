"""Loading the network of a model job for inference, with the weights of one of its snapshots."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import tensorflow as tf

from digits.core import recipe as recipes
from digits.core.recipe import Augment
from digits.data.manifest import Manifest
from digits.kinds import kind_named
from digits.kinds.network.targets import Targets, UnsuitableOutput
from digits.worker import network_loader
from digits.worker.failure import UserFault
from digits.worker.input import feeds
from digits.worker.input.preparation import Preparation
from digits.worker.network import inference, layer_table, tower
from digits.worker.network.layer_table import LayerOutput
from digits.worker.network.network import Built, Network
from digits.worker.network.variables import VariableStore
from digits.worker.training.step import device_config, label_flow
from digits.worker.training.step.label_flow import LabelFlow
from digits.worker.training.weights import restore, snapshots

TRAIN_FOLDER = "train"
# The layers that the error about an unknown one lists.
MAX_NAMES = 20


@dataclass(frozen=True)
class Trained:
    """A network with restored weights.

    ``prepare`` preprocesses pixels [N, H, W, C] for ``traced``, whose variables are in ``store``.
    ``batch_size`` is that of the training; a network may require it.
    """

    network: Network
    batch_size: int
    manifest: Manifest
    prepare: Preparation
    store: VariableStore
    traced: inference.Inference

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape [...] of the input of `outputs`."""
        return (self.traced.latent,) if self.traced.latent else self.manifest.shape

    def outputs(self, values: tf.Tensor) -> object:
        """The network's output for pixels of 0 to 255, uint8 or float32 [N, H, W, C].

        For a network that generates images, the values are latent vectors, float32 [N, size].
        """
        if self.traced.latent:
            return self.traced.function(tf.reshape(values, [-1, 1, 1, self.traced.latent]))
        return self.traced.function(self.prepare(values))

    def outputs_of_size(self, images: tf.Tensor) -> object:
        """Like `outputs`, built in the current graph for images of a different size; raises the network's errors."""
        return self.traced.build(self.prepare(images)).output

    @cached_property
    def layers(self) -> dict[str, LayerOutput]:
        """The layers of the network by unique name, in order."""
        return self._layers_in(self.traced.function.graph, self.traced.built)

    def layer(self, name: str) -> LayerOutput:
        """Return the layer called ``name``; raises UserFault."""
        if name not in self.layers:
            more = ", …" if len(self.layers) > MAX_NAMES else "."
            raise UserFault(
                f"The network has no layer called “{name[:80]}”.",
                f"Its layers are {', '.join(list(self.layers)[:MAX_NAMES])}{more}",
            )
        return self.layers[name]

    def build_layers(self, pixels: tf.Tensor) -> tuple[object, dict[str, tf.Tensor]]:
        """Build the network in the current graph; return its output, and that of each layer by its name in `layers`.

        ``pixels`` are of 0 to 255, uint8 or float32 [N, H, W, C]. Raises the network's errors.
        """
        built = self.traced.build(self.prepare(pixels))
        layers = self._layers_in(tf.compat.v1.get_default_graph(), built)
        return built.output, {name: layer.output for name, layer in layers.items()}

    def _layers_in(self, graph: tf.Graph, built: Built) -> dict[str, LayerOutput]:
        return layer_table.outputs(graph, built, self.store.variables.values())

    @property
    def targets(self) -> Targets:
        """The predictions of the dataset's kind."""
        targets: Targets = (
            kind_named(self.manifest.kind).load("network.targets").Targets(self.manifest.target)
        )
        return targets

    def check_predictions(self, shape: tuple[int, ...], hint: str = "") -> None:
        """Raise UserFault unless predictions of ``shape`` [N, …], without N, are for the targets.

        ``hint`` is used if the targets have none. Raises the network's own errors.
        """
        try:
            if not self.targets.accepts(shape):
                raise self.targets.refuse(shape)
            columns = shape[0] if len(shape) == 1 else 0
            self.targets.check(columns, self.label_flow(columns))
        except UnsuitableOutput as error:
            raise UserFault(error.message, error.hint or hint) from error

    def label_flow(self, classes: int) -> LabelFlow:
        """Analyze the loss's use of labels for outputs over ``classes`` scores. Raises the network's own errors."""
        flows = []

        def validate(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
            built = self.network.build(self.store, tower.VALIDATION, x, y)
            losses = [item.loss for item in built.objectives]
            flows.append(label_flow.follow(x, y, losses, (), classes if self.network.target.classes else 0))
            return losses[0]

        target = self.network.target
        signature = [
            tf.TensorSpec((None, *self.network.shape), tf.float32),
            tf.TensorSpec([None, *target.shape], target.dtype),
        ]
        tf.function(validate, autograph=False, input_signature=signature).get_concrete_function()
        return flows[-1]


def load(model_folder: Path, snapshot: str, dataset: Path | None = None) -> Trained:
    """Load the network of the model job in ``model_folder`` with the weights of ``snapshot`` (``snapshot_1.ckpt``).

    ``dataset`` is the folder of its dataset, if it has moved. Raises UserFault if the network, the snapshot or the
    dataset cannot be loaded, and whatever the network raises.
    """
    recipe = recipes.load(model_folder / TRAIN_FOLDER, recipes.Train)
    dataset = dataset or Path(recipe.dataset)
    manifest = feeds.load_manifest(dataset)
    whitening = Augment(whitening=recipe.augment.whitening)
    prepare = feeds.preparation(manifest, dataset, recipe.mean, recipe.crop_size, whitening)
    net = network_loader.load_for(manifest, dataset, model_folder / recipe.network, prepare.shape)
    store = VariableStore()
    traced = inference.trace(net, store)
    restored = restore.restore(model_folder / snapshot, store.variables)
    if restored.missing or restored.other_shape:
        raise UserFault(
            f"The snapshot does not fit the network. {restored.remark}",
            "The network's file was changed after the training.",
        )
    net.step.set(snapshots.step_of(model_folder / snapshot))
    return Trained(net, device_config.batch_size(recipe), manifest, prepare, store, traced)
