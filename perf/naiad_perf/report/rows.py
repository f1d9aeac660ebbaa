"""Points of a sweep as rows of charts: who, where, under which load, and figures with their spread."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from naiad_perf.records import RunFacts
from naiad_perf.report.chart import Row
from naiad_perf.results import PointSummary

__all__ = ["load_label", "point_rows", "subjects_of", "with_spread", "workload_label", "workloads_of"]


def load_label(facts: RunFacts) -> str:
    """Write the load of a point, for example "8 streams" or "2.5 requests/s"."""
    if facts.concurrency is not None:
        return f"{facts.concurrency} stream{'' if facts.concurrency == 1 else 's'}"
    return "–" if facts.request_rate is None else f"{facts.request_rate:.3g} requests/s"


def workload_label(facts: RunFacts) -> str:
    """Write what is asked for, for example "64 → 32 tokens": the mean prompt and the mean answer."""
    return f"{facts.input_tokens:.0f} → {facts.output_tokens:.0f} tokens"


def subjects_of(summaries: Iterable[PointSummary]) -> list[str]:
    """Return subjects in the order in which they first ran."""
    return list(dict.fromkeys(summary.facts.subject for summary in summaries))


def workloads_of(summaries: Iterable[PointSummary]) -> list[str]:
    """Return workloads in the order in which they first ran."""
    return list(dict.fromkeys(workload_label(summary.facts) for summary in summaries))


def point_rows(
    summaries: Sequence[PointSummary], figures: Iterable[str]
) -> list[dict[str, str | float | None]]:
    """Return one row a subject and point, with medians, lowest and highest of the figures.

    A figure `x` gives `x`, `x_low` and `x_high`; None where undefined.
    """
    names = list(figures)
    return [_row(summary, names) for summary in summaries]


def _row(summary: PointSummary, figures: Sequence[str]) -> dict[str, str | float | None]:
    facts = summary.facts
    row: dict[str, str | float | None] = {
        "subject": facts.subject,
        "point": facts.point,
        "workload": workload_label(facts),
        "load": load_label(facts),
        "load_value": facts.request_rate if facts.concurrency is None else facts.concurrency,
        "repeats": len(summary.results),
    }
    for figure in figures:
        spread = summary.figures[figure]
        row[figure] = None if spread is None else spread.median
        row[f"{figure}_low"] = None if spread is None else spread.low
        row[f"{figure}_high"] = None if spread is None else spread.high
    return row


def with_spread(row: Row, figure: str) -> str:
    """Write a figure of a row with its lowest and highest, for tooltips."""
    value, low, high = row[figure], row[f"{figure}_low"], row[f"{figure}_high"]
    if not isinstance(value, int | float):
        return "–"
    if low == high:
        return f"{value:,.4g}"
    return f"{value:,.4g} ({low:,.4g} to {high:,.4g})"
