"""What came out: tokens/s, TTFT and memory of every contestant, and ratios taken round by round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from rich.table import Table

from naiad_perf.display import number
from naiad_perf.errors import PerfError
from naiad_perf.metrics import Slos
from naiad_perf.records import Run
from naiad_perf.results import RunResult, Spread, result_of

__all__ = ["PeerResult", "as_json", "outcome", "outcome_table", "peak_memory_mb", "ratio_spread"]

_FIGURES = ("tokens_per_s", "ttft_ms_p50", "ttft_ms_p99", "tpot_ms_p50")


@dataclass(frozen=True, slots=True)
class PeerResult:
    """A contestant under a load, over all rounds.

    Attributes:
        subject: its name.
        streams: the load.
        figures: tokens/s, TTFT and TPOT, medians over the rounds with lowest and highest.
        ours_over: our tokens/s divided by its tokens/s in each round, at the load nearest to it; None for
            ours.
    """

    subject: str
    streams: int
    figures: dict[str, Spread]
    ours_over: Spread | None


def outcome(runs: Sequence[Run], ours: str) -> list[PeerResult]:
    """Put all rounds together.

    A load that `ours` did not have is compared with its largest one.

    Args:
        runs: counted bursts.
        ours: subject that the others are compared with.

    Raises:
        PerfError: there is no run of `ours`, or rounds are missing.
    """
    together: dict[tuple[str, int], list[RunResult]] = {}
    for run in sorted(runs, key=lambda run: run.facts.repeat):
        together.setdefault((run.facts.subject, run.facts.concurrency or 0), []).append(
            result_of(run, Slos())
        )
    loads = [streams for subject, streams in together if subject == ours]
    results = []
    for (subject, streams), rounds in sorted(together.items(), key=lambda entry: entry[0][1]):
        ratio = None
        if subject != ours and loads:
            own = together[ours, streams if streams in loads else max(loads)]
            ratio = ratio_spread(_values(own, "tokens_per_s"), _values(rounds, "tokens_per_s"))
        figures = {name: _spread(_values(rounds, name)) for name in _FIGURES}
        results.append(PeerResult(subject, streams, figures, ratio))
    return results


def ratio_spread(above: Sequence[float], below: Sequence[float]) -> Spread:
    """Divide round by round; the median of the ratios, with lowest and highest.

    Raises:
        PerfError: not as many rounds of one as of the other.
    """
    if len(above) != len(below):
        raise PerfError(f"{len(above)} rounds cannot be compared with {len(below)}")
    return _spread([one / other for one, other in zip(above, below, strict=True)])


def peak_memory_mb(runs: Sequence[Run]) -> dict[str, float]:
    """Return for each subject the highest peak of resident memory, in MB."""
    peaks: dict[str, float] = {}
    for run in runs:
        memory = run.facts.server.memory_bytes
        if memory is not None:
            peaks[run.facts.subject] = max(peaks.get(run.facts.subject, 0.0), memory / 1e6)
    return peaks


def _values(rounds: Sequence[RunResult], name: str) -> list[float]:
    values = [result.figures[name] for result in rounds]
    return [value for value in values if value is not None]


def _spread(values: Sequence[float]) -> Spread:
    if not values:
        raise PerfError("a burst without a token cannot be measured: ask for more --tokens")
    return Spread(median(values), min(values), max(values), len(values))


def outcome_table(
    results: Sequence[PeerResult], labels: Mapping[str, str], memory_mb: dict[str, float], ours: str
) -> Table:
    """Return everything as a table for the terminal."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    headings = (
        "streams",
        "engine",
        "tokens/s",
        "TTFT p50\nms",
        "TTFT p99\nms",
        f"{labels[ours]}\nover it",
        "memory\nMB",
    )
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "engine" else "right", no_wrap=True)
    before = 0
    for result in results:
        if before and result.streams != before:
            table.add_section()
        figures = result.figures
        table.add_row(
            str(result.streams) if result.streams != before else "",
            labels[result.subject],
            _with_range(figures["tokens_per_s"]),
            number(figures["ttft_ms_p50"].median),
            number(figures["ttft_ms_p99"].median),
            "" if result.ours_over is None else _with_range(result.ours_over),
            number(memory_mb.get(result.subject)),
        )
        before = result.streams
    return table


def _with_range(spread: Spread) -> str:
    return f"{number(spread.median)} ({number(spread.low)} to {number(spread.high)})"


def as_json(results: Sequence[PeerResult], memory_mb: dict[str, float]) -> list[dict[str, Any]]:
    """Return everything as JSON: a row for each contestant and load."""

    def plain(spread: Spread | None) -> dict[str, float] | None:
        if spread is None:
            return None
        return {
            "median": spread.median,
            "lowest": spread.low,
            "highest": spread.high,
            "rounds": spread.repeats,
        }

    return [
        {
            "subject": result.subject,
            "streams": result.streams,
            **{name: plain(spread) for name, spread in result.figures.items()},
            "ours_over_it": plain(result.ours_over),
            "peak_memory_mb": memory_mb.get(result.subject),
        }
        for result in results
    ]
