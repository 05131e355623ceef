"""Readable headlines for common errors of TensorFlow and Keras.

The table contains message patterns of TensorFlow 2.21 and Keras 3. The failure keeps the full message as
its detail; only the headline is replaced.
"""

from __future__ import annotations

import re

MAX_HEADLINE_CHARACTERS = 240

_SHAPE = r"(\[[^\]]*\]|\([^)]*\))"
_OPERATION = r"(?:.*?= (\w+)\[)?"

# Regular expression, and a headline with its groups.
_HEADLINES = [
    (re.compile(pattern, re.DOTALL), headline)
    for pattern, headline in [
        (
            rf"Incompatible shapes: {_SHAPE} vs\. {_SHAPE}",
            "Tensors of shapes {0} and {1} are incompatible.",
        ),
        (
            rf"Dimensions must be equal, but are (\d+) and (\d+) for {_OPERATION}.*input shapes: {_SHAPE}, {_SHAPE}",
            "Tensors of shapes {3} and {4} are incompatible in {2}: {0} is not {1}.",
        ),
        (
            rf"Matrix size-incompatible: In\[0\]: {_SHAPE}, In\[1\]: {_SHAPE}",
            "Matrices of shapes {0} and {1} cannot be multiplied: the inner sizes differ.",
        ),
        (
            rf"Cannot reshape a tensor with (\d+) elements to shape {_SHAPE} \((\d+) elements\)",
            "A tensor of {0} values cannot be reshaped to {1}, which has {2}.",
        ),
        (
            r"Input to reshape is a tensor with (\d+) values, but the requested shape has (\d+)",
            "A tensor of {0} values cannot be reshaped to a shape of {1}.",
        ),
        (
            r"Input to reshape is a tensor with (\d+) values, but the requested shape requires a multiple of (\d+)",
            "A tensor of {0} values cannot be reshaped to a shape that requires a multiple of {1}.",
        ),
        (
            rf"Negative dimension size caused by subtracting (\d+) from (\d+) for {_OPERATION}",
            "The input of {2} is too small: its side is {1}, but the window requires {0}.",
        ),
        (
            r"Computed output size would be (?:zero or )?negative.*?inputs shape=(\(.*?\)).*?kernel shape=(\(.*?\))",
            "An input of shape {0} is too small for a kernel of shape {1}.",
        ),
        (
            rf"`labels.shape` must equal `logits.shape`.*?labels.shape={_SHAPE} and logits.shape={_SHAPE}",
            "Labels of shape {0} are incompatible with an output of shape {1}.",
        ),
        (
            rf"logits and labels must be broadcastable: logits_size={_SHAPE} labels_size={_SHAPE}",
            "Labels of shape {1} are incompatible with an output of shape {0}.",
        ),
        (
            r"`logits` and `labels` must have the same shape, received \((\([^)]*\)) vs (\([^)]*\))\)",
            "Labels of shape {1} are incompatible with an output of shape {0}.",
        ),
        (
            r"Received a label value of (-?\d+) which is outside the valid range of \[0, (\d+)\)",
            "Label {0} is out of range: the network has {1} outputs.",
        ),
        (
            r"cannot compute (\w+) as input #\d+\(zero-based\) was expected to be a (\w+) tensor but is a (\w+) tensor",
            "The inputs of {0} have different types: {1} and {2}.",
        ),
        (
            r"Input '\w+' of '(\w+)' Op has type (\w+) that does not match type (\w+)",
            "The inputs of {0} have different types: {2} and {1}.",
        ),
        (
            r"Tensor conversion requested dtype (\w+) for Tensor with dtype (\w+)",
            "A tensor has type {1}, but {0} is required.",
        ),
        (
            r"Input 0 .*?of layer [\"'](\w+)[\"'] is incompatible with the layer: expected min_ndim=(\d+), "
            r"found ndim=(\d+)\. Full shape received: (\([^)]*\))",
            "The layer {0} requires an input of at least {1} dimensions, but got {2}: {3}.",
        ),
        (
            rf"Dimension (\d+) in both shapes must be equal: shape\[0\] = {_SHAPE} vs\. shape\[1\] = {_SHAPE}",
            "Tensors of shapes {1} and {2} are incompatible: dimension {0} differs.",
        ),
        (
            rf"Dimension (\d+) in both shapes must be equal.*input shapes: {_SHAPE}, {_SHAPE}",
            "Tensors of shapes {1} and {2} are incompatible: dimension {0} differs.",
        ),
        (
            r"Depth of input \((\d+)\) is not a multiple of input depth of filter \((\d+)\)",
            "The input of the convolution has {0} channels, but its filter expects {1}.",
        ),
        (
            r"input depth must be evenly divisible by filter depth: (\d+) vs (\d+)",
            "The input of the convolution has {0} channels, but its filter expects {1}.",
        ),
        (
            rf"Inputs have incompatible shapes\. Received shapes {_SHAPE} and {_SHAPE}",
            "Tensors of shapes {0} and {1} are incompatible.",
        ),
        (
            r"OOM when allocating tensor with shape(\[[^\]]*\])",
            "Out of memory while allocating a tensor of shape {0}.",
        ),
    ]
]


def headline(text: str) -> str:
    """A one-line headline for the error message ``text``; ``text`` itself if it is short."""
    for pattern, words in _HEADLINES:
        if match := pattern.search(text):
            return words.format(*(group or "an operation" for group in match.groups()))
    first = text.strip().split("\n", 1)[0]
    return first if len(first) <= MAX_HEADLINE_CHARACTERS else f"{first[: MAX_HEADLINE_CHARACTERS - 1]}…"
