"""Reproducible random numbers, which depend only on the seed and the step.

TensorFlow's random operations keep counters inside the runtime, which cannot be saved, so a resumed run would draw
different numbers. While a network is traced for training, its random operations are therefore replaced by stateless
ones with the same distribution, which are as fast. The generators of TensorFlow and Keras, such as those of Keras'
dropout, keep their counters in variables, which all workers and replicas share; theirs are replaced too, so that
each draws numbers of its own.

Inside loops, branches and functions of the network, an operation may run several times per step; there it counts
its calls in a variable, which is saved.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf
from keras.random import SeedGenerator
from tensorflow.core.framework import attr_value_pb2
from tensorflow.python.framework import random_seed
from tensorflow.python.ops import gen_random_ops, stateful_random_ops, while_v2
from tensorflow.python.ops.resource_variable_ops import ResourceVariable

from digits.worker import build_context, patched_names

raw = tf.raw_ops

STATE_SCOPE = "random"
_PHILOX = 1
# In the names of all counters: earlier versions counted replicas here, and their trainings resume.
_PART = 0


class Randomness:
    """The random numbers of a run. ``state`` contains its counters by name."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.state: dict[str, tf.Variable] = {}
        _install()

    @contextmanager
    def draw_for(self, stage: str, step: tf.Tensor, rank: int = 0) -> Iterator[None]:
        """Make random operations built inside functions of the seed and ``step``, an integer scalar.

        Two traces of a step for the same ``stage`` draw the same numbers; replicas are different stages and draw
        different ones, and so do workers of different ``rank``.
        """
        with build_context.extend(draw=_Draw(self, stage, step, rank)):
            yield

    def begin(self) -> None:
        """Seed TensorFlow's global generator, if the network uses it: predictions draw from it."""
        if stateful_random_ops.global_generator:
            stateful_random_ops.global_generator.reset_from_seed(self._seed)

    def reset(self) -> None:
        """Reset the counters."""
        for variable in self.state.values():
            variable.assign(tf.zeros_like(variable))

    def key(self, *place: int | str) -> int:
        numbers = [
            number for part in place for number in (part.encode() if isinstance(part, str) else [part])
        ]
        entropy = [self._seed, *(number % 2**64 for number in numbers)]
        return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0])

    def counter(self, name: str) -> tf.Variable:
        if name not in self.state:
            with tf.init_scope(), tf.compat.v1.name_scope(None):
                self.state[name] = ResourceVariable(tf.zeros([], tf.int64), trainable=False, name=name)
        return self.state[name]


class _Draw:
    """The context of random operations in one trace: their keys in order, and the step."""

    def __init__(self, randomness: Randomness, stage: str, step: tf.Tensor, rank: int) -> None:
        self.graph = tf.compat.v1.get_default_graph()
        self.step = tf.identity(tf.cast(step, tf.int64), name="random_step")
        self._randomness, self._stage, self._rank = randomness, stage, rank
        self._count = 0
        self.counted = 0  # operations that count their calls
        self.own_seed: int | None = None  # the user's seed for the operation being built
        self._calls: dict[Any, int] = {}  # of Keras generators

    def next_of(self, generator: SeedGenerator) -> tuple[int, tf.Tensor]:
        """Return `next` for a call of ``generator``; those with the same seed of the user draw the same numbers."""
        number = self._calls[generator] = self._calls.get(generator, -1) + 1
        seed = generator.get_config()["seed"]
        return self.next() if seed is None else self.next(("keras", seed, number))

    def next(self, place: tuple[int | str, ...] = ()) -> tuple[int, tf.Tensor]:
        """Return the key of the next operation, which ``place`` may identify, and the number of its draw, int64."""
        own_seed, self.own_seed = self.own_seed, None
        number, self._count = self._count, self._count + 1
        place = place or (("own", own_seed) if own_seed is not None else ("nth", number))
        key = self._randomness.key(self._stage, self._rank, *place)
        if tf.compat.v1.get_default_graph() is self.graph:
            return key, self.step
        self.counted += 1
        calls = self._randomness.counter(f"{STATE_SCOPE}/{self._stage}/{_PART}/{number}")
        return key, calls.assign_add(1, read_value=True)


def step_in(graph: tf.Graph) -> tf.Tensor | None:
    """Return the step that random operations of ``graph`` depend on, while it is traced."""
    draw = _current_draw()
    return draw.step if draw is not None and draw.graph is graph else None


def _current_draw() -> _Draw | None:
    draw: _Draw | None = build_context.current().draw
    return draw


def _philox(key: int, number: tf.Tensor) -> dict[str, Any]:
    counter = tf.stack([tf.constant(0, tf.uint64), tf.cast(number, tf.uint64)])
    return {"key": tf.constant([key], tf.uint64), "counter": counter, "alg": _PHILOX}


def _pair(key: int, number: tf.Tensor) -> dict[str, Any]:
    return {"seed": tf.stack([tf.constant(key >> 1, tf.int64), number])}


def _shuffle(value: Any, name: Any, **philox: Any) -> Any:
    value = tf.convert_to_tensor(value)
    draws = raw.StatelessRandomUniformV2(shape=tf.shape(value)[:1], dtype=tf.float32, **philox)
    return tf.gather(value, tf.argsort(draws, stable=True), name=name)


# The stateless operations with the same distributions, and what identifies their numbers.
_STATELESS: dict[str, tuple[Callable[..., Any], Callable[..., dict[str, Any]]]] = {
    "random_uniform": (raw.StatelessRandomUniformV2, _philox),
    "random_uniform_int": (raw.StatelessRandomUniformIntV2, _philox),
    "random_standard_normal": (raw.StatelessRandomNormalV2, _philox),
    "truncated_normal": (raw.StatelessTruncatedNormalV2, _philox),
    "parameterized_truncated_normal": (raw.StatelessParameterizedTruncatedNormal, _pair),
    "random_gamma": (raw.StatelessRandomGammaV2, _pair),
    "random_poisson_v2": (raw.StatelessRandomPoisson, _pair),
    "multinomial": (raw.StatelessMultinomial, _pair),
    "random_shuffle": (_shuffle, _philox),
}
# Arguments with other names there.
_RENAMED = {"stdevs": "stddevs", "rate": "lam"}


@functools.cache
def _install() -> None:
    """Replace all random operations. Outside of `Randomness.draw_for` they are unchanged."""
    for name in _STATELESS:
        signature = inspect.signature(getattr(gen_random_ops, name))
        _replace(gen_random_ops, name, signature, *_STATELESS[name])
        _replace(raw, name.title().replace("_", ""), signature, *_STATELESS[name])
    original = random_seed.get_seed

    @functools.wraps(original)
    def get_seed(op_seed: Any) -> Any:
        draw = _current_draw()
        if draw is not None:
            draw.own_seed = op_seed if isinstance(op_seed, int) else None
        return original(op_seed)

    patched_names.install(random_seed, "get_seed", get_seed)
    patched_names.install(SeedGenerator, "next", _next_seed(SeedGenerator.next))
    generator = stateful_random_ops.Generator
    patched_names.install(generator, "skip", _skip(generator.skip))
    patched_names.install(while_v2, "while_loop", _run_in_order(while_v2.while_loop))


def _next_seed(original: Callable[..., Any]) -> Callable[..., Any]:
    """Make the seeds of a Keras generator functions of the step instead of a variable."""

    @functools.wraps(original)
    def next_seed(self: Any, ordered: bool = True) -> Any:
        draw = _draw_in_trace()
        if draw is None:
            return original(self, ordered)
        key, number = draw.next_of(self)
        # Keras reduces both numbers to 31 bits.
        return tf.stack([tf.constant(key >> 33, tf.int64), tf.constant(key & 0x3FFFFFFF, tf.int64) + number])

    return next_seed


def _skip(original: Callable[..., Any]) -> Callable[..., Any]:
    """Make the counter and key of a generator of TensorFlow functions of the step instead of a variable."""

    @functools.wraps(original)
    def skip(self: Any, delta: Any) -> Any:
        draw = _draw_in_trace()
        if draw is None:
            return original(self, delta)
        key, number = draw.next()
        unused = [tf.zeros([], tf.int64)] * (int(self.state.shape[0]) - 2)
        return tf.stack([*unused, number, tf.constant(key - 2**63, tf.int64)])

    return skip


def _draw_in_trace() -> _Draw | None:
    """Return the context of the random operations that are being traced; None outside of `Randomness.draw_for`."""
    draw = _current_draw()
    return draw if draw is not None and _is_traced(draw.graph) else None


def _run_in_order(while_loop: Callable[..., Any]) -> Callable[..., Any]:
    """Make loops that draw random numbers sequential, so that each iteration draws different ones."""

    @functools.wraps(while_loop)
    def ordered(*args: Any, **kwargs: Any) -> Any:
        draw = _current_draw()
        if draw is None or tf.executing_eagerly():
            return while_loop(*args, **kwargs)
        graph = tf.compat.v1.get_default_graph()
        counted, known = draw.counted, len(graph.get_operations())
        result = while_loop(*args, **kwargs)
        if draw.counted != counted:
            for operation in graph.get_operations()[known:]:
                if operation.type in ("While", "StatelessWhile"):
                    operation._set_attr("parallel_iterations", attr_value_pb2.AttrValue(i=1))
        return result

    return ordered


def _replace(module: Any, name: str, signature: inspect.Signature, stateless: Any, identify: Any) -> None:
    original = getattr(module, name)

    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        draw = _draw_in_trace()
        if draw is None:
            return original(*args, **kwargs)
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = {_RENAMED.get(key, key): value for key, value in bound.arguments.items() if key[:4] != "seed"}
        place = draw.next()
        for parameter in given.keys() & {"alpha", "lam"}:
            given["shape"] = tf.concat([tf.cast(given["shape"], tf.int32), tf.shape(given[parameter])], 0)
        return stateless(**given, **identify(*place))

    patched_names.install(module, name, function)


def _is_traced(graph: tf.Graph) -> bool:
    """Return whether the current graph is ``graph`` or inside it; initial values are computed outside."""
    current: Any = tf.compat.v1.get_default_graph()
    while current is not None and current is not graph and not tf.executing_eagerly():
        current = getattr(current, "outer_graph", None)
    return current is graph and not tf.executing_eagerly()
