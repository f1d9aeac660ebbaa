"""Errors of measuring: each message is for the person at the terminal and says what to do next."""

from __future__ import annotations

__all__ = ["InstallError", "PerfError"]


class PerfError(Exception):
    """Base of everything that stops a measurement before it starts."""


class InstallError(PerfError):
    """A measuring tool could not be fetched or does not run here; nothing half-made is left behind."""
