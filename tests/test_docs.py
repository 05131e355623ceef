"""The documentation covers the code, and its links work."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from msgspec import structs

from digits.core.recipe import Augment
from digits.core.schedules import POLICIES
from digits.core.settings import settings_page
from digits.data.images.images import ENCODINGS, RESIZE_MODES
from digits.data.manifest import FILE_NAME as MANIFEST_FILE
from digits.data.manifest import LABELS_FILE, MEAN_ARRAY_FILE, MEAN_IMAGE_FILE, SKIPPED_FILE
from digits.kinds.forms import previews
from digits.kinds.kind import MODULES, TEMPLATES
from digits.kinds.text.characters import MAX_CHARACTERS
from digits.runtime import request_batches as queue
from digits.web.app import ACTIVITIES
from digits.web.live import messages as live_messages
from digits.web.models.form import SOLVERS
from digits.web.security import bodies
from digits.web.server import http
from digits.worker.compat.guaranteed import names_table
from tools.network_api import network_api

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").glob("*.md"),
    *(ROOT / "examples").rglob("README.md"),
    ROOT / "jobs" / "README.md",
]


def text(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


def test_the_table_of_settings_is_current():
    assert text("settings.md") == settings_page(), "python -m digits.core.settings > docs/settings.md"


def test_the_table_of_guaranteed_names_is_current():
    assert names_table() in text("networks.md"), "python -m digits.worker.compat.guaranteed"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_work(page):
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text())
    local = [target for target in targets if "://" not in target]
    assert [target for target in local if not (page.parent / target).exists()] == []


def test_the_reference_of_functions_of_networks_is_current():
    assert text("network-api.md") == network_api(), "python -m tools.network_api > docs/network-api.md"


_IMAGES, _BODY = (f"{limit // 10**6} MB" for limit in (bodies.MAX_IMAGE_BYTES, bodies.MAX_BODY_BYTES))


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("predictions.md", f"a zip or tar file of images, up to {_IMAGES}"),
        ("predictions.md", f"files, up to {_IMAGES})"),
        ("serving.md", f"larger than {_IMAGES}, or {_BODY}"),
        ("serving.md", f"{queue.MAX_WAITING} requests, or {queue.MAX_WAITING_BYTES // 10**9} GB of them"),
        ("serving.md", f"did not respond within {queue.WAIT_SECONDS:.0f} seconds"),
        ("security.md", f"at most {http.MAX_HEADER_BYTES // 1024} KB of headers"),
        (
            "security.md",
            f"{_BODY} ({bodies.BODY_LIMITS['/login'] // 1000} KB for a login); {_IMAGES} for images",
        ),
        ("security.md", f"After the first {http.BODY_SECONDS:.0f} s"),
        (
            "datasets.md",
            f"after {previews.MAX_SECONDS:.0f} seconds or {previews.MAX_FILES:,} files",
        ),
        ("text.md", f"An alphabet has at most {MAX_CHARACTERS} characters"),
    ],
)
def test_limits_are_those_of_the_code(page, words):
    assert words in " ".join(text(page).split())


def test_everything_available_to_networks_is_described():
    tree = ast.parse((ROOT / "digits" / "worker" / "network" / "tower.py").read_text())
    (tower,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Tower"]
    (constructor,) = [node for node in tower.body if getattr(node, "name", "") == "__init__"]
    given = [argument.arg for argument in constructor.args.args if argument.arg != "self"]
    assert given
    assert [name for name in [*given, "summaries"] if f"| `{name}` |" not in text("networks.md")] == []
    overridable = [node.name for node in tower.body if isinstance(node, ast.FunctionDef)]
    assert [name for name in overridable if name not in text("networks.md")] == []


@pytest.mark.parametrize(
    "block", re.findall(r"```python\n(.*?)```", text("networks.md") + (ROOT / "README.md").read_text(), re.S)
)
def test_networks_in_the_documentation_are_python(block):
    ast.parse(block)


def test_every_message_is_described():
    source = Path(live_messages.__file__).read_text()
    updates = set(re.findall(r'"update": "(\w+)"', source))
    updates |= {update for _, update, _ in live_messages.TASK_UPDATES} | {
        activity.name for activity in ACTIVITIES
    }
    assert {"status", "metrics", "prediction"} < updates
    rows = "".join(line.split("|")[1] for line in text("live.md").splitlines() if line.startswith("| `"))
    assert [update for update in sorted(updates) if f"`{update}`" not in rows] == []


def test_every_message_has_a_consumer():
    """A page that requests itself again and again may do so because nobody listens to the message."""
    pages = {path.name: path.read_text() for path in (ROOT / "templates").glob("*.html")}
    for activity in ACTIVITIES:
        panel = pages[activity.template or f"_{activity.path}.html"]
        is_shared = panel.count("{% extends '_activity.html' %}") == 1
        assert is_shared or f'data-activity="{activity.name}"' in "".join(pages.values()), activity.name


def test_every_form_choice_is_described():
    choices = [*RESIZE_MODES, *ENCODINGS, *POLICIES, *(name for name, *_ in SOLVERS)]
    assert [choice for choice in choices if f"`{choice}`" not in text("rest.md")] == []


def test_every_output_of_a_dataset_is_described():
    for name in (MANIFEST_FILE, LABELS_FILE, MEAN_IMAGE_FILE, MEAN_ARRAY_FILE, SKIPPED_FILE):
        assert f"`{name}`" in text("datasets.md")


def test_every_augmentation_is_described():
    names = [item.name for item in structs.fields(Augment)]
    assert [name for name in names if f"`{name}`" not in text("training.md")] == []


def test_every_part_of_a_kind_is_described():
    parts = [*MODULES, *(f"templates/{name}" for name in TEMPLATES)]
    assert [part for part in parts if f"| `{part}` |" not in text("plugins.md")] == []


@pytest.mark.parametrize(
    ("module", "name"), [("views", "Views"), ("network/targets", "Targets"), ("network/metrics", "Metrics")]
)
def test_every_overridable_member_of_a_kind_is_described(module, name):
    tree = ast.parse((ROOT / "digits" / "kinds" / f"{module}.py").read_text())
    (base,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]
    members = {node.name for node in base.body if isinstance(node, ast.FunctionDef)}
    members |= {target.id for node in base.body if isinstance(node, ast.Assign) for target in node.targets}
    members |= {node.target.id for node in base.body if isinstance(node, ast.AnnAssign)}
    assert members
    assert [item for item in members if item[0] != "_" and f"`{item}`" not in text("plugins.md")] == []


@pytest.mark.parametrize(
    ("path", "code"), re.findall(r"```\w+\n# ([\w./]+)\n(.*?)```", text("plugins.md"), re.S)
)
def test_code_of_the_example_plugin_is_current(path, code):
    assert code in (ROOT / "examples" / "tagging" / path).read_text()
