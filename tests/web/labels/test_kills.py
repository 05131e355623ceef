"""Kill the server while two people save: each confirmed label is there exactly once, and nothing else.

``DIGITS_LABEL_KILLS`` sets their number.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.labels import KilledServer

pytestmark = [pytest.mark.integration, pytest.mark.slow]

KILLS = int(os.environ.get("DIGITS_LABEL_KILLS", "4"))
IMAGES = 6


class Person:
    """Saves images one after the other, and sends each save again until it is confirmed or in conflict."""

    def __init__(self, name: str, trial: Trial) -> None:
        self.name, self.trial = name, trial
        self.confirmed: list[tuple[int, str]] = []
        self.conflicts = 0
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self) -> None:
        revs: Counter[int] = Counter()
        random_numbers = random.Random(self.name)
        count = 0
        while not self.trial.has_ended:
            image, count = random_numbers.randrange(IMAGES), count + 1
            edit = f"{self.name}-{count}"
            body = {
                "edit": edit,
                "state": "labeled",
                "objects": [{"class": 0, "box": [0, 0, count % 9 + 1, 9]}],
            }
            while not self.trial.has_ended:
                status, answer = self.send(image, {**body, "rev": revs[image]})
                if status == 200:
                    revs[image] = answer["rev"]
                    self.confirmed.append((image, edit))
                    break
                if status == 409:
                    revs[image] = answer["entry"]["rev"]
                    self.conflicts += 1
                else:
                    time.sleep(0.01)

    def send(self, image: int, body: dict[str, Any]) -> tuple[int, Any]:
        """Return the status and the body of the response; 0 if the server is gone."""
        address = f"{self.trial.server.address}{self.trial.path}/images/{image}.json"
        headers = {"Content-Type": "application/json", "Cookie": f"username={self.name}"}
        request = urllib.request.Request(address, json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error, suppress(OSError, ValueError):
                return error.code, json.loads(error.read())
        except (OSError, ValueError, urllib.error.URLError):
            pass
        return 0, None


class Trial(KilledServer):
    has_ended = False


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Trial]:
    opened = Trial(tmp_path, IMAGES, (9, 9))
    yield opened
    opened.has_ended = True
    opened.server.stop()


def test_kills_lose_no_confirmed_label_and_double_none(trial: Trial) -> None:
    people = [Person(name, trial) for name in ("ada", "grace")]
    numbers = random.Random(1)
    for _ in range(KILLS):
        before = sum(len(person.confirmed) for person in people)
        trial.server.wait(lambda: sum(len(person.confirmed) for person in people) > before + 20)  # noqa: B023
        time.sleep(numbers.random())
        trial.kill()
    trial.has_ended = True
    for person in people:
        person.thread.join()
    edits: list[tuple[int, str]] = []
    for image in range(IMAGES):
        before, revs = "", []
        while before is not None:
            page = trial.server.ask(f"{trial.path}/images/{image}/history.json?before={before}")
            edits += [(image, entry["edit"]) for entry in page["entries"]]
            revs += [entry["rev"] for entry in page["entries"]]
            before = page["before"]
        assert revs == [*range(len(revs), 0, -1)]
    confirmed = [item for person in people for item in person.confirmed]
    found = Counter(edits)
    print(f"{KILLS} kills, {len(confirmed)} saves, {sum(person.conflicts for person in people)} conflicts")
    assert confirmed and max(found.values()) == 1
    assert {*confirmed} <= found.keys()
    # Each person may have sent one save that was not confirmed when the trial ended.
    assert len(found) <= len(confirmed) + len(people)
