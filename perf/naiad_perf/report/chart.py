"""What a chart of the report is, and rows of data in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import altair as alt

__all__ = ["Card", "Chart", "Row", "Table", "data_of", "spec_of"]

Row = Mapping[str, str | float | None]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of data as they travel in the page: names once, then values only."""

    columns: tuple[str, ...]
    rows: list[list[str | float | bool | None]]

    def as_objects(self) -> list[dict[str, str | float | bool | None]]:
        """Return rows as a chart takes them."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


@dataclass(frozen=True, slots=True)
class Chart:
    """One picture.

    Attributes:
        name: stem of its PNG file, and its place in the page.
        title: for its PNG file.
        tab: for its tab, where there are several.
        spec: Vega-Lite, without configuration: the page brings a light and a dark one. Widths are left out.
    """

    name: str
    title: str
    tab: str
    spec: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Card:
    """A place of the page: one chart, or several behind tabs.

    Attributes:
        name: anchor.
        short: for the list at the top of the page.
        title: heading.
        text: what is to be seen, and how to read it.
        charts: empty where nothing is defined; then `missing` says why.
        missing: shown instead of charts.
        choices: values of the charts' parameter `choice`, offered as buttons; the first is the default.
    """

    name: str
    short: str
    title: str
    text: str
    charts: tuple[Chart, ...]
    missing: str = ""
    choices: Sequence[str] = field(default=())


def data_of(rows: Sequence[Row]) -> alt.InlineData:
    """Return rows as they stand in a specification."""
    return alt.InlineData(values=[dict(row) for row in rows])


def spec_of(chart: alt.TopLevelMixin) -> dict[str, Any]:
    """Return the specification of a chart without its configuration; it fits into its container's width."""
    spec: dict[str, Any] = chart.to_dict()
    spec.pop("config", None)
    if spec.get("width") == "container":
        spec["autosize"] = {"type": "fit-x", "contains": "padding"}
    return spec
