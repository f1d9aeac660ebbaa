"""The `naiad` command: everything the packages offer, in one place."""

from naiad.cli.main import main

__all__ = ["main"]
