"""Errors of the user, reported with a message, the line in the network, and a hint.

Standard library only, so that a task without TensorFlow can use it too.
"""

from __future__ import annotations

import contextlib
import difflib
import linecache
import re
import traceback
from collections.abc import Iterator, Mapping
from typing import Any

from digits.core.events import Failed, Frame
from digits.core.network.source_code import describe_syntax_error
from digits.worker import packages, user_text
from digits.worker.user_text import NETWORK_FILE as NETWORK_FILE

MAX_FRAMES = 30
MAX_MESSAGE_CHARACTERS = 4000


class UserFault(Exception):
    """Something that the user can put right.

    ``line`` is a line of the user's network. ``remedy`` are values of form fields that follow the ``hint``.
    """

    def __init__(
        self, message: str, hint: str = "", line: int | None = None, remedy: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.line = line
        self.remedy = dict(remedy or {})


class PartnerLost(UserFault):
    """Another process that works on the same task ended, or did not start. The task can run again."""


class Stopped(BaseException):
    """The task was asked to stop. Not an Exception, so that no library swallows it."""


def describe(error: BaseException) -> Failed:
    """Return the event that reports ``error`` to the user, with the user's own frames first."""
    source = _root(error)
    frames = _frames(source)
    if not any(frame["own"] for frame in frames):
        frames = _frames(error)  # the user's frames may have called the code that raised
    text = str(source)
    if any(frame["own"] for frame in frames):
        # The user's line is running now; drop the location where a graph operation was created.
        text = text.partition("Detected at node")[0]
    frames = [*_remembered_frames(text), *frames]
    own = [frame for frame in frames if frame["own"]]
    line = error.line if isinstance(error, UserFault) and error.line else None
    if line is None and own:
        line = own[0]["line"]
    mistake = None if isinstance(error, UserFault) else _mistake(source, line)
    if mistake is not None:
        message, hint, line = mistake.message, mistake.hint, mistake.line or line
    else:
        message, hint = _words(error, source, bool(own) and user_text.is_raised_at(own[0]["line"]))
    if not hint and own:
        hint = f"Check line {line} of the network: {own[0]['code']}"
    # A fault detected by the worker needs no trace of the worker.
    others = [] if isinstance(source, UserFault) else [frame for frame in frames if not frame["own"]]
    title = message if isinstance(error, UserFault) else headline(message)
    return Failed(
        message=title,
        hint=hint,
        line=line,
        trace=(own + others)[:MAX_FRAMES],
        detail="" if title == message else message,
        remedy=error.remedy if isinstance(error, UserFault) else _REMEDIES.get(hint, {}),
    )


def first_line(error: BaseException) -> str:
    """Return the beginning of the message of a library's ``error``, which may be long."""
    return str(error).strip().partition("\n")[0][:300]


def in_a_sentence(failure: Failed) -> str:
    """Return the message of ``failure`` with its line, for use without the traceback."""
    return f"Line {failure.line}: {failure.message}" if failure.line else failure.message


# Common mistakes with specific messages


def _mistake(error: BaseException, line: int | None) -> UserFault | None:
    """Return a clearer error for common mistakes; None for others."""
    if isinstance(error, SyntaxError):
        fault = describe_syntax_error(error)
        return UserFault(fault.message, fault.hint, error.lineno)
    if line is not None and (missing := _missing_package(error, line)):
        return missing
    if isinstance(error, (NameError, AttributeError)) and (new := packages.name_in_python3(error.name or "")):
        return UserFault(f"{error.name} is a name of Python 2.", f"Write {new}.")
    if isinstance(error, NameError) and not isinstance(error, UnboundLocalError):
        return _unknown_name(error, line)
    if isinstance(error, AttributeError):
        return _misspelled_attribute(error)
    if isinstance(error, TypeError):
        return _without_self(error)
    return None


def _missing_package(error: BaseException, line: int) -> UserFault | None:
    """Return the error for a name in ``line`` of a package that is not installed; None if there is none.

    Functions that get such a name report anything, such as a wrong type.
    """
    values = _values_near(error)
    for name in user_text.names(line):
        value = values.get(name)
        # By class name, because the compatibility layer must not be imported here.
        if type(value).__name__ == "MissingModule":
            own = vars(value)["_error"]
            return None if own is error else UserFault(f"{_class_name(own)}: {own}", getattr(own, "hint", ""))
        for module, place in user_text.imports_of(name):
            package = module.partition(".")[0]
            if value is None and not packages.is_installed(package):
                words = f"ModuleNotFoundError: No module named {package!r}, which line {place} imports"
                return UserFault(words, packages.advice(package))
    return None


# Names that programs for Keras and TensorFlow define, and where a network has their values.
_SPLITS = r"train(?:ing)?|test|val|valid(?:ation)?"
_OF_DIGITS = (
    (
        rf"(?:x|y|images?|labels?)(?:_(?:{_SPLITS}))?|(?:{_SPLITS})_(?:x|y|images|labels|data|ds|dataset|generator)",
        "DIGITS feeds the network: take the images from self.x and the labels from self.y.",
    ),
    (r"n(?:um|b)?_?classes", "The number of classes is self.nclasses."),
    (r"(?:input|image|img)_shape", "The shape of an image is self.input_shape."),
    (r"(?:is_)?training", "Use self.is_training."),
    (r"(?:n_|num_)?epochs|batch_size|learning_rate", "Set it in the form, or assign it in the network."),
)


def _unknown_name(error: NameError, line: int | None) -> UserFault | None:
    name = getattr(error, "name", None)
    if not name or line is None:
        return None
    if name == "self":
        return UserFault(
            "The function uses self but does not have this parameter.", "Add self as the first parameter."
        )
    if statement := packages.statement_for(name, name in user_text.names_with_attributes(line)):
        return UserFault(f"{name} is used but not imported.", statement)
    if hint := next((hint for names, hint in _OF_DIGITS if re.fullmatch(names, name, re.IGNORECASE)), ""):
        return UserFault(f"NameError: {error}", hint)
    near = difflib.get_close_matches(name, _values_near(error), 1, 0.8)
    return UserFault(f"NameError: {error}", f"Did you mean {near[0]}?") if near else None


def _misspelled_attribute(error: AttributeError) -> UserFault | None:
    """Return the error with the attribute that the network may have meant; None if no name is similar."""
    if not error.name or error.obj is None:
        return None
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    if frame.f_code.co_filename != NETWORK_FILE:
        return None
    with contextlib.suppress(Exception):  # the object may list its attributes in its own way
        names = [name for name in dir(error.obj) if name.startswith("_") == error.name.startswith("_")]
        if near := difflib.get_close_matches(error.name, names, 1, 0.75):
            return UserFault(f"AttributeError: {error}", f"Did you mean {near[0]}?")
    return None


def _values_near(error: BaseException) -> dict[str, Any]:
    """Return the values by name in the innermost frame of the network."""
    values: dict[str, Any] = {}
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_filename == NETWORK_FILE:
            values = {**frame.f_globals, **frame.f_locals}
    return values


_ARGUMENTS = re.compile(r"([\w.<>]+)\(\) takes \d+ positional arguments? but \d+ (?:was|were) given")


def _without_self(error: TypeError) -> UserFault | None:
    """Return a clearer error for a method without a ``self`` parameter; None for other errors."""
    called = _ARGUMENTS.match(str(error))
    if called is None and "too many positional arguments" not in str(error):
        return None
    method = user_text.method_without_self(called[1] if called else "")
    if method is None:
        return None
    name, line = method
    return UserFault(f"{name} does not have a self parameter.", "Add self as the first parameter.", line)


def _root(error: BaseException) -> BaseException:
    """Return the exception with the user's frames: the cause of a `UserFault`, if it has one."""
    if isinstance(error, UserFault) and error.__cause__ is not None:
        return _root(error.__cause__)
    return error


def _frames(error: BaseException) -> list[Frame]:
    """Return the frames of ``error``, innermost first."""
    frames = []
    if isinstance(error, SyntaxError) and error.filename:
        frames.append(_frame(error.filename, error.lineno or 1, "", (error.text or "").strip()))
    entries = reversed(traceback.extract_tb(error.__traceback__))
    return frames + [_frame(item.filename, item.lineno or 0, item.name, item.line or "") for item in entries]


def _frame(file: str, line: int, function: str, code: str) -> Frame:
    code = code or linecache.getline(file, line).strip()
    return {"file": file, "line": line, "function": function, "code": code, "own": file == NETWORK_FILE}


_DEFINED_AT = re.compile(r'File "?([^"\n]+?)"?, line (\d+), in (\S+)')


def _remembered_frames(message: str) -> Iterator[Frame]:
    """Frames of the user's file named in the text of an error that a running graph raised."""
    for file, line, function in reversed(_DEFINED_AT.findall(message)):
        if file == NETWORK_FILE:
            yield _frame(file, int(line), function, "")


def _words(error: BaseException, source: BaseException, is_raised_by_user: bool) -> tuple[str, str]:
    if isinstance(error, UserFault):
        return error.message[:MAX_MESSAGE_CHARACTERS], error.hint
    name = _class_name(source)
    if isinstance(source, SystemExit):
        return f"The network ended the program: exit({source.code!r}).", "Remove the call to exit()."
    text = _essence(str(getattr(source, "message", "") or source))
    if _DISK_FULL.search(text):
        return (
            "The disk is full.",
            "Free up space on the disk with the jobs folder, then resume the training.",
        )
    hint = getattr(source, "hint", "")
    if not is_raised_by_user:  # their own message needs no hint
        hint = hint or next((hint for name, hint in _HINTS.items() if _is_a(source, name)), "")
        hint = hint or next((hint for words, hint in _HINTS_BY_WORDS.items() if words in text), "")
    return f"{name}: {text}"[:MAX_MESSAGE_CHARACTERS] if text else name, hint


def _class_name(error: BaseException) -> str:
    """Return the name of the error's class; for our own, that of Python's class it derives from."""
    classes = [each for each in type(error).__mro__ if not each.__module__.startswith("digits.")]
    return classes[0].__name__


def _essence(text: str) -> str:
    """Return ``text`` without the lists of frames that TensorFlow and Keras put into their messages."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", text.partition("\n\nArguments received by")[0])  # no colors
    text = _OF_A_LAYER.sub("", text)
    text = _OF_A_SINGLE_OPERATION.sub("", text)
    if "Detected at node" not in text and "Graph execution error" not in text:
        return text.strip()
    kept: list[str] = []
    for line in text.splitlines():
        if not _OF_A_TRACE.match(line) and line.strip() and line not in kept:
            kept.append(line)
    return "\n".join(kept)


# What Keras puts before the message of an error in a layer.
_OF_A_LAYER = re.compile(r"^Exception encountered when calling [^\n]+\n+")
# The location of an operation that was executed on its own.
_OF_A_SINGLE_OPERATION = re.compile(r"\{\{function_node __wrapped__[^}]*\}\} | \[Op:\w+\]( name: *)?$")
_OF_A_TRACE = re.compile(r"Graph execution error|Detected at node|Traceback|\s|Stack trace for op")


def _is_a(error: BaseException, name: str) -> bool:
    return any(each.__name__ == name for each in type(error).__mro__)


# The message of the operating system; TensorFlow puts it into an error for exhausted memory.
_DISK_FULL = re.compile(r"No space left on device|Disk quota exceeded")

OUT_OF_MEMORY = "Out of memory: choose a smaller batch size or a smaller network."
RUN_AS_GRAPH = "Training can run it, but “Run eagerly” cannot: check the network without it."

# By hint.
_REMEDIES = {OUT_OF_MEMORY: {"batch_factor": "0.5"}}

# By class name, because TensorFlow must not be imported here.
_HINTS = {
    "ResourceExhaustedError": OUT_OF_MEMORY,
    "MemoryError": OUT_OF_MEMORY,
    "ModuleNotFoundError": "Only installed packages can be imported by a network.",
    "UnboundLocalError": "The function assigns this name only later: assign it before use.",
    "NameError": "Check the spelling, and that the name is defined before it is used.",
    "AttributeError": "Check the spelling of the attribute, and that the object has it.",
    "BdbQuit": "A breakpoint ends the program if no debugger is attached: remove it, or run digits check JOB --eager.",
    "UnreadableFile": "A file that the task needs is missing or damaged.",
}

_HINTS_BY_WORDS = {
    "'dict_keys' object is not subscriptable": "Write list(d.keys()): dicts return no lists in Python 3.",
    "float16": (
        "In half precision, Keras layers return float16 or bfloat16: cast what meets their output, "
        "tf.cast(value, output.dtype), or train in float32."
    ),
    "must feed a value for placeholder": (
        "Nothing feeds a placeholder: take self.x, self.y or self.is_training, or give it a value "
        "by tf.placeholder_with_default."
    ),
    "as a Python `bool`": "A tensor has no value while the network is built: use tf.cond or tf.where.",
    "Iterating over a symbolic": "Take a tensor apart by tf.unstack, or use tf.map_fn.",
    "symbolic tf.Tensor": "Use the function of tf in place of that of numpy, or tf.py_func.",
    "not 'SymbolicTensor'": "A tensor has no value while the network is built: compute with tensors.",
    "URL fetch failure": "No weights can be fetched: write weights=None, or the path of a file that holds them.",
    "`add_metric()`": "Write self.summaries.append(tf.summary.scalar(name, value)).",
    "`stateful=True`": "Leave out stateful=True: batches have no order, and the last one is smaller.",
    "eager execution": RUN_AS_GRAPH,
    # A graph replaces what CPUs do not support.
    "grouped convolutions are not supported on CPU": RUN_AS_GRAPH,
    "only supports NHWC": RUN_AS_GRAPH,
    "No default session": "There are no sessions: compute the output in inference and the loss in loss.",
}


MAX_HEADLINE_CHARACTERS = 240

_SHAPE = r"(\[[^\]]*\]|\([^)]*\))"
_OPERATION = r"(?:.*?= (\w+)\[)?"

# Regular expressions, each followed by a headline with its groups, for TensorFlow 2.21 and Keras 3.
_PATTERNS = [
    rf"Incompatible shapes: {_SHAPE} vs\. {_SHAPE}",
    "Tensors of shapes {0} and {1} are incompatible.",
    rf"Dimensions must be equal, but are (\d+) and (\d+) for {_OPERATION}.*input shapes: {_SHAPE}, {_SHAPE}",
    "Tensors of shapes {3} and {4} are incompatible in {2}: {0} is not {1}.",
    rf"Matrix size-incompatible: In\[0\]: {_SHAPE}, In\[1\]: {_SHAPE}",
    "Matrices of shapes {0} and {1} cannot be multiplied: the inner sizes differ.",
    rf"Cannot reshape a tensor with (\d+) elements to shape {_SHAPE} \((\d+) elements\)",
    "A tensor of {0} values cannot be reshaped to {1}, which has {2}.",
    r"Input to reshape is a tensor with (\d+) values, but the requested shape has (\d+)",
    "A tensor of {0} values cannot be reshaped to a shape of {1}.",
    r"Input to reshape is a tensor with (\d+) values, but the requested shape requires a multiple of (\d+)",
    "A tensor of {0} values cannot be reshaped to a shape that requires a multiple of {1}.",
    rf"Negative dimension size caused by subtracting (\d+) from (\d+) for {_OPERATION}",
    "The input of {2} is too small: its side is {1}, but the window requires {0}.",
    r"Computed output size would be (?:zero or )?negative.*?inputs shape=(\(.*?\)).*?kernel shape=(\(.*?\))",
    "An input of shape {0} is too small for a kernel of shape {1}.",
    rf"`labels.shape` must equal `logits.shape`.*?labels.shape={_SHAPE} and logits.shape={_SHAPE}",
    "Labels of shape {0} are incompatible with an output of shape {1}.",
    rf"logits and labels must be broadcastable: logits_size={_SHAPE} labels_size={_SHAPE}",
    "Labels of shape {1} are incompatible with an output of shape {0}.",
    r"`logits` and `labels` must have the same shape, received \((\([^)]*\)) vs (\([^)]*\))\)",
    "Labels of shape {1} are incompatible with an output of shape {0}.",
    r"Received a label value of (-?\d+) which is outside the valid range of \[0, (\d+)\)",
    "Label {0} is out of range: the network has {1} outputs.",
    r"cannot compute (\w+) as input #\d+\(zero-based\) was expected to be a (\w+) tensor but is a (\w+) tensor",
    "The inputs of {0} have different types: {1} and {2}.",
    r"Input '\w+' of '(\w+)' Op has type (\w+) that does not match type (\w+)",
    "The inputs of {0} have different types: {2} and {1}.",
    r"Tensor conversion requested dtype (\w+) for Tensor with dtype (\w+)",
    "A tensor has type {1}, but {0} is required.",
    (
        r"Input 0 .*?of layer [\"'](\w+)[\"'] is incompatible with the layer: expected min_ndim=(\d+), "
        r"found ndim=(\d+)\. Full shape received: (\([^)]*\))"
    ),
    "The layer {0} requires an input of at least {1} dimensions, but got {2}: {3}.",
    rf"Dimension (\d+) in both shapes must be equal: shape\[0\] = {_SHAPE} vs\. shape\[1\] = {_SHAPE}",
    "Tensors of shapes {1} and {2} are incompatible: dimension {0} differs.",
    rf"Dimension (\d+) in both shapes must be equal.*input shapes: {_SHAPE}, {_SHAPE}",
    "Tensors of shapes {1} and {2} are incompatible: dimension {0} differs.",
    r"Depth of input \((\d+)\) is not a multiple of input depth of filter \((\d+)\)",
    "The input of the convolution has {0} channels, but its filter expects {1}.",
    r"input depth must be evenly divisible by filter depth: (\d+) vs (\d+)",
    "The input of the convolution has {0} channels, but its filter expects {1}.",
    rf"Inputs have incompatible shapes\. Received shapes {_SHAPE} and {_SHAPE}",
    "Tensors of shapes {0} and {1} are incompatible.",
    r"OOM when allocating tensor with shape(\[[^\]]*\])",
    "Out of memory while allocating a tensor of shape {0}.",
]
_HEADLINES = [
    (re.compile(pattern, re.DOTALL), words)
    for pattern, words in zip(_PATTERNS[::2], _PATTERNS[1::2], strict=True)
]


def headline(text: str) -> str:
    """A one-line headline for the error message ``text``; ``text`` itself if it is short."""
    for pattern, words in _HEADLINES:
        if match := pattern.search(text):
            return words.format(*(group or "an operation" for group in match.groups()))
    first = text.strip().split("\n", 1)[0]
    return first if len(first) <= MAX_HEADLINE_CHARACTERS else f"{first[: MAX_HEADLINE_CHARACTERS - 1]}…"
