"""What the state of a task keeps of its events for pages."""

from __future__ import annotations

from digits.core.events import Event, Measured, PhaseChanged, Resumed, Warned
from digits.core.task import Mark, TaskState


def state_of(*happened: Event) -> TaskState:
    state = TaskState()
    for event in happened:
        state.apply(event)
    return state


def test_warnings_and_phases_are_marked_at_their_epoch() -> None:
    before = [
        Warned("early"),
        Measured("train", 10, 1.0, {"loss": 1.0}),
        PhaseChanged(10, 1.0),
        Measured("train", 20, 2.0, {"loss": 1.0}),
        Warned("late"),
    ]
    state = state_of(*before)
    assert [(mark.kind, mark.epoch, mark.text) for mark in state.marks if mark.kind == "warning"] == [
        ("warning", 0.0, "early"),
        ("warning", 2.0, "late"),
    ]
    (phase,) = (mark for mark in state.marks if mark.kind == "phase")
    assert phase.epoch == 1.0
    # A resumed training repeats the warnings that still apply, and the phases after it.
    assert state_of(*before, Resumed(15, 1.5)).marks == [phase]
    assert state_of(*before, Resumed(5, 0.5)).marks == []
    again = state_of(*before, Resumed(5, 0.5), PhaseChanged(10, 1.0), PhaseChanged(10, 1.0)).marks
    assert again == [Mark("phase", 1.0, phase.text)]


def test_remarks_are_kept_apart_from_warnings_and_are_not_marked() -> None:
    state = state_of(Warned("Read as CSV.", is_remark=True), Warned("few images"))
    assert (state.remarks, state.warnings) == (["Read as CSV."], ["few images"])
    assert [mark.text for mark in state.marks] == ["few images"]
