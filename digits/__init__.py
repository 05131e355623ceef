"""DIGITS: train deep networks on your own images, in a browser."""

__version__ = "7.0.0.dev0"
