"""What the commands of `naiad bench` share: the terminal, its signals, and options that several have."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console

from naiad_perf.display import print_line
from naiad_perf.errors import InstallError, PerfError, ScenarioError

__all__ = [
    "FAILED",
    "WRONG",
    "ArtifactsOption",
    "complain",
    "errors",
    "new_folder",
    "output",
    "parse_streams",
    "stoppable",
    "tell",
    "troubles_end_it",
]

FAILED, WRONG = 1, 2
output = Console(width=None if sys.stdout.isatty() else 160)  # a pipe has no width of its own
errors = Console(stderr=True)

ArtifactsOption = Annotated[Path, typer.Option(help="Folder of servers, models, tools and results.")]


def tell(line: str) -> None:
    """Print what goes on."""
    print_line(errors, line)


def complain(trouble: object, what: str = "error:", style: str = "bold red") -> None:
    """Print what is wrong."""
    errors.print(what, style=style, end=" ")
    errors.print(str(trouble), markup=False, highlight=False, soft_wrap=True)


@contextmanager
def troubles_end_it(*, otherwise: int = FAILED) -> Iterator[None]:
    """Print errors of measuring and exit: with `WRONG` for a wrong scenario or option, or `otherwise`."""
    try:
        yield
    except (PerfError, InstallError) as error:
        complain(error)
        raise typer.Exit(WRONG if isinstance(error, ScenarioError) else otherwise) from error


@contextmanager
def stoppable(kept: Callable[[], str]) -> Iterator[None]:
    """Let Ctrl-C, SIGTERM and SIGHUP end what runs inside, load generators and servers first, and exit.

    Args:
        kept: returns what to tell of what is finished.

    Raises:
        typer.Exit: one of the three came; the status is a shell's, 128 and its number.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt(number)

    numbers = (signal.SIGTERM, signal.SIGHUP)
    previous = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    except KeyboardInterrupt as error:
        tell(f"stopped; {kept()}")
        raise typer.Exit(128 + (error.args[0] if error.args else signal.SIGINT)) from None
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def parse_streams(text: str) -> tuple[int, ...]:
    """Read ``1,8,32``; in order, each once."""
    try:
        streams = tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        streams = ()
    if not streams or streams[0] < 1:
        raise ScenarioError(f"--streams {text}: give numbers from 1, for example 1,8,32")
    return streams


def new_folder(out: Path | None, artifacts: Path, kind: str) -> Path:
    """Make the folder for records: `out`, or one named by kind and time.

    Raises:
        ScenarioError: there is something in it.
        PerfError: it cannot be made.
    """
    now = datetime.now(timezone.utc)
    folder = out if out is not None else artifacts / "bench" / f"{kind}-{now:%Y%m%d-%H%M%S}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise ScenarioError(f"{folder} is not empty: give --out a new folder")
    except OSError as error:
        raise PerfError(f"{folder} cannot be written: {error.strerror or error}") from error
    return folder
