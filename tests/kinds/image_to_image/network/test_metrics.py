"""Metrics and predictions of image-to-image networks."""

from __future__ import annotations

from collections.abc import Callable

PROGRAM = """
import base64, io
from pathlib import Path
import numpy as np, tensorflow as tf
from PIL import Image
import digits.networks
from digits.data.images.images import Geometry
from digits.data.targets.target_image import TargetImage
from digits.kinds.image_to_image.network.metrics import Metrics
from digits.kinds.image_to_image.network.targets import Targets
from digits.worker import network_loader
from digits.worker.network import tower
from digits.worker.network.variables import VariableStore

target = TargetImage.of(12, 16, 1)
metrics = Metrics(target)
chance = np.random.default_rng(1)
y = chance.uniform(0, 255, (9, 12, 16, 1)).astype(np.float32)
output = (y + chance.normal(0, 30, y.shape)).astype(np.float32)
output[3] = y[3]
clipped = output.clip(0, 255)
errors = ((clipped - y) ** 2).mean((1, 2, 3))
psnr = np.minimum(100, 20 * np.log10(255) - 10 * np.log10(np.maximum(errors, 1e-12)))
for shape in ((-1, 12, 16, 1), (-1, 192), (-1, 12, 16)):
    arguments = tf.constant(output.reshape(shape)), tf.constant(y)
    means = {name: float(tf.reduce_mean(value)) for name, value in metrics.statistics(*arguments).items()}
    assert np.isclose(metrics.summarize(means)["psnr"], psnr.mean(), rtol=1e-4), (means, psnr.mean())
    similar = metrics.summarize_records(metrics.record_values(*arguments).numpy())["ssim"]
    assert np.isclose(similar, tf.image.ssim(clipped, y, 255.0).numpy().mean(), rtol=1e-5) and 0 < similar < 1
# A network with another purpose has none.
assert metrics.statistics(tf.zeros([9, 10]), tf.constant(y)) == {} == metrics.summarize({})
assert metrics.record_values(tf.zeros([9, 10]), tf.constant(y)) is None
# The window of the SSIM is larger than these images.
assert Metrics(TargetImage.of(8, 8, 1)).record_values(tf.zeros([2, 8, 8, 1]), tf.zeros([2, 8, 8, 1])) is None

targets = Targets(target)
found = targets.predict(tf.constant(output.reshape(-1, 192)))
assert np.array_equal(found.numpy(), clipped) and targets.accepts(found.shape[1:])
assert not targets.accepts([10]) and "[N, 10], not [N, 12, 16, 1]" in targets.refuse([10]).message

def described(geometry):
    answer = targets.describe(clipped[0], 5, geometry)
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(answer["image"].partition(",")[2]))))

assert np.array_equal(described(Geometry((16, 12), 16, 12, "squash")), np.rint(clipped[0, ..., 0]))
assert described(Geometry((300, 300), 16, 12, "squash")).shape == (16, 16)
# Fill pads the left and the right; the padding is removed.
assert np.array_equal(described(Geometry((12, 12), 16, 12, "fill")), np.rint(clipped[0, :, 2:14, 0]))

for name in ("autoencoder", "dncnn"):
    path = Path(digits.networks.__file__).parent / f"{name}.py"
    network = network_loader.load(path, (12, 16, 1), target, metrics)
    built = []

    @tf.function(autograph=False)
    def validate(x, y):
        built.append(network.build(VariableStore(), tower.VALIDATION, x, y))
        return built[0].metrics["loss"]

    image = tf.TensorSpec([None, 12, 16, 1], tf.float32)
    validate.get_concrete_function(image, image)
    assert "psnr" in network.summarize(dict.fromkeys(built[0].metrics, 1.0)), name
"""


def test_metrics_and_predictions_match_their_definitions(run_program: Callable[[str], None]) -> None:
    run_program(PROGRAM)
