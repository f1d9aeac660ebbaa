"""Charts as PNG files, for slides and documents."""

from __future__ import annotations

from pathlib import Path

import vl_convert

from naiad_perf.report.chart import Chart
from naiad_perf.report.page import VEGA_LITE
from naiad_perf.report.theme import LIGHT

__all__ = ["write_picture"]

_WIDTH = 900
_SCALE = 2


def write_picture(chart: Chart, heading: str, path: Path) -> None:
    """Write a chart as PNG, on white, with a title.

    Args:
        chart: to be drawn.
        heading: of the sweep, below the title.
        path: written whole or not at all.
    """
    spec = dict(
        chart.spec, title={"text": chart.title, "subtitle": heading}, config=LIGHT | {"background": "#ffffff"}
    )
    if spec.get("width") == "container":
        spec["width"] = _WIDTH
    picture: bytes = vl_convert.vegalite_to_png(spec, vl_version=VEGA_LITE, scale=_SCALE)
    making = path.with_name(f".{path.name}.making")
    making.write_bytes(picture)
    making.replace(path)
