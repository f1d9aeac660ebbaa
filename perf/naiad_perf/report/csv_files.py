"""All figures as CSV: a row a run, and a row a subject and point."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

from naiad_perf.metrics import FIGURES
from naiad_perf.results import PointSummary, RunResult

__all__ = ["points_csv", "runs_csv"]

_PLACE = ("subject", "point", "concurrency", "request_rate", "input_tokens_asked", "output_tokens_asked")
_RUN = (
    "repeat",
    "position",
    "attempts",
    "driver",
    "driver_version",
    "model",
    "profile",
    "started_utc",
    "wall_s",
)
_SPREAD = ("median", "min", "max", "repeats")


def runs_csv(results: Iterable[RunResult]) -> str:
    """Write a row a run; undefined figures are empty."""
    header = [*_PLACE, *_RUN, *FIGURES, "command"]
    return _csv(header, (_run_row(result) for result in results))


def _run_row(result: RunResult) -> list[object]:
    facts = result.facts
    run = [getattr(facts, name) for name in _RUN]
    return [*_place(result), *run, *result.figures.values(), " ".join(facts.command)]


def _place(result: RunResult) -> list[object]:
    facts = result.facts
    load = [facts.concurrency, facts.request_rate, facts.input_tokens, facts.output_tokens]
    return [facts.subject, facts.point, *load]


def points_csv(summaries: Sequence[PointSummary]) -> str:
    """Write a row a subject and point, with four columns a figure; undefined figures are empty."""
    header = [*_PLACE, "repeats", *(f"{name}_{part}" for name in FIGURES for part in _SPREAD)]
    return _csv(header, (_point_row(summary) for summary in summaries))


def _point_row(summary: PointSummary) -> list[object]:
    cells: list[object] = []
    for name in FIGURES:
        spread = summary.figures[name]
        cells += (
            [None, None, None, 0]
            if spread is None
            else [spread.median, spread.low, spread.high, spread.repeats]
        )
    return [*_place(summary.results[0]), len(summary.results), *cells]


def _csv(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()
