"""The RNN cells of ``tf.nn.rnn_cell`` and ``tf.contrib.rnn``, which Keras 3 hides but TensorFlow still contains."""

from __future__ import annotations

import functools
from typing import Any

from tensorflow.python.ops import rnn_cell

from digits.worker import user_text
from digits.worker.failure import UserFault

_CELLS = ("BasicRNNCell", "GRUCell", "BasicLSTMCell", "LSTMCell")
_OTHERS = ("DeviceWrapper", "DropoutWrapper", "LSTMStateTuple", "RNNCell", "ResidualWrapper")


def names() -> dict[str, Any]:
    """Return the cells and their wrappers by name."""
    cells = {name: _check_units(getattr(rnn_cell, name)) for name in _CELLS}
    return cells | {name: getattr(rnn_cell, name) for name in _OTHERS} | {"MultiRNNCell": MultiRNNCell}


@functools.cache
def _check_units(cell: Any) -> Any:
    """Let the constructor of ``cell`` check the number of units, which TensorFlow does when the cell is called."""

    def initialize(self: Any, *args: Any, **kwargs: Any) -> None:
        units: Any = args[0] if args else kwargs.get("num_units")
        try:
            is_valid = int(units) == units and units > 0
        except (TypeError, ValueError):
            is_valid = False
        if not is_valid:
            raise ValueError(f"num_units of {cell.__name__} must be a positive integer, not {units!r}")
        cell.__init__(self, *args, **kwargs)

    return type(cell.__name__, (cell,), {"__init__": initialize})


class MultiRNNCell(rnn_cell.MultiRNNCell):
    """Cells on top of each other. Errors of one that is used several times name the line that creates this."""

    def __init__(self, cells: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(cells, *args, **kwargs)
        self._line = user_text.running_line()

    def call(self, inputs: Any, state: Any) -> Any:
        try:
            return super().call(inputs, state)
        except ValueError as error:
            if len({id(cell) for cell in self._cells}) == len(self._cells):
                raise
            raise UserFault(
                "MultiRNNCell contains a cell several times, which shares its weights, but the inputs of the layers "
                "have different sizes.",
                "Make one cell for each layer: MultiRNNCell([LSTMCell(units) for layer in range(layers)]).",
                self._line,
            ) from error
