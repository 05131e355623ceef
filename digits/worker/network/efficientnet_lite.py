"""EfficientNet-Lite0, a network for CPUs that keras.applications lacks."""

from __future__ import annotations

from typing import Any

from keras import Input, Model, layers

# Size of the kernel, blocks, stride of the first one, factor of the expansion, filters.
_STAGES = (
    (3, 1, 1, 1, 16),
    (3, 2, 2, 6, 24),
    (5, 2, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (5, 3, 1, 6, 112),
    (5, 4, 2, 6, 192),
    (3, 1, 1, 6, 320),
)
_DROPOUT = 0.2
# Keras' momentum of 0.99 takes hundreds of steps to converge.
_NORMALIZATION = {"momentum": 0.9, "epsilon": 1e-3}


def EfficientNetLite0(  # noqa: N802 (as in keras.applications)
    *,
    weights: None = None,
    input_shape: tuple[int, int, int] = (224, 224, 3),
    include_top: bool = True,
    pooling: str | None = None,
    classes: int = 1000,
    classifier_activation: str | None = "softmax",
) -> Model:
    """Return EfficientNet-Lite0 for RGB pixels of 0 to 255, with random weights.

    This is EfficientNet-B0 without squeeze-and-excitation and with ReLU6, as published in
    https://github.com/tensorflow/tpu/tree/master/models/official/efficientnet/lite. The parameters are those of the
    functions in `keras.applications`.
    """
    image = Input(input_shape)
    net = layers.Rescaling(1 / 128, -127 / 128, name="rescaling")(image)
    net = _normalized(layers.Conv2D(32, 3, 2, "same", use_bias=False, name="stem_conv"), net, "stem")
    for number, (size, blocks, stride, expansion, filters) in enumerate(_STAGES, 1):
        for block in range(blocks):
            name = f"block{number}{chr(ord('a') + block)}"
            net = _block(net, size, stride if block == 0 else 1, expansion, filters, name)
    net = _normalized(layers.Conv2D(1280, 1, use_bias=False, name="top_conv"), net, "top")
    if include_top or pooling == "avg":
        net = layers.GlobalAveragePooling2D(name="avg_pool")(net)
    elif pooling == "max":
        net = layers.GlobalMaxPooling2D(name="max_pool")(net)
    if include_top:
        net = layers.Dropout(_DROPOUT, name="top_dropout")(net)
        net = layers.Dense(classes, activation=classifier_activation, name="predictions")(net)
    return Model(image, net, name="efficientnet_lite0")


def _block(net: Any, size: int, stride: int, expansion: int, filters: int, name: str) -> Any:
    """An inverted residual block."""
    added = net
    if expansion > 1:
        wide = layers.Conv2D(net.shape[3] * expansion, 1, use_bias=False, name=f"{name}_expand_conv")
        added = _normalized(wide, added, f"{name}_expand")
    deep = layers.DepthwiseConv2D(size, stride, "same", use_bias=False, name=f"{name}_dwconv")
    added = _normalized(deep, added, f"{name}_dw")
    narrow = layers.Conv2D(filters, 1, use_bias=False, name=f"{name}_project_conv")
    added = layers.BatchNormalization(name=f"{name}_project_bn", **_NORMALIZATION)(narrow(added))
    if stride == 1 and net.shape[3] == filters:
        return layers.Add(name=f"{name}_add")([added, net])
    return added


def _normalized(convolution: Any, net: Any, name: str) -> Any:
    net = layers.BatchNormalization(name=f"{name}_bn", **_NORMALIZATION)(convolution(net))
    return layers.ReLU(6.0, name=f"{name}_relu")(net)
