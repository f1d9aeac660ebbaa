"""Charts with a line for every point and subject: percentiles, and cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from naiad_perf.metrics import FIGURES, STATISTICS
from naiad_perf.report.chart import Card, Chart, data_of, spec_of
from naiad_perf.report.placing import axis_for, height_for, scale_for
from naiad_perf.report.rows import point_rows, with_spread
from naiad_perf.report.series import Series
from naiad_perf.results import PointSummary

__all__ = ["cost_card", "percentile_card"]

_SHOWN = {"ttft_ms": "TTFT", "itl_ms": "ITL", "tpot_ms": "TPOT", "latency_ms": "Latency"}
_MARKS = {"p50": "circle", "p90": "stroke", "p95": "stroke", "p99": "diamond", "max": "circle"}
_COST = "usd_per_million_tokens"
_LINE = 11


def percentile_card(summaries: Sequence[PointSummary]) -> Card:
    """Percentiles of each latency, at every point."""
    charts = []
    for metric, short in _SHOWN.items():
        rows = _percentile_rows(summaries, metric)
        if rows:
            spec = _percentiles(Series(summaries), rows, short)
            charts.append(Chart(f"percentiles_{metric}", f"{short}: p50, p90, p95, p99, max", short, spec))
    return Card(
        "percentiles",
        "Percentiles",
        "Percentiles",
        "Half of the requests (of ITL: of the tokens) were faster than the dot, p50; the ticks are p90 and "
        "p95, the diamond p99, the ring the slowest of all. Each is the median over the repeats.",
        tuple(charts),
        "No request succeeded, so there are no latencies.",
    )


def _percentile_rows(summaries: Sequence[PointSummary], metric: str) -> list[dict[str, Any]]:
    figures = [f"{metric}_{name}" for name in STATISTICS]
    return [
        {key.removeprefix(f"{metric}_"): value for key, value in row.items()}
        | {f"said_{name}": with_spread(row, f"{metric}_{name}") for name in STATISTICS}
        for row in point_rows(summaries, figures)
        if row[f"{metric}_p50"] is not None
    ]


def _percentiles(series: Series, rows: Sequence[dict[str, Any]], short: str) -> dict[str, Any]:
    base = _base(rows).encode(color=series.colour)
    ends = [row[name] for row in rows for name in ("p50", "max")]
    scale = scale_for(ends)
    tooltip = [
        *series.where,
        *(alt.Tooltip(f"said_{name}:N", title=f"{name}, ms") for name in STATISTICS),
    ]
    line = base.mark_rule(strokeWidth=5, strokeCap="round").encode(
        x=alt.X("p50:Q", title=f"{short} (ms)", scale=scale, axis=axis_for(ends)),
        x2="p99:Q",
        opacity=series.opacity(0.3),
        tooltip=tooltip,
    )
    tail = base.mark_rule(strokeWidth=1).encode(
        x=alt.X("p99:Q", scale=scale), x2="max:Q", opacity=series.opacity(0.5)
    )
    marks = [
        base.mark_point(
            shape=shape, size=34 if name == "max" else 60, filled=name != "max", angle=0, strokeWidth=1.5
        ).encode(x=alt.X(f"{name}:Q", scale=scale), opacity=series.opacity(1.0), tooltip=tooltip)
        for name, shape in _MARKS.items()
        if shape != "stroke"
    ]
    ticks = [
        base.mark_tick(thickness=2, size=9).encode(
            x=alt.X(f"{name}:Q", scale=scale), opacity=series.opacity(1.0), tooltip=tooltip
        )
        for name, shape in _MARKS.items()
        if shape == "stroke"
    ]
    marks[0] = marks[0].add_params(*series.picks)
    layers = alt.layer(line, tail, *ticks, *marks)
    return spec_of(layers.properties(width="container", height=_height(rows)))


def _base(rows: Sequence[dict[str, Any]]) -> alt.Chart:
    points = list(dict.fromkeys(row["point"] for row in rows))
    subjects = list(dict.fromkeys(row["subject"] for row in rows))
    return alt.Chart(data_of(rows)).encode(
        y=alt.Y(
            "point:N",
            title=None,
            sort=points,
            scale=alt.Scale(paddingInner=0.35),
            axis=alt.Axis(grid=False, domain=False, ticks=False),
        ),
        yOffset=alt.YOffset("subject:N", sort=subjects, scale=alt.Scale(domain=subjects)),
    )


def _height(rows: Sequence[dict[str, Any]]) -> int:
    return height_for(len({row["point"] for row in rows}), len({row["subject"] for row in rows}), _LINE)


def cost_card(summaries: Sequence[PointSummary]) -> Card:
    """Cost per million output tokens, at every point."""
    rows = [
        {**row, "cost": row[_COST], "said": with_spread(row, _COST)}
        for row in point_rows(summaries, [_COST])
        if row[_COST] is not None
    ]
    stated = _prices(summaries)
    title = FIGURES[_COST].header
    charts = (Chart("cost", title, title, _costs(Series(summaries), rows)),) if rows else ()
    return Card(
        "cost",
        "Cost",
        "Cost per million output tokens",
        f"At the hourly price of the serving machine ({stated}), kept busy with this load all the time. Bars "
        "are medians over the repeats, lines go from the lowest to the highest.",
        charts,
        "Undefined: no hourly price is stated. A profile's `hourly_price_usd` states one, or that of a "
        "scenario's subject.",
    )


def _prices(summaries: Sequence[PointSummary]) -> str:
    prices = {summary.facts.subject: summary.facts.hourly_price_usd for summary in summaries}
    said = {name: "not stated" if price is None else f"{price:g} USD" for name, price in prices.items()}
    if len(set(said.values())) == 1:
        return next(iter(said.values()))
    return ", ".join(f"{name}: {price}" for name, price in said.items())


def _costs(series: Series, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    base = _base(rows).encode(color=series.colour)
    x = alt.X(
        "cost:Q",
        title="USD per million output tokens",
        scale=alt.Scale(zero=True),
        axis=alt.Axis(tickCount=7),
    )
    bars = base.mark_bar(cornerRadiusEnd=2).encode(
        x=x,
        opacity=series.opacity(0.9),
        tooltip=[*series.where, alt.Tooltip("said:N", title="USD per million tokens")],
    )
    spread = base.mark_rule(strokeWidth=1.5).encode(
        x=alt.X(f"{_COST}_low:Q"),
        x2=f"{_COST}_high:Q",
        color=alt.value("#5B6472"),
        opacity=series.opacity(0.9),
    )
    layers = alt.layer(bars.add_params(*series.picks), spread)
    return spec_of(layers.properties(width="container", height=_height(rows)))
