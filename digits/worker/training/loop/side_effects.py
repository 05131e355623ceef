"""Undoing the side effects of running a network outside of a training step."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from digits.worker.network.variables import VariableStore, plain_name
from digits.worker.randomness.python_generators import PythonGenerators
from digits.worker.randomness.streams import Randomness


class SideEffects:
    """Everything that running a network may modify apart from its weights.

    That is variables that are not trained, such as moving averages and the counters of metrics, and the states
    of random generators.
    """

    def __init__(self, store: VariableStore, randomness: Randomness, generators: PythonGenerators) -> None:
        self._store, self._randomness, self._generators = store, randomness, generators

    def save(self) -> Saved:
        """Save the present values."""
        variables = {**self._store.variables, **self._store.local, **self._randomness.variables}
        values = [(item, item.numpy()) for item in variables.values() if not item.trainable]
        return Saved(values, self._generators.state(), self._store, self._generators)

    @contextlib.contextmanager
    def undone(self) -> Iterator[None]:
        """Undo all side effects of the block when it ends."""
        saved = self.save()
        try:
            yield
        finally:
            saved.restore()


@dataclass(frozen=True)
class Saved:
    """Saved values of what `SideEffects` describes."""

    _values: list[tuple[tf.Variable, Any]]
    _generators_state: dict[str, Any]
    _store: VariableStore
    _generators: PythonGenerators

    def restore(self) -> None:
        """Restore all values."""
        for variable, value in self._values:
            variable.assign(value)
        self._generators.restore(self._generators_state)

    def restore_network(self) -> None:
        """Restore the variables that belong to the network, such as moving averages, but no counters."""
        variables = self._store.variables
        for variable, value in self._values:
            if plain_name(variable) in variables:
                variable.assign(value)
