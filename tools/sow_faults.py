"""Measure the power of the tests: sow single faults into the program, and see whether its tests find them.

    .venv/bin/python tools/sow_faults.py --list                     show the faults that a seed selects
    .venv/bin/python tools/sow_faults.py --count 40 --seed 1        run the tests of each fault
    .venv/bin/python tools/sow_faults.py --only runtime --count 5   in one zone

A fault is a wrong comparison, an inverted condition, a dropped statement, a changed constant, swapped arguments and so
on, in one place of `digits/`. The zones take turns, so that the small ones get as many faults as the large ones.
Docstrings, log messages, type hints and settings without visible effect are left alone; whether a surviving fault
changes the behavior at all is for a person to judge.

Everything happens in a temporary copy of the checkout. First, the unit tests of the zones run once without a fault, to
record which files of tests execute the statement of each. Then each fault is made, and these files run until a test
fails: those of its zone, the fastest first, and then those of the other zones. The same follows with the other tests
for the faults that are left. A test that fails is repeated without the fault; if it fails then, too, the result is
unclear, and the same command tests the fault again. A program with a fault may do anything: run this where it can
destroy nothing of value.

The files are listed in ``test-results/executing-SEED.json``, and results are appended to
``test-results/faults-SEED.jsonl``. The same command continues where it was interrupted; remove both files after
changing the program.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import difflib
import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from digits.core.files import remove_tree

ROOT = Path(__file__).resolve().parent.parent
ZONES = ("core", "data", "kinds", "runtime", "web", "worker")
# The tests that run first for all faults, and those that follow for the ones that these do not find.
STAGES = {
    "unit": "not integration and not tensorflow and not slow and not nightly and not network",
    "other": "(integration or tensorflow or slow) and not nightly and not network",
}
GENERATED = "_pb2.py"
# What ./digits-test builds and the tests need, besides the files of the checkout.
BUILT = ("node_modules", "static/vendor")
# A statement that creates a file for the test process to which the process that runs it belongs.
PROBE = (
    '__import__("posix").close(__import__("posix").open('
    '"{hits}/" + __import__("os").environ.get("PYTEST_XDIST_WORKER", "gw") + "-{number}", 65))'
)

COMPARISONS = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"), ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="), ast.In: ("in", "not in"), ast.NotIn: (r"not\s+in", "in"), ast.Is: ("is", "is not"),
    ast.IsNot: (r"is\s+not", "is"),
}  # fmt: skip
# Not division, which joins paths.
ARITHMETIC = {ast.Add: (r"\+", "-"), ast.Sub: ("-", "+"), ast.Mult: (r"\*", "+")}
# Calls without an effect on the behavior, and functions whose arguments can be swapped.
LOGS = {"log", "logger", "logging", "warnings"}
SYMMETRIC = {
    "max",
    "min",
    "maximum",
    "minimum",
    "isinstance",
    "issubclass",
    "add",
    "multiply",
    "gcd",
    "samefile",
}
UNSEEN_CALLS = {"TypeVar", "cast", "round"}
# Arguments that tests cannot notice or that only save time.
UNSEEN_ARGUMENTS = {
    "allow_pickle", "buffering", "capture_output", "check", "compare", "daemon", "ensure_ascii", "eq",
    "exist_ok", "frozen", "indent", "init", "kw_only", "maxsize", "missing_ok", "mode", "optimize", "parents",
    "repr", "slots", "stacklevel", "start_new_session", "strict", "text", "timeout",
}  # fmt: skip


@dataclass(frozen=True)
class Fault:
    """Replace the bytes from ``start`` to ``end`` of the file ``path`` by ``text``."""

    path: str
    line: int
    operator: str
    start: int
    end: int
    text: str

    def apply(self, source: bytes) -> bytes:
        return source[: self.start] + self.text.encode() + source[self.end :]

    def diff(self, source: bytes) -> str:
        """Return the changed lines as a unified diff without its header."""
        before, after = (text.decode().splitlines() for text in (source, self.apply(source)))
        return "\n".join(list(difflib.unified_diff(before, after, n=1, lineterm=""))[2:])

    @property
    def zone(self) -> str:
        return self.path.split("/")[1]

    @property
    def key(self) -> str:
        return f"{self.path}:{self.line}:{self.start}:{self.operator}"


class _Sower:
    """Collects the faults that are possible in one file."""

    def __init__(self, path: str, source: bytes) -> None:
        self.faults: list[Fault] = []
        self._path, self._source = path, source
        lines = source.splitlines(keepends=True)
        self._line_starts = [sum(map(len, lines[:number])) for number in range(len(lines) + 1)]

    def visit(self, node: ast.AST, inside: bool = False) -> None:
        """Collect the faults in ``node`` ``inside`` a function; others would break the import for every test."""
        if _is_left_alone(node):
            return
        match node if inside else None:
            case ast.Compare(ops=[operator], left=left, comparators=[right]):
                self._replace_between("comparison", left, right, *COMPARISONS[type(operator)])
            case ast.BoolOp(values=[first, second, *_]):
                words = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
                self._replace_between("logic", first, second, *words)
            case ast.UnaryOp(op=ast.Not()):
                start = self._start(node)
                self._add("dropped not", node, start, start + len("not "), "")
            case ast.If(test=test) | ast.IfExp(test=test) if not isinstance(test, ast.Compare | ast.UnaryOp):
                start, end = self._start(test), self._end(test)
                self._add("inverted condition", test, start, end, f"(not ({self._text(test)}))")
            case ast.BinOp(op=operator, left=left, right=right) if type(operator) in ARITHMETIC:
                if not any(_is_text(side) for side in (left, right)):
                    self._replace_between("arithmetic", left, right, *ARITHMETIC[type(operator)])
            case ast.Constant(value=bool() as value):
                self._add("flag", node, self._start(node), self._end(node), str(not value))
            case ast.Constant(value=0 | 1 | 2 as value):
                self._add("constant", node, self._start(node), self._end(node), str(value + 1))
            case ast.Call(args=[first, second, *_]) if _can_swap(node):
                text = self._source[self._end(first) : self._start(second)].decode()
                swapped = f"{self._text(second)}{text}{self._text(first)}"
                if self._text(first) != self._text(second) and "#" not in text:
                    self._add("swapped arguments", node, self._start(first), self._end(second), swapped)
            case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Continue() | ast.Raise(exc=ast.expr()):
                self._add("dropped statement", node, self._start(node), self._end(node), "pass")
        inside = inside or isinstance(node, ast.FunctionDef)
        for child in _children(node):
            self.visit(child, inside)

    def _replace_between(self, operator: str, left: ast.expr, right: ast.expr, old: str, new: str) -> None:
        start, end = self._end(left), self._start(right)
        between = self._source[start:end].decode()
        word = rf"\b{old}\b" if old[0].isalpha() else old
        if "#" not in between and len(re.findall(word, between)) == 1:
            self._add(operator, left, start, end, re.sub(word, new, between))

    def _add(self, operator: str, node: ast.AST, start: int, end: int, text: str) -> None:
        self.faults.append(Fault(self._path, getattr(node, "lineno", 1), operator, start, end, text))

    def _text(self, node: ast.expr) -> str:
        return self._source[self._start(node) : self._end(node)].decode()

    def _start(self, node: ast.expr | ast.stmt) -> int:
        return self._line_starts[node.lineno - 1] + node.col_offset

    def _end(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self._line_starts[node.end_lineno - 1] + node.end_col_offset


def _is_left_alone(node: ast.AST) -> bool:
    """Return whether faults in ``node`` would have no effect on the behavior."""
    match node:
        case ast.Assert() | ast.JoinedStr():
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING") | ast.Compare(left=ast.Name(id="__name__"))):
            return True
        case ast.Call(func=ast.Attribute(value=ast.Name(id=owner))) if owner in LOGS:
            return True
        case ast.Call(func=ast.Name(id=name)) if name in UNSEEN_CALLS:
            return True
        case ast.Expr(value=ast.Call() as call) if _is_left_alone(call):
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Call(func=ast.Name(id="super"))))):
            return True
        case ast.Raise(exc=ast.Name(id="NotImplementedError")):
            return True
        case ast.keyword(arg=str() as name) if name in UNSEEN_ARGUMENTS:
            return True
        case ast.FunctionDef(name="__repr__" | "__str__"):
            return True
    return False


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts of ``node`` that run: no type hints, decorators or options of classes."""
    skipped = {
        ast.FunctionDef: ("decorator_list", "returns"),
        ast.ClassDef: ("decorator_list", "keywords", "bases"),
        ast.AnnAssign: ("annotation",),
        ast.arg: ("annotation",),
    }.get(type(node), ())
    for name, value in ast.iter_fields(node):
        if name not in skipped:
            yield from (
                item for item in (value if isinstance(value, list) else [value]) if isinstance(item, ast.AST)
            )


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _can_swap(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return name not in SYMMETRIC and not any(isinstance(item, ast.Starred) for item in call.args[:2])


def faults_in(path: str, source: bytes) -> list[Fault]:
    """Return the possible faults in the ``source`` of the file ``path``, in their order."""
    sower = _Sower(path, source)
    sower.visit(ast.parse(source))
    return sorted(set(sower.faults), key=lambda fault: (fault.start, fault.end, fault.text))


def sow(root: Path, zones: Sequence[str], count: int, seed: int) -> list[Fault]:
    """Return ``count`` faults in ``zones``, which take turns, as do the operators in each zone."""
    generator = random.Random(seed)
    queues = []
    for zone in zones:
        by_operator: dict[str, list[Fault]] = {}
        for path in sorted((root / "digits" / zone).rglob("*.py")):
            if not path.name.endswith(GENERATED):
                for fault in faults_in(str(path.relative_to(root)), path.read_bytes()):
                    by_operator.setdefault(fault.operator, []).append(fault)
        operators = [by_operator[name] for name in sorted(by_operator)]
        generator.shuffle(operators)
        for faults in operators:
            generator.shuffle(faults)
        queues.append(_in_turn(operators))
    valid = (
        fault for fault in _in_turn(queues) if _is_program(fault.apply((root / fault.path).read_bytes()))
    )
    return list(itertools.islice(valid, count))


def _in_turn(queues: Iterable[Iterable[Fault]]) -> Iterator[Fault]:
    """Yield the first fault of each queue, then the second ones, and so on."""
    for turn in itertools.zip_longest(*queues):
        yield from (fault for fault in turn if fault is not None)


def _is_program(source: bytes) -> bool:
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True


def with_probes(source: bytes, probes: Mapping[int, str]) -> bytes:
    """Return ``source`` with each of ``probes``, a statement, before the innermost one at its offset where it fits.

    One in the signature of a function goes into the function.
    """
    lines = source.splitlines(keepends=True)
    starts = [sum(map(len, lines[:number])) for number in range(len(lines) + 1)]
    spans = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.stmt) and node.end_lineno and node.end_col_offset:
            first = node.body[0] if isinstance(node, ast.FunctionDef) else node
            end = starts[node.end_lineno - 1] + node.end_col_offset
            spans.append((starts[node.lineno - 1] + node.col_offset, end, first.lineno, first.col_offset))
    insertions = []
    for offset, probe in probes.items():
        for start, end, line, column in sorted(spans, reverse=True):
            place = starts[line - 1] + column
            indent = source[starts[line - 1] : place]
            text = probe.encode() + b"\n" + indent
            is_within = start <= offset < end and not indent.strip()
            if is_within and _is_program(source[:place] + text + source[place:]):
                insertions.append((place, text))
                break
    for place, text in sorted(insertions, reverse=True):
        source = source[:place] + text + source[place:]
    return source


@dataclass(frozen=True)
class Result:
    """What the tests of a stage say about a fault: ``found``, ``survived``, or ``untested`` if none executes it.

    It is ``unclear`` if the test fails without the fault as well.
    """

    key: str
    stage: str
    outcome: str
    test: str
    diff: str


class Field:
    """A temporary copy of a checkout, in which one fault after the other is made."""

    def __init__(self, root: Path, seconds: float, processes: int) -> None:
        self._seconds, self._processes = seconds, processes
        self._temporary = Path(tempfile.mkdtemp(prefix="sow-"))
        self.root = self._temporary / "checkout"
        names = subprocess.run(
            ["git", "ls-files", "-z"], cwd=root, check=True, capture_output=True, text=True
        ).stdout
        for name in filter(None, names.split("\0")):
            if (root / name).is_file():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / name, self.root / name)
        for name in BUILT:
            if (root / name).exists():
                (self.root / name).symlink_to(root / name)

    def close(self) -> None:
        remove_tree(self._temporary, ignore_errors=True)

    def executing(self, faults: Sequence[Fault], stage: str, tests: Sequence[str]) -> dict[str, list[str]]:
        """Return the files of ``tests`` that execute the statement of each fault, by its key, the fastest first."""
        hits = Path(tempfile.mkdtemp(prefix="hits", dir=self._temporary))
        sources = {path: (self.root / path).read_bytes() for path in {fault.path for fault in faults}}
        try:
            for path, source in sources.items():
                probes = {
                    fault.start: PROBE.format(hits=hits, number=number)
                    for number, fault in enumerate(faults)
                    if fault.path == path
                }
                (self.root / path).write_bytes(with_probes(source, probes))
            options = ["-p", "tools.sow_faults", *self._parallel, *tests]
            _, output = self._pytest(stage, options, None, {"SOW_HITS": str(hits)})
        finally:
            for path, source in sources.items():
                (self.root / path).write_bytes(source)
        if not (hits / "log").exists():
            sys.exit(f"No test ran:\n{output}")
        seconds: Counter[str] = Counter()
        files: dict[int, set[str]] = {number: set() for number in range(len(faults))}
        for line in (hits / "log").read_text().splitlines():
            file, duration, *numbers = json.loads(line)
            seconds[file] += duration
            for number in numbers:
                files[number].add(file)
        return {fault.key: sorted(files[n], key=seconds.__getitem__) for n, fault in enumerate(faults)}

    def test(self, fault: Fault, stage: str, files: Sequence[str]) -> Result:
        """Run the tests in ``files`` with ``fault``, first those of its zone."""
        file = self.root / fault.path
        source = file.read_bytes()
        own = [test for test in files if test.startswith(f"tests/{fault.zone}/")]
        outcome, test = ("survived" if files else "untested"), ""
        for group in filter(None, (own, [test for test in files if test not in own])):
            file.write_bytes(fault.apply(source))
            try:
                test = self._failing(stage, group)
            finally:
                file.write_bytes(source)
            if test:
                outcome = "unclear" if test != "timeout" and self._failing(stage, [test]) else "found"
                break
        return Result(fault.key, stage, outcome, test, fault.diff(source))

    @property
    def _parallel(self) -> list[str]:
        return ["-n", str(self._processes)] if self._processes > 1 else []

    def _failing(self, stage: str, tests: list[str]) -> str:
        """Run ``tests``; return the first one that fails, ``timeout``, or empty if all pass."""
        parallel = self._parallel if len(tests) > 1 else []
        try:
            code, output = self._pytest(stage, ["-x", *parallel, *tests], self._seconds, {})
        except subprocess.TimeoutExpired:
            return "timeout"
        if code in (0, 5):  # 5: no test is selected
            return ""
        failed = re.search(r"^(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$", output, re.M)
        return failed[1] if failed else tests[0]

    def _pytest(
        self, stage: str, options: list[str], seconds: float | None, variables: dict[str, str]
    ) -> tuple[int, str]:
        temporary = tempfile.mkdtemp(prefix="t", dir=self._temporary)
        command = ["nice", "-n", "10", sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        variables |= {"PYTHONPATH": str(self.root), "TMPDIR": temporary, "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            with subprocess.Popen(
                [*command, "-m", STAGES[stage], *options],
                cwd=self.root,
                env={**os.environ, **variables},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            ) as process:
                try:
                    output, _ = process.communicate(timeout=seconds)
                finally:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
            return process.returncode, output
        finally:
            remove_tree(Path(temporary), ignore_errors=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Record which probes the test has reached, in pytest's processes that load this module as a plugin."""
    started = time.monotonic()
    result = yield
    hits = Path(os.environ["SOW_HITS"])
    reached = list(hits.glob(f"{os.environ.get('PYTEST_XDIST_WORKER', 'gw')}-*"))
    for path in reached:
        path.unlink()
    numbers = [int(path.name.rpartition("-")[2]) for path in reached]
    file = item.nodeid.partition("::")[0]
    with (hits / "log").open("a") as log:
        log.write(json.dumps([file, time.monotonic() - started, *numbers]) + "\n")
    return result


def main() -> int:
    options = _parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # remove the copy
    zones = options.only or list(ZONES)
    faults = sow(ROOT, zones, options.count, options.seed)
    if options.list:
        for number, fault in enumerate(faults, 1):
            print(f"{number}. {fault.path}:{fault.line} {fault.operator}")
            print(fault.diff((ROOT / fault.path).read_bytes()), end="\n\n")
        return 0
    if missing := [name for name in BUILT if not (ROOT / name).exists()]:
        sys.exit(
            f"{' and '.join(missing)} would be missing, so tests would fail in any case. Run ./digits-test first."
        )
    results_file = ROOT / "test-results" / f"faults-{options.seed}.jsonl"
    files_file = results_file.with_name(f"executing-{options.seed}.json")
    results_file.parent.mkdir(exist_ok=True)
    lines = results_file.read_text().splitlines() if results_file.exists() else []
    known = {(body["key"], body["stage"]): Result(**body) for body in map(json.loads, lines)}
    files = json.loads(files_file.read_text()) if files_file.exists() else {}
    field = Field(ROOT, options.seconds, options.processes)
    left = faults
    try:
        for stage in STAGES:
            listed = files.setdefault(stage, {})
            if any(fault.key not in listed for fault in left):
                listed |= field.executing(left, stage, [f"tests/{zone}" for zone in zones])
                files_file.write_text(json.dumps(files, indent=1))
            for fault in left:
                result = known.get((fault.key, stage)) or field.test(fault, stage, listed[fault.key])
                if (fault.key, stage) not in known and result.outcome != "unclear":
                    with results_file.open("a") as file:
                        file.write(json.dumps(asdict(result)) + "\n")
                known[fault.key, stage] = result
                print(f"{stage}: {result.outcome} {fault.key} {result.test}", flush=True)
            left = [fault for fault in left if known[fault.key, stage].outcome != "found"]
    finally:
        field.close()
    for fault in left:
        print(f"\n{fault.key}\n{fault.diff((ROOT / fault.path).read_bytes())}")
    print(f"{len(faults) - len(left)} of {len(faults)} faults were found")
    return bool(left)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=40, help="the number of faults")
    parser.add_argument("--seed", type=int, default=1, help="selects the faults")
    parser.add_argument(
        "--only", action="append", choices=ZONES, help="sow only in this zone; may be repeated"
    )
    parser.add_argument("--list", action="store_true", help="show the faults without testing them")
    parser.add_argument("--processes", type=int, default=2, help="test processes at the same time")
    parser.add_argument(
        "--seconds", type=float, default=900.0, help="limit for the tests of a fault in a zone"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
