"""Which faults are sown, which tests run for them, and what they say."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.sow_faults import ROOT, Field, faults_in, sow, with_probes


def changed(source: str) -> set[tuple[str, str]]:
    """Return the operators of the possible faults in ``source``, and the changed line of each."""
    return {
        (fault.operator, fault.apply(source.encode()).decode().splitlines()[fault.line - 1].strip())
        for fault in faults_in("a.py", source.encode())
    }


@pytest.mark.parametrize(
    ("line", "faults"),
    [
        ("x = a <= b", [("comparison", "x = a < b")]),
        ("x = a not  in (b)", [("comparison", "x = a in (b)")]),
        ("x = a and b", [("logic", "x = a or b")]),
        ("x = not (a)", [("dropped not", "x = (a)")]),
        ("x = 'ä' + (a - b)", [("arithmetic", "x = 'ä' + (a + b)")]),
        ("x = b if a else c", [("inverted condition", "x = b if (not (a)) else c")]),
        ("x[1] = True", [("constant", "x[2] = True"), ("flag", "x[1] = False")]),
        ("x = f(a, b, *c)", [("swapped arguments", "x = f(b, a, *c)")]),
        ("f(a)", [("dropped statement", "pass")]),
        ("raise ValueError(a)", [("dropped statement", "pass")]),
    ],
)
def test_faults_of_a_line(line: str, faults: list[tuple[str, str]]) -> None:
    assert changed(f"def function(a, b, c, x):\n    {line}\n") == set(faults)


@pytest.mark.parametrize(
    "source",
    [
        '"""Docstring."""',
        "LIMIT = 2",
        "FIRST = int(a, b) < c",
        "if TYPE_CHECKING:\n    import a",
        "if __name__ == '__main__':\n    main()",
        "def f(a: Literal[1]) -> Literal[2]:\n    log.warning('%s', a - 1)\n    assert a == 1",
        "@dataclass(frozen=True)\nclass A(Struct, kw_only=True):\n    a: Annotated[int, Meta(ge=0)]",
        "def f(a):\n    return f'{a + 1}', max(a, b), round(a, 2), g(exist_ok=True)",
        "def f(self):\n    super().__init__()\n    raise NotImplementedError",
    ],
)
def test_lines_without_visible_behavior_are_left_alone(source: str) -> None:
    assert changed(source) == set()


@pytest.mark.slow
def test_a_seed_selects_the_same_faults_in_turns_of_zones_and_operators() -> None:
    zones = ["core", "runtime"]
    faults = sow(ROOT, zones, 12, 5)
    assert faults[:8] == sow(ROOT, zones, 8, 5) != sow(ROOT, zones, 8, 6)
    assert Counter(fault.path.split("/")[1] for fault in faults) == dict.fromkeys(zones, 6)
    assert len({fault.operator for fault in faults if "/core/" in fault.path}) == 6


@pytest.mark.parametrize(
    ("source", "offset_of", "expected"),
    [
        ("def f(a=1):\n    return a", "1", "def f(a=1):\n    hit\n    return a"),
        ("if a:\n    b\nelif c:\n    d", "c", "hit\nif a:\n    b\nelif c:\n    d"),
        ("if a:\n    b\nelif c:\n    d", "d", "if a:\n    b\nelif c:\n    hit\n    d"),
        ("if a: b", "b", "hit\nif a: b"),
        ("x = [\n    a,\n    b,\n]", "b", "hit\nx = [\n    a,\n    b,\n]"),
    ],
)
def test_a_probe_precedes_the_innermost_statement_that_allows_it(
    source: str, offset_of: str, expected: str
) -> None:
    assert with_probes(source.encode(), {source.index(offset_of): "hit"}).decode() == expected


MODULE = """
def double(number):
    return number * 2


def same(number):
    return number - 0


def unused():
    return 1 - 1
"""
FILES = {
    "digits/core/numbers.py": MODULE,
    "digits/core/__init__.py": "",
    "digits/core/files.py": "remove_tree = None",  # which the tool imports
    "digits/__init__.py": "",
    "tools/sow_faults.py": (ROOT / "tools/sow_faults.py").read_text(),
    "tests/core/test_numbers.py": "from digits.core.numbers import double\ndef test(): assert double(3) == 6",
    "tests/data/test_same.py": "from digits.core.numbers import same\ndef test(): assert same(0) == 0",
}


@pytest.fixture
def field(tmp_path: Path) -> Iterator[Field]:
    """A copy of a small checkout with one module and its tests."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
    field = Field(tmp_path, 60, 1)
    yield field
    field.close()
    assert not field.root.exists()


@pytest.mark.integration
def test_a_fault_is_found_or_survives_in_the_tests_that_execute_it(field: Field) -> None:
    faults = [fault for fault in sow(field.root, ["core"], 20, 1) if fault.operator == "arithmetic"]
    files = field.executing(faults, "unit", ["tests"])
    results = {fault.line: field.test(fault, "unit", files[fault.key]) for fault in faults}
    assert {line: (result.outcome, result.test) for line, result in results.items()} == {
        3: ("found", "tests/core/test_numbers.py::test"),
        7: ("survived", ""),
        11: ("untested", ""),
    }
    assert [files[fault.key] for fault in faults if fault.line == 7] == [["tests/data/test_same.py"]]
    assert "-    return 1 - 1\n+    return 1 + 1" in results[11].diff
    assert (field.root / "digits/core/numbers.py").read_text() == MODULE


@pytest.mark.integration
def test_a_test_that_fails_anyway_says_nothing(field: Field) -> None:
    (field.root / "tests/core/test_numbers.py").write_text("def test_nothing():\n    assert 1 == 2\n")
    (fault,) = sow(field.root, ["core"], 1, 1)
    assert field.test(fault, "unit", ["tests/core/test_numbers.py"]).outcome == "unclear"


@pytest.mark.integration
def test_tests_that_hang_find_the_fault(field: Field, tmp_path: Path) -> None:
    (tmp_path / "tests/core/test_numbers.py").write_text("import time\ntime.sleep(60)\n")
    (fault,) = sow(field.root, ["core"], 1, 1)
    impatient = Field(tmp_path, 0.5, 1)
    try:
        assert impatient.test(fault, "unit", ["tests/core/test_numbers.py"]).test == "timeout"
    finally:
        impatient.close()
