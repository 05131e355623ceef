"""Functional Keras models in networks of TensorFlow 1."""

from __future__ import annotations

from typing import Any

from digits.core.events import Built
from tests.worker import networks
from tests.worker.compat.test_compat_ops import failures

# Each is the body of `inference` between x = self.x and a final dense layer on x.
BODIES = [
    "x = tf.keras.layers.Conv2D(4, 3, kernel_initializer=tf.contrib.layers.xavier_initializer(),\n"
    "    bias_initializer=tf.constant_initializer(0.5), kernel_regularizer=tf.contrib.layers.l2_regularizer(0.1))(x)",
    "i = keras.layers.Input(shape=(12, 12, 3)); t = tf.nn.relu(tf.image.resize(keras.layers.Rescaling(0.1)(i), (8, 8)))\n"
    "t = tf.concat([t, tf.reduce_max(t, axis=3, keepdims=True)], axis=-1) + 1.0\n"
    "m = keras.Model(i, keras.layers.AveragePooling2D(2)(t)); x = m(x); assert x.shape[1:] == [4, 4, 4]",
    "from keras import backend as K\nfrom tensorflow.python.keras import backend as other\n"
    "assert K.int_shape(x) == other.int_shape(x) == (None, 12, 12, 3)\n"
    "from tensorflow.python.keras.layers import Conv2D\nassert Conv2D is keras.layers.Conv2D",
    "m = keras.applications.MobileNet(weights=None, include_top=False, input_shape=(32, 32, 3), alpha=0.25)\n"
    "assert any(isinstance(layer, tf.keras.layers.BatchNormalization) for layer in m.layers)",
    "layer = keras.layers.Conv2D(4, 3, padding='same')\n"
    "assert keras.layers.Conv2D.from_config(layer.get_config()).padding == 'same' and 'Dense' in dir(keras.layers)",
]


def test_layers_with_arguments_of_tensorflow_1(in_child: Any) -> None:
    assert in_child(failures, BODIES) == {}


def test_all_names_can_be_imported(train: Any) -> None:
    head = "from utils import *\nfrom keras.layers import *\nfrom tensorflow.contrib.slim import *"
    body = "x = Flatten()(self.x / 255)\nreturn fully_connected(tf.to_float(x), self.nclasses)"
    train(networks.classifier(body, head), epochs=1)


FUNCTIONAL = """
x = tf.keras.layers.Input(tensor=self.x)
y = tf.keras.layers.Dense(8, activation='relu', name='hidden')(tf.keras.layers.Flatten()(x))
model = tf.keras.models.Model(inputs=x, outputs=tf.keras.layers.Dense(self.nclasses, name='out')(y))
return {'hidden': y, 'logits': model.output, 'x': self.x}
"""


def test_a_functional_model_on_the_input_is_trained(train: Any) -> None:
    network = networks.classifier(FUNCTIONAL).replace("self.inference", "self.inference['logits']")
    outcome = train(network, epochs=6, mean="pixel", solver={"type": "ADAM"})
    assert outcome.of(Built)[0].parameters == 144 * 8 + 8 + 8 * 4 + 4
    assert outcome.values("val", "accuracy")[-1] > 0.9


def test_a_functional_model_with_a_list_of_one_output(visualize: Any) -> None:
    network = FUNCTIONAL.replace("outputs=tf", "outputs=[tf").replace("(y))", "(y)])")
    network = network.replace("{'hidden': y, 'logits': model.output, 'x': self.x}", "model.output")
    outcome = visualize(networks.classifier(network))
    assert outcome.code == 0, outcome.output
