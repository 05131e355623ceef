"""The paths that the server may read, and the completions it offers."""

from __future__ import annotations

import difflib
import errno
import itertools
import os
from pathlib import Path

import pytest

from digits.core.errors import BadRequest, DigitsError, NotAllowed
from digits.data.data_roots import MAX_COMPARED, MAX_SUGGESTIONS, FileType, Missing, Roots

CANARY = "only-outside-the-roots"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A root ``data`` with images, a sibling ``data-secret``, and links between them."""
    for folder in ("data/cats", "data/dogs", "data/.hidden", "data-secret/inner"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "data/list.txt").write_text("cats/1.png 0\n")
    (tmp_path / "data-secret" / CANARY).write_text(CANARY)
    (tmp_path / "data/escape").symlink_to(tmp_path / "data-secret")
    (tmp_path / "data/escape-file").symlink_to(tmp_path / "data-secret" / CANARY)
    (tmp_path / "data/inside").symlink_to(tmp_path / "data/cats")
    (tmp_path / "data/loop").symlink_to(tmp_path / "data/loop")
    os.mkfifo(tmp_path / "data/fifo")
    return tmp_path


@pytest.fixture
def roots(tree: Path) -> Roots:
    return Roots([tree / "data"])


@pytest.mark.parametrize(
    ("path", "kind", "resolved"),
    [
        ("/cats", "folder", "/cats"),
        ("//cats/../dogs/ ", "folder", "/dogs"),
        ("", "folder", ""),
        ("/list.txt", "file", "/list.txt"),
        ("/inside", "folder", "/cats"),  # a link within the root
    ],
)
def test_paths_below_a_root_are_resolved(
    roots: Roots, tree: Path, path: str, kind: FileType, resolved: str
) -> None:
    assert roots.resolve(f"  {tree}/data{path}", kind) == Path(f"{tree}/data{resolved}")


def test_root_that_is_a_link_works(tree: Path) -> None:
    (tree / "images").symlink_to(tree / "data")
    roots = Roots([tree / "images"])
    assert roots.resolve(f"{tree}/images/cats") == tree / "data/cats"
    assert roots.complete(f"{tree}/images/ca") == [f"{tree}/images/cats/"]


def test_home_is_expanded_and_still_checked(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tree))
    roots = Roots(["~/data"])
    assert roots.resolve("~/data/cats") == tree / "data/cats"
    for outside in ("~/data-secret", "~"):
        with pytest.raises(NotAllowed):
            roots.resolve(outside)


MISSING, RELATIVE = "does not exist", "not an absolute path"


@pytest.mark.parametrize(
    ("text", "kind", "error", "message"),
    [
        *(
            (text, "folder", BadRequest, RELATIVE)
            for text in ("data", "./data", "../data", "~root/data", "~~")
        ),
        *((text, "folder", BadRequest, RELATIVE) for text in ("file:///etc",)),
        *(
            (text, "folder", BadRequest, "a path of Windows")
            for text in ("C:\\data", "d:/data", "\\\\server\\data")
        ),
        *((text, "folder", BadRequest, ".") for text in ("", "   ", "/a\0b", "/\ud800", "/" + "a" * 5000)),
        *((f"DATA/{name}", "folder", BadRequest, MISSING) for name in ("missing", "loop", "loop/more")),
        *((f"DATA/{name}", "folder", BadRequest, MISSING) for name in ("list.txt/more", "n" * 300)),
        *((f"DATA/{name}", "folder", BadRequest, "not a folder") for name in ("list.txt", "fifo")),
        *((f"DATA/{name}", "file", BadRequest, "not a file") for name in ("cats", "fifo")),
        *((f"DATA/{name}", "folder", NotAllowed, ".") for name in ("escape", "escape/inner", "escape-file")),
        *((f"DATA/{name}", "file", NotAllowed, ".") for name in ("escape", "escape/inner", "escape-file")),
        *((f"DATA/{path}data-secret", "folder", NotAllowed, ".") for path in ("inside/../../", "../")),
        *((f"DATA/{path}data-secret", "file", NotAllowed, ".") for path in ("inside/../../", "../")),
    ],
)
def test_other_paths_are_refused(
    roots: Roots, tree: Path, text: str, kind: FileType, error: type[DigitsError], message: str
) -> None:
    with pytest.raises(error, match=message):
        roots.resolve(text.replace("DATA", f"{tree}/data"), kind)


def test_a_relative_path_is_completed_and_quotes_are_removed(roots: Roots, tree: Path) -> None:
    for text in ("cats", "data/cats"):
        with pytest.raises(BadRequest, match="not an absolute path") as refusal:
            roots.resolve(text)
        assert refusal.value.hint == f"Did you mean {tree}/data/cats?"
    for text in ("../data-secret", "list.txt"):
        with pytest.raises(BadRequest) as refusal:
            roots.resolve(text)
        assert refusal.value.hint == "Start it with /."
    assert roots.resolve(f'"{tree}/data/cats"') == tree / "data/cats"


def test_refusal_names_the_roots_and_the_option(roots: Roots, tree: Path) -> None:
    with pytest.raises(NotAllowed) as refusal:
        roots.resolve("/etc")
    assert "/etc" in refusal.value.message
    assert str(tree / "data") in refusal.value.hint
    assert "--data-root" in refusal.value.hint


def test_a_link_with_a_hidden_target_is_outside(
    roots: Roots, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Like /proc/1/root for an unprivileged user.
    monkeypatch.setattr(os, "readlink", _refuse)
    with pytest.raises(NotAllowed, match="is outside the folders this server may read"):
        roots.resolve(f"{tree}/data/inside")
    assert not roots.contain(tree / "data/inside")
    assert roots.complete(f"{tree}/data/inside/") == []
    assert roots.complete(f"{tree}/data/ca") == [f"{tree}/data/cats/"]
    assert roots.complete(f"{tree}/data/in") == []


def _refuse(*_: object, **__: object) -> str:
    raise PermissionError(errno.EACCES, "Permission denied")


def test_without_roots_every_path_is_refused(tree: Path) -> None:
    with pytest.raises(NotAllowed) as refusal:
        Roots([]).resolve(str(tree))
    assert "--data-root" in refusal.value.hint
    assert Roots([]).complete("/") == []


def test_a_refusal_does_not_reveal_what_exists(roots: Roots, tree: Path) -> None:
    answers = []
    for name in (CANARY, "missing"):
        with pytest.raises(DigitsError) as refusal:
            roots.resolve(f"{tree}/data-secret/{name}", "file")
        answers.append((type(refusal.value), refusal.value.message.replace(name, "NAME"), refusal.value.hint))
    assert answers[0] == answers[1]


def test_unreadable_folder_is_refused(roots: Roots, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Root may read everything, so the access check is replaced.
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(NotAllowed, match="permission"):
        roots.resolve(f"{tree}/data/cats")


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("CATS", "cats"),
        ("cat", "cats"),
        ("catz", "cats"),
        ("docs/more", ""),  # dogs/more does not exist either
        ("lists.txt", "list.txt"),
        ("list.text", "list.txt"),
        ("liwt.txt", "list.txt"),
        ("pets", ""),
    ],
)
def test_a_similar_path_is_suggested(roots: Roots, tree: Path, wrong: str, meant: str) -> None:
    with pytest.raises(Missing) as error:
        roots.resolve(f"{tree}/data/{wrong}", "any")
    assert error.value.meant == (meant and f"{tree}/data/{meant}")
    assert error.value.hint == (f"Did you mean {tree}/data/{meant}?" if meant else "")


@pytest.mark.parametrize(
    ("name", "wrong", "meant"),
    [
        ("IMG_20240101_{:06}.jpg", "IMG_20240101_001234.jpeg", "IMG_20240101_001234.jpg"),
        ("IMG_20240101_{:06}.jpg", "IMG_2024010_001234.jpg", "IMG_20240101_001234.jpg"),
        ("ab" * 92 + "{:06}.jpg", "ba" * 92 + "x.jpg", None),
        ("a" * 200 + "{:06}", "a" * 255, None),
    ],
)
def test_the_work_of_a_suggestion_does_not_depend_on_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, wrong: str, meant: str | None
) -> None:
    for number in range(3000):
        (tmp_path / name.format(number)).touch()
    compared = []

    class Counted(difflib.SequenceMatcher):
        def set_seq1(self, a):
            super().set_seq1(a)
            compared.append(len(a) * len(self.b or ""))

    monkeypatch.setattr(difflib, "SequenceMatcher", Counted)
    with pytest.raises(Missing) as error:
        Roots([tmp_path]).resolve(str(tmp_path / wrong), "file")
    assert sum(compared) <= MAX_COMPARED + 2 * 255
    if meant is not None:
        assert error.value.meant == str(tmp_path / meant)


def payloads(tree: Path) -> list[str]:
    """Path traversal payloads that point at the canary or at system files."""
    ups = "..|%2e%2e|%252e%252e|..;|..\\|....//|․․|．．|.%00.|..\0|..%c0%af|./..".split("|")
    separators = ["/", "//", "\\", "%2f", "%5c", "%252f", ";/", "∕"]
    targets = [f"data-secret/{CANARY}", "data-secret", "../../../../../etc/passwd"]
    starts = [f"{tree}/data", f"{tree}/data/cats", ""]
    return [
        f"{start}{separator}{up}{separator}{target}{end}"
        for start, up, separator, target in itertools.product(starts, ups, separators, targets)
        for end in ("", "#", "?", "\0.png")
    ]


@pytest.mark.slow
def test_no_payload_escapes(roots: Roots, tree: Path) -> None:
    corpus = payloads(tree)
    assert len(corpus) > 200
    let_in = []
    for text in corpus:
        for kind in ("folder", "file"):
            try:
                let_in.append(roots.resolve(text, kind))  # type: ignore[arg-type]
            except DigitsError:
                continue
    assert all(path.is_relative_to(tree / "data") for path in let_in)
    offered = set(itertools.chain.from_iterable(roots.complete(text) for text in corpus))
    assert not any(CANARY in path for path in offered)
    assert all(Path(os.path.realpath(path)).is_relative_to(tree / "data") for path in offered)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("DATA/", ["cats/", "dogs/", "fifo", "inside/", "list.txt", "loop"]),
        ("DATA/d", ["dogs/"]),
        ("DATA/.h", [".hidden/"]),
        ("DATA/nothing", []),
        # Above the roots, they are suggested.
        *((text, [""]) for text in ("", "/", "TREE/da", "TREE/data")),
        *((text, []) for text in ("/etc/", "relative")),
    ],
)
def test_completions(roots: Roots, tree: Path, text: str, names: list[str]) -> None:
    data = f"{tree}/data"
    completed = roots.complete(text.replace("DATA", data).replace("TREE", str(tree)))
    assert completed == [f"{data}/{name}" for name in names]


def test_completion_is_capped_and_sorted(roots: Roots, tree: Path) -> None:
    for number in range(150):
        (tree / f"data/cats/{number:03}").touch()
    offered = roots.complete(f"{tree}/data/cats/")
    assert offered == [f"{tree}/data/cats/{number:03}" for number in range(MAX_SUGGESTIONS)]


def test_completion_omits_names_that_are_not_valid_text(roots: Roots, tree: Path) -> None:
    folder = os.fsencode(tree / "data/cats")
    for name in (b"\xff.png", b"a\nb", "größe".encode()):
        os.close(os.open(os.path.join(folder, name), os.O_CREAT))
    assert roots.complete(f"{tree}/data/cats/") == [f"{tree}/data/cats/größe"]


def test_a_similar_path_is_proposed_for_a_missing_one(roots: Roots, tree: Path) -> None:
    (tree / "data" / "cats" / "young").mkdir()
    meant = {"catz": "cats", "Cat/young": "cats/young", "lst.txt": "", "xyz": "", "catz/old": "", "escpe": ""}
    for name, similar in meant.items():
        with pytest.raises(BadRequest) as caught:
            roots.resolve(str(tree / "data" / name), "folder")
        wanted = f"Did you mean {tree}/data/{similar}?" if similar else ""
        assert caught.value.hint == wanted, name
