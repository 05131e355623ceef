"""The worker rejects what the form's check rejects, with the same errors."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from digits.core.events import Failed
from digits.web.models import network_lint
from digits.worker.failure import describe
from tests.network_texts import INVALID, SHOWN_WHEN_RUN, VALID
from tests.worker.lazily import network_loader, tower

TEXTS = VALID | {name: text for name, (text, _) in INVALID.items()}


def found_by_the_worker(texts: Iterable[str]) -> list[Any]:
    """Return message, hint and line of the worker's error in each text, or None. Call it with `in_child`."""
    found = []
    for text in texts:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                network_loader.user_model(text)
        except Exception as error:
            event = describe(error)
            found.append((event.message, event.hint, event.line or 1))
        else:
            found.append(None)
        for name in ("inference", "loss"):  # a network may assign to the attributes of Tower
            if name in vars(tower.Tower):
                delattr(tower.Tower, name)
    return found


def found_by_the_form(text: str) -> Any:
    diagnostics = network_lint.lint(text)
    return (
        (diagnostics[0]["message"], diagnostics[0]["hint"], diagnostics[0]["line"]) if diagnostics else None
    )


def test_the_worker_and_the_form_agree(in_child: Callable[..., Any]) -> None:
    by_worker = dict(zip(TEXTS, in_child(found_by_the_worker, list(TEXTS.values())), strict=True))
    by_form = {name: found_by_the_form(text) for name, text in TEXTS.items()}
    assert by_form == {**by_worker, **dict.fromkeys(SHOWN_WHEN_RUN)}
    assert {name for name, fault in by_worker.items() if fault} == set(INVALID)


NAMES = st.sampled_from(["UserModel", "Net", "Base", "Tower", "Model", "build_model", "object"])
PROPERTY = st.sampled_from(["inference", "loss"])
MEMBERS = st.one_of(
    PROPERTY.map("    @model_property\n    def {}(self): pass\n".format),
    PROPERTY.map("    def {}(self): pass\n".format),
    PROPERTY.map("    {} = None\n".format),
    PROPERTY.map("    {} = property(len)\n".format),
    PROPERTY.map("    if x:\n        {} = property(len)\n".format),
    st.just("    inference = loss = property(len)\n"),
)
CLASSES = st.builds(
    lambda name, bases, members: f"class {name}({', '.join(bases)}):\n    pass\n{''.join(members)}",
    NAMES,
    st.lists(NAMES, max_size=2, unique=True),
    st.lists(MEMBERS, max_size=3),
)
STATEMENTS = st.one_of(
    CLASSES,
    st.builds("{} = {}\n".format, NAMES, st.one_of(NAMES, st.sampled_from(["None", "3", "len"]))),
    NAMES.map("def {}(params): pass\n".format),
    NAMES.map("from model import Tower as {}\n".format),
    st.builds("if x:\n    {} = {}\n".format, NAMES, NAMES),
    st.builds("try:\n    {} = {}\nexcept NameError:\n    pass\n".format, NAMES, NAMES),
    st.builds("{}.{} = property(len)\n".format, NAMES, PROPERTY),
    st.builds("def define():\n    global {0}\n    {0} = {1}\ndefine()\n".format, NAMES, NAMES),
    st.builds("setattr({}, '{}', property(len))\n".format, NAMES, PROPERTY),
    NAMES.map("del {}\n".format),
    NAMES.map("print 'x' % {}\n".format),
    st.sampled_from(["return 3\n", "x = = 3\n", "print 'x'\n"]),
)
MODULES = st.lists(STATEMENTS, min_size=1, max_size=7).map(lambda parts: "x = 1\n" + "".join(parts))

# Errors in the syntax or the class UserModel. All others, and the bases of some classes, show only when the code runs.
KNOWN = ("UserModel", "The network defines no class", "Syntax error")


def disagreements(count: int) -> list[Any]:
    """Run random modules; return those that the form rejects although the worker accepts them, or for which it reports
    another error of the class. Call it with `in_child`.
    """
    wrong = []

    @settings(max_examples=count, database=None, deadline=None, derandomize=True)
    @given(MODULES)
    def compare(text: str) -> None:
        (by_worker,) = found_by_the_worker([text])
        by_form = found_by_the_form(text)
        if by_form is None:
            return
        if by_worker is None or (by_worker[0].startswith(KNOWN) and by_worker != by_form):
            wrong.append((text, by_worker, by_form))

    compare()
    return wrong


def test_the_form_refuses_nothing_that_the_worker_runs(in_child: Callable[..., Any]) -> None:
    assert in_child(disagreements, 400) == []


def test_a_linked_network_is_not_shown_in_a_trace(model: Any, perform: Any, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("the password is = swordfish\n")
    task = model("")
    network = task.parent / "network.py"
    network.unlink()
    network.symlink_to(secret)
    outcome = perform(task)
    (failed,) = outcome.of(Failed)
    assert failed.message == "The network cannot be read: network.py is a link."
    assert "swordfish" not in outcome.output + str(failed)
