"""`naiad bench report`: a sweep as a page, pictures and tables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from naiad_perf.error_budget import overruns
from naiad_perf.errors import PerfError
from naiad_perf.metrics import Slos
from naiad_perf.promise_options import (
    ErrorBudgetOption,
    LatencyOption,
    TpotOption,
    TtftOption,
    promise_of,
)

__all__ = ["report_command"]

_errors = Console(stderr=True)


def report_command(
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="Folder that `naiad bench sweep` wrote, finished or not."),
    ],
    out: Annotated[Path | None, typer.Option(help="Folder to write to.  [default: DIR/report]")] = None,
    title: Annotated[str, typer.Option(help="Title, instead of the scenario's name.")] = "",
    pictures: Annotated[
        bool, typer.Option("--png/--no-png", help="Write every chart as a PNG file too.")
    ] = True,
    ttft_ms: TtftOption = None,
    tpot_ms: TpotOption = None,
    latency_ms: LatencyOption = None,
    error_budget: ErrorBudgetOption = None,
) -> None:
    """Write a sweep's report: one HTML file that needs no network, charts as PNG, all figures as CSV.

    The page has throughput against latency, the Pareto front, a comparison of the subjects, percentiles, the
    timeline of every point, cost, a table, the environment and all commands. For example:

    - `naiad bench report .artifacts/bench/quick`

    - `naiad bench report sweep --ttft-ms 300 --tpot-ms 40 --out public/`
    """
    try:
        from naiad_perf.report import write_report  # loads the drawing library: not for every other command
    except ImportError as error:
        _fail(f"reports need the extra naiad[bench] (pip install 'naiad[bench]'): {error}", error)
    try:
        promise = promise_of(folder, Slos(ttft_ms, tpot_ms, latency_ms), error_budget)
        with _Steps() as steps:
            target = out if out is not None else folder / "report"
            written = write_report(folder, target, promise, title=title, pictures=pictures, report=steps.show)
    except (PerfError, OSError) as error:
        _fail(str(error), error)
    for path in (written.page, *written.files):
        typer.echo(path)
    for over in overruns(written.results, promise.error_budget):
        _errors.print("over the error budget:", style="yellow", end=" ")
        _errors.print(str(over), markup=False, highlight=False, soft_wrap=True)


def _fail(message: str, error: Exception) -> NoReturn:
    _errors.print("error:", style="bold red", end=" ")
    _errors.print(message, markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(1) from error


class _Steps(Progress):
    """A progress bar of one step after the other."""

    def __init__(self) -> None:
        super().__init__(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            console=_errors,
            transient=True,
        )
        self._known: dict[str, TaskID] = {}

    def show(self, step: str, done: int, total: int) -> None:
        """Show how much of a step is done."""
        if step not in self._known:
            self._known[step] = self.add_task(step, total=total)
        self.update(self._known[step], completed=done)
