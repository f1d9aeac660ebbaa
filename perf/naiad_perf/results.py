"""A folder of runs, read back as figures: what reports and comparisons are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from naiad_perf.errors import RecordError
from naiad_perf.metrics import FIGURES, Slos, figures_of
from naiad_perf.records import Run, RunFacts, read_run

__all__ = ["PointSummary", "RunResult", "Spread", "read_results", "result_of", "summarise"]


@dataclass(frozen=True, slots=True)
class RunResult:
    """A run without its requests.

    Attributes:
        facts: what was run.
        figures: all of `FIGURES`, in the units they are shown in; None where undefined.
        path: its record; None where it was never one.
    """

    facts: RunFacts
    figures: dict[str, float | None]
    path: Path | None = None


@dataclass(frozen=True, slots=True)
class Spread:
    """One figure over the repeats of a point.

    Attributes:
        median: over the repeats where it is defined.
        low: lowest of them.
        high: highest of them.
        repeats: in how many it is defined.
    """

    median: float
    low: float
    high: float
    repeats: int


@dataclass(frozen=True, slots=True)
class PointSummary:
    """All repeats of a subject at a point.

    Attributes:
        facts: of the first of them, by repeat.
        results: by repeat.
        figures: all of `FIGURES`; None where undefined in every repeat.
    """

    facts: RunFacts
    results: tuple[RunResult, ...]
    figures: dict[str, Spread | None]

    def median(self, figure: str) -> float | None:
        """Return the median of a figure; None where undefined."""
        spread = self.figures[figure]
        return None if spread is None else spread.median

    @property
    def typical(self) -> RunResult:
        """The repeat whose tokens/s are nearest to their median; the earliest of several."""
        middle = self.median("tokens_per_s")
        if middle is None:
            return self.results[0]
        return min(self.results, key=lambda result: abs((result.figures["tokens_per_s"] or 0) - middle))


def result_of(run: Run, slos: Slos, path: Path | None = None) -> RunResult:
    """Compute the figures of a run."""
    return RunResult(run.facts, figures_of(run, slos), path)


def read_results(
    folder: Path, slos: Slos, report: Callable[[int, int], None] = lambda done, total: None
) -> tuple[RunResult, ...]:
    """Read every run in a folder, in the order of running; one at a time, so that memory does not grow.

    Args:
        folder: of a sweep.
        slos: for goodput.
        report: told how many of how many are read.

    Raises:
        RecordError: there is no folder or no run in it, a record is unreadable, or two are of the same run.
    """
    if not folder.is_dir():
        raise RecordError(f"{folder} is no folder: give the one that `naiad bench sweep` wrote")
    paths = sorted(folder.glob("*.parquet"))
    if not paths:
        raise RecordError(f"{folder} holds no run (*.parquet): `naiad bench sweep` writes them")
    results = []
    for path in paths:
        results.append(result_of(read_run(path), slos, path))
        report(len(results), len(paths))
    _refuse_twins(results)
    return tuple(sorted(results, key=lambda result: result.facts.position))


def _refuse_twins(results: Iterable[RunResult]) -> None:
    seen: dict[tuple[str, str, int], Path | None] = {}
    for result in results:
        facts = result.facts
        twin = seen.setdefault((facts.subject, facts.point, facts.repeat), result.path)
        if twin is not result.path:
            raise RecordError(
                f"{twin} and {result.path} are both repeat {facts.repeat} of {facts.subject} at "
                f"{facts.point}: they are from different sweeps, put each into a folder of its own"
            )


def summarise(results: Sequence[RunResult]) -> tuple[PointSummary, ...]:
    """Take the repeats of each subject at each point together, in the order in which they first ran."""
    together: dict[tuple[str, str], list[RunResult]] = {}
    for result in sorted(results, key=lambda result: result.facts.position):
        together.setdefault((result.facts.subject, result.facts.point), []).append(result)
    return tuple(_summary(repeats) for repeats in together.values())


def _summary(results: list[RunResult]) -> PointSummary:
    results = sorted(results, key=lambda result: result.facts.repeat)
    return PointSummary(results[0].facts, tuple(results), {name: _spread(name, results) for name in FIGURES})


def _spread(name: str, results: list[RunResult]) -> Spread | None:
    values = [value for result in results if (value := result.figures[name]) is not None]
    return Spread(median(values), min(values), max(values), len(values)) if values else None
