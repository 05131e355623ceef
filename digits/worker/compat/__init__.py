"""Compatibility layer for networks written for TensorFlow 1, Keras 1 and Python 2."""
