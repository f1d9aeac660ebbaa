"""Curves over load: latency against throughput, and throughput against what a user sees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from naiad_perf.report.chart import Card, Chart, Row, data_of, spec_of
from naiad_perf.report.placing import add_labels, axis_for, scale_for, spans_far
from naiad_perf.report.rows import point_rows, with_spread
from naiad_perf.report.series import Series, pan_and_zoom
from naiad_perf.results import PointSummary

__all__ = ["latency_card", "pareto_card", "pareto_front"]

_PERCENTILES = ("p50", "p90", "p99")
_LATENCIES = {
    "ttft_ms": "Time to first token",
    "itl_ms": "Inter-token latency",
    "latency_ms": "Request latency",
}
_USER, _SERVER = "tokens_per_s_per_user_p50", "tokens_per_s"


def latency_card(summaries: Sequence[PointSummary]) -> Card:
    """Latency against tokens/s: one line a subject and workload, from little load to much."""
    charts = []
    for metric, title in _LATENCIES.items():
        rows = _latency_rows(summaries, metric)
        if rows:
            spec = _latency(Series(summaries), rows, title)
            charts.append(Chart(f"throughput_{metric}", f"Throughput and {title.lower()}", title, spec))
    return Card(
        "throughput",
        "Throughput",
        "Throughput and latency",
        "Each line goes from little load to much; the numbers beside it say how much. Right is more, lower "
        "is faster. Where a line turns upward the server is full, and more load buys only waiting. Dots are "
        "medians over the repeats, bars go from the lowest to the highest repeat.",
        tuple(charts),
        "No request succeeded, so there is neither throughput nor latency.",
        _PERCENTILES,
    )


def _latency_rows(summaries: Sequence[PointSummary], metric: str) -> list[dict[str, Any]]:
    figures = [f"{metric}_{name}" for name in _PERCENTILES]
    return [
        {
            **{key: value for key, value in row.items() if not key.startswith(metric)},
            "percentile": name,
            "value": row[f"{metric}_{name}"],
            "value_low": row[f"{metric}_{name}_low"],
            "value_high": row[f"{metric}_{name}_high"],
            "said": with_spread(row, f"{metric}_{name}"),
            "said_speed": with_spread(row, _SERVER),
        }
        for row in point_rows(summaries, [_SERVER, *figures])
        for name in _PERCENTILES
        if row[f"{metric}_{name}"] is not None and row[_SERVER] is not None
    ]


def _latency(series: Series, rows: Sequence[dict[str, Any]], title: str) -> dict[str, Any]:
    choice = alt.param(name="choice", value=_PERCENTILES[0])
    ends = [row[end] for row in rows for end in ("value_low", "value_high")]
    for name in _PERCENTILES:
        add_labels(
            [row for row in rows if row["percentile"] == name], _SERVER, "value", log_y=spans_far(ends)
        )
    y = alt.Y("value:Q", title=f"{title} (ms)", scale=scale_for(ends), axis=axis_for(ends))
    x = alt.X(
        f"{_SERVER}:Q",
        title="Output tokens/s of the server",
        scale=alt.Scale(zero=True),
        axis=alt.Axis(grid=False, tickCount=10),
    )
    base = (
        alt.Chart(data_of(rows))
        .transform_filter("datum.percentile == choice")
        .encode(x=x, y=y, color=series.colour)
    )
    line = base.mark_line(strokeWidth=2).encode(
        order=alt.Order("load_value:Q"), strokeDash=series.dash, opacity=series.opacity(0.85)
    )
    low_high = base.mark_rule(strokeWidth=1.3).encode(opacity=series.opacity(0.6))
    bars_y = low_high.encode(y=alt.Y("value_low:Q"), y2="value_high:Q")
    bars_x = low_high.encode(x=alt.X(f"{_SERVER}_low:Q"), x2=f"{_SERVER}_high:Q")
    dots = base.mark_point(size=75, filled=True).encode(
        shape=series.shape,
        opacity=series.opacity(1.0),
        tooltip=[
            *series.where,
            alt.Tooltip("said_speed:N", title="tokens/s"),
            alt.Tooltip("percentile:N", title="percentile"),
            alt.Tooltip("said:N", title=f"{title.lower()}, ms"),
        ],
    )
    layers = alt.layer(
        bars_y, bars_x, line, series.labels(base), dots.add_params(*series.picks, pan_and_zoom("x", "y"))
    )
    return spec_of(layers.add_params(choice).properties(width="container", height=360))


def pareto_card(summaries: Sequence[PointSummary]) -> Card:
    """Tokens/s of the server against tokens/s of each user: what one costs the other."""
    rows = [
        row
        for row in point_rows(summaries, [_SERVER, _USER])
        if row[_SERVER] is not None and row[_USER] is not None
    ]
    title = "Server speed against user speed"
    charts = (Chart("pareto", title, title, _pareto(Series(summaries), rows)),) if rows else ()
    return Card(
        "pareto",
        "Pareto front",
        "Server speed against user speed",
        "Every server trades the speed that each user sees for the speed of all. Up and to the right is "
        "better. Lines join the points of a subject that no other of its points beats in both: its Pareto "
        "front. The other points are faint. Dots are medians over the repeats.",
        charts,
        "No answer came in more than one response, so the speed that a user sees is undefined.",
    )


def _pareto(series: Series, rows: Sequence[Row]) -> dict[str, Any]:
    together: dict[tuple[Any, Any], list[Row]] = {}
    for row in rows:
        together.setdefault((row["subject"], row["workload"]), []).append(row)
    drawn = [
        dict(row, beaten=row not in front, said=with_spread(row, _SERVER), said_user=with_spread(row, _USER))
        for members in together.values()
        for front in (pareto_front(members, _USER, _SERVER),)
        for row in members
    ]
    add_labels(drawn, _USER, _SERVER)
    base = alt.Chart(data_of(drawn)).encode(
        x=alt.X(
            f"{_USER}:Q",
            title="Tokens/s that a user sees (median)",
            scale=alt.Scale(zero=True),
            axis=alt.Axis(grid=False, tickCount=10),
        ),
        y=alt.Y(f"{_SERVER}:Q", title="Output tokens/s of the server", scale=alt.Scale(zero=True)),
        color=series.colour,
    )
    line = (
        base.transform_filter("!datum.beaten")
        .mark_line(strokeWidth=2.2)
        .encode(order=alt.Order(f"{_USER}:Q"), strokeDash=series.dash, opacity=series.opacity(0.85))
    )
    dots = base.mark_point(size=85, filled=True).encode(
        shape=series.shape,
        opacity=series.opacity(1.0, faint_where="datum.beaten"),
        tooltip=[
            *series.where,
            alt.Tooltip("said:N", title="tokens/s of the server"),
            alt.Tooltip("said_user:N", title="tokens/s of a user"),
        ],
    )
    layers = alt.layer(line, series.labels(base), dots.add_params(*series.picks, pan_and_zoom("x", "y")))
    return spec_of(layers.properties(width="container", height=380))


def pareto_front(rows: Sequence[Row], x: str, y: str) -> list[Row]:
    """Return the rows that no other row beats: none is at least as much in both and more in one."""

    def beaten(row: Row, by: Row) -> bool:
        more_x, more_y = _number(by[x]) - _number(row[x]), _number(by[y]) - _number(row[y])
        return more_x >= 0 and more_y >= 0 and (more_x > 0 or more_y > 0)

    return [row for row in rows if not any(beaten(row, other) for other in rows)]


def _number(value: str | float | None) -> float:
    if not isinstance(value, int | float):
        raise TypeError(f"{value!r} is no number")
    return value
