"""Error messages, hints and traces shown to users, without TensorFlow."""

from __future__ import annotations

import errno
import linecache

import pytest

from digits.core.errors import DigitsError
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


def test_a_fault_with_a_cause_points_at_the_cause() -> None:
    try:
        raise UserFault("It is so.", "Do this.") from raised("1 / 0")
    except UserFault as fault:
        failure = describe(fault)
    assert (failure.message, failure.hint, failure.line) == ("It is so.", "Do this.", 1)


def test_a_fault_in_the_worker_has_no_trace() -> None:
    try:
        raise UserFault("There is none.", line=3)
    except UserFault as fault:
        failure = describe(fault)
    assert (failure.trace, failure.line) == ([], 3)


def test_messages_omit_stack_frames() -> None:
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


def test_out_of_memory_errors_suggest_a_smaller_batch() -> None:
    assert "smaller batch size" in describe(MemoryError()).hint
    assert describe(MemoryError()).message == "MemoryError"


def test_a_full_disk_is_not_reported_as_out_of_memory() -> None:
    class ResourceExhaustedError(Exception):
        pass

    full = "No space left on device"
    for error in (
        OSError(errno.ENOSPC, full, "/jobs/x"),
        ResourceExhaustedError(f"/jobs/x; {full} [Op:SaveV2]"),
    ):
        failure = describe(error)
        assert failure.message == "The disk is full." and "Free up space" in failure.hint


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


def test_long_messages_are_truncated() -> None:
    failure = describe(ValueError("x" * 100_000))
    assert len(failure.message) <= 240 and failure.message.endswith("…")
    assert 240 < len(failure.detail) <= 4000


def test_a_short_message_has_no_detail() -> None:
    assert describe(raised("int('y')")).detail == ""


@pytest.mark.parametrize(
    ("text", "headline"),
    [
        (
            "Dimensions must be equal, but are 10 and 3 for '{{node add}} = AddV2[T=DT_FLOAT](zeros, zeros_1)' "
            "with input shapes: [6,10], [6,3].",
            "Tensors of shapes [6,10] and [6,3] are incompatible in AddV2: 10 is not 3.",
        ),
        (
            "{{function_node __wrapped__MatMul_device_/job:localhost/replica:0/task:0/device:CPU:0}} "
            "Matrix size-incompatible: In[0]: [6,10], In[1]: [3,4] [Op:MatMul] name: ",
            "Matrices of shapes [6,10] and [3,4] cannot be multiplied: the inner sizes differ.",
        ),
        (
            "Negative dimension size caused by subtracting 5 from 2 for '{{node MaxPool2d}} = "
            'MaxPool[T=DT_FLOAT, data_format="NHWC"](zeros)\' with input shapes: [1,2,2,1].',
            "The input of MaxPool is too small: its side is 2, but the window requires 5.",
        ),
        (
            "Received a label value of 9 which is outside the valid range of [0, 3).  Label values: 9 9 9",
            "Label 9 is out of range: the network has 3 outputs.",
        ),
        (
            "Input 0 with name 'None' of layer 'conv2d_1' is incompatible with the layer: "
            "expected min_ndim=4, found ndim=2. Full shape received: (6, 10)",
            "The layer conv2d_1 requires an input of at least 4 dimensions, but got 2: (6, 10).",
        ),
        ("first line\nand a\nlong rest", "ValueError: first line"),
    ],
)
def test_library_errors_get_a_plain_headline(text: str, headline: str) -> None:
    failure = describe(ValueError(text))
    assert failure.message == headline
    assert failure.detail.startswith("ValueError: ")
    assert "__wrapped__" not in failure.detail


def test_the_default_hint_quotes_the_failing_line() -> None:
    assert describe(raised("x = 1\nint('y')\n")).hint == "Check line 2 of the network: int('y')"


def test_messages_omit_terminal_colors() -> None:
    text = "raise ValueError('Exception in call. \\x1b[1mToo small.\\x1b[0m\\n\\nArguments received by it')"
    assert describe(raised(text)).message == "ValueError: Exception in call. Too small."


NETWORK = """
class UserModel:
    def loss(self):
        {}


def fail(*anything):
    raise {}


UserModel().loss()
"""


def raised_in_library(text: str) -> BaseException:
    """Return the exception that ``text`` raises through the library function ``fail``."""
    before, after = text.split("def fail", 1)
    function, after = after.split("\n\n", 1)
    names: dict[str, object] = {}
    exec(compile(f"def fail{function}", "library.py", "exec"), names)
    text = f"{before}{after}"
    linecache.cache["network.py"] = (len(text), None, text.splitlines(keepends=True), "network.py")
    try:
        exec(compile(text, "network.py", "exec"), names)
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def test_errors_raised_by_user_code_get_no_library_hint() -> None:
    failure = describe(raised("def build():\n    raise ValueError('no float16 in this shape')\nbuild()"))
    assert failure.hint == "Check line 2 of the network: raise ValueError('no float16 in this shape')"


def test_a_graph_error_points_at_the_line_that_runs_the_graph() -> None:
    text = 'Detected at node add defined at (most recent call last):\\n  File "network.py", line 1, in f'
    failure = describe(
        raised_in_library(NETWORK.format("fail(2)", f"RuntimeError({text!r})".replace("\\\\", "\\")))
    )
    assert failure.line == 4


@pytest.mark.parametrize(
    ("text", "name", "line"),
    [
        ("class Model:\n    def loss():\n        pass\nModel().loss()", "Model.loss", 2),
        ("class Model:\n    def block(x):\n        return x + 1\nModel().block(3)", "Model.block", 2),
        ("class Model:\n    def __init__(x, y):\n        pass\nModel(1, 2)", "Model.__init__", 2),
    ],
)
def test_a_method_without_self_is_named(text: str, name: str, line: int) -> None:
    failure = describe(raised(text))
    assert (failure.message, failure.line) == (f"{name} does not have a self parameter.", line)
    assert "first parameter" in failure.hint


def test_too_many_arguments_are_not_reported_as_a_missing_self() -> None:
    for text in (
        "class Model:\n    def loss(self):\n        pass\nModel().loss(1)",
        "class Model:\n    def loss(this):\n        return this.x\nModel().loss(1)",
        "class Model:\n    @staticmethod\n    def loss(x):\n        return 1\nModel().loss(1, 2)",
        "def loss(x):\n    return 1\nloss(1, 2)",
    ):
        assert describe(raised(text)).message.startswith("TypeError: ")
    assert "self" in describe(raised("def helper():\n    return self.x\nhelper()")).message


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("random.random()", "Add import random at the top of the network."),
        ("partial(print)", "Add from functools import partial at the top of the network."),
        ("torch.zeros(3)", "Use a network for TensorFlow."),
        ("token + 1", "Check the spelling"),  # also the name of a standard module
        ("learning_rat", "Did you mean learning_rate?"),
        ("x_train.shape", "DIGITS feeds the network: take the images from self.x"),
        ("train_images / 255", "DIGITS feeds the network: take the images from self.x"),
        ("num_classes", "The number of classes is self.nclasses."),
        ("BATCH_SIZE", "Set it in the form"),
    ],
)
def test_an_undefined_name_gets_a_hint(line: str, hint: str) -> None:
    failure = describe(raised(f"learning_rate = 1\n{line}\n"))
    assert failure.line == 2 and failure.hint.startswith(hint)
    assert ("not imported" in failure.message) == hint.startswith(("Add", "Use"))


@pytest.mark.parametrize(
    ("attribute", "hint"),
    [
        ("nclases", "Did you mean nclasses?"),
        ("classes", "Did you mean nclasses?"),
        ("depth", "Check the spelling"),
    ],
)
def test_a_misspelled_attribute_gets_a_suggestion(attribute: str, hint: str) -> None:
    text = f"class Model:\n    nclasses, _nclases = 10, 3\nModel().{attribute}\n"
    failure = describe(raised(text))
    assert failure.line == 3 and failure.hint.startswith(hint)
    assert failure.message == f"AttributeError: 'Model' object has no attribute '{attribute}'"


def test_deeply_nested_code_still_gets_a_message() -> None:
    deep = f"fail({'+'.join(['1'] * 800)})"
    error = raised_in_library(NETWORK.format(deep, "ValueError('Dimensions must be equal')"))
    assert describe(error).message == "ValueError: Dimensions must be equal"
    assert describe(raised("__main__x.y\n")).line == 1


@pytest.mark.parametrize(
    ("character", "text", "hint"),
    [
        ("\x07", "U+0007 (a control character)", "invisible"),
        ("\u200b", "U+200B (zero width space)", "invisible"),
        ("\u201c", "U+201C (left double quotation mark)", "straight quotes"),
        ("\u2212", "U+2212 (minus sign)", "ASCII hyphen"),
        ("\ufffd", "U+FFFD (replacement character)", "UTF-8"),
    ],
)
def test_an_invalid_character_is_named_with_its_code_point(character: str, text: str, hint: str) -> None:
    failure = describe(raised(f"x = 1\ny = {character}2\n"))
    assert text in failure.message and hint in failure.hint and failure.line == 2


def test_the_fields_that_remedy_a_fault_are_reported_with_its_cause() -> None:
    try:
        try:
            raise DigitsError("A file cannot be used.")
        except DigitsError as cause:
            raise UserFault(cause.message, "Raise the limit.", remedy={"limit": "9"}) from cause
    except UserFault as fault:
        failed = describe(fault)
    assert (failed.message, failed.hint, failed.remedy) == (
        "A file cannot be used.",
        "Raise the limit.",
        {"limit": "9"},
    )
