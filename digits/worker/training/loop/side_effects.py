"""Undoing the side effects of running a network outside of a training step."""

from __future__ import annotations

from digits.worker.network.variables import VariableStore, plain_name
from digits.worker.randomness.python_generators import PythonGenerators
from digits.worker.randomness.streams import Randomness


class SavedState:
    """The present values of everything that running a network may modify apart from its weights.

    That is variables that are not trained, such as moving averages and the counters of metrics, and the states
    of random generators. As a context manager, it restores them when the block ends.
    """

    def __init__(self, store: VariableStore, randomness: Randomness, generators: PythonGenerators) -> None:
        variables = {**store.variables, **store.local, **randomness.variables}
        self._values = [(item, item.numpy()) for item in variables.values() if not item.trainable]
        self._store, self._generators = store, generators
        self._generators_state = generators.state()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        self.restore()

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
