"""`naiad setup`: what has to be there before anything can be served."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from naiad.contract.errors import NaiadError
from naiad.server.errors import ServerError
from naiad.server.tritonserver import locate_or_install
from naiad_build.console import ProgressBars
from naiad_build.errors import BuildError
from naiad_build.prepare import prepare
from naiad_build.sources import DEFAULT_SOURCE

__all__ = ["Artifacts", "explained", "set_up", "setup"]

Artifacts = Annotated[Path, typer.Option(help="Where the server, models, logs and state are kept.")]
_errors = Console(stderr=True)


def setup(artifacts: Artifacts = Path(".artifacts")) -> None:
    """Install tritonserver and prepare the default model; what is there already is kept."""
    with explained():
        set_up(artifacts)


def set_up(artifacts: Path) -> None:
    """Install and prepare what is missing, with progress on stderr.

    Raises:
        ServerError: there is no tritonserver for this machine, or it cannot be installed.
        BuildError: the model cannot be fetched or converted.
    """
    with ProgressBars(_errors) as bars:
        locate_or_install(artifacts, bars.report)
        if not (artifacts / "models" / "default").exists():
            prepare(DEFAULT_SOURCE, artifacts, progress=bars.report)


@contextmanager
def explained() -> Iterator[None]:
    """Turn an expected error into its message, which says what to do, and exit status 1."""
    try:
        yield
    except (ServerError, BuildError, NaiadError) as error:
        _errors.print("error:", style="bold red", end=" ")
        _errors.print(str(error), markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(1) from error
