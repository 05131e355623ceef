"""A server in its own process, and a page in Chromium that reports every error in it.

Tests use the fixture ``page``. Allow expected errors in advance: ``page_faults.allow(r"/login$")``.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlencode, urlsplit
from urllib.request import urlopen

import psutil
import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Playwright,
    Request,
    Response,
    WebError,
    expect,
    sync_playwright,
)

from tests.finished_jobs import write_jobs
from tests.leftovers import check_folders_of_server
from tests.real_server import start_digits
from tests.site import bars
from tests.worker.networks import classifier

ROOT = Path(__file__).resolve().parent.parent.parent
AXE = ROOT / "node_modules" / "axe-core" / "axe.min.js"
Scheme = Literal["dark", "light"]
# The colors of pages; visitors prefer the last one.
SCHEMES: tuple[Scheme, ...] = ("dark", "light")
# Those in which most pages are checked for accessibility: all of them with DIGITS_ALL_SCHEMES, as in the nightly run.
CHECKED_SCHEMES = SCHEMES if os.environ.get("DIGITS_ALL_SCHEMES") else SCHEMES[-1:]
COLOR_RULES = ["color-contrast", "link-in-text-block"]
STORED = "cookies,local_storage,indexeddb,cache_storage"
STOP_SECONDS = 15
JOB_PAGE = r"\d{8}-\d{6}-[0-9a-f]+$"
BROKEN = "class UserModel(Tower):\n    inference = loss = property(lambda self: 1 / 0)\n"
TWO_LAYERS = classifier(
    """
model = slim.conv2d(self.x / 255.0, 4, 3, stride=2, scope='conv')
return slim.fully_connected(slim.flatten(model), self.nclasses, activation_fn=None, scope='classes')
"""
)
PATIENCE_MILLISECONDS = 20_000
# The first ones, panels of the address bar and a spare process, would take most of the time of opening a page. The
# others are those that Playwright disables with the same option, which this one replaces.
DISABLED_FEATURES = (
    "WebUIOmniboxPopup,WebUIOmniboxAimPopup,WebUIOmniboxFullPopup,SpareRendererForSitePerProcess,"
    "AvoidUnnecessaryBeforeUnloadCheckSync,DestroyProfileOnBrowserClose,HttpsUpgrades,"
    "HttpsFirstBalancedModeAutoEnable,LensOverlay,MediaRouter,PaintHolding,ThirdPartyStoragePartitioning,"
    "AvoidCorsURLLoaderRestartOnRedirect,TcpPortRandomizationWin,OptimizationHints,NetworkTimeServiceQuerying,"
    "AimEnabled,PreconnectToSearch"
)
CHROMIUM_OPTIONS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    f"--disable-features={DISABLED_FEATURES}",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests in this folder and run them first.

    Idle processes take the last tests of others, so that most of these run in one process: each one that runs them
    starts a browser and a server, and makes the jobs that they share.
    """
    for item in items:
        if _drives_browser(item):
            item.add_marker(pytest.mark.browser)
    items.sort(key=lambda item: not _drives_browser(item))


def _drives_browser(item: pytest.Item) -> bool:
    return item.path.is_relative_to(Path(__file__).parent)


@dataclass
class ServerProcess:
    """A running server with a readable ``data`` folder and a ``jobs`` folder."""

    url: str
    data: Path
    jobs: Path
    log: Path

    def latest_log(self) -> str:
        """Return the end of the log, which contains the tracebacks of failed requests."""
        return self.log.read_text()[-4000:]

    def __truediv__(self, path: str) -> str:
        return f"{self.url}/{path.lstrip('/')}"


@pytest.fixture(scope="session")
def start_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., ServerProcess]]:
    """Return a function that starts a server in a new folder with the given options; servers stop after the session.

    Its ``module`` is the program, by default that of the command ``digits``.
    """
    started: list[tuple[subprocess.Popen[str], Path]] = []

    def start(*options: str, module: str = "digits") -> ServerProcess:
        folder = tmp_path_factory.mktemp("server")
        (folder / "data").mkdir()
        process, url = start_digits(folder, *options, errors=folder / "output", module=module)
        started.append((process, folder))
        return ServerProcess(url, folder / "data", folder / "jobs", folder / "digits.log")

    yield start
    try:
        for process, _ in started:
            check_folders_of_server(process.pid)
    finally:
        for process, folder in started:
            _stop(process, folder)


def _stop(process: subprocess.Popen[str], folder: Path) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
    # Tasks outlive the server by design. No other process has this folder in its arguments.
    for other in psutil.process_iter(["cmdline"]):
        if any(str(folder) in word for word in other.info["cmdline"] or []):
            for descendant in [*other.children(recursive=True), other]:
                _kill(descendant)


def _kill(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.NoSuchProcess:
        pass  # it has already ended


@pytest.fixture(scope="session")
def server(start_server: Callable[..., ServerProcess]) -> ServerProcess:
    """The server shared by most tests."""
    return start_server()


@pytest.fixture(scope="session")
def start_server_with_jobs(
    start_server: Callable[..., ServerProcess], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., ServerProcess]:
    """Return a function that starts a server with its own finished jobs: datasets, and models of the first one."""

    def start(datasets: int, models: int, module: str = "digits") -> ServerProcess:
        folder = tmp_path_factory.mktemp("jobs")
        write_jobs(folder, datasets, models)
        return replace(start_server("--no-standby", "--jobs-dir", str(folder), module=module), jobs=folder)

    return start


@pytest.fixture(scope="session")
def image_folder(server: ServerProcess) -> Path:
    """Three classes with twelve small, easily distinguished images each, in the server's data folder."""
    return bars(server.data / "shapes", each=12)


@pytest.fixture(scope="session")
def create(server: ServerProcess) -> Callable[..., dict[str, Any]]:
    """Create a job as a script would, without a browser: ``create("datasets", dataset_name="Bars", …)``."""

    def make(kind: str, **fields: Any) -> dict[str, Any]:
        address = server / f"{kind}/images/classification.json"
        with urlopen(address, urlencode(fields).encode(), timeout=30) as answer:
            return json.load(answer)  # type: ignore[no-any-return]

    return make


@pytest.fixture(scope="session")
def dataset(
    server: ServerProcess, create: Callable[..., dict[str, Any]], image_folder: Path
) -> dict[str, Any]:
    """A finished dataset of three classes whose folder also has a file that is not an image."""
    (image_folder / "left" / "broken.png").write_text("no image")
    side = {"resize_width": 16, "resize_height": 16}
    job = create("datasets", dataset_name="Bars", method="folder", folder_train=image_folder, **side)
    return finished(server, job)


@pytest.fixture(scope="session")
def failed(create: Callable[..., dict[str, Any]], dataset: dict[str, Any]) -> dict[str, Any]:
    """A model that fails immediately, with or without TensorFlow."""
    return create(
        "models", model_name="Broken", dataset=dataset["id"], method="custom", custom_network=BROKEN
    )


@pytest.fixture(scope="session")
def trained(
    server: ServerProcess, create: Callable[..., dict[str, Any]], dataset: dict[str, Any]
) -> dict[str, Any]:
    """A model of two small layers, trained for two epochs with traces of its steps."""
    fields: dict[str, Any] = {"train_epochs": 2, "batch_size": 6, "random_seed": 1, "traces_interval": 2}
    fields |= {"lr_policy": "step", "lr_step_size": 50, "use_mean": "none"}
    # With so few validation images, no snapshot is the best one by default.
    fields |= {"best_metric": "loss"}
    network = {"method": "custom", "custom_network": TWO_LAYERS, "select_gpu": "cpu"}
    return finished(
        server, create("models", model_name="Trained", dataset=dataset["id"], **fields, **network)
    )


def finished(server: ServerProcess, job: dict[str, Any], ending: str = "Done") -> dict[str, Any]:
    """Wait until ``job`` ends with the status ``ending``, and return it."""
    while True:
        with urlopen(server / f"jobs/{job['id']}/status") as answer:
            status = json.load(answer)["status"]
        if status not in ("Initialized", "Waiting", "Running"):
            assert status == ending
            return job
        time.sleep(0.05)


@pytest.fixture(scope="session")
def playwright_driver() -> Iterator[Playwright]:
    with sync_playwright() as playwright:
        yield playwright


@pytest.fixture(scope="session")
def chromium(playwright_driver: Playwright) -> Iterator[Browser]:
    """The Chromium installed on the system; nothing is downloaded."""
    expect.set_options(timeout=PATIENCE_MILLISECONDS)
    path = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    assert path, "Chromium is missing; on Debian: apt-get install chromium-headless-shell"
    browser = playwright_driver.chromium.launch(executable_path=path, headless=True, args=CHROMIUM_OPTIONS)
    yield browser
    browser.close()


@dataclass
class PageFaults:
    """Problems in a page: script errors, console messages, error responses, requests to other hosts."""

    host: str
    allowed: list[re.Pattern[str]] = field(default_factory=list)
    found: list[str] = field(default_factory=list)

    def allow(self, pattern: str) -> None:
        """Ignore error responses from URLs that match this regular expression from now on."""
        self.allowed.append(re.compile(pattern))

    def watch(self, context: BrowserContext) -> None:
        for event, found in self._events().items():
            context.on(event, found)  # type: ignore[call-overload]

    def unwatch(self, context: BrowserContext) -> None:
        for event, found in self._events().items():
            context.remove_listener(event, found)

    def _events(self) -> dict[str, Callable[[Any], None]]:
        return {
            "weberror": self._weberror,
            "console": self._console,
            "response": self._response,
            "request": self._request,
            "requestfailed": self._failed,
        }

    def _weberror(self, fault: WebError) -> None:
        self.found.append(f"script: {fault.error}")

    def _console(self, message: ConsoleMessage) -> None:
        address = (message.location or {}).get("url", "")
        if message.type not in ("error", "warning") or self._is_allowed(address):
            return
        self.found.append(f"console: {message.text} ({address})")

    def _response(self, response: Response) -> None:
        if response.status >= 400 and not self._is_allowed(response.url):
            self.found.append(f"{response.status}: {response.request.method} {response.url}")

    def _request(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme in ("http", "https", "ws", "wss") and parts.netloc != self.host:
            self.found.append(f"foreign: {request.url}")

    def _failed(self, request: Request) -> None:
        # Leaving a page cancels its requests.
        if request.failure != "net::ERR_ABORTED" and not self._is_allowed(request.url):
            self.found.append(f"failed: {request.url} {request.failure}")

    def _is_allowed(self, address: str) -> bool:
        return any(pattern.search(address) for pattern in self.allowed)


@pytest.fixture
def page_faults(server: ServerProcess) -> PageFaults:
    """Collect problems in this test's pages, and fail the test at its end if there are any."""
    return PageFaults(host=urlsplit(server.url).netloc)


# The form of a model downloads the recommended weights at once: this is the response, unless a page sets `asksServer`.
# Intercepting the requests would disable the cache of the browser.
STAND_IN = """
const { fetch } = window;
window.fetch = async (url, ...options) =>
  !window.asksServer && /[/]models[/]weights[/]\\w+$/.test(url) ? Response.json({ path: '', ok: true }) : fetch(url, ...options);
"""


def ask_server(page: Page) -> None:
    """Let the pages that ``page`` opens from now on download weights."""
    page.add_init_script("window.asksServer = true")


@pytest.fixture(scope="session")
def context_of(chromium: Browser) -> Callable[[str], BrowserContext]:
    """Return a function that returns the context of the server with this URL, which all tests share.

    The browser then loads and compiles each script only once.
    """

    @functools.cache
    def context_of(url: str) -> BrowserContext:
        size: Any = {"width": 1280, "height": 900}
        context = chromium.new_context(base_url=url, reduced_motion="reduce", viewport=size)
        context.set_default_timeout(PATIENCE_MILLISECONDS)
        context.add_init_script(f"(() => {{{STAND_IN}}})()")
        return context

    return context_of


@pytest.fixture
def page(
    request: pytest.FixtureRequest,
    context_of: Callable[[str], BrowserContext],
    server: ServerProcess,
    page_faults: PageFaults,
) -> Iterator[Page]:
    """An empty page of a new visitor, without animations; relative URLs refer to the server."""
    context = context_of(server.url)
    page = context.new_page()
    session = context.new_cdp_session(page)
    # Everything that pages store, but not the cache of files.
    session.send("Storage.clearDataForOrigin", {"origin": server.url, "storageTypes": STORED})
    session.detach()
    page_faults.watch(context)
    yield page
    if getattr(request.node, "failed", False) and not page.is_closed():
        folder = ROOT / "test-results"
        folder.mkdir(exist_ok=True)
        page.screenshot(path=folder / f"{request.node.name}.png", full_page=True)
    for opened in context.pages:
        opened.close()
    page_faults.unwatch(context)
    context.unroute_all()
    assert page_faults.found == [], server.latest_log()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Record for fixtures that the test failed, so that they save a screenshot."""
    outcome: Any = yield
    report = outcome.get_result()
    if report.when == "call" and report.failed:
        item.failed = True  # type: ignore[attr-defined]


def open_panel(page: Page, name: str) -> None:
    """Open the folded panel or section of a form called ``name``."""
    section = page.locator("details").filter(has=page.locator("summary", has_text=name)).last
    section.evaluate("section => { section.open = true }")


def open_part(page: Page, name: str) -> None:
    """Show the part ``name`` of the page of a model, such as ``Details``, with all its folded panels open."""
    page.get_by_role("tab", name=name).click()
    part = page.get_by_role("tabpanel", name=name)
    for panel in part.locator("details.panel").all():
        panel.evaluate("panel => { panel.open = true }")


def fill_size(page: Page, side: int) -> None:
    """Fill in the size of a dataset's images."""
    open_panel(page, "Image size")
    for name in ("resize_width", "resize_height"):
        page.locator(f'[name="{name}"]').fill(str(side))


def create_dataset(page: Page) -> None:
    """Create the dataset described in the form, and wait on its page until it is done."""
    page.get_by_role("button", name="Create dataset").click()
    expect(page).to_have_url(re.compile(f"/datasets/{JOB_PAGE}"))
    expect(page.get_by_text("Done", exact=True).first).to_be_visible(timeout=30_000)


def recommended_settings(page: Page, dataset: dict[str, Any], network: str) -> dict[str, str]:
    """Return the fields of the form of a model that are recommended for a network on a dataset."""
    answer = page.request.get(f"/models/recommendation.json?dataset={dataset['id']}").json()
    settings: dict[str, str] = answer["recommendation"]["networks"][network]["settings"]
    return settings


def customize(page: Page) -> None:
    """Show all settings of the form of a model."""
    if page.locator("#customize").get_attribute("open") is None:
        page.locator("#customize > summary").click()


def start_training(page: Page) -> None:
    """Train the model described in the form, and wait for its page."""
    page.get_by_role("button", name="Train", exact=True).click()
    expect(page).to_have_url(re.compile(f"/models/{JOB_PAGE}"), timeout=60_000)


def train_model(page: Page, epochs: int) -> None:
    """Train the model described in the form, and wait on its page until it is done."""
    customize(page)
    page.get_by_label("Epochs", exact=True).fill(str(epochs))
    start_training(page)
    expect(page.get_by_text("Done", exact=True).first).to_be_visible(timeout=60_000)


def write_network(page: Page, text: str) -> None:
    """Replace the contents of the model form's editor."""
    page.locator(".cm-content").click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(text)


# Fetches the parts of the page again, as after a message of the server.
REFRESH = """async () => {
  const script = document.querySelector('script[src$="/page.js"]').src;
  await (await import(script.replace('page.js', 'refresh.js'))).refreshParts();
}"""

# Waits until the page has the colors of the scheme. Collecting the elements without violations takes long.
RUN_AXE = """async ([scheme, only]) => {
  const isPaper = document.querySelector('meta[name="color-scheme"][content="light"]');
  // A script sets the colors of our pages; those of the documentation depend on the scheme alone.
  const { theme } = document.body.dataset;
  while (!isPaper && !theme && document.documentElement.dataset.theme !== scheme) await new Promise(requestAnimationFrame);
  await Promise.allSettled(document.getAnimations().map((animation) => animation.finished));
  const options = only ? { runOnly: { type: 'rule', values: only } } : { rules: { 'duplicate-id': { enabled: true } } };
  return (await axe.run(document, { resultTypes: ['violations'], ...options })).violations;
}"""


def check_accessibility(page: Page, schemes: tuple[Scheme, ...] = CHECKED_SCHEMES) -> None:
    """Fail if axe finds an accessibility violation in the page, in the colors of any scheme.

    After the first one, only the rules about colors are checked, because nothing else changes.
    """
    if page.evaluate("!window.axe"):
        assert AXE.is_file(), "axe is missing: npm ci --ignore-scripts"
        page.evaluate(AXE.read_text())
    complaints = []
    for scheme, only in zip(schemes, (None, COLOR_RULES), strict=False):
        page.emulate_media(color_scheme=scheme)
        complaints += [
            f"{scheme}, {fault['id']}: {node['target']} {node['failureSummary']}"
            for fault in page.evaluate(RUN_AXE, [scheme, only])
            for node in fault["nodes"]
        ]
    assert complaints == []
