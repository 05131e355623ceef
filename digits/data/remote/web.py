"""Folders of web servers: the pages that Apache, nginx or ``python -m http.server`` generate for them."""

from __future__ import annotations

import codecs
import threading
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urljoin, urlsplit

from digits.core.errors import DigitsError
from digits.core.remote import Address, RemotePolicy, parse
from digits.data.remote import guard
from digits.data.remote.drivers import (
    CONNECT_SECONDS,
    READ_SECONDS,
    Received,
    RemoteError,
    RemoteFile,
    is_usable_name,
)

if TYPE_CHECKING:
    import requests

MAX_REDIRECTS = 5
MAX_PAGE_BYTES = 100_000_000
PIECE_BYTES = 256 * 1024
REDIRECTS = (301, 302, 303, 307, 308)
TEMPORARY = (408, 425, 429, 500, 502, 503, 504)


class WebDriver:
    """Files of web servers, at addresses that ``policy`` allows, after redirects too. Proxies are not used."""

    def __init__(self, policy: RemotePolicy) -> None:
        self._policy = policy
        self._local = threading.local()

    def list(self, folder: Address, visited: Callable[[], None]) -> Iterator[RemoteFile]:
        pending = [""]
        seen = {""}
        while pending:
            below = pending.pop()
            for name in self._page(f"{_url(folder)}/{quote(below)}", visited):
                if name.endswith("/") and is_usable_name(name[:-1]):
                    if below + name not in seen:
                        seen.add(below + name)
                        pending.append(below + name)
                else:
                    yield RemoteFile(below + name, f"{_url(folder)}/{quote(below + name)}")

    def find(self, file: Address) -> RemoteFile:
        return RemoteFile(file.segments[-1], _url(file))

    def download(self, file: RemoteFile, path: str, received: Received) -> None:
        with self._get(file.location) as response, open(path, "wb") as target:
            for piece in self._pieces(response, file.location):
                received(len(piece))
                target.write(piece)

    def _page(self, url: str, visited: Callable[[], None]) -> Iterator[str]:
        """Yield the names in the page of a folder; those of folders end with a slash."""
        with self._get(url) as response:
            if (
                not response.headers.get("Content-Type", "")
                .lower()
                .startswith(("text/html", "application/xhtml"))
            ):
                raise RemoteError(
                    f"{url} is not a folder: the server did not send a page with links to its files.",
                    "Enable directory listings on the server, or enter a file address if the field accepts one.",
                )
            base = response.url if urlsplit(response.url).path.endswith("/") else f"{response.url}/"
            links, decoder = _Links(), codecs.getincrementaldecoder("utf-8")("replace")
            size = 0
            found: set[str] = set()
            for piece in self._pieces(response, url):
                size += len(piece)
                if size > MAX_PAGE_BYTES:
                    raise RemoteError(f"The page {url} is larger than {MAX_PAGE_BYTES // 10**6} MB.")
                links.feed(decoder.decode(piece))
                for link in links.take():
                    visited()
                    name = name_below(base, link)
                    if name and name not in found:
                        found.add(name)
                        yield name

    def _get(self, url: str) -> requests.Response:
        """Return the response to a GET after redirects, each of which is checked. Raises RemoteError."""
        target = url
        for _ in range(MAX_REDIRECTS + 1):
            response = self._ask(target, url)
            if response.status_code not in REDIRECTS:
                break
            target = urljoin(target, response.headers.get("Location", ""))
            response.close()
            self._check(target, url)
        else:
            raise RemoteError(f"{url} redirects more than {MAX_REDIRECTS} times.")
        status = response.status_code
        if status == 200:
            return response
        response.close()
        if status in (401, 403):
            raise RemoteError(
                f"Access to {url} was denied ({status}).",
                "The server requires a login or additional permissions.",
            )
        if status in (404, 410):
            raise RemoteError(f"{url} does not exist ({status}).", "Check the address.")
        raise RemoteError(f"The server answered {status} for {url}.", is_temporary=status in TEMPORARY)

    def _ask(self, target: str, url: str) -> requests.Response:
        import requests

        before = len(guard.refusals)
        try:
            return self._session.get(
                target, stream=True, allow_redirects=False, timeout=(CONNECT_SECONDS, READ_SECONDS)
            )
        except requests.RequestException as error:
            raise self._explain(error, url, before) from error

    def _check(self, target: str, url: str) -> None:
        try:
            # Queries are common in redirects to storage; only addresses of datasets must not contain them.
            parts = urlsplit(target)
            self._policy.check(str(parse(parts._replace(query="", fragment="").geturl())))
        except DigitsError as error:
            raise RemoteError(
                f"{url} redirects to an address that is not allowed. {error.message}", error.hint
            ) from error

    def _pieces(self, response: requests.Response, url: str) -> Iterator[bytes]:
        try:
            yield from response.iter_content(PIECE_BYTES)
        except OSError as error:  # the base of all errors of requests
            raise RemoteError(f"The connection was lost while reading {url}.", is_temporary=True) from error

    def _explain(self, error: requests.RequestException, url: str, refused_before: int) -> RemoteError:
        import requests

        if len(guard.refusals) > refused_before:
            return refused(url, guard.refusals[-1])
        if isinstance(error, requests.Timeout):
            reason = "the server did not answer in time"
        elif isinstance(error, requests.exceptions.SSLError):
            return RemoteError(f"The certificate of {url} cannot be verified.")
        elif isinstance(error, requests.exceptions.InvalidURL):
            return RemoteError(f"{url} is not a valid address.")
        else:
            reason = "the server cannot be reached, or closed the connection"
        return RemoteError(f"{url} could not be read: {reason}.", is_temporary=True)

    @property
    def _session(self) -> requests.Session:
        """The session of this thread, which reuses its connections."""
        import requests

        session: requests.Session | None = getattr(self._local, "session", None)
        if session is None:
            session = self._local.session = requests.Session()
            session.trust_env = False  # no proxies, and no passwords of .netrc
            session.headers["Accept-Encoding"] = "identity"
        return session


def refused(what: str, host: str) -> RemoteError:
    """Return the error for a connection that the guard refused."""
    return RemoteError(
        f"{what} resolves to the private address {host}, which is not allowed.",
        "An administrator can allow this server by name with --remote-address.",
    )


def name_below(base: str, link: str) -> str:
    """Return the path of ``link``, on the page of the folder ``base``, relative to it; empty if it leads elsewhere.

    The path is unquoted; that of a folder ends with a slash. Links with a query, which sort listings, are ignored.
    """
    try:
        here, there = urlsplit(base), urlsplit(urljoin(base, link.strip()))
    except ValueError:
        return ""
    top, path = unquote(here.path), unquote(there.path)
    if there.query or (there.scheme, there.netloc) != (here.scheme, here.netloc) or not path.startswith(top):
        return ""
    return path[len(top) :]


def _url(address: Address) -> str:
    path = "/".join(quote(segment) for segment in address.segments)
    return f"{address.scheme}://{address.place}" + (f"/{path}" if path else "")


class _Links(HTMLParser):
    """Collects the targets of links."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._found: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, Any]]) -> None:
        if tag == "a":
            self._found += [value for name, value in attributes if name == "href" and value]

    def take(self) -> list[str]:
        found, self._found = self._found, []
        return found
