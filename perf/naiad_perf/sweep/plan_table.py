"""What a sweep would do, for `--dry-run`."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from naiad_perf.sweep.folder import SweepFolder
from naiad_perf.sweep.plan import plan_runs, points_of
from naiad_perf.workload.load import OpenLoop
from naiad_perf.workload.making import make_workload
from naiad_perf.workload.scenario import Scenario
from naiad_perf.workload.traces import TraceRow

__all__ = ["print_plan"]


def print_plan(console: Console, scenario: Scenario, rows: Sequence[TraceRow], folder: SweepFolder) -> None:
    """Print points with their loads, the subjects, and how many runs there are.

    Args:
        console: to print on.
        scenario: that would be measured.
        rows: of its trace; empty without one.
        folder: of its results; it need not exist.
    """
    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in ("point", "requests", "warm-up", "input tokens", "output tokens", "lasts at least"):
        table.add_column(heading, justify="left" if heading == "point" else "right", no_wrap=True)
    for point in points_of(scenario):
        made = make_workload(scenario, point, rows, "plan")
        lasts = f"{made.load.due_ns[-1] / 1e9:.0f} s" if isinstance(made.load, OpenLoop) else ""
        measured = len(made.prompts) - made.warm_up
        lengths = (f"{made.input_tokens:.0f}", f"{made.output_tokens:.0f}")
        table.add_row(point.name, str(measured), str(made.warm_up), *lengths, lasts)
    console.print(table)
    subjects = ", ".join(
        f"{subject.name} ({subject.model}, {subject.profile or 'a running server'}, "
        f"{subject.driver or scenario.driver})"
        for subject in scenario.subjects
    )
    runs = plan_runs(scenario)
    done = sum(run.name in folder.finished() for run in runs)
    for line in (
        f"subjects: {subjects}",
        f"runs: {len(runs)} in {scenario.repeats} interleaved repeats; finished in {folder.path}: {done}",
    ):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
