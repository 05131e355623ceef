"""Errors as the user reads them. No TensorFlow here."""

from __future__ import annotations

import errno
import linecache

import pytest

from digits.worker.failure import UserFault, describe


def raised(text: str) -> BaseException:
    linecache.cache["network.py"] = (len(text), None, text.splitlines(keepends=True), "network.py")
    try:
        exec(compile(text, "network.py", "exec"), {})
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def test_the_users_frames_come_first() -> None:
    text = "def inner():\n    return int('x')\ndef outer():\n    return inner()\nouter()\n"
    failure = describe(raised(text))
    assert failure.message == "ValueError: invalid literal for int() with base 10: 'x'"
    assert failure.line == 2
    assert [frame["line"] for frame in failure.trace if frame["own"]] == [2, 4, 5]
    assert not failure.trace[-1]["own"]


def test_a_fault_with_a_cause_shows_where_the_cause_was() -> None:
    try:
        raise UserFault("It is so.", "Do this.") from raised("1 / 0")
    except UserFault as fault:
        failure = describe(fault)
    assert (failure.message, failure.hint, failure.line) == ("It is so.", "Do this.", 1)


def test_a_fault_of_the_workers_own_has_no_trace() -> None:
    try:
        raise UserFault("There is none.", line=3)
    except UserFault as fault:
        failure = describe(fault)
    assert (failure.trace, failure.line) == ([], 3)


def test_lists_of_frames_are_left_out_of_messages() -> None:
    text = """Graph execution error:

Detected at node while/model/Reshape defined at (most recent call last):
  File "<frozen runpy>", line 198, in _run_module_as_main

  File "/somewhere/site.py", line 10, in build

  File "network.py", line 4, in inference

Input to reshape is a tensor with 12 values
\t [[{{node while/model/Reshape}}]] [Op:__inference__loop_161]"""
    failure = describe(RuntimeError(text))
    assert failure.message == "RuntimeError: Input to reshape is a tensor with 12 values"
    assert failure.line == 4


def test_out_of_memory_has_a_remedy() -> None:
    assert "smaller batch size" in describe(MemoryError()).hint
    assert describe(MemoryError()).message == "MemoryError"


def test_a_full_disk_is_no_lack_of_memory() -> None:
    class ResourceExhaustedError(Exception):
        pass

    full = "No space left on device"
    for error in (
        OSError(errno.ENOSPC, full, "/jobs/x"),
        ResourceExhaustedError(f"/jobs/x; {full} [Op:SaveV2]"),
    ):
        told = describe(error)
        assert told.message == "The disk is full." and "Make room" in told.hint


def test_syntax_errors_point_at_the_line() -> None:
    failure = describe(raised("x = 1\ny = = 2\n"))
    assert failure.line == 2
    assert failure.trace[0] == {
        "file": "network.py",
        "line": 2,
        "function": "",
        "code": "y = = 2",
        "own": True,
    }


def test_long_messages_are_cut() -> None:
    told = describe(ValueError("x" * 100_000))
    assert len(told.message) <= 240 and told.message.endswith("…")
    assert 240 < len(told.detail) <= 4000


def test_a_short_message_has_no_detail() -> None:
    assert describe(raised("int('y')")).detail == ""


@pytest.mark.parametrize(
    ("text", "headline"),
    [
        (
            "Dimensions must be equal, but are 10 and 3 for '{{node add}} = AddV2[T=DT_FLOAT](zeros, zeros_1)' "
            "with input shapes: [6,10], [6,3].",
            "Tensors of shapes [6,10] and [6,3] do not fit together in AddV2: 10 is not 3.",
        ),
        (
            "{{function_node __wrapped__MatMul_device_/job:localhost/replica:0/task:0/device:CPU:0}} "
            "Matrix size-incompatible: In[0]: [6,10], In[1]: [3,4] [Op:MatMul] name: ",
            "Matrices of shapes [6,10] and [3,4] cannot be multiplied: the inner sizes differ.",
        ),
        (
            "Negative dimension size caused by subtracting 5 from 2 for '{{node MaxPool2d}} = "
            'MaxPool[T=DT_FLOAT, data_format="NHWC"](zeros)\' with input shapes: [1,2,2,1].',
            "The input of MaxPool is too small: it has a side of 2, and the window needs 5.",
        ),
        (
            "Received a label value of 9 which is outside the valid range of [0, 3).  Label values: 9 9 9",
            "There is a label 9, and the network has 3 outputs, for labels from 0.",
        ),
        (
            "Input 0 with name 'None' of layer 'conv2d_1' is incompatible with the layer: "
            "expected min_ndim=4, found ndim=2. Full shape received: (6, 10)",
            "The layer conv2d_1 needs an input of at least 4 dimensions and gets 2: (6, 10).",
        ),
        ("first line\nand a\nlong rest", "ValueError: first line"),
    ],
)
def test_messages_of_libraries_have_a_headline_in_plain_words(text: str, headline: str) -> None:
    told = describe(ValueError(text))
    assert told.message == headline
    assert told.detail.startswith("ValueError: ")
    assert "__wrapped__" not in told.detail


def test_without_a_better_hint_the_line_is_one() -> None:
    assert describe(raised("x = 1\nint('y')\n")).hint == "Look at line 2 of the network: int('y')"


def test_colours_are_left_out_of_messages() -> None:
    text = "raise ValueError('Exception in call. \\x1b[1mToo small.\\x1b[0m\\n\\nArguments received by it')"
    assert describe(raised(text)).message == "ValueError: Exception in call. Too small."
