"""What the report says in words: the numbers at its top, doubts, the table, the environment and commands."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from naiad_perf.comparison.intervals import MINIMUM_REPEATS
from naiad_perf.display import DASH, KEY_FIGURES, number
from naiad_perf.error_budget import overruns
from naiad_perf.metrics import FIGURES, METRICS, Better, Promise
from naiad_perf.report.rows import load_label, subjects_of, workload_label
from naiad_perf.results import PointSummary, RunResult, Spread

__all__ = [
    "Cell",
    "Fact",
    "TableRow",
    "Tile",
    "commands",
    "definitions",
    "doubts",
    "environment",
    "promises",
    "table",
    "table_head",
    "tiles",
]

_BUSY_CLIENT = 50.0
_RESTLESS = 1.5
_FEW_REQUESTS = 100
_NAMED = 4


@dataclass(frozen=True, slots=True)
class Tile:
    """A number at the top of the report, with what it is and a line below it."""

    label: str
    value: str
    unit: str
    below: str


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of the table: what is shown, the spread below it, and what it sorts by (empty: last)."""

    shown: str
    spread: str
    key: str


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row of the table."""

    subject: str
    point: str
    load: str
    workload: str
    repeats: int
    cells: list[Cell]


@dataclass(frozen=True, slots=True)
class Fact:
    """A name and what stands behind it."""

    name: str
    text: str
    note: str = ""


def tiles(summaries: Sequence[PointSummary], promise: Promise) -> list[Tile]:
    """Return the best that each subject reached, and how many requests failed."""
    return [*(_best(subject, summaries) for subject in subjects_of(summaries)), _failures(summaries, promise)]


def _best(subject: str, summaries: Sequence[PointSummary]) -> Tile:
    own = [summary for summary in summaries if summary.facts.subject == subject]
    best = max(own, key=lambda summary: summary.median("tokens_per_s") or 0.0)
    value = best.median("tokens_per_s")
    ttft = number(best.median("ttft_ms_p50"))
    below = f"at {load_label(best.facts)}, TTFT p50 {ttft} ms" if value else "no request succeeded"
    return Tile(f"{subject}, most", number(value), "tokens/s", below)


def _failures(summaries: Sequence[PointSummary], promise: Promise) -> Tile:
    results = [result for summary in summaries for result in summary.results]
    failed = sum(int(result.figures["errors"] or 0) for result in results)
    total = sum(int(result.figures["requests"] or 0) for result in results)
    if promise.error_budget is None:
        said = "no error budget is stated"
    else:
        over = len(overruns(results, promise.error_budget))
        said = f"budget of {promise.error_budget * 100:.3g} % " + (
            f"exceeded in {over} runs" if over else "kept"
        )
    return Tile(
        "Failed requests",
        number(100 * failed / total if total else None),
        "%",
        f"{failed} of {total:,}; {said}",
    )


def doubts(summaries: Sequence[PointSummary], promise: Promise) -> list[str]:
    """Return a sentence for everything that limits what the figures can show."""
    results = [result for summary in summaries for result in summary.results]
    found = [*_over_budget(results, promise), *_restless(summaries)]
    found += [*_few_repeats(summaries), *_few_requests(results)]
    busy = max((result.figures["client_cpu_share"] or 0 for result in results), default=0)
    if busy > _BUSY_CLIENT:
        found.append(
            f"The load generator used up to {busy:.0f} % of its machine: where client and server share it, "
            "the server had the rest; where they do not, the client may be what was measured."
        )
    retried = sum(result.facts.attempts > 1 for result in results)
    if retried:
        found.append(f"{retried} of {len(results)} runs were started more than once until they completed.")
    drivers = sorted({f"{result.facts.driver} {result.facts.driver_version}" for result in results})
    if len(drivers) > 1:
        found.append(f"Different load generators were used: {', '.join(drivers)}.")
    return found


def _over_budget(results: Sequence[RunResult], promise: Promise) -> Iterable[str]:
    over = overruns(results, promise.error_budget)
    if over:
        named = "; ".join(str(each) for each in over[:_NAMED])
        more = f"; and in {len(over) - _NAMED} more" if len(over) > _NAMED else ""
        yield (
            "The error budget was exceeded, so latencies are those of the requests that got through. "
            f"{named}{more}."
        )


def _restless(summaries: Sequence[PointSummary]) -> Iterable[str]:
    """Point out repeats that differ more than load and chance explain."""
    apart = [
        (spread.high / spread.low, summary)
        for summary in summaries
        if (spread := summary.figures["tokens_per_s"]) is not None and spread.low > 0
    ]
    times, widest = max(apart, key=lambda entry: entry[0], default=(1.0, None))
    if widest is not None and times > _RESTLESS:
        yield (
            f"Repeats of one point differ in tokens/s by up to {times:.2g} times ({widest.facts.subject} at "
            f"{widest.facts.point}): probably something else used the machine. Compare only within repeats."
        )


def _few_repeats(summaries: Sequence[PointSummary]) -> Iterable[str]:
    counts = sorted({len(summary.results) for summary in summaries})
    if counts and counts[0] < MINIMUM_REPEATS:
        yield (
            f"Some points were measured only {'once' if counts[0] == 1 else f'{counts[0]} times'}: their "
            f"spread is unknown, and comparisons give no verdict below {MINIMUM_REPEATS} repeats."
        )
    if len(counts) > 1:
        yield f"Not all points have the same number of repeats: from {counts[0]} to {counts[-1]}."


def _few_requests(results: Sequence[RunResult]) -> Iterable[str]:
    fewest = min((int(result.figures["requests"] or 0) for result in results), default=0)
    if fewest < _FEW_REQUESTS:
        yield (
            f"Runs have as few as {fewest} requests: a p99 of fewer than {_FEW_REQUESTS} values lies between "
            "the slowest two of them."
        )


def table_head() -> list[Fact]:
    """Return the headings of figure columns: short, full, and the unit with the better way."""
    heads = []
    for name in KEY_FIGURES:
        figure = FIGURES[name]
        arrow = {Better.HIGHER: "↑", Better.LOWER: "↓", Better.NEITHER: ""}[figure.better]
        heads.append(Fact(figure.header, figure.unit.symbol, arrow))
    return heads


def table(summaries: Sequence[PointSummary]) -> list[TableRow]:
    """Return a row a subject and point."""
    return [
        TableRow(
            summary.facts.subject,
            summary.facts.point,
            load_label(summary.facts),
            workload_label(summary.facts),
            len(summary.results),
            [_cell(summary.figures[name]) for name in KEY_FIGURES],
        )
        for summary in summaries
    ]


def _cell(spread: Spread | None) -> Cell:
    if spread is None:
        return Cell(DASH, "", "")
    same = spread.low == spread.high
    return Cell(
        number(spread.median),
        "" if same else f"{number(spread.low)}–{number(spread.high)}",
        repr(spread.median),
    )


def promises(promise: Promise) -> list[Fact]:
    """Return the SLOs and the error budget, a dash for what is not stated."""
    slos = promise.slos
    limits = {"TTFT": slos.ttft_ms, "TPOT": slos.tpot_ms, "Latency": slos.latency_ms}
    budget = promise.error_budget
    return [
        *(Fact(name, DASH if limit is None else f"at most {limit:g} ms") for name, limit in limits.items()),
        Fact("Error budget", DASH if budget is None else f"{budget * 100:.3g} % of the requests of a run"),
    ]


def environment(results: Sequence[RunResult]) -> list[Fact]:
    """Return versions and machine; where runs differ, each value with the subjects it belongs to."""
    facts = [
        ("load generator", [f"{result.facts.driver} {result.facts.driver_version}" for result in results]),
        ("processors of the client's machine", [str(result.facts.cores) for result in results]),
        ("profile", [result.facts.profile or DASH for result in results]),
        ("model", [result.facts.model for result in results]),
        ("hourly price, USD", [_price(result) for result in results]),
        ("started (UTC)", [f"{min(each.facts.started_utc for each in results)}, first run"] * len(results)),
    ]
    keys = dict.fromkeys(key for result in results for key in result.facts.environment)
    facts += [(key, [result.facts.environment.get(key, DASH) for result in results]) for key in keys]
    return [Fact(name, _joined(values, results)) for name, values in facts]


def _price(result: RunResult) -> str:
    price = result.facts.hourly_price_usd
    return DASH if price is None else f"{price:g}"


def _joined(values: Sequence[str], results: Sequence[RunResult]) -> str:
    subjects: dict[str, dict[str, None]] = {}
    for value, result in zip(values, results, strict=True):
        subjects.setdefault(value, {})[result.facts.subject] = None
    if len(subjects) == 1:
        return next(iter(subjects))
    return "; ".join(f"{value} ({', '.join(names)})" for value, names in subjects.items())


def commands(results: Sequence[RunResult]) -> list[Fact]:
    """Return what was started for each run, in the order of running."""
    return [
        Fact(
            f"{each.facts.subject}, {each.facts.point}, repeat {each.facts.repeat}",
            shlex.join(each.facts.command),
        )
        for each in results
    ]


def definitions() -> list[Fact]:
    """Return what every metric is, from its own definition."""
    return [
        Fact(
            metric.header,
            metric.definition,
            f"{metric.name}{f', {unit}' if (unit := metric.unit.symbol) else ''}",
        )
        for metric in METRICS
    ]
