"""Imports of packages that are not installed."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.tensorflow


@pytest.mark.parametrize(
    ("statement", "package"),
    [
        ("import matplotlip.pyplot as plt", "matplotlip"),
        ("from scipi.misc import imresize as resize, imread", "scipi"),
        ("from scipi.misc import *", "scipi"),
        ("if True:\n    import cv3", "cv3"),
    ],
)
def test_an_import_of_a_missing_package_is_refused_with_its_line(
    in_child: Any, statement: str, package: str
) -> None:
    message, hint, line = in_child(fault, f"import os\n{statement}\n")
    assert message == f"ModuleNotFoundError: No module named {package!r}"
    assert "beside DIGITS" in hint and line == 2 + statement.count("\n")


def test_a_network_may_handle_a_missing_package(in_child: Any) -> None:
    text = "try:\n    import tensorpacks.models as models\nexcept ImportError:\n    models = 3\nassert models == 3"
    assert in_child(fault, text) is None


@pytest.mark.parametrize("fallback", ["pass", "nn = None"])
def test_a_name_whose_import_failed_is_reported_with_its_package(in_child: Any, fallback: str) -> None:
    text = f"try:\n    import torsh.nn as nn\nexcept ImportError:\n    {fallback}\nused = nn.relu(3)"
    message, _, line = in_child(fault, text)
    assert message == "ModuleNotFoundError: No module named 'torsh', which line 2 imports" and line == 5


def test_a_missing_module_of_an_installed_package_is_named(in_child: Any) -> None:
    message, hint, line = in_child(fault, "import numpy.nonesuch")
    assert message == "ModuleNotFoundError: No module named 'numpy.nonesuch'" and line == 1
    assert hint.startswith("numpy is installed but has no numpy.nonesuch")


def test_a_network_for_another_framework_is_refused(visualize: Any) -> None:
    network = "from mxnet import gluon\n\nclass UserModel(Tower):\n    def construct_net(self):\n        return gluon.nn\n"
    failure = visualize(network).failure
    assert "No module named 'mxnet'" in failure.message
    assert failure.hint == "Use a network for TensorFlow."
    assert failure.line == 1


def fault(text: str) -> Any:
    """Return the message, the hint and the line of the error of a network that begins with ``text``."""
    from digits.worker import network_loader
    from digits.worker.failure import describe

    try:
        network_loader.user_model(
            text + "\nclass UserModel(Tower):\n    inference = loss = property(lambda self: None)\n"
        )
    except Exception as error:
        event = describe(error)
        return event.message, event.hint, event.line
    return None
