"""Errors of starting and supervising a server: for the person at the terminal, never for a caller of the API.

Each says in one sentence what is wrong and in one what to do; unlike `naiad.contract.errors` they name files,
ports and commands.
"""

from __future__ import annotations

__all__ = ["InstallError", "PreflightError", "ServerError", "StartError"]


class ServerError(Exception):
    """Base of what keeps a server from running.

    Attributes:
        what: one sentence: what is wrong.
        remedy: one sentence: what to do.
    """

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what}\n  -> {remedy}")
        self.what = what
        self.remedy = remedy


class InstallError(ServerError):
    """No usable tritonserver for this machine and Python, or it could not be installed."""


class PreflightError(ServerError):
    """Something the server needs is missing or taken; found before anything was started."""


class StartError(ServerError):
    """tritonserver started but did not become ready, or kept failing."""
