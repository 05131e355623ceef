"""The paths that the server may read, and the completions it offers."""

from __future__ import annotations

import errno
import itertools
import os
from pathlib import Path

import pytest

from digits.core.errors import BadRequest, DigitsError, NotAllowed
from digits.data.data_roots import MAX_SUGGESTIONS, Roots

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


def test_folder_below_a_root_is_resolved(roots: Roots, tree: Path) -> None:
    assert roots.resolve(f"{tree}/data/cats") == tree / "data/cats"
    assert roots.resolve(f"  {tree}/data//cats/../dogs/ ") == tree / "data/dogs"
    assert roots.resolve(str(tree / "data")) == tree / "data"


def test_file_below_a_root_is_resolved(roots: Roots, tree: Path) -> None:
    assert roots.resolve(f"{tree}/data/list.txt", "file") == tree / "data/list.txt"


def test_link_within_a_root_is_followed(roots: Roots, tree: Path) -> None:
    assert roots.resolve(f"{tree}/data/inside") == tree / "data/cats"


def test_root_that_is_a_link_works(tree: Path) -> None:
    (tree / "images").symlink_to(tree / "data")
    roots = Roots([tree / "images"])
    assert roots.resolve(f"{tree}/images/cats") == tree / "data/cats"
    assert roots.complete(f"{tree}/images/ca") == [f"{tree}/images/cats/"]


def test_home_is_expanded_and_still_checked(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tree))
    roots = Roots(["~/data"])
    assert roots.resolve("~/data/cats") == tree / "data/cats"
    with pytest.raises(NotAllowed):
        roots.resolve("~/data-secret")
    with pytest.raises(NotAllowed):
        roots.resolve("~")


@pytest.mark.parametrize(
    "relative", ["data", "./data", "../data", "~root/data", "~~", "file:///etc", "C:\\data"]
)
def test_relative_path_is_refused(roots: Roots, relative: str) -> None:
    with pytest.raises(BadRequest, match="not an absolute path"):
        roots.resolve(relative)


@pytest.mark.parametrize("text", ["", "   ", "/a\0b", "/\ud800", "/" + "a" * 5000])
def test_an_invalid_path_is_refused(roots: Roots, text: str) -> None:
    with pytest.raises(BadRequest):
        roots.resolve(text)


def test_name_that_is_too_long_for_the_file_system_is_refused(roots: Roots, tree: Path) -> None:
    with pytest.raises(BadRequest, match="does not exist"):
        roots.resolve(f"{tree}/data/{'n' * 300}")


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


@pytest.mark.parametrize("name", ["missing", "loop", "loop/more", "list.txt/more"])
def test_missing_path_is_refused(roots: Roots, tree: Path, name: str) -> None:
    with pytest.raises(BadRequest, match="does not exist"):
        roots.resolve(f"{tree}/data/{name}")


@pytest.mark.parametrize(
    ("name", "kind"), [("list.txt", "folder"), ("fifo", "folder"), ("cats", "file"), ("fifo", "file")]
)
def test_wrong_kind_is_refused(roots: Roots, tree: Path, name: str, kind: str) -> None:
    with pytest.raises(BadRequest, match=f"not a {kind}"):
        roots.resolve(f"{tree}/data/{name}", kind)  # type: ignore[arg-type]


def test_unreadable_folder_is_refused(roots: Roots, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Root may read everything, so the access check is replaced.
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(NotAllowed, match="permission"):
        roots.resolve(f"{tree}/data/cats")


@pytest.mark.parametrize(
    "name", ["escape", "escape/inner", "escape-file", "inside/../../data-secret", "../data-secret"]
)
def test_leaving_a_root_is_refused(roots: Roots, tree: Path, name: str) -> None:
    for kind in ("folder", "file"):
        with pytest.raises(NotAllowed):
            roots.resolve(f"{tree}/data/{name}", kind)  # type: ignore[arg-type]


def payloads(tree: Path) -> list[str]:
    """Path traversal payloads that point at the canary or at system files."""
    ups = [
        "..",
        "%2e%2e",
        "%252e%252e",
        "..;",
        "..\\",
        "....//",
        "․․",
        "．．",
        ".%00.",
        "..\0",
        "..%c0%af",
        "./..",
    ]
    separators = ["/", "//", "\\", "%2f", "%5c", "%252f", ";/", "∕"]
    targets = [f"data-secret/{CANARY}", "data-secret", "../../../../../etc/passwd"]
    starts = [f"{tree}/data", f"{tree}/data/cats", ""]
    return [
        f"{start}{separator}{up}{separator}{target}{end}"
        for start, up, separator, target in itertools.product(starts, ups, separators, targets)
        for end in ("", "#", "?", "\0.png")
    ]


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


def test_completion_lists_a_folder(roots: Roots, tree: Path) -> None:
    data = tree / "data"
    assert roots.complete(f"{data}/") == [
        f"{data}/cats/", f"{data}/dogs/", f"{data}/fifo", f"{data}/inside/", f"{data}/list.txt", f"{data}/loop"
    ]  # fmt: skip
    assert roots.complete(f"{data}/d") == [f"{data}/dogs/"]
    assert roots.complete(f"{data}/.h") == [f"{data}/.hidden/"]
    assert roots.complete(f"{data}/nothing") == []


def test_completion_suggests_the_roots(roots: Roots, tree: Path) -> None:
    data = f"{tree}/data/"
    assert roots.complete("") == [data]
    assert roots.complete("/") == [data]
    assert roots.complete(f"{tree}/da") == [data]
    assert roots.complete(f"{tree}/data") == [data]
    assert roots.complete("/etc/") == []
    assert roots.complete("relative") == []


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
