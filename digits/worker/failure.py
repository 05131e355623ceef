"""Mistakes of the user told to the user: what went wrong, in which line, and what to change.

Standard library only, so that a task without TensorFlow can use it too.
"""

from __future__ import annotations

import linecache
import re
import traceback
from collections.abc import Iterator
from typing import Any

from digits.events import Failed

NETWORK_FILE = "network.py"
MAX_FRAMES = 30
MAX_MESSAGE_CHARACTERS = 4000

Frame = dict[str, Any]


class UserFault(Exception):
    """Something that the user can put right. ``line`` is a line of the user's network."""

    def __init__(self, message: str, hint: str = "", line: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.line = line


class Stopped(BaseException):
    """The task was asked to stop. Not an Exception, so that no library swallows it."""


def describe(error: BaseException) -> Failed:
    """The event that tells the user about ``error``: the user's own frames come first."""
    source = _root(error)
    frames = _frames(source)
    if not any(frame["own"] for frame in frames):
        frames = _frames(error)  # the user's frames may have called what told the fault
    own = [frame for frame in frames if frame["own"]]
    message, hint = _words(error, source)
    line = error.line if isinstance(error, UserFault) and error.line else None
    if line is None and own:
        line = own[0]["line"]
        if _is_about_labels(source, own[0]["code"]):
            hint = hint or "self.y holds one number for each image, that of its class: its shape is [N]."
        hint = hint or f"Look at line {line} of the network: {own[0]['code']}"
    # A fault that the worker found by itself needs no trace of the worker.
    others = [] if isinstance(source, UserFault) else [frame for frame in frames if not frame["own"]]
    return Failed(message=message, hint=hint, line=line, trace=(own + others)[:MAX_FRAMES])


def _is_about_labels(error: BaseException, code: str) -> bool:
    """Whether a line of the network wants other labels than those of a classification."""
    return "self.y" in code and any(_is_a(error, name) for name in ("ValueError", "InvalidArgumentError"))


def _root(error: BaseException) -> BaseException:
    """The exception with the user's frames: a fault's cause, where it has one."""
    if isinstance(error, UserFault) and error.__cause__ is not None:
        return _root(error.__cause__)
    return error


def _frames(error: BaseException) -> list[Frame]:
    """The frames of ``error``, innermost first."""
    frames = []
    if isinstance(error, SyntaxError) and error.filename:
        frames.append(_frame(error.filename, error.lineno or 1, "", (error.text or "").strip()))
    frames += _remembered_frames(str(error))
    for item in reversed(traceback.extract_tb(error.__traceback__)):
        frames.append(_frame(item.filename, item.lineno or 0, item.name, item.line or ""))
    return frames


def _frame(file: str, line: int, function: str, code: str) -> Frame:
    code = code or linecache.getline(file, line).strip()
    return {"file": file, "line": line, "function": function, "code": code, "own": file == NETWORK_FILE}


_DEFINED_AT = re.compile(r'File "?([^"\n]+?)"?, line (\d+), in (\S+)')


def _remembered_frames(message: str) -> Iterator[Frame]:
    """Frames of the user's file named in the text of an error that a running graph raised."""
    for file, line, function in reversed(_DEFINED_AT.findall(message)):
        if file == NETWORK_FILE:
            yield _frame(file, int(line), function, "")


def _words(error: BaseException, source: BaseException) -> tuple[str, str]:
    if isinstance(error, UserFault):
        return error.message[:MAX_MESSAGE_CHARACTERS], error.hint
    kind = _kind(source)
    if isinstance(source, SyntaxError):
        where = f"line {source.lineno}" if source.lineno else "the network"
        return f"{kind} in {where}: {source.msg}", "Correct the marked line."
    if isinstance(source, SystemExit):
        return f"The network ended the program: exit({source.code!r}).", "Remove the call to exit()."
    text = _essence(str(getattr(source, "message", "") or source))
    if _DISK_FULL.search(text):
        return (
            "The disk is full.",
            "Make room on the disk of the jobs. A training can then go on where it was.",
        )
    own = getattr(source, "hint", "")
    hint = own or next((hint for name, hint in _HINTS.items() if _is_a(source, name)), "")
    hint = hint or next((hint for words, hint in _HINTS_BY_WORDS.items() if words in text), "")
    return f"{kind}: {text}"[:MAX_MESSAGE_CHARACTERS] if text else kind, hint


def _kind(error: BaseException) -> str:
    """The name of the error's class; for our own, that of Python's class it derives from."""
    kinds = [kind for kind in type(error).__mro__ if not kind.__module__.startswith("digits.")]
    return kinds[0].__name__


def _essence(text: str) -> str:
    """``text`` without the lists of frames that TensorFlow and Keras put into their messages."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", text.partition("\n\nArguments received by")[0])  # no colours
    text = _OF_A_SINGLE_OPERATION.sub("", text)
    if "Detected at node" not in text and "Graph execution error" not in text:
        return text.strip()
    kept: list[str] = []
    for line in text.splitlines():
        if not _OF_A_TRACE.match(line) and line.strip() and line not in kept:
            kept.append(line)
    return "\n".join(kept)


# Where an operation was executed by itself.
_OF_A_SINGLE_OPERATION = re.compile(r"\{\{function_node __wrapped__[^}]*\}\} | \[Op:\w+\]( name: *)?$")
_OF_A_TRACE = re.compile(r"Graph execution error|Detected at node|Traceback|\s|Stack trace for op")


def _is_a(error: BaseException, name: str) -> bool:
    return any(kind.__name__ == name for kind in type(error).__mro__)


# The system's words; TensorFlow has them in an error that otherwise tells of memory.
_DISK_FULL = re.compile(r"No space left on device|Disk quota exceeded")

# By class name, because TensorFlow must not be imported here.
_HINTS = {
    "ResourceExhaustedError": "Out of memory: choose a smaller batch size or a smaller network.",
    "MemoryError": "Out of memory: choose a smaller batch size or a smaller network.",
    "ModuleNotFoundError": "Only installed packages can be imported by a network.",
    "NameError": "Check the spelling, and that the name is defined before it is used.",
    "AttributeError": "Check the spelling of the attribute, and that the object has it.",
    "BdbQuit": "A breakpoint ends the program where nobody can debug: take it out, or run digits check JOB --eager.",
    "UnreadableFile": "A file that the task needs is missing or damaged.",
}

_HINTS_BY_WORDS = {
    "float16": (
        "In half precision self.x is float16 or bfloat16: cast what is not float32, "
        "tf.cast(value, self.x.dtype), or train in float32."
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
    "No default session": "There are no sessions: compute the output in inference and the loss in loss.",
}
