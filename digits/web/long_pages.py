"""Render pages that take many milliseconds without blocking other requests."""

from __future__ import annotations

from typing import Any

from flask import stream_template

from digits.web.offload import in_turns


def render_in_turns(template: str, **context: Any) -> str:
    """Render ``template`` like ``render_template``, yielding to other greenlets every few milliseconds."""
    return "".join(in_turns(stream_template(template, **context)))
