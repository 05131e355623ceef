"""Networks in the documentation train unchanged."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from digits.core.events import Finished, Measured

ROOT = Path(__file__).resolve().parent.parent.parent
TEXTS = [(ROOT / name).read_text() for name in ("README.md", "docs/networks.md")]
BLOCKS = [block for text in TEXTS for block in re.findall(r"```python\n(.*?)```", text, re.S)]
# The outline of a network has an ellipsis in place of its parts.
NETWORKS = [block for block in BLOCKS if "class UserModel" in block and "..." not in block]


def test_the_documentation_contains_networks():
    assert len(NETWORKS) == 3


@pytest.mark.parametrize("network", NETWORKS, ids=range(len(NETWORKS)))
def test_a_documented_network_trains(train, network):
    outcome = train(network, epochs=1, solver={"type": "ADAM", "learning_rate": 0.001})
    assert isinstance(outcome.events[-1], Finished), outcome.output
    losses = [row.values["loss"] for row in outcome.of(Measured) if "loss" in row.values]
    assert losses and all(map(math.isfinite, losses))
