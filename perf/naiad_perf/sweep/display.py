"""A sweep on the terminal: a bar, what runs, what the last run gave; elsewhere a line a run."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from naiad_perf.display import DASH, number, print_line
from naiad_perf.metrics import FIGURES, Slos, figures_of
from naiad_perf.records import Run
from naiad_perf.results import PointSummary, Spread
from naiad_perf.sweep.plan import PlannedRun

__all__ = ["SweepDisplay", "results_table"]

_COLUMNS = ("tokens_per_s", "ttft_ms_p50", "ttft_ms_p99", "tpot_ms_p50", "errors", "usd_per_million_tokens")


class SweepDisplay:
    """See `naiad_perf.sweep.runner.Display`; a context manager, inside of which the bar is drawn."""

    def __init__(self, console: Console, slos: Slos) -> None:
        """Prepare; nothing is drawn.

        Args:
            console: a terminal gets a bar, anything else a line a run.
            slos: of the scenario.
        """
        self._console = console
        self._slos = slos
        self._pending: list[PlannedRun] = []
        self._seconds: dict[tuple[str, str], list[float]] = {}
        self._last = ""
        self._progress = Progress(
            SpinnerColumn(),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            TextColumn("{task.description}"),
            TextColumn("[dim]{task.fields[last]}"),
            console=console,
            refresh_per_second=2,  # drawing takes time from what is measured
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("starting", total=None, left="", last="")

    def __enter__(self) -> SweepDisplay:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def begin(self, runs: Sequence[PlannedRun], finished: int) -> None:
        """Take the number of all runs and of those already finished."""
        self._pending = list(runs)
        self._progress.update(self._task, total=len(runs), completed=finished)
        if finished:
            self.tell(f"{finished} of {len(runs)} runs are finished already; going on with the others")

    def tell(self, line: str) -> None:
        """Print a line above the bar."""
        print_line(self._console, line)

    def waiting(self, what: str) -> None:
        """Show what is being waited for."""
        self._progress.update(self._task, description=what)
        if not self._console.is_terminal:
            self.tell(what)

    def running(self, run: PlannedRun, attempt: int) -> None:
        """Show what runs, and how long all may take."""
        while self._pending and self._pending[0].name != run.name:  # finished by an earlier sweep
            self._pending.pop(0)
        again = f", attempt {attempt}" if attempt > 1 else ""
        what = f"[bold]{run.point.name}[/] {run.subject.name}, repeat {run.repeat + 1}{again}"
        self._progress.update(self._task, description=what, left=self._left())

    def done(self, planned: PlannedRun, run: Run, seconds: float) -> None:
        """Count a run and show what it gave."""
        self._seconds.setdefault((planned.point.name, planned.subject.name), []).append(seconds)
        figures = figures_of(run, self._slos)
        parts = [
            f"{number(figures['tokens_per_s'])} tokens/s",
            f"TTFT {number(figures['ttft_ms_p50'])} ms",
            *([f"{figures['errors']:.0f} errors"] if figures["errors"] else []),
        ]
        self._last = f"last: {', '.join(parts)}"
        self._advance()
        if not self._console.is_terminal:
            what = f"{planned.position + 1}: {planned.point.name} {planned.subject.name}"
            self.tell(f"run {what}, repeat {planned.repeat + 1}: {', '.join(parts)}; {self._left()}")

    def given_up(self, planned: PlannedRun) -> None:
        """Count a run that gave nothing."""
        self._last = f"last: {planned.name} failed"
        self._advance()

    def _advance(self) -> None:
        if self._pending:
            self._pending.pop(0)
        self._progress.update(self._task, advance=1, last=self._last, left=self._left())

    def _left(self) -> str:
        """Return how long the rest may take: as the same point took before, or all points on average."""
        known = [seconds for each in self._seconds.values() for seconds in each]
        if not known:
            return "? left"
        usual = statistics.fmean(known)
        left_s = 0.0
        for run in self._pending:
            before = self._seconds.get((run.point.name, run.subject.name))
            left_s += statistics.fmean(before) if before else usual
        minutes, seconds = divmod(round(left_s), 60)
        return f"{minutes} min left" if minutes >= 10 else f"{minutes}:{seconds:02d} left"


def results_table(summaries: Sequence[PointSummary]) -> Table:
    """Return a table of medians over the repeats, ± half the way from the lowest to the highest in percent.

    Columns of what is undefined or 0 everywhere are left out.
    """
    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in ("point", "subject"):
        table.add_column(heading, no_wrap=True)
    table.add_column("runs", justify="right", no_wrap=True)
    names = [name for name in _COLUMNS if any(summary.median(name) for summary in summaries)]
    for name in names:
        figure = FIGURES[name]
        table.add_column(f"{figure.header}\n{figure.unit.symbol}".rstrip(), justify="right")
    for summary in summaries:
        cells = [_cell(summary.figures[name]) for name in names]
        table.add_row(summary.facts.point, summary.facts.subject, str(len(summary.results)), *cells)
    return table


def _cell(spread: Spread | None) -> str:
    if spread is None:
        return DASH
    if spread.low == spread.high:
        return number(spread.median)
    around = (spread.high - spread.low) / 2 / abs(spread.median) if spread.median else 0.0
    return f"{number(spread.median)} [dim]±{around:.0%}[/]"
