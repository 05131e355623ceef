"""Idioms of TensorFlow 1 and earlier, in networks that build unchanged."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest

from digits.core.events import Measured
from digits.data.targets.class_index import ClassIndex
from digits.worker.failure import describe
from tests.worker import networks
from tests.worker.lazily import network_loader, tf, tower, variables

# Each is the body of `inference` between x = self.x and a final dense layer on x.
BODIES = {
    "shapes": [
        "n = x.get_shape()[1].value * x.shape[2].value; x = tf.reshape(x, [-1, n * 3])",
        "d = 1\nfor k in x.get_shape()[1:]: d *= k.value\nx = tf.reshape(x, [-1, d])",
        "d = np.prod(x.get_shape().as_list()[1:]); x = tf.reshape(x, [-1, d])",
        "assert x.get_shape()[0].value is None and x.get_shape()[0] == None and x.get_shape().ndims == 4",
        "h = x.get_shape()[1]; x = tf.image.resize_images(x, [h * 2, h * 2])",
        "class Holder:\n    value = 3\nassert Holder.value == Holder().value == 3",
    ],
    "order of arguments": [
        "x = tf.concat(3, [x, x])\nassert x.shape[3] == 6",
        "x = tf.concat(concat_dim=3, values=[x, x])",
        "x = tf.concat([x, x], 3)\nassert x.shape[3] == 6",
        "a, b, c = tf.split(3, 3, x); x = a",
        "a, b, c = tf.split(split_dim=3, num_split=3, value=x); x = b",
        "a, b, c = tf.split(x, 3, 3); x = c\nassert x.shape[3] == 1",
        "a, b = tf.split(x, [1, 2], axis=3); x = b\nassert x.shape[3] == 2",
        "a, b = tf.unpack(tf.pack([x, x])); x = a",
        "a, b, c = tf.unpack(x, axis=3); x = tf.pack([a, b], axis=3)",
        "x = tf.select(x > 0, tf.mul(tf.sub(x, 1.0), 2.0), tf.neg(x))",
        "x = tf.reverse(x, [False, False, True, False]); x = tf.reverse(x, [2])",
        "x = tf.image.resize_images(x, 6, 8, 1); x = tf.image.resize_images(x, [4, 2], align_corners=True)\n"
        "assert x.shape[1:3] == [4, 2]",
        "a = tf.image.resize(x, [6, 6], 'bicubic', antialias=True); b = tf.image.resize(x, [6, 6], align_corners=True)\n"
        "c = tf.image.resize(x, [6, 6], tf.image.ResizeMethod.LANCZOS3); x = a + b + c + tf.image.resize(x, [6, 6], 1)",
        "x = x + tf.zeros_like(input=x) + tf.ones_like(tensor=x, optimize=True)\n"
        "x = tf.nn.dilation2d(x, tf.ones([2, 2, 3]), [1, 1, 1, 1], 'SAME', data_format='NHWC', dilations=[1, 1, 1, 1])\n"
        "x = tf.nn.dilation2d(x, tf.ones([2, 2, 3]), [1, 1, 1, 1], rates=[1, 1, 1, 1], padding='SAME')",
        "z = slim.flatten(x)\nx = tf.nn.softmax_cross_entropy_with_logits(z, z)[:, None]",
        "x = tf.nn.sparse_softmax_cross_entropy_with_logits(slim.flatten(x), self.y)[:, None]",
        "x = tf.nn.sigmoid_cross_entropy_with_logits(logits=x, labels=x)",
        "a = tf.scalar_summary('a', tf.reduce_mean(x)); h = tf.histogram_summary('h', x)\n"
        "self.summaries.append(tf.merge_summary([a, h])); self.summaries.append(tf.merge_all_summaries())",
        "x = tf.cond(pred=tf.reduce_mean(x) > 0, fn1=lambda: x * 2, fn2=lambda: x)",
    ],
    "layers": [
        "x = tf.contrib.layers.instance_norm(x)\n"
        "assert [v.name for v in tf.trainable_variables()] == ['model/InstanceNorm/beta:0', 'model/InstanceNorm/gamma:0']",
        "x = tf.contrib.layers.group_norm(slim.conv2d(x, 8, 3), groups=4)",
        "x = tf.layers.batch_normalization(x, training=True, renorm=True, renorm_clipping={'rmax': 3.0, 'dmax': 5.0})",
        "x = slim.batch_norm(x, is_training=True, renorm=True)",
        "x = tf.layers.max_pooling2d(inputs=x, pool_size=2, strides=2, scope='p')",
        "x = tf.layers.dense(slim.flatten(x), 8, scope='d')\n"
        "assert tf.trainable_variables()[0].name == 'model/d/kernel:0'",
        "x = tf.contrib.layers.conv2d(x, 4, 3); x = tf.contrib.layers.max_pool2d(x, 2); x = tf.contrib.layers.linear(x, 3)",
        "with tf.contrib.framework.arg_scope([tf.contrib.layers.conv2d], activation_fn=None):\n"
        "    x = tf.contrib.layers.conv2d(x, 3, 3)\n"
        "assert len(tf.contrib.framework.get_variables_to_restore(exclude=['other'])) == 2",
        "l = tf.losses.softmax_cross_entropy(tf.one_hot(self.y, 144 * 3), slim.flatten(x)); tf.losses.get_total_loss()",
        "l = tf.contrib.losses.mean_squared_error(x, x); tf.contrib.losses.add_loss(l)",
    ],
    "cells": [
        "cell = tf.contrib.rnn.MultiRNNCell([tf.contrib.rnn.GRUCell(4), tf.contrib.rnn.LSTMCell(4)])\n"
        "o, s = tf.nn.dynamic_rnn(cell, tf.reshape(x, [-1, 12, 36]), dtype=tf.float32); x = o[:, -1]",
        "from tensorflow.python.ops import rnn, rnn_cell\n"
        "seq = tf.unpack(tf.reshape(x, [-1, 12, 36]), axis=1)\n"
        "o, s = rnn.rnn(rnn_cell.BasicLSTMCell(4, forget_bias=1.0), seq, dtype=tf.float32); x = o[-1]",
        "from tensorflow.contrib import rnn\n"
        "o, s = rnn.static_rnn(rnn.BasicLSTMCell(4), tf.unstack(tf.reshape(x, [-1, 12, 36]), 12, 1), dtype=tf.float32)\n"
        "x = o[-1]",
        "r = tf.contrib.rnn; c = r.DropoutWrapper(r.BasicLSTMCell(4), output_keep_prob=0.5)\n"
        "o, s = tf.nn.dynamic_rnn(r.MultiRNNCell([c]), tf.reshape(x, [-1, 12, 36]), dtype=tf.float32); x = o[:, -1]",
        "class Cell(tf.nn.rnn_cell.RNNCell):\n    state_size = output_size = 4\n"
        "    def __call__(self, i, s, scope=None):\n        with tf.variable_scope(scope or 'my_cell'):\n"
        "            h = tf.tanh(tf.matmul(i, tf.get_variable('w', [36, 4])) + s)\n        return h, h\n"
        "o, s = tf.nn.dynamic_rnn(Cell(), tf.reshape(x, [-1, 12, 36]), dtype=tf.float32); x = s",
    ],
    "imports": [
        "from tensorflow.python import Tensor\nfrom tensorflow.python.keras.utils import normalize\nassert isinstance(x, Tensor)",
        "from tensorflow.python.framework import ops, dtypes, tensor_shape\n"
        "from tensorflow.python.ops import array_ops, math_ops, control_flow_ops, variable_scope\n"
        "from tensorflow.python.training import moving_averages\nx = array_ops.stack([x, x])[0]; control_flow_ops.cond",
        "from tensorflow.contrib.layers.python.layers import layers, initializers, regularizers, utils\n"
        "x = layers.conv2d(x, 3, 3); initializers.xavier_initializer(); regularizers.l2_regularizer(0.1)",
        "from tensorflow.contrib.framework.python.ops import add_arg_scope, arg_scope, variables\n"
        "from tensorflow.contrib.rnn.python.ops import core_rnn_cell\nassert core_rnn_cell.BasicLSTMCell",
        "from tensorflow.contrib.slim.nets import vgg, inception, resnet_v2, alexnet, overfeat, resnet_utils",
        "import keras\nfrom keras.layers import Dense\nfrom tensorflow.python.keras.layers import Dense as Other\n"
        "assert Dense is Other is tf.keras.layers.Dense",
        "import tensorflow.compat.v2 as tf2\nassert not hasattr(tf2, 'get_variable')\nx = tf2.nn.dropout(x, rate=0.1)",
        "import tensorflow.compat.v1 as tf\ntf.disable_v2_behavior(); tf.disable_eager_execution()\n"
        "x = tf.layers.conv2d(x, 3, 3)",
        "import tensorflow.contrib.gan\nfrom tensorflow.examples.tutorials.mnist import input_data\n"
        "from tensorflow.contrib.tensorboard.plugins import projector\n"
        "try:\n    from tensorflow.contrib import gan\nexcept ImportError:\n    gan = 3\n"
        "assert gan == 3 and tf.contrib.layers is not None",
        "from tensorflow.python.layers.normalization import BatchNormalization, batch_normalization\n"
        "x = batch_normalization(x)\n"
        "assert BatchNormalization is tf.layers.BatchNormalization and int(tf.__version__.split('.')[0]) >= 1",
    ],
    "Python 2": [
        "for i in xrange(3): x = x * 2",
        "n = 10L + 0xFFL + 017\nassert n <> 3 and `n` == '280' and ur'\\d' == '\\\\d'  # not 10L",
        "print 'building', x\ntry:\n    raise ValueError, 'no'\nexcept ValueError, error:\n    print error",
    ],
    "variables": [
        "w = tf.get_variable('w', [3]); x = slim.conv2d(x, 3, 3, scope='c')\n"
        "names = ['model/w:0', 'model/c/weights:0', 'model/c/biases:0']\n"
        "assert [v.name for v in tf.get_collection(tf.GraphKeys.GLOBAL_VARIABLES)] == names\n"
        "assert [v.op.name + ':0' for v in tf.trainable_variables()] == names\n"
        "assert len(tf.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES, scope='model/c')) == 2\n"
        "assert len(tf.trainable_variables('model/c')) == len(slim.get_variables('model/c')) == 2\n"
        "assert w in tf.trainable_variables() and w not in tf.trainable_variables()[1:]\n"
        "assert {v: v.name for v in tf.trainable_variables()}[w] == 'model/w:0' and w == w",
        "m = tf.get_variable('m', [3]); ema = tf.train.ExponentialMovingAverage(0.9); ema.apply([m])\n"
        "assert ema.average(m).op.name == 'model/m/ExponentialMovingAverage'; x = x * ema.average(m)",
        "mean, var = tf.nn.moments(x, [0, 1, 2]); ema = tf.train.ExponentialMovingAverage(decay=0.5)\n"
        "def update():\n    with tf.control_dependencies([ema.apply([mean, var])]):\n"
        "        return tf.identity(mean), tf.identity(var)\n"
        "m, v = tf.cond(tf.constant(True), update, lambda: (ema.average(mean), ema.average(var)))\n"
        "x = tf.nn.batch_normalization(x, m, v, None, None, 1e-3)",
        "d = {x: 'a', self.y: 'b'}; assert d[self.x] == 'a' and len({x, self.x, self.y}) == 2\n"
        "x = tf.case({tf.reduce_mean(x) > 0: lambda: x, tf.constant(True): lambda: -x}, default=lambda: x)",
        "t = tf.make_template('t', lambda a: slim.conv2d(a, 3, 3, scope='c')); x = t(x) + t(x)\n"
        "assert len(tf.trainable_variables()) == 2",
        "tf.initialize_all_variables(); tf.global_variables_initializer(); tf.reset_default_graph()",
        "y = slim.conv2d(x, 3, 3, scope='c'); g = tf.get_default_graph()\n"
        "for name in ['model/c/Relu:0', 'train/model/c/Relu:0', 'val/tower_0/model/c/Relu:0', 'c/Relu:0', 'Relu:0', y.name]:\n"
        "    assert g.get_tensor_by_name(name) is y\n"
        "assert g.get_operation_by_name('model/c/Conv2D').type == 'Conv2D'\n"
        "x = y * tf.reduce_sum(g.get_tensor_by_name('model/c/weights:0'))",
    ],
    "gradients": [
        "x = slim.fully_connected(x, np.prod([2, 2]), scope='a')\n"
        "x = slim.conv2d(x, np.int64(3), np.int64(3), stride=np.int64(2), scope='b')\n"
        "x = tf.layers.max_pooling2d(tf.layers.conv2d(x, np.int64(3), np.int64(1)), np.int64(2), np.int64(2))",
        "g = tf.gradients(tf.reduce_sum(x * x), [x], name='g', colocate_gradients_with_ops=True)[0]\nx = tf.stop_gradient(g)",
        "@tf.custom_gradient\ndef clip(a):\n    return tf.identity(a), lambda dy: tf.clip_by_norm(dy, 1.0)\nx = clip(x)",
    ],
    "types": [
        "assert isinstance(tf.get_variable('w', [1]), tf.Variable) and not isinstance(x, tf.Variable)\n"
        "v = tf.Variable(tf.zeros([3]), False, name='v'); assert v not in tf.trainable_variables(); x = x + v"
    ],
    "the program": [
        "with tf.device('/gpu:0'): x = slim.conv2d(x, 3, 3)\nwith tf.device('/cpu:0'): x = x * tf.get_variable('w', [3])\n"
        "with tf.device('/job:worker/task:0/gpu:3'): x = x + 1\n"
        "with tf.device(lambda op: '/gpu:0'): x = x + 1",
        "s = tf.train.get_or_create_global_step(); assert s.name == 'global_step:0'\n"
        "assert s is tf.train.get_global_step() is slim.get_or_create_global_step()\n"
        "x = x * tf.train.exponential_decay(0.1, s, 10, 0.9)",
        "tf.logging.set_verbosity(tf.logging.INFO); tf.logging.info('a %s', x.name); tf.set_random_seed(3)",
        "keep = tf.placeholder(tf.float32, name='never_used')",
        "with tf.Session() as s: v = s.run(tf.constant(3.0))\nassert v == 3",
        "folder = os.path.dirname(os.path.abspath(__file__)); assert __name__ != '__main__'",
    ],
}

TEMPLATE = """class UserModel(Tower):
    @model_property
    def inference(self):
        x = self.x
{body}
        return slim.fully_connected(slim.flatten(tf.to_float(x)), self.nclasses, scope='last')

    @model_property
    def loss(self):
        return digits.classification_loss(self.inference, self.y)
"""


@pytest.mark.parametrize("kind", BODIES)
def test_idioms_are_supported(in_child: Any, kind: str) -> None:
    assert in_child(failures, BODIES[kind]) == {}


def failures(bodies: list[str]) -> dict[str, str]:
    """Build the training network of each body with its gradients, and return the errors."""
    failures = {}
    for body in bodies:
        try:
            _build(body)
        except Exception as error:
            failures[body] = f"{describe(error).message} ({describe(error).hint})"
    return failures


def _build(body: str) -> None:
    lines = "\n".join(f"        {line}" for line in body.split("\n"))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network.py"
        path.write_text(TEMPLATE.format(body=lines))
        net = network_loader.load(path, (12, 12, 3), ClassIndex.of(list("abcd")))
    store = variables.VariableStore(empty=True)

    def train(x: Any, y: Any, step: Any) -> Any:
        built = net.build(store, tower.TRAIN, x, y, step)
        for objective in built.objectives:
            tf.gradients(objective.loss, objective.variables)
        return built.metrics["loss"]

    signature = [
        tf.TensorSpec((None, 12, 12, 3)),
        tf.TensorSpec([None], tf.int64),
        tf.TensorSpec([], tf.int64),
    ]
    tf.function(train, autograph=False, input_signature=signature).get_concrete_function()


UNSUPPORTED = {
    "from tensorpack import *\n": ("tensorpack", "tf.layers or slim", 1),
    "import tensorflow as tf\nimport tensorflow.contrib.eager as tfe\ntfe.enable()\n": ("eager", "graphs", 3),
    "ds = 3\nds = tf.contrib.distributions\n": ("tf.contrib.distributions", "tf.math", 2),
    "from tensorflow.contrib import seq2seq\n\nseq2seq.dynamic_decode(3)\n": (
        "seq2seq",
        "tf.nn.dynamic_rnn",
        3,
    ),
    "from tensorflow.contrib.rnn.python.ops.core_rnn_cell_impl import _linear\n_linear([3], 5)\n": (
        "_linear",
        "tf.layers.dense",
        2,
    ),
    "x = 1\nc = tf.contrib.rnn.LSTMBlockCell(4)\n": ("LSTMBlockCell", "tf.nn.rnn_cell.LSTMCell", 2),
    "c = tf.nn.rnn_cell.ConvLSTMCell(4)\n": ("ConvLSTMCell", "tf.keras.layers.ConvLSTM2D", 1),
    "q = tf.nn.seq2seq.basic_rnn_seq2seq\n": ("tf.nn.seq2seq", "tf.nn.dynamic_rnn", 1),
    "slim.summarize_activations()\n": ("summarize_activations", "tf.summary.histogram", 1),
    "tf.app.flags.DEFINE_integer('batch_size', 3, '')\n": ("tf.app", "a variable", 1),
    "h = tf.contrib.training.HParams(units=3)\n": ("tf.contrib.training", "a dict", 1),
    "from tensorflow.examples.tutorials.mnist import input_data\nx = input_data.read()": (
        "examples",
        "self.x",
        2,
    ),
    "from tensorflow.contrib.estimator import *\n": ("estimator", "DIGITS runs", 1),
    "from layers_of_mine import conv\nconv(3)\n": ("layers_of_mine", "put its code into the network", 2),
    "tf.train.shuffle_batch([1], 2, 3, 4)\n": ("tf.train.shuffle_batch", "self.x", 1),
    "with tf.train.MonitoredTrainingSession(): pass\n": ("MonitoredTrainingSession", "DIGITS runs", 1),
    "o = tf.train.AdamOptimizer(0.1)\n": ("tf.train.AdamOptimizer", "in the form", 1),
    "tf.nn.reluu(1)\n": ("tf.nn.reluu", "tf.nn.relu?", 1),
    "x = 1\nfor name in {'a': x}.iteritems(): pass\n": ("iteritems", "items", 2),
    "import cPickle\n\ncPickle.dumps(3)\n": ("cPickle", "pickle", 3),
    "x = unicode('a')\n": ("unicode", "str", 1),
    "from keras.layers.core import Dense\nd = Dense(3)\n": ("keras.layers.core", "keras.layers", 2),
    "x = tf.keras.layers.CuDNNLSTM(3)\n": ("CuDNNLSTM", "keras.layers.LSTM", 1),
    "from keras import backend as K\nK.learning_phase()\n": ("learning_phase", "self.is_training", 2),
    "x = 1\ntf.nn.softmax_cross_entropy_with_logits([[1.0]], [[1.0]], -1)\n": (
        "by keyword",
        "Check line 2",
        2,
    ),
    "x = 1\ntf.summary.scalar('a', 1.0, step=3)\n": ("step", "Check line 2", 2),
    "tf.summary.audio('a', [1.0], 8000)\n": ("audio", "tf.summary.scalar", 1),
    "print 'hello'\nx = = 3\n": ("Syntax error", "Correct the marked line", 2),
}


@pytest.mark.parametrize("text", UNSUPPORTED)
def test_unsupported_calls_name_their_replacement(visualize: Any, text: str) -> None:
    words, hint, line = UNSUPPORTED[text]
    failure = visualize(text).failure
    assert words in failure.message
    assert hint in failure.hint
    assert failure.line == line


def test_a_session_that_needs_the_input_is_refused(visualize: Any) -> None:
    # The failing operation may be from another line or none; the hint suggests removing the session.
    fed = "        p = tf.placeholder(tf.float32, [None])\n        q = tf.reshape(p, [3, 2])\n"
    for body, line in (
        ("        tf.Session().run(tf.reduce_mean(x).op)", 5),
        (fed + "        tf.Session().run(q, {p: [1.0]})", 7),
        (fed + "        with tf.Session() as session:\n            session.run(q)", 8),
    ):
        failure = visualize(TEMPLATE.format(body=body)).failure
        assert "tf.Session" in failure.message
        assert failure.line == line


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("if x > 0: x = -x", "tf.cond"),
        ("for row in x: pass", "tf.unstack"),
        ("x = np.mean(x)", "tf.py_func"),
        ("x = x * tf.get_variable('w', [1]).eval()", "sessions"),
        ("x = x.eval()", "sessions"),
        (
            "y_dim = 3; self.y_dim = y_dim; x = tf.reshape(x, [7, self.y_dim]) + tf.zeros([6, 3])",
            "Check line 5",
        ),
    ],
)
def test_using_a_tensor_as_a_number_is_explained(visualize: Any, line: str, words: str) -> None:
    failure = visualize(TEMPLATE.format(body=f"        {line}")).failure
    assert words in failure.hint
    assert failure.line == 5


def test_a_placeholder_without_a_value_is_explained(fail: Any) -> None:
    failure = fail(TEMPLATE.format(body="        x = x * tf.placeholder(tf.float32, [])"), epochs=1).failure
    assert "self.x" in failure.hint


OLDEST = """
def build_model(params):
    x = tf.reshape(params['x'], [-1, 144])
    model = slim.fully_connected(x, params['nclasses'], activation_fn=None, scope='fc')

    def loss(y):
        tf.scalar_summary('a', tf.reduce_mean(model), collections=[digits.GraphKeys.SUMMARIES_TRAIN])
        tf.scalar_summary('b', tf.reduce_mean(model), collections=[digits.GraphKeys.SUMMARIES_VAL])
        return digits.classification_loss(model, y)

    return {'model': model, 'loss': loss}
"""


def test_build_model_defines_a_network(train: Any) -> None:
    outcome = train(OLDEST, epochs=1)
    rows = outcome.of(Measured)
    assert {row.stage: {"a", "b"} & {*row.values} for row in rows} == {"train": {"a"}, "val": {"b"}}


FED = """
def build_model(params):
    keep = tf.placeholder(tf.float32, name='keep')
    model = tf.reduce_sum(params['x'], [1, 2]) * keep * tf.get_variable('w', [params['nclasses']])

    def loss(y):
        in_loss = tf.placeholder_with_default(0.0, [])
        tf.scalar_summary('kept', keep + in_loss, collections=[
            digits.GraphKeys.SUMMARIES_TRAIN, digits.GraphKeys.SUMMARIES_VAL])
        return digits.classification_loss(model, y)

    return {'model': model, 'loss': loss, 'feed_dict_train': {keep: 0.5}, 'feed_dict_val': {keep: 1.0}}
"""


def test_placeholders_of_build_model_get_values(train: Any) -> None:
    outcome = train(FED, epochs=1)
    assert set(outcome.values("train", "kept")) == {0.5}
    assert set(outcome.values("val", "kept")) == {1.0}


@pytest.mark.parametrize("name", ["BasicLSTMCell", "BasicRNNCell", "GRUCell", "LSTMCell"])
def test_an_invalid_number_of_units_is_reported_where_the_cell_is_made(visualize: Any, name: str) -> None:
    network = networks.classifier(
        f"""
cell = tf.contrib.rnn.{name}(self.input_shape)
outputs, state = tf.nn.dynamic_rnn(cell, self.x[..., 0], dtype=tf.float32)
return tf.layers.dense(outputs[:, -1], self.nclasses)
"""
    )
    failure = visualize(network).failure
    assert f"num_units of {name} must be a positive integer" in failure.message
    assert name in network.splitlines()[failure.line - 1]


def test_a_cell_in_several_layers_is_reported_where_they_are_made(visualize: Any) -> None:
    network = networks.classifier(
        """
cell = tf.nn.rnn_cell.LSTMCell(8)
cells = tf.nn.rnn_cell.MultiRNNCell([cell] * 2)
outputs, state = tf.nn.dynamic_rnn(cells, self.x[..., 0], dtype=tf.float32)
return tf.layers.dense(outputs[:, -1], self.nclasses)
"""
    )
    failure = visualize(network).failure
    assert "contains a cell several times" in failure.message and "one cell for each layer" in failure.hint
    assert "[cell] * 2" in network.splitlines()[failure.line - 1]
    # With inputs of the same size, the layers share their weights.
    assert visualize(network.replace("LSTMCell(8)", "LSTMCell(12)")).code == 0
