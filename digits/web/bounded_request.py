"""Requests with limits on their bodies, checked before parsing, so that none blocks the event loop."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import IO, Any

import flask
import humanize
from werkzeug.exceptions import BadRequest, RequestEntityTooLarge
from werkzeug.formparser import FormDataParser

from digits.web.gate import FORM
from digits.web.offload import in_thread

MAX_JSON_BYTES = 64_000
# Forms up to this size are parsed directly, which takes a few milliseconds.
QUICK_FORM_BYTES = 64_000

PIECE_BYTES = 256 * 1024


class BoundedFormParser(FormDataParser):
    """Applies the limits of multipart forms to URL-encoded ones, and parses large ones in a thread."""

    def parse(
        self,
        stream: IO[bytes],
        mimetype: str,
        content_length: int | None,
        options: dict[str, str] | None = None,
    ) -> Any:
        if mimetype != FORM:
            return super().parse(stream, mimetype, content_length, options)
        data = stream.read()
        too_many = self.max_form_parts is not None and data.count(b"&") >= self.max_form_parts
        too_much = self.max_form_memory_size is not None and len(data) > self.max_form_memory_size
        if too_many or too_much:
            raise RequestEntityTooLarge("The form has too many fields or too much text.")
        parse = super().parse
        if len(data) <= QUICK_FORM_BYTES:
            return parse(io.BytesIO(data), mimetype, len(data), options)
        return in_thread(parse, io.BytesIO(data), mimetype, len(data), options)


class BoundedRequest(flask.Request):
    """Flask's request with limits on forms and JSON. Exceeding them raises RequestEntityTooLarge."""

    form_data_parser_class = BoundedFormParser

    def get_json(self, force: bool = False, silent: bool = False, cache: bool = True) -> Any:
        if len(self.get_data(cache=True)) > MAX_JSON_BYTES:
            raise RequestEntityTooLarge(
                f"A JSON body may have at most {humanize.naturalsize(MAX_JSON_BYTES, format='%.0f')}."
            )
        try:
            return super().get_json(force, silent, cache)
        except RecursionError:
            if silent:
                return None
            raise BadRequest("The JSON body is nested too deeply.") from None


def pieces_of_body() -> Iterator[bytes]:
    """Yield the body of this request in pieces, for views at the gate's ``STREAMED_PATHS``."""
    while piece := flask.request.environ["wsgi.input"].read(PIECE_BYTES):
        yield piece
