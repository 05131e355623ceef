"""Names of classes that a horizontal flip exchanges."""

from __future__ import annotations

import unicodedata

import pytest

from digits.kinds.advice.mirrored_names import mirrored_pair


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("left", "right"),
        ("Left", "RIGHT"),
        ("left_hand", "right_hand"),
        ("turnLeft", "turnRight"),
        ("turnleft", "turnright"),
        ("eye, left", "eye, right"),
        ("links", "rechts"),
        ("linke Hand", "rechte Hand"),
        ("linker Fuß", "rechter Fuß"),
        ("gauche", "droite"),
        ("pied gauche", "pied droit"),
        ("izquierda", "derecha"),
        ("ojo izquierdo", "ojo derecho"),
        ("mano sinistra", "mano destra"),
        ("occhio sinistro", "occhio destro"),
        ("esquerda", "direita"),
        ("mão esquerda", unicodedata.normalize("NFD", "mão direita")),
        ("левый", "правый"),
        ("левая рука", "правая рука"),
        ("слева", "справа"),
        ("ліва", "права"),
        ("левый глаз", "правый глаз"),
        ("左", "右"),
        ("左手", "右手"),
        ("왼손", "오른손"),
        ("lewa ręka", "prawa ręka"),
        ("vänster", "höger"),
        ("venstre", "højre"),
        ("sol el", "sağ el"),
        ("01-left", "02-right"),
        ("left-hand", "right_hand"),
        ("L", "R"),
        ("hand_L", "hand_R"),
        ("LHand", "RHand"),
        ("eye.l", "eye.r"),
        ("L1", "R1"),
        ("OS", "OD"),
        ("clockwise", "counterclockwise"),
    ],
)
def test_pairs_of_sides_are_found(left: str, right: str) -> None:
    for names in ([left, right], [right, left], ["background", left, "straight ahead", right]):
        found = mirrored_pair(names)
        assert found is not None and set(found) == {left, right}


@pytest.mark.parametrize(
    "names",
    [
        [],
        ["cat", "dog"],
        ["left", "straight"],
        ["cleft", "bright"],
        ["right", "wrong"],
        ["copyright", "copyleft license"],
        ["left hand", "right foot"],
        ["S", "M", "L"],
        list("ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
        [f"type {letter}" for letter in "ALR"],
        ["hyperlinks", "rechtsanwalt"],
        ["lion", "rion"],
        ["solar", "sagar"],
        ["airport", "starboard"],
    ],
)
def test_other_names_are_no_pairs(names: list[str]) -> None:
    assert mirrored_pair(names) is None
