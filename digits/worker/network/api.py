"""The ``digits`` module of networks: losses, accuracies and layout conversions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from digits.data.targets.boxes import Boxes
from digits.data.targets.class_index import ClassIndex
from digits.data.targets.label_set import LabelSet
from digits.data.targets.mask import Mask
from digits.data.targets.numbers import Numbers
from digits.data.targets.target import Target
from digits.data.targets.target_image import TargetImage
from digits.kinds.network.targets import channels_last
from digits.worker.failure import UserFault
from digits.worker.input import target_tensors
from digits.worker.network import tower
from digits.worker.network.detection import decode_boxes as decode_boxes
from digits.worker.network.detection import detection_loss as detection_loss
from digits.worker.network.efficientnet_lite import EfficientNetLite0 as EfficientNetLite0
from digits.worker.network.feature_maps import feature_maps as feature_maps
from digits.worker.network.full_precision import to_float32
from digits.worker.network.pretrained import pretrained as pretrained

STAGE_TRAIN = tower.TRAIN
STAGE_VAL = tower.VALIDATION
STAGE_INF = tower.INFERENCE


class GraphKeys:
    """Names of collections and scopes that networks may use."""

    TEMPLATE = "model"
    QUEUE_RUNNERS = "queue_runner"
    MODEL = "model"
    LOSS = "loss"
    LOSSES = "losses"
    LOADER = "data"
    SUMMARIES_TRAIN = "summaries_train"
    SUMMARIES_VAL = "summaries_val"


def loss(pred: Any, y: Any) -> tf.Tensor:
    """Return the usual loss for the targets of the dataset, ``y``.

    For classes, this is `classification_loss` of the logits [N, classes], for several labels per image, the mean
    sigmoid cross-entropy of the logits [N, labels], for numbers, the mean squared error in units of their standard
    deviations, for masks, `segmentation_loss`, and for images, the mean squared error of pixels divided by 255. Masks
    and images may also be [N, channels, H, W].
    Raises UserFault for boxes.
    """
    target = _target()
    usual: Callable[..., tf.Tensor] = _LOSSES.get(type(target), _squared_error)
    return usual(target, pred, y)


def scale_output(pred: Any) -> Any:
    """Return ``pred`` [N, numbers] times the standard deviations of the dataset's targets, plus their means.

    Numbers of any scale then train with the same settings. Returns ``pred`` unchanged if the targets are
    classes or labels.
    """
    target = _target()
    if not isinstance(target, Numbers) or not target.std:
        return pred
    return tf.constant(target.mean, tf.float32) + _std(target) * to_float32(pred)


def classification_loss(pred: Any, y: Any) -> tf.Tensor:
    """Return the mean softmax cross-entropy of the logits ``pred``, float [N, classes], and the labels ``y``,
    integers [N].

    Takes class weights and blended images (MixUp, CutMix) into account if ``y`` is ``self.y``. Raises UserFault if
    there are fewer logits than classes.
    """
    _check_outputs(pred)
    pred = to_float32(pred)
    return target_tensors.mean_loss(pred, y)


def classification_accuracy(pred: Any, y: Any) -> tf.Tensor:
    """Return the fraction of records whose largest logit is that of the label, 0 to 1."""
    hits = tf.equal(tf.argmax(pred, 1), tf.cast(y, tf.int64))
    return tf.reduce_mean(tf.cast(hits, tf.float32), name="accuracy")


def classification_accuracy_top_n(pred: Any, y: Any, n: int) -> tf.Tensor:
    """Return the fraction of records whose label is among the ``n`` largest logits, 0 to 1."""
    hits = tf.math.in_top_k(targets=tf.cast(y, tf.int64), predictions=to_float32(pred), k=n)
    return tf.reduce_mean(tf.cast(hits, tf.float32), name=f"accuracy_top_{n}")


def segmentation_loss(pred: Any, y: Any) -> tf.Tensor:
    """Return the mean softmax cross-entropy of the pixels that have a class.

    ``pred`` are logits, float [N, H, W, classes], and ``y`` the classes of the pixels, integers [N, H, W] or
    [N, H, W, 1]. Pixels of another value, such as 255 for the borders of objects and for padding, do not count.
    """
    logits, classes, weights = _pixels(pred, y)
    each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=classes, logits=logits)
    return tf.math.divide_no_nan(
        tf.reduce_sum(each * weights), tf.reduce_sum(weights), name="segmentation_loss"
    )


def dice_loss(pred: Any, y: Any) -> tf.Tensor:
    """Return 1 minus the mean Dice coefficient of the classes in the batch; arguments as for `segmentation_loss`.

    All classes have equal weight, regardless of their size. F. Milletari, N. Navab, S.-A. Ahmadi, "V-Net: Fully
    Convolutional Neural Networks for Volumetric Medical Image Segmentation", 2016.
    """
    logits, classes, weights = _pixels(pred, y)
    predicted = tf.nn.softmax(logits) * weights[..., None]
    true = tf.one_hot(classes, tf.shape(logits)[-1], dtype=logits.dtype) * weights[..., None]
    both, total, pixels = (
        tf.reduce_sum(values, axis=[0, 1, 2]) for values in (predicted * true, predicted + true, true)
    )
    present = tf.cast(pixels > 0, logits.dtype)
    missed = 1 - tf.math.divide_no_nan(2 * both, total)
    return tf.math.divide_no_nan(tf.reduce_sum(present * missed), tf.reduce_sum(present), name="dice_loss")


def mse_loss(lhs: Any, rhs: Any) -> tf.Tensor:
    """Return the mean squared difference of two tensors of the same shape."""
    lhs, rhs = _of_one_type(to_float32(lhs), to_float32(rhs))
    return tf.reduce_mean(tf.square(lhs - rhs), name="mse")


def constrastive_loss(lhs: Any, rhs: Any, y: Any = None, margin: float = 1.0) -> tf.Tensor:
    """Return the mean contrastive loss of two embeddings, float32 [N, d]; ``y`` [N] is 1 for similar pairs, else 0.

    Also takes the distances [N] or [N, 1] and ``y`` as the two arguments, as in DIGITS' first version. Dissimilar
    pairs contribute only if they are closer than ``margin``. R. Hadsell, S. Chopra, Y. LeCun, "Dimensionality
    Reduction by Learning an Invariant Mapping", 2006.
    """
    if y is None:
        distances, y = to_float32(tf.reshape(lhs, [-1])), tf.reshape(rhs, [-1])
        squared = tf.square(distances)
    else:
        squared = tf.reduce_sum(tf.square(to_float32(lhs) - to_float32(rhs)), 1)
        distances = tf.sqrt(squared + 1e-6)
    apart = tf.square(tf.maximum(margin - distances, 0))
    together = tf.cast(y, squared.dtype)
    return tf.reduce_mean(together * squared + (1 - together) * apart, name="contrastive_loss")


contrastive_loss = constrastive_loss


def nhwc_to_nchw(x: Any) -> tf.Tensor:
    """Transpose ``x`` [N, H, W, C] to [N, C, H, W]."""
    return tf.transpose(x, [0, 3, 1, 2])


def nchw_to_nhwc(x: Any) -> tf.Tensor:
    """Transpose ``x`` [N, C, H, W] to [N, H, W, C]."""
    return tf.transpose(x, [0, 2, 3, 1])


def hwc_to_chw(x: Any) -> tf.Tensor:
    """Transpose ``x`` [H, W, C] to [C, H, W]."""
    return tf.transpose(x, [2, 0, 1])


def chw_to_hwc(x: Any) -> tf.Tensor:
    """Transpose ``x`` [C, H, W] to [H, W, C]."""
    return tf.transpose(x, [1, 2, 0])


def bgr_to_rgb(x: Any) -> tf.Tensor:
    """Reverse the last axis of ``x``, the color channels."""
    return tf.reverse(x, [-1])


rgb_to_bgr = bgr_to_rgb


def get_available_gpus() -> list[str]:
    """Return the names of the GPUs that TensorFlow can use in this process."""
    return [device.name for device in tf.config.list_logical_devices("GPU")]


def _pixels(pred: Any, y: Any) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return the logits, the classes [N, H, W], and the weights of the pixels: 0 for those without a class."""
    logits = to_float32(pred)
    classes = tf.reshape(tf.cast(y, tf.int64), tf.shape(logits)[:-1])
    counted = (classes >= 0) & (classes < tf.shape(logits, tf.int64)[-1])
    return logits, tf.where(counted, classes, 0), tf.cast(counted, logits.dtype)


def _target() -> Target:
    """Return the target of the dataset whose network is being built; raises UserFault outside of one."""
    built = tower.current_tower()
    if built is None:
        raise UserFault(
            "The targets are only available inside the network.",
            "Call this function in `inference` or `loss`.",
        )
    target: Target = built.target
    return target


def _label_loss(target: Target, pred: Any, y: Any) -> tf.Tensor:
    logits = to_float32(pred)
    return tf.reduce_mean(
        tf.nn.sigmoid_cross_entropy_with_logits(labels=y, logits=logits), name="cross_entropy"
    )


def _squared_error(target: Target, pred: Any, y: Any) -> tf.Tensor:
    return mse_loss(to_float32(pred) / _std(target), y / _std(target))


def _refuse_boxes(target: Target, pred: Any, y: Any) -> tf.Tensor:
    raise UserFault("digits.loss does not support boxes.", "Compute the loss with digits.detection_loss.")


# The usual losses. That of numbers and other arrays is the mean squared error.
_LOSSES: dict[type[Target], Callable[..., tf.Tensor]] = {
    Boxes: _refuse_boxes,
    ClassIndex: lambda target, pred, y: classification_loss(pred, y),
    LabelSet: _label_loss,
    Mask: lambda target, pred, y: segmentation_loss(channels_last(pred, target.outputs), y),
    TargetImage: lambda target, pred, y: mse_loss(channels_last(pred, target.shape[2]) / 255.0, y / 255.0),
}


def _std(target: Target) -> tf.Tensor:
    """Return the standard deviation of each number, float32 [numbers]; 1 for those that never vary."""
    return tf.constant([std or 1.0 for std in target.std] or 1.0, tf.float32)


def _of_one_type(lhs: Any, rhs: Any) -> tuple[tf.Tensor, tf.Tensor]:
    # Class labels are integers, outputs are floats.
    lhs, rhs = tf.convert_to_tensor(lhs), tf.convert_to_tensor(rhs)
    if lhs.dtype == rhs.dtype:
        return lhs, rhs
    dtype = lhs.dtype if lhs.dtype.is_floating else rhs.dtype
    return tf.cast(lhs, dtype), tf.cast(rhs, dtype)


def _check_outputs(pred: Any) -> None:
    built = tower.current_tower()
    outputs = tf.convert_to_tensor(pred).shape
    if built is None or not built.nclasses or outputs.rank is None or outputs[-1] is None:
        return
    if outputs[-1] < built.nclasses:
        raise UserFault(
            f"The network has {outputs[-1]} outputs, but the dataset has {built.nclasses} classes.",
            "Give the last layer self.nclasses outputs.",
        )
