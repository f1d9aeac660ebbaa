"""`naiad perf ...`: measure a running server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from naiad_perf import perf_analyzer
from naiad_perf.errors import PerfError

__all__ = ["app"]

app = typer.Typer(
    name="perf",
    help="Measure a running server.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
_errors = Console(stderr=True)


@app.callback()
def _group() -> None:
    """Measure a running server."""  # a callback keeps the command's name needed while there is only one


@app.command("perf-analyzer")
def run_perf_analyzer(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(help="perf_analyzer's own arguments, after `--`.", metavar="-- ARGUMENTS"),
    ] = None,
    artifacts: Annotated[Path, typer.Option(help="Where the program is kept once fetched.")] = Path(
        ".artifacts"
    ),
) -> None:
    """Run NVIDIA's perf_analyzer; the first time it is fetched, with newer C libraries where it needs them.

    For example:

    - `naiad perf perf-analyzer -- --help`

    - `naiad perf perf-analyzer -- -m ensemble -i grpc -u localhost:8001 --streaming --input-data in.json`
    """
    try:
        status = perf_analyzer.run(arguments or [], artifacts, _tell)
    except PerfError as error:
        _errors.print("error:", style="bold red", end=" ")
        _errors.print(str(error), markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(1) from error
    raise typer.Exit(status)


def _tell(line: str) -> None:
    _errors.print(f"perf_analyzer: {line}", style="dim", markup=False, highlight=False, soft_wrap=True)


if __name__ == "__main__":
    app()
