"""`naiad bench report`: a sweep as a page, pictures and tables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from naiad_perf.commands.promise_options import (
    ErrorBudgetOption,
    LatencyOption,
    TpotOption,
    TtftOption,
    promise_of,
)
from naiad_perf.commands.terminal import FAILED, complain, errors
from naiad_perf.error_budget import overruns
from naiad_perf.errors import PerfError
from naiad_perf.metrics import Slos

__all__ = ["report_command"]


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
        complain(f"reports need the extra naiad[bench] (pip install 'naiad[bench]'): {error}")
        raise typer.Exit(FAILED) from error
    try:
        promise = promise_of(folder, Slos(ttft_ms, tpot_ms, latency_ms), error_budget)
        with _Steps() as steps:
            target = out if out is not None else folder / "report"
            written = write_report(folder, target, promise, title=title, pictures=pictures, report=steps.show)
    except (PerfError, OSError) as error:
        complain(error)
        raise typer.Exit(FAILED) from error
    for path in (written.page, *written.files):
        typer.echo(path)
    for over in overruns(written.results, promise.error_budget):
        complain(over, "over the error budget:", "yellow")


class _Steps(Progress):
    """A progress bar of one step after the other."""

    def __init__(self) -> None:
        super().__init__(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            console=errors,
            transient=True,
        )
        self._known: dict[str, TaskID] = {}

    def show(self, step: str, done: int, total: int) -> None:
        """Show how much of a step is done."""
        if step not in self._known:
            self._known[step] = self.add_task(step, total=total)
        self.update(self._known[step], completed=done)
