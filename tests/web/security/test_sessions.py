"""Sessions as signed cookies."""

from __future__ import annotations

from pathlib import Path

import pytest

from digits.web.security.sessions import IDLE_SECONDS, LONGEST_SECONDS, RENEW_SECONDS, Sessions


def test_session_survives_a_restart() -> None:
    cookie = Sessions("k" * 32).start("fred")
    session = Sessions("k" * 32).read(cookie)
    assert session is not None and session.username == "fred"
    assert Sessions("other" * 8).read(cookie) is None


@pytest.mark.parametrize("cookie", ["", "x", "e30.x", "e30", "." * 5, "a" * 5000, "ä"])
def test_forged_cookie_is_ignored(cookie: str) -> None:
    assert Sessions("k" * 32).read(cookie) is None


def test_every_altered_cookie_is_ignored() -> None:
    sessions = Sessions("k" * 32)
    cookie = sessions.start("fred")
    # The last base64 character contains unused bits.
    for place in range(len(cookie) - 1):
        other = "A" if cookie[place] != "A" else "B"
        assert sessions.read(cookie[:place] + other + cookie[place + 1 :]) is None


def test_idle_and_old_sessions_end() -> None:
    now = [1_000_000.0]
    sessions = Sessions("k" * 32, clock=lambda: now[0])
    cookie = sessions.start("")
    now[0] += IDLE_SECONDS
    session = sessions.read(cookie)
    assert session is not None
    renewed = sessions.renewed(session)
    assert renewed is not None
    now[0] += 1
    assert sessions.read(cookie) is None
    assert sessions.read(renewed) is not None
    latest = renewed
    while now[0] + IDLE_SECONDS / 2 < 1_000_000.0 + LONGEST_SECONDS:
        now[0] += IDLE_SECONDS / 2
        session = sessions.read(latest)
        assert session is not None
        latest = sessions.renewed(session) or latest
    now[0] = 1_000_000.0 + LONGEST_SECONDS - 1
    assert sessions.read(latest) is not None
    now[0] += 2
    assert sessions.read(latest) is None


def test_session_is_renewed_at_intervals() -> None:
    now = [0.0]
    sessions = Sessions("k" * 32, clock=lambda: now[0])
    session = sessions.read(sessions.start("fred"))
    assert session is not None
    now[0] = RENEW_SECONDS - 1
    assert sessions.renewed(session) is None
    now[0] = RENEW_SECONDS
    cookie = sessions.renewed(session)
    assert cookie is not None
    renewed = sessions.read(cookie)
    assert renewed is not None and renewed.id == session.id and renewed.username == "fred"


def test_ended_session_cannot_be_used_again(tmp_path: Path) -> None:
    sessions = Sessions("k" * 32, tmp_path / "ended.json")
    cookie, other = sessions.start("fred"), sessions.start("fred")
    session = sessions.read(cookie)
    assert session is not None
    sessions.end(session)
    for reader in (sessions, Sessions("k" * 32, tmp_path / "ended.json")):
        assert reader.read(cookie) is None
        assert reader.read(other) is not None


def test_a_wrong_clock_makes_no_ended_session_valid(tmp_path: Path) -> None:
    now = 1.8e9
    sessions = Sessions("k" * 32, tmp_path / "ended.json", clock=lambda: now)
    first, second = sessions.start("ada"), sessions.start("grace")
    sessions.end(sessions.read(first))
    second_session = sessions.read(second)
    now += 20_000 * 86400
    sessions.end(second_session)
    now = 1.8e9
    for reader in (sessions, Sessions("k" * 32, tmp_path / "ended.json", clock=lambda: now)):
        assert reader.read(first) is None and reader.read(second) is None


def test_a_damaged_list_of_ended_sessions_ends_all_sessions_before_it(tmp_path: Path) -> None:
    now, path = 1.8e9, tmp_path / "ended.json"

    def restarted() -> Sessions:
        return Sessions("k" * 32, path, clock=lambda: now)

    for text in ("", "[]", '{"a": "b"}', "{"):
        path.unlink(missing_ok=True)
        sessions = restarted()
        ended, other = sessions.start("ada"), sessions.start("grace")
        sessions.end(sessions.read(ended))
        path.write_text(text)
        now += 60
        for _ in range(2):  # also after another restart
            sessions = restarted()
            assert sessions.read(ended) is None and sessions.read(other) is None
            assert sessions.read(sessions.start("fred")) is not None
        sessions.end(sessions.read(sessions.start("fred")))
        assert restarted().read(other) is None
