"""Writes the report of a sweep into a folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from naiad_perf.metrics import Promise
from naiad_perf.records import read_run
from naiad_perf.report.by_point import cost_card, percentile_card
from naiad_perf.report.chart import Card, Chart
from naiad_perf.report.comparison_card import comparison_card, comparisons_of
from naiad_perf.report.csv_files import points_csv, runs_csv
from naiad_perf.report.curves import latency_card, pareto_card
from naiad_perf.report.page import RunTimeline, render_page
from naiad_perf.report.pictures import write_picture
from naiad_perf.report.timeline import timeline_of
from naiad_perf.report.timeline_chart import timeline_spec
from naiad_perf.results import PointSummary, RunResult, read_results, summarise
from naiad_perf.workload.strict_yaml import read_yaml

__all__ = ["Written", "write_report"]


@dataclass(frozen=True, slots=True)
class Written:
    """What was written.

    Attributes:
        page: the HTML file.
        files: the others.
        results: the runs it is about.
    """

    page: Path
    files: tuple[Path, ...]
    results: tuple[RunResult, ...]


def write_report(
    folder: Path,
    out: Path,
    promise: Promise,
    *,
    title: str = "",
    pictures: bool = True,
    report: Callable[[str, int, int], None] = lambda step, done, total: None,
) -> Written:
    """Write `report.html`, `runs.csv`, `points.csv` and PNG pictures.

    Args:
        folder: of the sweep.
        out: made if need be; files of an earlier report in it are replaced.
        promise: SLOs and error budget.
        title: of the report; left out, the folder's name.
        pictures: whether to write PNG files too.
        report: told the step, and how much of how much of it is done.

    Raises:
        RecordError: there are no runs, or a record is unreadable.
    """
    results = read_results(folder, promise.slos, lambda done, total: report("reading runs", done, total))
    summaries = summarise(results)
    scenario = _text_of(folder / "scenario.yaml")
    named = read_yaml(folder / "scenario.yaml") if scenario else {}
    heading = title or str(named.get("name", folder.resolve().name))
    timelines = _timelines(summaries, report)
    first = _shown_first(timelines)
    comparison = comparison_card(comparisons_of(summaries))
    cards = [
        latency_card(summaries),
        pareto_card(summaries),
        *([comparison] if comparison else []),
        percentile_card(summaries),
        _timeline_card(first),
        cost_card(summaries),
    ]
    page = render_page(
        heading,
        str(named.get("summary", "")),
        summaries,
        results,
        cards,
        timelines,
        first.key,
        promise,
        scenario,
    )
    out.mkdir(parents=True, exist_ok=True)
    texts = {"report.html": page, "runs.csv": runs_csv(results), "points.csv": points_csv(summaries)}
    files = [_write(out / name, text) for name, text in texts.items()]
    if pictures:
        files += _pictures(cards, heading, out, report)
    return Written(files[0], tuple(files[1:]), results)


def _timelines(
    summaries: Sequence[PointSummary], report: Callable[[str, int, int], None]
) -> list[RunTimeline]:
    found = []
    for summary in summaries:
        path = summary.typical.path
        if path is not None:
            found.append(RunTimeline(summary, timeline_of(read_run(path))))
        report("reading timelines", len(found), len(summaries))
    return found


def _timeline_card(first: RunTimeline) -> Card:
    title = f"Timeline of {first.label}"
    return Card(
        "timeline",
        "Timeline",
        "Timeline",
        "Every request of one run, from when it was due: how long it waited to be sent, for its first token, "
        "and for the rest. Below, tokens/s and requests in flight at the time. Warm-up is pale. For each "
        "subject and point there is the repeat of median speed.",
        (Chart("timeline", title, "Timeline", timeline_spec(first.timeline)),),
    )


def _shown_first(timelines: Sequence[RunTimeline]) -> RunTimeline:
    """Return that of the first subject's highest speed."""
    subject = timelines[0].facts_of.facts.subject
    own = [each for each in timelines if each.facts_of.facts.subject == subject]
    return max(own, key=lambda each: each.facts_of.median("tokens_per_s") or 0.0)


def _text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _pictures(
    cards: Sequence[Card], heading: str, out: Path, report: Callable[[str, int, int], None]
) -> list[Path]:
    folder = out / "images"
    folder.mkdir(exist_ok=True)
    charts = [chart for card in cards for chart in card.charts]
    paths = []
    for chart in charts:
        paths.append(folder / f"{chart.name}.png")
        write_picture(chart, heading, paths[-1])
        report("drawing pictures", len(paths), len(charts))
    return paths


def _write(path: Path, text: str) -> Path:
    making = path.with_name(f".{path.name}.making")
    making.write_text(text, encoding="utf-8")
    making.replace(path)
    return path
