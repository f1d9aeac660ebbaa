"""Errors of measuring: each message is for the person at the terminal and says what to do next."""

from __future__ import annotations

from naiad_build.errors import InstallError

__all__ = [
    "InstallError",
    "LoadAborted",
    "LoadError",
    "PerfError",
    "RecordError",
    "ScenarioError",
    "UnsupportedLoad",
]


class PerfError(Exception):
    """Base of everything that stops a measurement."""


class RecordError(PerfError):
    """A record of a run is unreadable, or says what cannot have happened."""


class LoadError(PerfError):
    """A load generator failed as a whole; single requests that fail are records instead."""


class LoadAborted(LoadError):
    """A load generator gave up because requests failed, and kept no record of any; again would end alike."""


class UnsupportedLoad(PerfError):
    """A load generator cannot make this kind of load; the message names both."""


class ScenarioError(PerfError):
    """A scenario, trace or option is wrong; the message names the place and what would be right."""
