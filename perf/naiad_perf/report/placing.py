"""Where things go: scales that fit the values, and labels that do not cover each other."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, log, log10
from typing import Any

import altair as alt

__all__ = ["add_labels", "axis_for", "height_for", "scale_for", "spans_far"]

_FAR = 20
_APART_X, _APART_Y = 0.035, 0.05


def spans_far(values: Sequence[float]) -> bool:
    """Return whether values span more than a linear scale could show."""
    return min(values) > 0 and max(values) / min(values) > _FAR


def scale_for(values: Sequence[float]) -> alt.Scale:
    """Return a logarithmic scale for values that span far, else a linear one from zero."""
    if spans_far(values):
        return alt.Scale(type="log", nice=False, domainMin=min(values) * 0.8, domainMax=max(values) * 1.4)
    return alt.Scale(zero=True, nice=True)


def axis_for(values: Sequence[float]) -> alt.Axis:
    """Return an axis for the scale of the same values; a logarithmic one has 1, 2 and 5 of every decade."""
    if not spans_far(values):
        return alt.Axis(tickCount=7)
    decades = range(floor(log10(min(values))) - 1, ceil(log10(max(values))) + 1)
    ticks = [step * 10.0**decade for decade in decades for step in (1, 2, 5)]
    shown = [tick for tick in ticks if min(values) * 0.8 <= tick <= max(values) * 1.4]
    return alt.Axis(values=shown, format="~g")


def height_for(places: int, subjects: int, line: int) -> int:
    """Return the height of a chart with a line of so many pixels for each subject at each place.

    A number, not a step: Vega-Lite warns of steps in charts that fit their container's width.
    """
    return places * (subjects * line + line) + line


def add_labels(rows: Sequence[dict[str, Any]], x: str, y: str, *, log_y: bool = False) -> None:
    """Give each row its load as `label`; empty where it would cover that of a row before it.

    Args:
        rows: with `load_value` and positive numbers at `x` and `y`.
        x: horizontal field.
        y: vertical field.
        log_y: whether the vertical scale is logarithmic.
    """
    across = _placed([row[x] for row in rows], log_scale=False)
    upward = _placed([row[y] for row in rows], log_scale=log_y)
    taken: list[tuple[float, float]] = []
    for row, right, up in zip(rows, across, upward, strict=True):
        free = all(abs(right - other) > _APART_X or abs(up - above) > _APART_Y for other, above in taken)
        load = row["load_value"]
        row["label"] = f"{load:.3g}" if free and load is not None else ""
        if row["label"]:
            taken.append((right, up))


def _placed(values: Sequence[float], *, log_scale: bool) -> list[float]:
    """Return values as shares of the scale they are drawn on."""
    if not values:
        return []
    if log_scale:
        low, high = log(min(values)), log(max(values))
        return [(log(value) - low) / ((high - low) or 1) for value in values]
    return [value / (max(values) or 1) for value in values]
