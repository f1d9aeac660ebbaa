"""Every subject against the first one: ratios and their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from naiad_perf.comparison.compare import Compared, Comparison, Verdict, compare
from naiad_perf.comparison.text import reading_aid
from naiad_perf.display import interval_text, ratio_text
from naiad_perf.errors import RecordError
from naiad_perf.metrics import Better
from naiad_perf.report.chart import Card, Chart, data_of, spec_of
from naiad_perf.report.placing import height_for
from naiad_perf.report.rows import subjects_of
from naiad_perf.report.series import SHAPES
from naiad_perf.report.theme import MUTED, VERDICT_COLOURS
from naiad_perf.results import PointSummary, RunResult

__all__ = ["comparison_card", "comparisons_of"]

_FIGURES = (
    "tokens_per_s",
    "requests_per_s",
    "goodput_per_s",
    "tokens_per_s_per_user_p50",
    "ttft_ms_p50",
    "ttft_ms_p99",
    "itl_ms_p50",
    "itl_ms_p99",
    "tpot_ms_p50",
    "latency_ms_p50",
    "latency_ms_p99",
    "usd_per_million_tokens",
)
_LINE = 13
_TICKS = (
    *(0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
    *(1, 1.1, 1.2, 1.3, 1.5, 1.75, 2, 2.5, 3, 4, 5, 7, 10, 15, 20, 30, 50, 100),
)


def comparisons_of(summaries: Sequence[PointSummary]) -> tuple[Comparison, ...]:
    """Compare every subject with the first; one that has no point in common with it is left out."""
    results: dict[str, list[RunResult]] = {}
    for summary in summaries:
        results.setdefault(summary.facts.subject, []).extend(summary.results)
    base, *others = subjects_of(summaries)
    found = []
    for other in others:
        try:
            found.append(compare(results[base], results[other], names=(base, other), same_sweep=True))
        except RecordError:
            continue
    return tuple(found)


def comparison_card(comparisons: Sequence[Comparison]) -> Card | None:
    """Ratios of all figures that have a better way; None where there is nothing to compare."""
    if not comparisons:
        return None
    rows = [
        _row(comparison, compared)
        for comparison in comparisons
        for name in _FIGURES
        if (compared := comparison.at(name)).ratio is not None
    ]
    base, points = comparisons[0].a, len(comparisons[0].points)
    where = f"as geometric means over {points} points" if points > 1 else f"at {comparisons[0].points[0]}"
    title = f"Compared with {base}"
    spec = _forest(rows, [each.b for each in comparisons]) if rows else {}
    return Card(
        "comparison",
        "Compared",
        title,
        f"How many times the figure of {base}, {where}; the arrows say which way is better. "
        f"{reading_aid(comparisons[0])}",
        (Chart("comparison", title, title, spec),) if rows else (),
        "No figure is defined for both.",
    )


def _row(comparison: Comparison, compared: Compared) -> dict[str, Any]:
    interval = compared.interval
    arrow = "↑" if compared.figure.better is Better.HIGHER else "↓"
    return {
        "figure": f"{compared.figure.header} {arrow}",
        "subject": comparison.b,
        "ratio": compared.ratio,
        "from": interval.low if interval else compared.ratio,
        "to": interval.high if interval else compared.ratio,
        "said": ratio_text(compared),
        "said_interval": interval_text(compared),
        "verdict": compared.verdict.value if compared.verdict is not Verdict.NONE else "no verdict",
        "why": compared.why or "–",
    }


def _forest(rows: Sequence[dict[str, Any]], subjects: Sequence[str]) -> dict[str, Any]:
    figures = list(dict.fromkeys(row["figure"] for row in rows))
    colours = VERDICT_COLOURS | {"no verdict": MUTED}
    seen = [verdict for verdict in colours if any(row["verdict"] == verdict for row in rows)]
    shapes = [SHAPES[number % len(SHAPES)] for number in range(1, len(subjects) + 1)]
    base = alt.Chart(data_of(rows)).encode(
        y=alt.Y("figure:N", title=None, sort=figures, axis=alt.Axis(grid=True, domain=False, ticks=False)),
        yOffset=alt.YOffset("subject:N", sort=list(subjects), scale=alt.Scale(domain=list(subjects))),
        color=alt.Color(
            "verdict:N", title=None, scale=alt.Scale(domain=seen, range=[colours[each] for each in seen])
        ),
        tooltip=[
            alt.Tooltip("subject:N", title="subject"),
            alt.Tooltip("figure:N", title="figure"),
            alt.Tooltip("said:N", title="ratio"),
            alt.Tooltip("said_interval:N", title="interval"),
            alt.Tooltip("verdict:N", title="verdict"),
            alt.Tooltip("why:N", title="why none"),
        ],
    )
    ends = [row[name] for row in rows for name in ("from", "to")]
    low, high = min(0.9, *ends) * 0.97, max(1.1, *ends) * 1.1
    scale = alt.Scale(type="log", domain=[low, high], nice=False)
    axis = alt.Axis(values=[tick for tick in _TICKS if low <= tick <= high], format="~g", grid=False)
    x = alt.X("ratio:Q", title="times", scale=scale, axis=axis)
    one = alt.Chart(data_of([{"one": 1}])).mark_rule(strokeDash=[4, 3], color=MUTED).encode(x="one:Q")
    lines = base.mark_rule(strokeWidth=2.5).encode(x=alt.X("from:Q", scale=scale), x2="to:Q")
    dots = base.mark_point(filled=True, size=80, opacity=1).encode(
        x=x,
        shape=alt.Shape("subject:N", title=None, scale=alt.Scale(domain=list(subjects), range=shapes)),
    )
    numbers = base.mark_text(align="left", dx=9, fontSize=10).encode(
        x=alt.X("to:Q", scale=scale), text="said:N"
    )
    layers = alt.layer(one, lines, dots, numbers)
    return spec_of(
        layers.properties(width="container", height=height_for(len(figures), len(subjects), _LINE))
    )
