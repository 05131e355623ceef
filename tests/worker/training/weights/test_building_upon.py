"""Networks based on pretrained graphs and models, or with several outputs or losses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from digits.core.events import Built, Warned
from digits.data.images import images
from digits.data.targets.class_index import ClassIndex
from tests.worker import networks
from tests.worker.conftest import gradient, snapshot
from tests.worker.lazily import inference, network_loader, predictor, tf, variables

PRETRAINED = networks.classifier(
    """
graph = tf.GraphDef()
with tf.gfile.FastGFile('../old.pb', 'rb') as f:
    graph.ParseFromString(f.read())
frozen = tf.import_graph_def(graph, input_map={'input:0': self.x}, return_elements=['features:0'], name='old')[0]
assert tf.get_default_graph().get_tensor_by_name('old/features:0') is frozen
saved = tf.saved_model.load('../old')(self.x)
for features in (frozen, saved):
    assert tf.gradients(tf.reduce_sum(features), self.x)[0] is not None
model = keras.models.load_model('../old.keras')
model.trainable = False
features = [tf.stop_gradient(slim.flatten(frozen)), saved, model(self.x / 255.0)]
return slim.fully_connected(tf.concat(features, 1), self.nclasses, activation_fn=None, scope='fc')
"""
)


def _write_models(folder: Path) -> np.ndarray:
    """Write a frozen graph, a SavedModel and a Keras model; return the weights of the latter."""
    import keras

    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, 12, 12, 1], name="input")
        tf.nn.avg_pool2d(x * 0.01, 3, 3, "SAME", name="features")
    (folder / "old.pb").write_bytes(graph.as_graph_def().SerializeToString())

    class Old(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = tf.Variable(tf.random.stateless_normal([144, 6], [1, 2]) * 0.01)

        @tf.function(input_signature=[tf.TensorSpec([None, 12, 12, 1])])
        def __call__(self, x: Any) -> Any:
            return tf.nn.relu(tf.reshape(x, [-1, 144]) @ self.w)

    tf.saved_model.save(Old(), str(folder / "old"))
    model = keras.Sequential(
        [keras.Input([12, 12, 1]), keras.layers.Flatten(), keras.layers.Dense(6, name="old")], name="base"
    )
    model.save(folder / "old.keras")
    return model.layers[-1].kernel.numpy()


def test_a_network_can_use_a_frozen_graph_a_saved_model_and_a_keras_model(
    model: Any, perform: Any, in_child: Any
) -> None:
    task = model(PRETRAINED, epochs=3)
    kernel = in_child(_write_models, task.parent)
    outcome = perform(task)
    assert outcome.code == 0, outcome.output
    assert outcome.values("val", "loss")[-1] < outcome.values("val", "loss")[0]
    values = snapshot(outcome.job_folder, "snapshot_3.ckpt")
    trained = {"model/fc/weights", "model/fc/biases"}
    assert {name for name in values if name.startswith("model/")} == trained | {
        "model/old/kernel",
        "model/old/bias",
    }
    assert np.array_equal(values["model/old/kernel"], kernel)


SEVERAL = """
class UserModel(Tower):
    @model_property
    def inference(self):
        x = slim.flatten(self.x / 100.0)
        logits = slim.fully_connected(x, self.nclasses, activation_fn=None, scope='fc')
        features = slim.fully_connected(x, 3, scope='features')
        return {outputs}

    @model_property
    def loss(self):
        logits = {logits}
        self.summaries.append(tf.summary.scalar('accuracy', digits.classification_accuracy(logits, self.y)))
        return digits.classification_loss(logits, self.y)
"""


@pytest.mark.parametrize(
    ("outputs", "logits"),
    [
        pytest.param("[features, logits]", "self.inference[1]", marks=pytest.mark.nightly),
        pytest.param("(logits, (features, logits * 2))", "self.inference[0]", marks=pytest.mark.nightly),
        ("{'features': features, 'logits': logits, 'other': -logits}", "self.inference['logits']"),
        ("tf.reshape(logits, [-1, 1, 1, self.nclasses])", "tf.squeeze(self.inference, [1, 2])"),
    ],
)
def test_a_network_can_have_several_outputs(
    train: Any, visualize: Any, in_child: Any, tmp_path: Path, outputs: str, logits: str
) -> None:
    text = SEVERAL.replace("{outputs}", outputs).replace("{logits}", logits)
    outcome = train(text, epochs=6, solver={"type": "ADAM", "learning_rate": 0.01})
    assert outcome.values("val", "accuracy")[-1] > 0.9
    assert visualize(text).code == 0
    picture = network_image(tmp_path)
    best = in_child(_predict, outcome.job_folder, picture)
    assert best[0][0] == "right"


def _predict(job_folder: Path, image: Path) -> Any:
    return predictor.Predictor(job_folder, "snapshot_6.ckpt").predict(image, 1)


def network_image(folder: Path) -> Path:
    path = folder / "right.png"
    path.write_bytes(images.encode(gradient(0, 12, 1, np.random.default_rng(3)), "png"))
    return path


GENERATOR = """
class UserModel(Tower):
    def __init__(self, *args, **kwargs):
        super(UserModel, self).__init__(*args, **kwargs)
        size = tf.shape(self.x)[0]
        if self.is_inference:
            z = tf.reshape(self.x, [size, 5])
        else:
            z = tf.random_normal([size, 5])
        with tf.variable_scope('g'):
            w = tf.get_variable('g_w', [5, 144], initializer=tf.random_normal_initializer(stddev=0.1))
        self.image = tf.reshape(tf.matmul(z, w), [-1, 12, 12, 1])

    @model_property
    def inference(self):
        return tf.to_int32(self.image * 255)

    @model_property
    def loss(self):
        return [{'loss': tf.reduce_mean(tf.square(self.image - self.x / 255.0)), 'vars': [v for v in tf.trainable_variables() if 'g_' in v.name]}]
"""


def test_a_generator_has_its_own_inputs(train: Any, in_child: Any) -> None:
    outcome = train(GENERATOR, epochs=1)
    assert in_child(_generated, outcome.job_folder / "network.py") == ((2, 12, 12, 1), "int32")


def _generated(path: Path) -> Any:
    net = network_loader.load(path, (12, 12, 1), ClassIndex.of(list("abcd")))
    images = inference.trace(net, variables.VariableStore(), (1, 1, 5)).function(tf.zeros([2, 1, 1, 5]))
    return tuple(images.shape.as_list()), images.dtype.name


OTHER_INPUT = """
class UserModel(Tower):
    @model_property
    def inference(self):
        noise = self.x[:, 0, 0] if self.is_inference else tf.random_normal([tf.shape(self.x)[0], 5])
        return tf.matmul(noise, tf.get_variable('w', [5, 144]))

    @model_property
    def loss(self):
        return digits.mse_loss(self.inference, slim.flatten(self.x))
"""


def test_a_network_without_inference_from_images_trains(train: Any, visualize: Any, in_child: Any) -> None:
    outcome = train(OTHER_INPUT, epochs=1)
    (warning,) = outcome.of(Warned)
    assert "cannot predict from images" in warning.message
    assert in_child(_generated, outcome.job_folder / "network.py") == ((2, 144), "float32")
    assert visualize(OTHER_INPUT).of(Built)[0].parameters == 5 * 144


ALL_AT_ONCE = """
class UserModel(Tower):
    def __init__(self, *args, **kwargs):
        super(UserModel, self).__init__(*args, **kwargs)
        self.logits = slim.fully_connected(slim.flatten(self.x / 100.0), self.nclasses, activation_fn=None)
        wanted = tf.one_hot(self.y, self.nclasses)
        self.cost = tf.losses.softmax_cross_entropy(wanted, self.logits)

    @model_property
    def inference(self):
        return self.logits

    @model_property
    def loss(self):
        return self.cost
"""


def test_a_network_can_build_its_loss_in_inference(train: Any, in_child: Any) -> None:
    outcome = train(ALL_AT_ONCE, epochs=1)
    assert not outcome.of(Warned)
    assert in_child(_logits, outcome.job_folder / "network.py") == (2, 4)


def _logits(path: Path) -> Any:
    function = inference.trace(
        network_loader.load(path, (12, 12, 1), ClassIndex.of(list("abcd"))), variables.VariableStore()
    ).function
    return tuple(function(tf.zeros([2, 12, 12, 1])).shape.as_list())


MEMORY = """
class UserModel(Tower):
    @model_property
    def inference(self):
        words = tf.to_int32(tf.reshape(self.x, [-1, 144]) / 32.0 + 128 / 32)
        nil = tf.zeros([1, 6])
        self.table = tf.concat(0, [nil, tf.get_variable('table', [15, 6])])
        self.other = tf.get_variable('other', [16, 6])
        found = tf.nn.embedding_lookup(self.table, tf.clip_by_value(words, 0, 15))
        found += tf.nn.embedding_lookup(self.other, tf.clip_by_value(words, 0, 15))
        return tf.matmul(tf.reduce_sum(found, 1), tf.get_variable('w', [6, self.nclasses]))

    @model_property
    def loss(self):
        scale = tf.get_variable('scale', [], initializer=tf.ones_initializer())
        return digits.classification_loss(self.inference * scale, self.y)

    def gradientUpdate(self, grads_and_vars):
        kinds = {v.name: g for g, v in grads_and_vars}
        assert isinstance(kinds['model/other:0'], tf.IndexedSlices)
        nil = lambda g: tf.concat([tf.zeros([1, 6]), tf.convert_to_tensor(g)[1:]], 0)
        return [(nil(g) if v.name == 'model/other:0' else tf.clip_by_norm(g, 40.0), v) for g, v in grads_and_vars]
"""


def test_a_network_with_external_memory_trains(train: Any) -> None:
    outcome = train(MEMORY, epochs=2)
    values = snapshot(outcome.job_folder, "snapshot_2.ckpt")
    assert "model/scale" in values and values["model/scale"] != 1


PY_FUNC = networks.classifier(
    """
def py_func(func, inp, Tout, grad):
    name = 'OurGradient' + str(np.random.randint(0, 10 ** 8))
    tf.RegisterGradient(name)(grad)
    with tf.get_default_graph().gradient_override_map({'PyFunc': name}):
        return tf.py_func(func, inp, Tout, stateful=True)
def backward(op, g):
    return g * tf.cast(op.inputs[0] > 0, tf.float32)
x = slim.fully_connected(slim.flatten(self.x / 100.0), 12, activation_fn=None, scope='fc')
y = py_func(lambda a: np.maximum(a, 0), [x], [tf.float32], backward)[0]
y.set_shape(x.get_shape())
return slim.fully_connected(y, self.nclasses, activation_fn=None, scope='out')
"""
).replace(
    "class UserModel(Tower):",
    """class UserModel(Tower):
    disableAutoDataParallelism = True

    def fineTuneHook(self, net):
        assert self.disableAutoDataParallelism
        return slim.fully_connected(net, self.nclasses, activation_fn=None, scope='tuned')
""",
)


def test_a_python_function_has_a_gradient_and_a_hook_adds_a_layer(train: Any) -> None:
    outcome = train(PY_FUNC, epochs=2)
    losses = outcome.values("val", "loss")
    assert losses[-1] < losses[0]
    values = snapshot(outcome.job_folder, "snapshot_2.ckpt")
    assert np.abs(values["model/tuned/biases"]).max() > 0  # the loss uses the returned value


# Each loads the weights of "old" from a checkpoint in which their names have no scope.
LOADING = {
    "a saver": "tf.train.Saver({{'old/weights': w, 'old/biases': b}}).restore(tf.Session(), {path!r})",
    "initial values": "tf.train.init_from_checkpoint({path!r}, {{'old/': 'old/'}})",
    "slim": "slim.assign_from_checkpoint_fn({path!r}, {{'old/weights': w, 'old/biases': b, 'new': b}}, ignore_missing_vars=True)(None)",
}

LOADED = networks.classifier(
    """
x = slim.fully_connected(slim.flatten(self.x / 100.0), 3, activation_fn=None, scope='old')
w, b = tf.trainable_variables()
{load}
saver = tf.train.Saver(tf.global_variables())
self.summaries.append(tf.summary.scalar('weight', tf.reduce_mean(w)))
return slim.fully_connected(x, self.nclasses, activation_fn=None, scope='out')
"""
)


@pytest.mark.parametrize(
    "way", ["a saver", *(pytest.param(way, marks=pytest.mark.nightly) for way in ("initial values", "slim"))]
)
def test_networks_can_load_checkpoints_themselves(
    train: Any, in_child: Any, tmp_path: Path, way: str
) -> None:
    path = str(tmp_path / "old.ckpt")
    in_child(_write_checkpoint, path)
    outcome = train(LOADED.replace("{load}", LOADING[way].format(path=path)), epochs=2)
    weights = outcome.values("val", "weight")
    assert weights[0] == pytest.approx(0.25)
    assert len(set(weights)) == 3  # training continues from them, and they are not reset


def _write_checkpoint(path: str) -> None:
    tf.raw_ops.SaveV2(
        prefix=path,
        tensor_names=["old/weights", "old/biases"],
        shape_and_slices=["", ""],
        tensors=[tf.fill([144, 3], 0.25), tf.zeros([3])],
    )
