"""What networks written for TensorFlow 1, Keras 1 and Python 2 find, on top of those of today."""
