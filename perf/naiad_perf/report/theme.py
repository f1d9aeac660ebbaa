"""Colours and lines of all charts, in the light and in the dark.

Subjects are told apart by colour and shape. Colours are those of Okabe and Ito (Color Universal Design, 2008)
or near them, which people with any colour vision tell apart; the dark ones are the same, lighter.
"""

from __future__ import annotations

from typing import Any

__all__ = ["DARK", "ENDS", "LIGHT", "MUTED", "PHASES", "VERDICT_COLOURS", "vega_config"]

_SUBJECTS_LIGHT = ["#0072B2", "#D55E00", "#009E73", "#AA5A8E", "#B8860B", "#56B4E9", "#6B6B6B"]
_SUBJECTS_DARK = ["#56B4E9", "#F28E4B", "#2CC79B", "#E3A1C8", "#F0C24B", "#9AD7FF", "#B9B9B9"]

PHASES = {"waiting to be sent": "#9AA3AF", "waiting for the first token": "#E69F00", "receiving": "#3B8EC9"}
"""Colours of a request's phases; readable on both grounds."""

ENDS = {"failed": "#D3322D", "cancelled": "#7B4FA3"}
"""Colours of ends that are no success; shapes tell them apart too."""

MUTED = "#8A929E"
"""Grey that shows on both grounds."""

VERDICT_COLOURS = {
    "better": "#0E8FC7",
    "worse": "#E0601F",
    "different": "#9B6BB3",
    "no difference shown": "#8A929E",
}
"""Blue for better and orange for worse: red and green look alike to many."""


def vega_config(
    *, ink: str, faint: str, grid: str, ground: str | None, subjects: list[str]
) -> dict[str, Any]:
    """Return Vega-Lite's configuration.

    Args:
        ink: colour of text.
        faint: colour of axis labels.
        grid: colour of grid lines.
        ground: colour behind charts; None: what the page has.
        subjects: colours in turn.
    """
    font = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif"
    return {
        "background": ground,
        "font": font,
        "padding": 4,
        "view": {"stroke": None, "continuousHeight": 340, "continuousWidth": 820},
        "title": {
            "color": ink, "subtitleColor": faint, "fontSize": 16, "fontWeight": 600, "anchor": "start",
            "offset": 14, "subtitleFontSize": 12,
        },
        "axis": {
            "labelColor": faint, "titleColor": ink, "gridColor": grid, "domainColor": grid, "tickColor": grid,
            "labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": 500, "titlePadding": 10,
            "labelPadding": 6, "tickSize": 4, "labelLimit": 220, "labelOverlap": "greedy",
            "labelSeparation": 5,
        },
        "legend": {
            "labelColor": ink, "titleColor": faint, "labelFontSize": 12, "titleFontSize": 11,
            "titleFontWeight": 500, "orient": "top", "direction": "horizontal", "symbolSize": 90,
            "symbolStrokeWidth": 2, "symbolOpacity": 1,
            "symbolBaseFillColor": faint, "symbolBaseStrokeColor": faint, "labelLimit": 240,
            "columnPadding": 18, "offset": 8,
        },
        "range": {"category": subjects},
        "text": {"color": faint, "fontSize": 10},
        "rule": {"color": faint},
        "point": {"filled": True, "size": 70},
    }  # fmt: skip


LIGHT = vega_config(ink="#1F2937", faint="#5B6472", grid="#E5E8EC", ground=None, subjects=_SUBJECTS_LIGHT)
DARK = vega_config(ink="#E6E9EE", faint="#A3ACB9", grid="#323A46", ground=None, subjects=_SUBJECTS_DARK)
