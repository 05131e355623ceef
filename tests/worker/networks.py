"""Networks as users write them, one per behavior."""

from __future__ import annotations

from typing import Any

# The example in the user guide, verbatim.
LENET = """class UserModel(Tower):

    @model_property
    def inference(self):
        x = tf.reshape(self.x, shape=[-1, self.input_shape[0], self.input_shape[1], self.input_shape[2]])
        # scale (divide by MNIST std)
        x = x * 0.0125
        with slim.arg_scope([slim.conv2d, slim.fully_connected],
                            weights_initializer=tf.contrib.layers.xavier_initializer(),
                            weights_regularizer=slim.l2_regularizer(0.0005) ):
            model = slim.conv2d(x, 20, [5, 5], padding='VALID', scope='conv1')
            model = slim.max_pool2d(model, [2, 2], padding='VALID', scope='pool1')
            model = slim.conv2d(model, 50, [5, 5], padding='VALID', scope='conv2')
            model = slim.max_pool2d(model, [2, 2], padding='VALID', scope='pool2')
            model = slim.flatten(model)
            model = slim.fully_connected(model, 500, scope='fc1')
            model = slim.dropout(model, 0.5, is_training=self.is_training, scope='do1')
            model = slim.fully_connected(model, self.nclasses, activation_fn=None, scope='fc2')
            return model

    @model_property
    def loss(self):
        loss = digits.classification_loss(self.inference, self.y)
        accuracy = digits.classification_accuracy(self.inference, self.y)
        self.summaries.append(tf.summary.scalar(accuracy.op.name, accuracy))
        return loss
"""

_LOSS = """
    @model_property
    def loss(self):
        accuracy = digits.classification_accuracy(self.inference, self.y)
        self.summaries.append(tf.summary.scalar(accuracy.op.name, accuracy))
        return digits.classification_loss(self.inference, self.y)
"""


def classifier(body: str, head: str = "") -> str:
    """Return a classification network whose ``inference`` consists of the lines in ``body``."""
    lines = "\n".join(f"        {line}" for line in body.strip().splitlines())
    return f"{head}\nclass UserModel(Tower):\n    @model_property\n    def inference(self):\n{lines}\n{_LOSS}"


# The smallest network that learns: one dense layer.
LINEAR = classifier(
    """
model = slim.flatten(self.x / 100.0)
return slim.fully_connected(model, self.nclasses, activation_fn=None, scope='fc')
"""
)

# Every source of random numbers of Keras and of TensorFlow's generators. The step averages the variables over all workers
# and replicas.
NOISES = classifier(
    """
layers, ones = tf.keras.layers, tf.ones([1, 4, 4, 500])
images = tf.tile(tf.range(8.0)[None, None, :, None], [60, 8, 1, 1]) * 30.0
noises = {
    'dropout': layers.Dropout(0.5)(ones),
    'seeded': layers.Dropout(0.5, seed=3)(ones),
    'spatial': layers.SpatialDropout2D(0.5)(ones),
    'gaussian_dropout': layers.GaussianDropout(0.5)(ones),
    'gaussian_noise': layers.GaussianNoise(1.0)(ones),
    'alpha_dropout': layers.AlphaDropout(0.5)(ones),
    'flip': layers.RandomFlip('horizontal')(images),
    'shift': layers.RandomTranslation(0.4, 0.4)(images),
    'brightness': layers.RandomBrightness(0.5)(images),
    'function': keras.random.normal([500]),
    'generator': tf.random.get_global_generator().normal([500]),
    'own_generator': generator.uniform([500]),
    'operation': tf.random_normal([500]),
}
for name, noise in noises.items():
    last = tf.get_variable(name, noise.shape, trainable=False, initializer=tf.zeros_initializer())
    own = tf.get_variable(name + '_square', noise.shape, trainable=False, initializer=tf.zeros_initializer())
    if self.is_training:
        last.assign(noise)
        own.assign(tf.square(noise))
return slim.fully_connected(slim.flatten(self.x / 100.0), self.nclasses, activation_fn=None, scope='fc')
""",
    head="generator = tf.random.Generator.from_seed(5)",
)


def equal_noises(weights: dict[str, Any]) -> list[str]:
    """Return the names of the `NOISES` that two workers or replicas have drawn alike, given the variables."""
    pairs = {
        name: (weights[name], weights[f"{name}_square"]) for name in weights if f"{name}_square" in weights
    }
    # The mean of the squares is the square of the mean only for equal numbers.
    return [
        name
        for name, (mean, square) in pairs.items()
        if abs(square - mean**2).max() < 1e-4 * (1 + square.max())
    ]


KERAS_LENET = classifier(
    """
layers = tf.keras.layers
x = self.x * 0.0125
x = layers.Conv2D(8, 3, activation='relu', kernel_regularizer=tf.keras.regularizers.L2(0.01))(x)
x = layers.BatchNormalization(momentum=0.5)(x)
x = layers.MaxPooling2D()(x)
x = layers.Conv2D(16, 3, activation='relu')(x)
x = layers.Flatten()(x)
x = layers.Dense(32, activation='relu')(x)
x = layers.Dropout(0.5)(x)
return layers.Dense(self.nclasses)(x)
""",
    head="import tensorflow as tf",
)

KERAS_LINEAR = classifier(
    """
dense = keras.layers.Dense(self.nclasses, kernel_initializer=keras.initializers.Constant(START), name='fc',
                           kernel_regularizer=keras.regularizers.L2(DECAY))
return dense(keras.layers.Flatten()(self.x) * SCALE)
""",
    head="START, DECAY, SCALE = 0.0, 0.0, 0.01",
)

TF_LAYERS = classifier(
    """
x = tf.layers.conv2d(inputs=self.x * 0.01, filters=4, kernel_size=3, activation=tf.nn.relu, name='first')
x = tf.layers.batch_normalization(x, training=self.is_training, momentum=0.5, name='norm')
x = tf.layers.max_pooling2d(inputs=x, pool_size=2, strides=2)
x = tf.layers.flatten(x)
x = tf.layers.dropout(x, rate=0.2, training=self.is_training)
return tf.layers.dense(x, self.nclasses, name='last')
"""
)

RAW = classifier(
    """
x = self.x * 0.01
with tf.variable_scope('conv'):
    w = tf.get_variable('w', [3, 3, self.input_shape[2], 4], initializer=tf.contrib.layers.xavier_initializer())
    b = tf.get_variable('b', [4], initializer=tf.constant_initializer(0.0))
    x = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, w, strides=[1, 1, 1, 1], padding='SAME'), b))
x = tf.nn.max_pool(x, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding='SAME')
x = tf.reshape(x, [-1, 6 * 6 * 4])
out = tf.Variable(tf.truncated_normal([6 * 6 * 4, self.nclasses], stddev=0.1), name='out')
more = tf.Variable(tf.zeros([self.nclasses]), name='out')
x = tf.nn.dropout(x, 0.9) if self.is_training else x
return tf.matmul(x, out) + more
"""
)

BATCH_NORM = classifier(
    """
with slim.arg_scope([slim.batch_norm], is_training=self.is_training, decay=0.5, scale=True{arguments}):
    x = slim.conv2d(self.x * 0.01, 4, [3, 3], normalizer_fn=slim.batch_norm, scope='conv')
    x = slim.flatten(x)
    x = slim.fully_connected(x, 8, scope='fc')
    x = slim.batch_norm(x, scope='bn')
return slim.fully_connected(x, self.nclasses, activation_fn=None, scope='out')
"""
)

# The second example in the user guide, with its error (an undefined _x) corrected.
AUTO_ENCODER = """class UserModel(Tower):

    @model_property
    def inference(self):

        # the order for input shape is [0] -> H, [1] -> W, [2] -> C
        # this is because tensorflow's default order is NHWC
        model = tf.reshape(self.x, shape=[-1, self.input_shape[0], self.input_shape[1], self.input_shape[2]])
        image_dim = self.input_shape[0] * self.input_shape[1]

        with slim.arg_scope([slim.fully_connected],
                        weights_initializer=tf.contrib.layers.xavier_initializer(),
                        weights_regularizer=slim.l2_regularizer(0.0005)):

            # first we reshape the images to something
            model = tf.reshape(model, shape=[-1, image_dim])

            # encode the image
            model = slim.fully_connected(model, 300, scope='fc1')
            model = slim.fully_connected(model, 50, scope='fc2')

            # decode the image
            model = slim.fully_connected(model, 300, scope='fc3')
            model = slim.fully_connected(model, image_dim, activation_fn=None, scope='fc4')

            # form it back to the original
            model = tf.reshape(model, shape=[-1, self.input_shape[0], self.input_shape[1], self.input_shape[2]])

            return model

    @model_property
    def loss(self):

        # In an autoencoder, we compare the encoded and then decoded image with the original
        original = tf.reshape(self.x, shape=[-1, self.input_shape[0], self.input_shape[1], self.input_shape[2]])

        # self.inference is called to get the processed image
        model = self.inference
        loss = digits.mse_loss(original, model)

        return loss
"""

AUTO_ENCODER_SETTINGS = {"epochs": 6, "solver": {"type": "ADAM", "learning_rate": 0.001}}

# Two losses with separate variables, built in the constructor as in published GANs.
GAN = """
import tensorflow as tf
import tensorflow.contrib.slim as slim
from model import Tower
from utils import model_property
import utils as digits

class UserModel(Tower):

    def __init__(self, *args, **kwargs):
        super(UserModel, self).__init__(*args, **kwargs)
        real = tf.reshape(self.x / 255.0, [-1, 144])
        with tf.variable_scope('g'):
            w = tf.get_variable('g_w', [8, 144], initializer=tf.random_normal_initializer(stddev=0.1))
            fake = tf.matmul(tf.random_normal([tf.shape(real)[0], 8]), w)
        self.generated = fake
        d_real = self.discriminator(real, reuse=False)
        d_fake = self.discriminator(fake, reuse=True)
        ones, zeros = tf.ones_like(d_real), tf.zeros_like(d_fake)
        entropy = tf.nn.sigmoid_cross_entropy_with_logits
        self.d_loss = tf.reduce_mean(entropy(logits=d_real, labels=ones) + entropy(logits=d_fake, labels=zeros))
        self.g_loss = tf.reduce_mean(entropy(logits=d_fake, labels=tf.ones_like(d_fake)))
        self.d_vars = [v for v in tf.trainable_variables() if 'd_' in v.name]
        self.g_vars = [v for v in tf.trainable_variables() if 'g_' in v.name]
        self.summaries.append(tf.summary.scalar('d_loss', self.d_loss))
        self.summaries.append(tf.summary.scalar('g_loss', self.g_loss))
        self.summaries.append(tf.summary.histogram('noise', fake))
        for v in self.g_vars:
            self.summaries.append(tf.summary.histogram(v.op.name, v))
        self.summaries.append(tf.summary.image('fakes', tf.reshape(fake, [-1, 12, 12, 1]), max_outputs=2))
        tf.summary.image('never looked at', fake)
        size = tf.strings.join(['fakes of ', tf.as_string(tf.shape(fake)[1])])
        self.summaries.append(tf.summary.text('note', size))

    def discriminator(self, x, reuse):
        with tf.variable_scope('d', reuse=reuse):
            h = tf.nn.relu(tf.matmul(x, tf.get_variable('d_w1', [144, 16])))
            return tf.matmul(h, tf.get_variable('d_w2', [16, 1]))

    @model_property
    def inference(self):
        return self.generated

    @model_property
    def loss(self):
        return [{'loss': self.d_loss, 'vars': self.d_vars}, {'loss': self.g_loss, 'vars': self.g_vars}]
"""

# A custom model and block whose layers are created before they are called.
KERAS_BLOCKS = """
import tensorflow as tf
from tensorflow.keras import layers

class Block(layers.Layer):
    def __init__(self, filters):
        super().__init__()
        self.conv = layers.Conv2D(filters, 3, padding='same')
        self.norm = layers.BatchNormalization(momentum=0.5)

    def build(self, shape):
        self.scale = self.add_weight(name='scale', shape=(1,), initializer='ones')
        super().build(shape)

    def call(self, x):
        return tf.nn.relu(self.norm(self.conv(x))) * self.scale

class Net(tf.keras.Model):
    def __init__(self, outputs):
        super().__init__()
        self.one, self.two, self.out = Block(4), Block(8), layers.Dense(outputs)

    def call(self, x):
        return self.out(tf.reduce_mean(self.two(self.one(x)), [1, 2]))

class UserModel(Tower):
    def __init__(self, *args):
        super().__init__(*args)
        self.net = Net(self.nclasses)

    @model_property
    def inference(self):
        return self.net(self.x)

    @model_property
    def loss(self):
        return tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)(self.y, self.inference)
"""
