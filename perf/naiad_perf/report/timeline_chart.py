"""The picture of a timeline: requests above, tokens/s and requests in flight below, on one time axis."""

from __future__ import annotations

from typing import Any

import altair as alt

from naiad_perf.report.chart import spec_of
from naiad_perf.report.series import pan_and_zoom
from naiad_perf.report.theme import ENDS, MUTED, PHASES
from naiad_perf.report.timeline import Timeline

__all__ = ["timeline_spec"]

_WIDTH = 820
_SECONDS = alt.Scale(nice=False, zero=True)


def timeline_spec(timeline: Timeline) -> dict[str, Any]:
    """Return the chart of a timeline.

    Its data sets are named `requests` and `rates`, so that a page can put those of another run there; a page
    sets the widths too, since charts of several parts do not follow their container.
    """
    chart = alt.vconcat(
        _requests(),
        _track("tokens_per_s", "Tokens/s", list(PHASES.values())[2], 110, last=False),
        _track("in_flight", "In flight", MUTED, 80, last=True),
        spacing=12,
        bounds="flush",
    ).resolve_scale(x="shared", color="independent", shape="independent")
    spec = spec_of(chart)
    spec["datasets"] = {
        "requests": timeline.requests.as_objects(),
        "rates": timeline.rates.as_objects(),
    }
    return spec


def _requests() -> alt.LayerChart:
    base = alt.Chart(alt.NamedData("requests"))
    y_scale = alt.Scale(reverse=True, zero=False, nice=False, padding=3)
    y_axis = alt.Axis(labels=False, ticks=False, grid=False, domain=False)
    y = alt.Y("above:Q", title="Requests, as they were due", scale=y_scale, axis=y_axis)
    tooltip = [
        alt.Tooltip("request:Q", title="request"),
        alt.Tooltip("outcome:N", title="outcome"),
        alt.Tooltip("due:Q", title="due at, s", format=".3f"),
        alt.Tooltip("wait:Q", title="first token after, ms", format=",.1f"),
        alt.Tooltip("took:Q", title="end after, ms", format=",.1f"),
        alt.Tooltip("tokens:Q", title="tokens"),
        alt.Tooltip("warm_up:N", title="warm-up"),
    ]
    known = base.transform_calculate(
        above="datum.row - 0.38",
        below="datum.row + 0.38",
        wait="datum.tokens > 0 ? (datum.first - datum.due) * 1000 : null",
        took="(datum.end - datum.due) * 1000",
        failed="slice(datum.outcome, 0, 2) == 'ok' ? '' : slice(datum.outcome, 0, 5) == 'error' ? "
        "'failed' : 'cancelled'",
    )
    colours = alt.Scale(domain=list(PHASES), range=list(PHASES.values()))
    stretches = [
        known.transform_calculate(phase=f"'{phase}'")
        .mark_rect()
        .encode(
            x=alt.X(f"{start}:Q", title=None, axis=alt.Axis(labels=False, ticks=False), scale=_SECONDS),
            x2=f"{end}:Q",
            y=y,
            y2="below:Q",
            color=alt.Color("phase:N", scale=colours, title=None),
            opacity=alt.when("datum.warm_up").then(alt.value(0.35)).otherwise(alt.value(1)),
            tooltip=tooltip,
        )
        for phase, start, end in zip(PHASES, ("due", "sent", "first"), ("sent", "first", "end"), strict=True)
    ]
    stretches[0] = stretches[0].add_params(pan_and_zoom("x"))
    shapes = alt.Scale(domain=list(ENDS), range=["cross", "diamond"])
    end_colours = alt.Scale(domain=list(ENDS), range=list(ENDS.values()))
    ends = known.mark_point(filled=True, opacity=1).encode(
        x=alt.X("end:Q"),
        y=alt.Y("row:Q"),
        size=alt.when("datum.failed != ''").then(alt.value(60)).otherwise(alt.value(0)),
        shape=alt.Shape("failed:N", title=None, scale=shapes),
        color=alt.Color("failed:N", title=None, scale=end_colours),
        tooltip=tooltip,
    )
    both = alt.layer(alt.layer(*stretches), ends).resolve_scale(color="independent", shape="independent")
    layers: alt.LayerChart = both.properties(width=_WIDTH, height=360)
    return layers


def _track(field: str, title: str, colour: str, height: int, *, last: bool) -> alt.Chart:
    axis = alt.Axis(tickCount=12, labelOverlap=True) if last else alt.Axis(labels=False, ticks=False)
    x_title = "Seconds since the first request was due" if last else None
    track: alt.Chart = (
        alt.Chart(alt.NamedData("rates"))
        .mark_rect(color=colour, opacity=0.8)
        .encode(
            x=alt.X("from:Q", title=x_title, axis=axis, scale=_SECONDS),
            x2="to:Q",
            y=alt.Y(f"{field}:Q", title=title, axis=alt.Axis(tickCount=3), scale=alt.Scale(zero=True)),
            y2=alt.datum(0),
            tooltip=[
                alt.Tooltip("from:Q", title="from, s", format=".3f"),
                alt.Tooltip("to:Q", title="to, s", format=".3f"),
                alt.Tooltip("tokens_per_s:Q", title="tokens/s", format=",.1f"),
                alt.Tooltip("in_flight:Q", title="requests in flight", format=".1f"),
            ],
        )
        .properties(width=_WIDTH, height=height)
    )
    return track
