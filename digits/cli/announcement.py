"""The startup message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from digits import __version__

if TYPE_CHECKING:
    from digits.core.settings import Settings
    from digits.runtime.tensorflow_support import TensorFlowSupport


def announcement(
    settings: Settings,
    tensorflow: TensorFlowSupport,
    token: str = "",
    *,
    is_root: bool = False,
    problem: str = "",
) -> str:
    """Return the server's address, who can reach it, who has to log in, and missing features.

    ``token`` is the generated token, if any. ``problem`` is the reason why the owners of
    connections cannot be determined.
    """
    name = "localhost" if settings.host in ("0.0.0.0", "::") else settings.host  # noqa: S104
    shown_name = f"[{name}]" if ":" in name else name
    address = f"http://{shown_name}:{settings.port}{settings.url_prefix}/"
    lines = [
        f"DIGITS {__version__}",
        f"  address     {address}",
        f"  open to     {_reach(settings)}",
        f"  login       {_login(settings, problem)}",
        f"  jobs        {settings.jobs_dir}",
    ]
    if token:
        lines.insert(4, f"  login link  {address}?token={token}")
    if is_root:
        lines += [
            "Warning: DIGITS runs as root, and so do all networks it trains. Start it as a regular user instead."
        ]
    if not tensorflow.available:
        lines += [
            "TensorFlow support is disabled",
            f"  why         {tensorflow.reason}",
            f"  remedy      {tensorflow.remedy}",
        ]
    return "\n".join([*lines, "Stop it with Ctrl-C."])


def _reach(settings: Settings) -> str:
    """Describe who can connect to the server."""
    if not settings.is_local:
        return f"every computer that can reach {settings.host}"
    if settings.behind_proxy:
        return "everyone who can reach the proxy, and this computer"
    return "this computer only"


def _login(settings: Settings, problem: str) -> str:
    """Describe who has to log in."""
    from digits.core.settings import LoginPolicy

    if settings.login_policy is LoginPolicy.NOBODY:
        return "not required (--no-login): anyone who can connect can run programs as you"
    if settings.login_policy is LoginPolicy.EVERYBODY:
        return "required"
    if problem:
        return f"required, also for you: {problem}"
    return "required for other users of this computer, not for you"
