"""The report as one HTML file that needs nothing else: data, charts, and one copy of the drawing library."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import jinja2
import vl_convert
from markupsafe import Markup, escape

from naiad_perf.metrics import FIGURES, Promise
from naiad_perf.report import overview
from naiad_perf.report.chart import Card
from naiad_perf.report.csv_files import points_csv, runs_csv
from naiad_perf.report.rows import load_label, subjects_of, workload_label
from naiad_perf.report.theme import DARK, LIGHT
from naiad_perf.report.timeline import Timeline
from naiad_perf.results import PointSummary, RunResult

__all__ = ["VEGA_LITE", "RunTimeline", "in_script", "prose", "render_page"]

VEGA_LITE = "6.4"
"""Version of Vega-Lite that draws: in the page and for pictures."""


_GLOBALS = "window.vegaEmbed = vegaEmbed;"


@dataclass(frozen=True, slots=True)
class RunTimeline:
    """A run that the page can show request by request."""

    facts_of: PointSummary
    timeline: Timeline

    @property
    def key(self) -> str:
        """Key of its data in the page."""
        return f"{self.facts_of.facts.subject} {self.facts_of.facts.point}"

    @property
    def label(self) -> str:
        """What the list of runs says."""
        facts = self.facts_of.typical.facts
        return f"{facts.subject}: {load_label(facts)}, {workload_label(facts)}, repeat {facts.repeat}"


def render_page(
    title: str,
    about: str,
    summaries: Sequence[PointSummary],
    results: Sequence[RunResult],
    cards: Sequence[Card],
    timelines: Sequence[RunTimeline],
    first: str,
    promise: Promise,
    scenario: str,
) -> str:
    """Return the page.

    Args:
        title: of the sweep.
        about: one line below it; may be empty.
        summaries: its points.
        results: its runs, in the order of running.
        cards: charts, in the order of the page.
        timelines: runs to choose from in the card `timeline`.
        first: key of the one shown first.
        promise: SLOs and error budget.
        scenario: text of the scenario; empty where there is none.
    """
    loader = jinja2.PackageLoader("naiad_perf.report", package_path="")
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["prose"] = prose
    runs: dict[str, list[RunTimeline]] = {}
    for each in timelines:
        runs.setdefault(each.facts_of.facts.subject, []).append(each)
    return environment.get_template("page.html.j2").render(
        title=title,
        about=about,
        subtitle=_subtitle(summaries, results),
        tiles=overview.tiles(summaries, promise),
        doubts=overview.doubts(summaries, promise),
        cards=cards,
        timeline_runs=runs,
        timeline_first=first,
        subjects=subjects_of(summaries),
        table_head=overview.table_head(),
        table=overview.table(summaries),
        figure_count=len(FIGURES),
        points_csv=_encoded(points_csv(summaries)),
        runs_csv=_encoded(runs_csv(results)),
        promises=overview.promises(promise),
        environment=overview.environment(results),
        commands=overview.commands(results),
        definitions=overview.definitions(),
        scenario=scenario,
        specs={chart.name: chart.spec for card in cards for chart in card.charts},
        timelines={each.key: _plain(each.timeline) for each in timelines},
        themes={"light": LIGHT, "dark": DARK},
        library=_library(),
    )


def prose(text: str) -> Markup:
    """Return a docstring's text as HTML: paragraphs where it has empty lines, code where it has backticks."""
    paragraphs = (" ".join(paragraph.split()) for paragraph in text.split("\n\n"))
    return Markup("").join(Markup("<p>{}</p>").format(_with_code(paragraph)) for paragraph in paragraphs)


def _with_code(text: str) -> Markup:
    pieces = text.split("`")
    return Markup("").join(
        Markup("<code>{}</code>").format(piece) if number % 2 else escape(piece)
        for number, piece in enumerate(pieces)
    )


def _subtitle(summaries: Sequence[PointSummary], results: Sequence[RunResult]) -> str:
    points = len({summary.facts.point for summary in summaries})
    repeats = sorted({len(summary.results) for summary in summaries})
    times = str(repeats[0]) if len(repeats) == 1 else f"{repeats[0]} to {repeats[-1]}"
    day = min(result.facts.started_utc for result in results)[:10]
    counts = {
        "subject": len(subjects_of(summaries)),
        "point": points,
        "run": len(results),
    }
    said = [f"{count} {name}{'' if count == 1 else 's'}" for name, count in counts.items()]
    each = f"{times} repeat{'' if times == '1' else 's'} each"
    return f"{said[0]} at {said[1]}, {each}, {said[2]} · {day}"


def _plain(timeline: Timeline) -> dict[str, Any]:
    return {
        "requests": {"columns": timeline.requests.columns, "rows": timeline.requests.rows},
        "rates": {"columns": timeline.rates.columns, "rows": timeline.rates.rows},
        "total": timeline.total,
    }


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@cache
def _library() -> str:
    """Return Vega, Vega-Lite and their embedding."""
    return in_script(vl_convert.javascript_bundle(_GLOBALS, vl_version=VEGA_LITE))


def in_script(code: str) -> str:
    """Return code that means the same and cannot end, or hide the end of, the script element it stands in."""
    return code.replace("</script", "<\\/script").replace("<!--", "<\\!--")
