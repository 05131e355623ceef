"""Networks may return images with the channels first, as [N, C, H, W]."""

from __future__ import annotations

from typing import Any

import numpy as np

from digits.data.targets.mask import Mask
from digits.data.targets.target_image import TargetImage


def results(channels_first: bool) -> list[Any]:
    """Return what the kinds compute from images and scores in this order. Call it with `in_child`."""
    import tensorflow as tf

    from digits.kinds.image_to_image.network.metrics import Metrics as ImageMetrics
    from digits.kinds.image_to_image.network.targets import Targets as ImageTargets
    from digits.kinds.segmentation.network.metrics import Metrics as MaskMetrics
    from digits.kinds.segmentation.network.targets import Targets as MaskTargets
    from digits.worker.network.inference import generated_images

    random = np.random.default_rng(0)

    def ordered(values: Any) -> tf.Tensor:
        return tf.constant(values.transpose(0, 3, 1, 2) if channels_first else values)

    found: list[Any] = []
    for channels in (1, 3):
        images = random.uniform(0, 255, (2, 12, 14, channels)).astype(np.float32)
        output = {"image": ordered(images), "code": tf.zeros([2, 5])}
        target = TargetImage.of(12, 14, channels)
        found += [
            ImageTargets(target).predict(output).numpy(),
            ImageMetrics(target).statistics(output, tf.constant(images))["psnr"].numpy(),
            generated_images(output)[0].numpy(),
        ]
        assert np.array_equal(found[-3], images) and (found[-2] == 100).all()
    scores = random.normal(size=(2, 12, 14, 4)).astype(np.float32)
    masks = random.integers(0, 4, (2, 12, 14))
    target = Mask.of(["a", "b", "c", "d"], 12, 14)
    statistics = MaskMetrics(target).statistics(ordered(scores), tf.constant(masks))
    found += [
        MaskTargets(target).predict(ordered(scores)).numpy(),
        *(item.numpy() for item in statistics.values()),
    ]
    assert np.array_equal(MaskTargets(target).predict(ordered(scores)), scores.argmax(3)) and statistics
    return found


def test_the_order_of_the_channels_makes_no_difference(in_child: Any) -> None:
    last, first = in_child(results, False), in_child(results, True)
    assert len(last) == len(first)
    assert all(np.array_equal(one, other) for one, other in zip(last, first, strict=True))
