"""The context of the network build in progress."""

from __future__ import annotations

import threading

import pytest

from digits.worker import build_context


def test_the_context_is_extended_within_a_block_and_restored_after_it() -> None:
    with build_context.extend(tower="tower", keras_path="dense/kernel"):
        with build_context.extend(keras_path=""):
            inner = build_context.current()
        outer = build_context.current()
    assert (inner.tower, inner.keras_path) == ("tower", "")
    assert (outer.tower, outer.keras_path) == ("tower", "dense/kernel")
    assert build_context.current() == build_context.BuildContext()


def test_the_context_is_restored_after_an_error() -> None:
    with pytest.raises(ValueError, match="broken"), build_context.extend(tower="tower"):
        raise ValueError("broken")
    assert build_context.current().tower is None


def test_other_threads_have_no_context() -> None:
    found = []
    with build_context.extend(tower="tower"):
        thread = threading.Thread(target=lambda: found.append(build_context.current().tower))
        thread.start()
        thread.join()
    assert found == [None]


def test_an_unknown_field_is_an_error() -> None:
    with pytest.raises(TypeError), build_context.extend(towers="tower"):
        pass
