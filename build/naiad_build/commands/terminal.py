"""The terminal of all commands of `naiad build`: what they print on, and how their errors end them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console

from naiad.contract.errors import NaiadError
from naiad_build.errors import BuildError

__all__ = ["errors", "explained", "output"]

output = Console()
errors = Console(stderr=True)


@contextmanager
def explained() -> Iterator[None]:
    """Turn an expected error into its message and exit status 1."""
    try:
        yield
    except (BuildError, NaiadError) as error:
        errors.print("error:", style="bold red", end=" ")
        errors.print(str(error), markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(1) from error
