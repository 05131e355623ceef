"""The state of Python's and NumPy's random generators, which a network may use on the host.

It is saved with the training state, so that a resumed run draws the same numbers.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from digits.worker.patched_names import replace

_CONSTRUCTORS = ((np.random, "RandomState"), (np.random, "default_rng"), (random, "Random"))


class PythonGenerators:
    """The global generators of ``random`` and ``numpy.random``, and those that a network creates."""

    def __init__(self) -> None:
        self._created: list[Any] = []

    @contextmanager
    def record(self) -> Iterator[None]:
        """Record the generators that are created inside.

        They are identified by their order, so a network must create the same ones each time it is built.
        """
        self._created.clear()
        with ExitStack() as stack:
            for module, name in _CONSTRUCTORS:
                stack.enter_context(replace(module, name, self._wrap(getattr(module, name))))
            yield

    def state(self) -> dict[str, Any]:
        """The state of all generators, to pass to `restore`; it can be stored as JSON."""
        legacy: Any = np.random.get_state()  # a tuple, unless legacy=False
        name, keys, place, has_gauss, gauss = legacy
        return {
            "python": random.getstate(),
            "numpy": [name, keys.tolist(), place, has_gauss, gauss],
            "made": [_state_of(generator) for generator in self._created],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore a saved `state`; an empty one is ignored."""
        if not state:
            return
        version, numbers, gauss = state["python"]
        random.setstate((version, tuple(numbers), gauss))
        name, keys, *rest = state["numpy"]
        np.random.set_state((name, np.array(keys, np.uint32), *rest))
        for generator, saved in zip(self._created, state.get("made", []), strict=False):
            _restore(generator, saved)

    def _wrap(self, constructor: Any) -> Any:
        """Wrap ``constructor``, a class or a function, to record the generators it creates."""
        created = self._created
        if not isinstance(constructor, type):

            @functools.wraps(constructor)
            def create(*args: Any, **kwargs: Any) -> Any:
                created.append(constructor(*args, **kwargs))
                return created[-1]

            return create

        class Recorded(constructor):
            def __init__(self, *args: Any, **kwargs: Any) -> None:
                super().__init__(*args, **kwargs)
                created.append(self)

        return Recorded


def _state_of(generator: Any) -> Any:
    if isinstance(generator, random.Random):
        return generator.getstate()
    if isinstance(generator, np.random.Generator):
        return _plain(generator.bit_generator.state)
    return _plain(generator.get_state(legacy=False))


def _restore(generator: Any, state: Any) -> None:
    if isinstance(generator, random.Random):
        version, numbers, gauss = state
        generator.setstate((version, tuple(numbers), gauss))
    elif isinstance(generator, np.random.Generator):
        generator.bit_generator.state = state
    else:
        generator.set_state(state)


def _plain(state: Any) -> Any:
    """Return ``state`` with arrays converted to lists, for JSON."""
    if isinstance(state, dict):
        return {name: _plain(value) for name, value in state.items()}
    return state.tolist() if isinstance(state, np.ndarray) else state
