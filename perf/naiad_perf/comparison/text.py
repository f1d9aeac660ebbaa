"""A comparison as tables for the terminal, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from naiad_perf.comparison.compare import OVERALL, Compared, Comparison, Verdict
from naiad_perf.comparison.gates import GateResult
from naiad_perf.display import interval_text, quantity, ratio_text
from naiad_perf.error_budget import Overrun

__all__ = ["as_json", "print_comparison", "print_gates", "reading_aid"]

_STYLES = {Verdict.BETTER: "green", Verdict.WORSE: "red", Verdict.DIFFERENT: "cyan"}

_HELD = {True: "[green]holds[/]", False: "[red]does not hold[/]", None: "[yellow]cannot be judged[/]"}


def print_comparison(
    console: Console, comparison: Comparison, figures: Sequence[str], *, by_point: bool
) -> None:
    """Print a table overall, or at the only point; with `by_point`, one for every point too."""
    for warning in comparison.warnings:
        console.print(f"[yellow]warning:[/] {escape(warning)}", highlight=False)
    console.print(f"A is {escape(comparison.a)}, B is {escape(comparison.b)}", highlight=False)
    several = len(comparison.points) > 1
    for point in (*(comparison.points if by_point or not several else ()), *((OVERALL,) if several else ())):
        console.print(_table(comparison, figures, point))
        console.print()
    console.print(reading_aid(comparison), style="dim", highlight=False)


def reading_aid(comparison: Comparison) -> str:
    """Say what ratios, intervals and verdicts are made of."""
    pairing = "repeats paired" if comparison.paired else "repeats not paired"
    sure, unsure = f"{comparison.confidence * 100:.3g} %", f"{(1 - comparison.confidence) * 100:.3g} %"
    return (
        f"The ratio is the geometric mean over repeats ({pairing}). Its interval (bootstrap of repeats, "
        f"Student's t) holds the true ratio in {sure} of comparisons. Each verdict stands alone: "
        f"of many figures that do not differ, {unsure} still look different."
    )


def _table(comparison: Comparison, figures: Sequence[str], point: str) -> Table:
    overall = point == OVERALL
    title = f"overall: geometric mean of {len(comparison.points)} points" if overall else point
    table = Table(box=None, header_style="bold", pad_edge=False, title=title, title_justify="left")
    table.add_column("figure", no_wrap=True)
    if not overall:
        table.add_column("A", justify="right", no_wrap=True)
        table.add_column("B", justify="right", no_wrap=True)
    table.add_column("B/A", justify="right", no_wrap=True)
    table.add_column(f"{comparison.confidence * 100:.3g} % interval", no_wrap=True)
    table.add_column("verdict on B", no_wrap=True)
    for name in figures:
        compared = comparison.at(name, point)
        medians = (
            () if overall else tuple(quantity(v, compared.figure.unit) for v in (compared.a, compared.b))
        )
        table.add_row(
            compared.figure.header,
            *medians,
            ratio_text(compared),
            interval_text(compared),
            _verdict(compared, len(comparison.points) if overall else 1),
        )
    return table


def _verdict(compared: Compared, points: int) -> str:
    style = _STYLES.get(compared.verdict, "dim")
    why = f" ({compared.why})" if compared.why else ""
    where = f", of {len(compared.over)} points" if 0 < len(compared.over) < points else ""
    return f"[{style}]{compared.verdict.value}{why}{where}[/]"


def print_gates(console: Console, results: Sequence[GateResult], over: Sequence[Overrun]) -> None:
    """Print one line for each gate and for each run that exceeded the error budget."""
    for result in results:
        compared = result.compared
        reason = compared.why or f"{ratio_text(compared)} ({interval_text(compared)})"
        console.print(
            f"gate {compared.figure.name}, at most {result.gate.tolerance:.3g} worse, {compared.point}: "
            f"{_HELD[result.held]}: {reason}",
            highlight=False,
        )
    for overrun in over:
        console.print(f"[red]over the error budget:[/] {escape(str(overrun))}", highlight=False)


def as_json(comparison: Comparison, gates: Sequence[GateResult], over: Sequence[Overrun]) -> dict[str, Any]:
    """Return everything as plain values."""
    return {
        "a": comparison.a,
        "b": comparison.b,
        "paired": comparison.paired,
        "confidence": comparison.confidence,
        "points": list(comparison.points),
        "warnings": list(comparison.warnings),
        "figures": [_row(compared) for compared in comparison.compared],
        "gates": [
            {
                "figure": result.gate.figure.name,
                "tolerance": result.gate.tolerance,
                "point": result.compared.point,
                "held": result.held,
            }
            for result in gates
        ],
        "over_error_budget": [str(overrun) for overrun in over],
    }


def _row(compared: Compared) -> dict[str, Any]:
    interval = compared.interval
    return {
        "figure": compared.figure.name,
        "unit": compared.figure.unit.symbol,
        "better": compared.figure.better.value,
        "point": compared.point,
        "over": list(compared.over),
        "a": compared.a,
        "b": compared.b,
        "ratio": compared.ratio,
        "low": interval.low if interval else None,
        "high": interval.high if interval else None,
        "verdict": compared.verdict.value,
        "why": compared.why,
        "repeats": list(compared.repeats),
    }
