"""The bodies of requests: their limits, checked before parsing, so that none blocks the event loop."""

from __future__ import annotations

import contextlib
import io
import itertools
import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import SimpleNamespace
from typing import IO, Any, NoReturn
from urllib.parse import unquote_to_bytes

import flask
import humanize
from werkzeug.datastructures import FileStorage
from werkzeug.exceptions import BadRequest, HTTPException, RequestEntityTooLarge, RequestTimeout
from werkzeug.formparser import FormDataParser
from werkzeug.sansio.multipart import Data, Epilogue, Field, File, MultipartDecoder, NeedData, State
from werkzeug.wsgi import LimitedStream

from digits.data import loose_json
from digits.runtime.offload import in_thread
from digits.web.loop_watch import request_line
from digits.web.security.environ import FORM, MULTIPART, Environ, media_type

_log = logging.getLogger(__name__)

MAX_BODY_BYTES = 5_000_000
MAX_IMAGE_BYTES = 70_000_000
MAX_JSON_BYTES = 64_000
# Forms up to this size are parsed directly, which takes a few milliseconds.
QUICK_FORM_BYTES = 64_000
MAX_PART_HEADER_BYTES = 16_000
DECODED_BYTES = 64 * 1024
PIECE_BYTES = 256 * 1024
# With and without ``.json``.
_IMAGE_PATHS = (
    "/classify_one", "/infer_one", "/inside", "/heat-map", "/classify_many", "/infer_many", "/predictions",
    "/predict", "/top_n"
)  # fmt: skip
# By the start or the end of the path. They apply to multipart forms, whose files are written to disk.
BODY_LIMITS: Mapping[str, int] = {
    "/login": 64_000,
    "/socket.io": 128_000,
    "/serve/": MAX_IMAGE_BYTES,
    "/labels/": MAX_IMAGE_BYTES,
    **{path + ending: MAX_IMAGE_BYTES for path in _IMAGE_PATHS for ending in ("", ".json")},
}
# The views at these paths read a body that is not a form in pieces, so that its limit applies as well.
STREAMED_PATHS = ("/uploads/", "/predict", "/predict.json", "/serve/")


class Body(LimitedStream):
    """The body of a request, limited to ``limit`` bytes.

    Errors while reading are client errors: they are raised as werkzeug's HTTPException and logged in
    one line, and ``is_broken`` closes the connection, because the start of the next request is unknown.
    """

    def __init__(self, environ: Environ, limit: int) -> None:
        # One byte more than allowed, to detect an oversized body.
        super().__init__(environ["wsgi.input"], limit + 1, is_max=True)
        self.is_broken = False
        self._environ = environ

    def readinto(self, b: bytearray) -> int | None:  # type: ignore[override]
        count = super().readinto(b)
        if self.is_exhausted:
            self.on_exhausted()
        return count

    def on_exhausted(self) -> None:
        raise self._broken(RequestEntityTooLarge(), "too large")

    def on_disconnect(self, error: Exception | None = None) -> None:
        if isinstance(error, TimeoutError):
            raise self._broken(
                RequestTimeout("The body of this request arrived too slowly."), error
            ) from error
        if error is not None:
            raise self._broken(
                BadRequest("The body of this request is malformed or incomplete."), error
            ) from error

    def _broken(self, answer: HTTPException, reason: object) -> HTTPException:
        self.is_broken = True
        _log.info("%s: %s (%s)", request_line(self._environ), answer.description, str(reason)[:120])
        return answer


def is_streamed(environ: Environ) -> bool:
    """Return whether the application reads the body in pieces instead of keeping it in memory."""
    type_, path = media_type(environ), str(environ.get("PATH_INFO", ""))
    return type_ == MULTIPART or (
        type_ != FORM and (path.startswith(STREAMED_PATHS) or path.endswith(STREAMED_PATHS))
    )


class BoundedFormParser(FormDataParser):
    """Limits the memory that forms take: the parts and the text of all fields together."""

    def parse(
        self,
        stream: IO[bytes],
        mimetype: str,
        content_length: int | None,
        options: dict[str, str] | None = None,
    ) -> Any:
        if mimetype == MULTIPART:
            return stream, *self._parts(stream, (options or {}).get("boundary", ""))
        if mimetype != FORM:
            return super().parse(stream, mimetype, content_length, options)
        data = stream.read()
        too_many = self.max_form_parts is not None and data.count(b"&") >= self.max_form_parts
        too_much = self.max_form_memory_size is not None and len(data) > self.max_form_memory_size
        if too_many or too_much:
            raise RequestEntityTooLarge("The form has too many fields or too much text.")
        fields = _fields(data) if len(data) <= QUICK_FORM_BYTES else in_thread(_fields, data)
        return stream, self.cls(fields), self.cls()

    def _parts(self, stream: IO[bytes], boundary: str) -> tuple[Any, Any]:
        """Return the fields and the files of a multipart form; none if it is malformed."""
        fields: list[tuple[str, str]] = []
        files: list[tuple[str, FileStorage]] = []
        room = self.max_form_memory_size or MAX_BODY_BYTES
        try:
            for part, file in _parts_of(stream, boundary, room, self.max_form_parts, self.stream_factory):
                if isinstance(part, File):
                    files.append(
                        (part.name, FileStorage(file, part.filename, part.name, headers=part.headers))
                    )
                else:
                    fields.append((part.name, file.read().decode(errors="replace")))
        except BaseException as error:
            for _, upload in files:
                upload.close()
            if not isinstance(error, ValueError):
                raise
            return self.cls(), self.cls()
        return self.cls(fields), self.cls(files)


def _parts_of(
    stream: IO[bytes], boundary: str, room: int, max_parts: int | None, make_file: Callable[..., IO[bytes]]
) -> Iterator[tuple[Field | File, IO[bytes]]]:
    """Yield the parts of a multipart form with their contents; those of files are written to disk.

    Raises ValueError if the form is malformed, and RequestEntityTooLarge if it has too many parts, or more than
    ``room`` bytes in fields or `MAX_PART_HEADER_BYTES` in the headers of a part.
    """
    if not boundary:
        raise ValueError("the boundary is missing")
    decoder = MultipartDecoder(boundary.encode("ascii"), room, max_parts=max_parts)
    part: Field | File | None = None
    with contextlib.ExitStack() as incomplete:
        for data in itertools.chain(iter(partial(stream.read, DECODED_BYTES), b""), [None]):
            decoder.receive_data(data)
            while not isinstance(event := decoder.next_event(), NeedData | Epilogue):
                if isinstance(event, Field | File):
                    part = event
                    file = make_file(None, None, part.name) if isinstance(part, File) else io.BytesIO()
                    incomplete.callback(file.close)
                elif isinstance(event, Data) and part is not None:
                    if isinstance(part, Field):
                        room -= len(event.data)
                    if room < 0:
                        raise RequestEntityTooLarge("The form has too many fields or too much text.")
                    file.write(event.data)
                    if not event.more_data:
                        incomplete.pop_all()
                        file.seek(0)
                        yield part, file
            if decoder.state is State.PART and len(decoder.buffer) > MAX_PART_HEADER_BYTES:
                raise RequestEntityTooLarge("The headers of a part of the form are too long.")


def _fields(data: bytes) -> list[tuple[str, str]]:
    """Return the fields of a URL-encoded form. Bytes that are not UTF-8 remain escaped."""
    pairs = (item.partition(b"=") for item in data.split(b"&") if item)
    return [(_unquoted(name), _unquoted(value)) for name, _, value in pairs]


def _unquoted(text: bytes) -> str:
    """Decode ``text`` in slices: each escape sequence takes 80 times its size in memory while it is decoded."""
    decoded = bytearray()
    text = text.replace(b"+", b" ")
    start = 0
    while start < len(text):
        end = start + DECODED_BYTES
        # Do not cut an escape sequence.
        cut = text.rfind(b"%", end - 2, end)
        end = cut if cut > start else end
        decoded += unquote_to_bytes(text[start:end])
        start = end
    return decoded.decode(errors="werkzeug.url_quote")


class BoundedRequest(flask.Request):
    """Flask's request with limits on forms and JSON. Exceeding them raises RequestEntityTooLarge."""

    form_data_parser_class = BoundedFormParser

    def get_json(self, force: bool = False, silent: bool = False, cache: bool = True) -> Any:
        if len(self.get_data(cache=True)) > MAX_JSON_BYTES:
            raise RequestEntityTooLarge(
                f"A JSON body may have at most {humanize.naturalsize(MAX_JSON_BYTES, format='%.0f')}."
            )
        self.json_module = SimpleNamespace(loads=loose_json.load)  # Flask has set that of the application
        return super().get_json(force, silent, cache)

    def on_json_loading_failed(self, e: ValueError | None) -> NoReturn:
        raise BadRequest(f"The request body is not valid JSON{f': {e}' if e else ''}.")


def pieces_of_body(environ: Environ) -> Iterator[bytes]:
    """Yield the body of a request in pieces, for views at the gate's ``STREAMED_PATHS``."""
    while piece := environ["wsgi.input"].read(PIECE_BYTES):
        yield piece
