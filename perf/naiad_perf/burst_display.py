"""Bursts on the terminal: a bar, who works, what the last burst gave; elsewhere a line a burst."""

from __future__ import annotations

from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from naiad_perf.display import number, print_line
from naiad_perf.metrics import Slos, figures_of
from naiad_perf.peers.tuning import Trial
from naiad_perf.records import Run

__all__ = ["BurstDisplay"]


class Burst(Protocol):
    """One burst: who works under how many streams in which round; round -1 only warms up."""

    @property
    def label(self) -> str: ...
    @property
    def streams(self) -> int: ...
    @property
    def round(self) -> int: ...


class BurstDisplay:
    """A context manager, inside of which the bar is drawn on a terminal."""

    def __init__(self, console: Console) -> None:
        """Prepare; nothing is drawn."""
        self._console = console
        self._progress = Progress(
            SpinnerColumn(),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
            TextColumn("[dim]{task.fields[last]}"),
            console=console,
            refresh_per_second=2,  # drawing takes time from what is measured
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("preparing", total=None, last="")

    def __enter__(self) -> BurstDisplay:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def tell(self, line: str) -> None:
        """Show what is going on."""
        self._progress.update(self._task, description=line)
        if not self._console.is_terminal:
            print_line(self._console, line)

    def trial(self, label: str, trial: Trial) -> None:
        """Show what a setting gave."""
        given = "does not run" if trial.tokens_per_s is None else f"{number(trial.tokens_per_s)} tokens/s"
        print_line(self._console, f"{label}, {trial.settings}: {given}")

    def begin(self, turns: int) -> None:
        """Take the number of bursts."""
        self._progress.update(self._task, total=turns, completed=0)

    def before(self, turn: Burst) -> None:
        """Show who works."""
        when = f"round {turn.round + 1}" if turn.round >= 0 else "warm-up"
        what = f"{when}: [bold]{turn.label}[/], {turn.streams} streams"
        self._progress.update(self._task, description=what)

    def after(self, turn: Burst, run: Run) -> None:
        """Show what the burst gave."""
        figures = figures_of(run, Slos())
        what = f"{number(figures['tokens_per_s'])} tokens/s, TTFT {number(figures['ttft_ms_p50'])} ms"
        self._progress.update(self._task, advance=1, last=f"last: {what}")
        if not self._console.is_terminal and turn.round >= 0:
            print_line(self._console, f"round {turn.round + 1}, {turn.streams} streams, {turn.label}: {what}")
