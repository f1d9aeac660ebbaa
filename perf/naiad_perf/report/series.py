"""How series look in all charts over points: a colour and a shape a subject, a line style a workload."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import altair as alt

from naiad_perf.report.rows import subjects_of, workloads_of
from naiad_perf.report.theme import MUTED
from naiad_perf.results import PointSummary

__all__ = ["SHAPES", "Series", "pan_and_zoom"]

SHAPES = ["circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right"]
_VANISHED, _FAINT = 0.07, 0.3
_DASHES = [[1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [10, 4]]


def pan_and_zoom(*encodings: Literal["x", "y"]) -> alt.Parameter:
    """Return panning with the mouse, and zooming with Shift and the wheel: scrolling stays scrolling."""
    return alt.selection_interval(
        name="zoom",
        bind="scales",
        encodings=list(encodings),
        translate="[mousedown, window:mouseup] > window:mousemove!",
        zoom="wheel![event.shiftKey]",
    )


class Series:
    """Encodings and selections for one chart of rows with `subject`, `workload`, `load` and `load_value`."""

    def __init__(self, summaries: Sequence[PointSummary]) -> None:
        self._subjects = subjects_of(summaries)
        self._workloads = workloads_of(summaries)
        self._pick = alt.selection_point(name="pick", fields=["subject"], bind="legend")
        self._pick_workload = alt.selection_point(name="pick_workload", fields=["workload"], bind="legend")

    @property
    def picks(self) -> tuple[alt.Parameter, ...]:
        """Selections by clicking on legends, to be added to one layer of a chart."""
        return (self._pick, self._pick_workload) if len(self._workloads) > 1 else (self._pick,)

    @property
    def colour(self) -> alt.Color:
        """Colour by subject; the theme says which."""
        return alt.Color("subject:N", title=None, scale=alt.Scale(domain=self._subjects))

    @property
    def shape(self) -> alt.Shape:
        """Shape by subject, in one legend with its colour."""
        shapes = [SHAPES[number % len(SHAPES)] for number in range(len(self._subjects))]
        return alt.Shape("subject:N", title=None, scale=alt.Scale(domain=self._subjects, range=shapes))

    @property
    def dash(self) -> alt.StrokeDash:
        """Line style by workload, with a legend where there are several."""
        dashes = [_DASHES[number % len(_DASHES)] for number in range(len(self._workloads))]
        scale = alt.Scale(domain=self._workloads, range=dashes)
        several = len(self._workloads) > 1
        legend = alt.Legend(symbolType="stroke", symbolSize=400) if several else None
        return alt.StrokeDash("workload:N", title=None, scale=scale, legend=legend)

    def opacity(self, shown: float, *, faint_where: str = "false") -> Any:
        """Opacity of what is picked in the legend, faint where a condition holds; the rest almost gone."""
        picked = self._pick & self._pick_workload if len(self._workloads) > 1 else self._pick
        opacity = alt.when(~picked).then(alt.value(_VANISHED))
        return opacity.when(faint_where).then(alt.value(_FAINT)).otherwise(alt.value(shown))

    @property
    def where(self) -> list[alt.Tooltip]:
        """Start of every tooltip."""
        return [
            alt.Tooltip("subject:N", title="subject"),
            alt.Tooltip("load:N", title="load"),
            alt.Tooltip("workload:N", title="prompt → answer"),
            alt.Tooltip("repeats:Q", title="repeats"),
        ]

    def labels(self, base: alt.Chart) -> alt.Chart:
        """Return small numbers beside the dots that have a `label`: streams, or requests a second."""
        labels: alt.Chart = base.mark_text(dx=9, dy=-9, fontSize=10).encode(
            text="label:N", color=alt.value(MUTED), opacity=self.opacity(1.0)
        )
        return labels
