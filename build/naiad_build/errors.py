"""Errors of building a model: each message is for the person at the terminal and says what to do next.

These never reach a caller of the server, so unlike `naiad.contract.errors` they name files and commands.
"""

from __future__ import annotations

__all__ = [
    "BuildError",
    "ConversionError",
    "InstallError",
    "NotEnoughSpaceError",
    "PlanError",
    "SourceError",
    "UnsupportedModelError",
]


class BuildError(Exception):
    """Base of everything that stops a build; nothing half-made is left behind."""


class SourceError(BuildError):
    """The model source is malformed, cannot be fetched, or is not what its digest promised."""


class NotEnoughSpaceError(BuildError):
    """The disk has less free space than the next step needs; both figures are named."""


class UnsupportedModelError(BuildError):
    """The model uses a tokenizer, format or layout that this build cannot convert correctly."""


class ConversionError(BuildError):
    """The converter failed, or what it made does not answer sensibly."""


class PlanError(BuildError):
    """What was planned cannot be: the machine or the model lacks something, which is named."""


class InstallError(BuildError):
    """A tool could not be fetched or does not run here; nothing half-made is left behind."""
