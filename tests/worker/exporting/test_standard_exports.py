"""Every standard network, with few blocks and random weights, exports to every format that it is offered."""

from __future__ import annotations

import math
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from digits.core.recipe import Augment
from digits.data.manifest import MEAN_ARRAY_FILE
from digits.data.models.export import FORMATS
from digits.data.targets.boxes import Boxes
from digits.data.targets.class_index import ClassIndex
from digits.data.targets.label_set import LabelSet
from digits.data.targets.mask import Mask
from digits.data.targets.numbers import Numbers
from digits.data.targets.target import Target
from digits.data.targets.target_image import TargetImage
from digits.kinds import standard_networks
from tests.datasets import manifest_of
from tests.worker.lazily import (
    conversion,
    exported,
    feeds,
    inference,
    keras_model,
    network_loader,
    variables,
    verification,
)

# The greatest difference to the network, relative to the largest output. In int8, that of random weights is large.
TOLERANCES = dict.fromkeys(FORMATS, 1e-4) | {"litert-float16": 0.01, "litert-int8": 0.9}


@dataclass(frozen=True)
class Case:
    """The images that a network is built for, and replacements in its text that make it smaller."""

    kind: str = "image-classification"
    side: int = 32
    channels: int = 3
    smaller: tuple[tuple[str, str], ...] = ()


CASES = {
    "regression": Case("image-regression"),
    "multilabel": Case("image-multilabel"),
    "lenet": Case(side=28, channels=1),
    "alexnet": Case(side=67, smaller=(("        4096,", "        16,"),)),
    "googlenet": Case(),
    "vgg16": Case(smaller=(("        4096,", "        16,"), ("(3, 512), (3, 512)", "(1, 16), (1, 16)"))),
    "resnet32": Case("image-regression", smaller=(("BLOCKS = 5", "BLOCKS = 1"),)),
    "resnet50": Case(),
    "efficientnetlite": Case(),
    "mobilenetv3": Case(),
    "efficientnetv2": Case("image-multilabel"),
    "convnext": Case(),
    "vit": Case(smaller=(("SIDE = 224", "SIDE = 32"), ("= 12, 12, 768", "= 2, 4, 32"))),
    "autoencoder": Case("image-processing", side=16),
    "gan": Case("image-gan", side=16),
    "unet": Case("image-segmentation", side=35),
    "segmenter": Case("image-segmentation", channels=1),
    "segmenter_resnet50": Case("image-segmentation", channels=1),
    "dncnn": Case("image-processing"),
    "fpn": Case("image-object-detection", channels=1),
    "detector": Case("image-object-detection"),
    "siamese": Case("image-pairs", channels=2),
    "textcnn": Case("text-classification", side=16, channels=1),
}


def test_every_standard_network_has_a_case() -> None:
    assert list(CASES) == list(standard_networks.every_network())


# Networks for each kind of input and output, and for each format: the others have the same ones, and most of their
# operations. Exports of slim networks and in int8 are in `tests/worker/tasks/test_export.py`.
PAIRS = {
    "gan": ["savedmodel", "keras", "onnx"],
    "detector": ["litert-float16"],
    "textcnn": ["keras", "litert"],
}


@pytest.mark.parametrize(
    ("name", "formats"),
    [*PAIRS.items(), *(pytest.param(name, [*FORMATS], marks=pytest.mark.nightly) for name in CASES)],
)
def test_a_standard_network_exports_to_every_format_that_it_is_offered(
    in_child: Any, tmp_path: Path, name: str, formats: list[str]
) -> None:
    network = standard_networks.network(name)
    if network.package and not find_spec(network.package):
        pytest.skip(f"requires {network.package}")
    results = in_child(export_all, name, tmp_path, formats)
    refused = {format: words for format, words in results.items() if isinstance(words, str)}
    assert set(refused) == set(network.refusals).intersection(formats), refused
    for format in set(formats) - set(refused):
        difference, worst = results[format]
        # The boxes of a detector share one scale with their scores in int8; the maps they are decoded from do not.
        if (format, worst) != ("litert-int8", "boxes"):
            assert difference < TOLERANCES[format], format


def target_of(kind: str, side: int, channels: int) -> Target:
    if kind == "image-segmentation":
        return Mask.of(["a", "b", "c"], side, side)
    if kind == "image-processing":
        return TargetImage.of(side, side, channels)
    if kind == "image-object-detection":
        return Boxes.of(["a", "b"], 7)
    if kind == "image-regression":
        return Numbers.of(["a", "b"], [3.0, 40.0], [2.0, 5.0])
    if kind == "image-multilabel":
        return LabelSet.of(["a", "b"], [0.3, 0.4], [0.4, 0.5])
    return ClassIndex.of(["a", "b"])


def export_all(name: str, folder: Path, formats: list[str]) -> dict[str, tuple[float, str] | str]:
    """Export a network to ``formats``; return the difference and the worst output, or the reason of the refusal.

    Call it with `in_child`, because it uses TensorFlow.
    """
    found = build(name, folder)
    random, shape = np.random.default_rng(0), (4, *found.input_shape)
    inputs = random.normal(size=shape) if found.traced.latent else random.integers(0, 256, shape)
    inputs = inputs.astype(np.float32)
    results: dict[str, tuple[float, str] | str] = {}
    for format in formats:
        file = folder / format / FORMATS[format].file
        file.parent.mkdir()
        runtime, _, precision = format.partition("-")
        try:
            if runtime == "savedmodel":
                conversion.write_saved_model(exported.ServedModel(found), file.parent)
            elif runtime == "keras":
                keras_model.write_keras(found, file)
            elif runtime == "onnx":
                conversion.write_onnx(exported.Exported(found), found, file)
            else:
                calibration = inputs if precision == "int8" else None
                conversion.write_litert(
                    exported.Exported(found), found, file, precision or "float32", calibration
                )
            verified = verification.verify(found, file, runtime, inputs, 1)
        except exported.NotExportable as fault:
            results[format] = fault.message
        else:
            assert verified.difference is not None and math.isfinite(verified.difference)
            results[format] = verified.difference, verified.worst_output
    return results


def build(
    name: str,
    folder: Path,
    crop: int | None = None,
    augment: Augment = Augment(),  # noqa: B008 - immutable
    changes: tuple[tuple[str, str], ...] = (),
) -> Any:
    """Return a network that was never trained, with the mean subtraction that it recommends and ``changes``.

    Its weights are the same in each run: some random ones have two cells with almost equal scores, of which rounding
    chooses the box.
    """
    import keras
    from keras.src.applications import convnext, efficientnet_v2, mobilenet_v3, resnet

    from digits.worker.training.models.trained import Trained

    keras.utils.set_random_seed(0)
    # More blocks repeat the same operations.
    stack = resnet.stack_residual_blocks_v1
    resnet.stack_residual_blocks_v1 = lambda x, filters, blocks, **settings: stack(x, filters, 1, **settings)
    block = mobilenet_v3._inverted_res_block
    mobilenet_v3._inverted_res_block = lambda x, expansion, filters, size, stride, *rest: (
        x if stride == 1 and x.shape[-1] == filters else block(x, expansion, filters, size, stride, *rest)
    )
    convnext.MODEL_CONFIGS["tiny"]["depths"] = [1, 1, 1, 1]
    for arguments in efficientnet_v2.DEFAULT_BLOCKS_ARGS["efficientnetv2-b0"]:
        arguments["num_repeat"] = 1

    case, network = CASES[name], standard_networks.network(name)
    shape, text = (case.side, case.side, case.channels), network.text
    for old, new in (*case.smaller, *changes):
        assert old in text
        text = text.replace(old, new)
    (folder / "network.py").write_text(text)
    random = np.random.default_rng(0)
    np.save(folder / MEAN_ARRAY_FILE, random.uniform(50, 200, shape).astype(np.float32))
    manifest = manifest_of(
        target_of(case.kind, case.side, case.channels),
        side=case.side,
        channels=case.channels,
        kind=case.kind,
        mean_pixel=random.uniform(50, 200, case.channels).tolist(),
    )
    prepare = feeds.preparation(manifest, folder, network.values["use_mean"], crop, augment)
    net = network_loader.load_for(manifest, folder, folder / "network.py", prepare.shape)
    store = variables.VariableStore()
    traced = inference.trace(net, store)
    for variable in store.variables.values():
        if variable.dtype.is_floating:  # some are initially zero
            noise = random.normal(0, 0.01, variable.shape).astype(np.float32)
            variable.assign_add(noise if variable.shape.rank > 1 else abs(noise))  # variances are positive
    return Trained(net, 4, manifest, prepare, store, traced)
