"""Two subjects compared: every figure's ratio, how sure it is, and a verdict only where it is sure enough."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from math import exp, fsum, log
from statistics import median

from naiad_perf.comparison.doubts import doubts
from naiad_perf.comparison.intervals import MINIMUM_REPEATS, RatioInterval, paired_ratio, unpaired_ratio
from naiad_perf.errors import RecordError
from naiad_perf.metrics import FIGURES, Better, Figure
from naiad_perf.results import RunResult

__all__ = ["OVERALL", "Compared", "Comparison", "Verdict", "compare"]

OVERALL = "overall"
"""Instead of a point's name: the geometric mean over all points."""

_Repeats = dict[int, dict[str, RunResult]]
"""Runs by repeat and point."""


class Verdict(Enum):
    """What may be said of B against A."""

    BETTER = "better"
    WORSE = "worse"
    DIFFERENT = "different"
    NOT_SHOWN = "no difference shown"
    NONE = "no verdict"


@dataclass(frozen=True, slots=True)
class Compared:
    """One figure of B against A.

    Attributes:
        figure: which.
        point: where; `OVERALL` for the geometric mean over points.
        over: points that the ratio is made of: those where both have the figure.
        a: median over repeats, in the figure's unit as shown; None where undefined, and overall.
        b: likewise.
        ratio: geometric mean of b / a; None where it is undefined.
        interval: around it; None where repeats are too few.
        verdict: what may be said.
        repeats: repeats of A and B that the ratio is made of.
        why: of `Verdict.NONE`; empty otherwise.
    """

    figure: Figure
    point: str
    over: tuple[str, ...]
    a: float | None
    b: float | None
    ratio: float | None
    interval: RatioInterval | None
    verdict: Verdict
    repeats: tuple[int, int]
    why: str = ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """All figures of B against A.

    Attributes:
        a: name of A.
        b: name of B.
        paired: whether each repeat of A was compared with the same repeat of B, run beside it.
        confidence: of the intervals.
        points: points measured for both.
        compared: at each point and, with several points, overall; in the order of `FIGURES`.
        warnings: what to know before believing it.
    """

    a: str
    b: str
    paired: bool
    confidence: float
    points: tuple[str, ...]
    compared: tuple[Compared, ...]
    warnings: tuple[str, ...]

    def at(self, figure: str, point: str | None = None) -> Compared:
        """Return a figure at a point; left out, overall, or at the only point there is."""
        where = point or (OVERALL if len(self.points) > 1 else self.points[0])
        return next(row for row in self.compared if row.figure.name == figure and row.point == where)


def compare(
    a: Sequence[RunResult],
    b: Sequence[RunResult],
    *,
    names: tuple[str, str],
    same_sweep: bool,
    confidence: float = 0.95,
) -> Comparison:
    """Compare B with A at every point that both have.

    Repeats are paired when both come from one sweep in which they took turns: what the machine did meanwhile
    then met both. Otherwise each keeps its own noise, and a warning says that the machine may have changed.

    Args:
        a: runs of one subject, each repeat of a point once.
        b: runs of the other.
        names: of A and B.
        same_sweep: whether both come from one sweep.
        confidence: of the intervals, below 1.

    Raises:
        RecordError: no point is common to both.
    """
    points = _common_points(a, b)
    sides = _by_repeat(a, points), _by_repeat(b, points)
    paired = same_sweep and _took_turns(a, b, points)
    ratio = _paired if paired else _unpaired
    places: list[tuple[str, tuple[str, ...]]] = [(point, (point,)) for point in points]
    if len(points) > 1:
        places.append((OVERALL, points))
    compared = tuple(
        _compared(figure, place, within, sides, ratio, confidence)
        for place, within in places
        for figure in FIGURES.values()
    )
    warnings = tuple(doubts(a, b, points, same_sweep=same_sweep, paired=paired))
    return Comparison(*names, paired, confidence, points, compared, warnings)


def _common_points(a: Iterable[RunResult], b: Iterable[RunResult]) -> tuple[str, ...]:
    points_a = list(dict.fromkeys(result.facts.point for result in a))
    points_b = list(dict.fromkeys(result.facts.point for result in b))
    common = tuple(point for point in points_a if point in points_b)
    if not common:
        raise RecordError(
            f"no point is common to both: A has {', '.join(points_a)}; B has {', '.join(points_b)}"
        )
    return common


def _by_repeat(results: Iterable[RunResult], points: Sequence[str]) -> _Repeats:
    found: _Repeats = {}
    for result in results:
        if result.facts.point in points:
            found.setdefault(result.facts.repeat, {})[result.facts.point] = result
    return found


def _took_turns(a: Sequence[RunResult], b: Sequence[RunResult], points: Sequence[str]) -> bool:
    """Return whether, at every point, each repeat of both was over before the next repeat of either began."""
    for point in points:
        positions: dict[int, list[int]] = {}
        for result in (*a, *b):
            if result.facts.point == point:
                positions.setdefault(result.facts.repeat, []).append(result.facts.position)
        spans = sorted((min(places), max(places)) for places in positions.values())
        if any(later[0] < earlier[1] for earlier, later in pairwise(spans)):
            return False
    return True


_Found = tuple[float | None, RatioInterval | None, str]
"""A ratio, its interval, and why there is none."""


@dataclass(frozen=True, slots=True)
class _Repeat:
    """Geometric means over points of one repeat; None where undefined at one of them, or not run there."""

    a: float | None
    b: float | None


def _compared(
    figure: Figure,
    place: str,
    points: Sequence[str],
    sides: tuple[_Repeats, _Repeats],
    ratio_of: Callable[[Sequence[_Repeat], float], _Found],
    confidence: float,
) -> Compared:
    used = [point for point in points if all(_values(side, figure, point) for side in sides)]
    a, b = sides
    repeats = [
        _Repeat(_mean(a.get(number, {}), figure, used), _mean(b.get(number, {}), figure, used))
        for number in sorted({*a, *b})
    ]
    counts = sum(repeat.a is not None for repeat in repeats), sum(repeat.b is not None for repeat in repeats)
    medians = [None if len(points) > 1 else _median(_values(side, figure, points[0])) for side in sides]
    ratio, interval, why = (None, None, "undefined") if not used else ratio_of(repeats, confidence)
    verdict = Verdict.NONE if interval is None else _verdict(figure, interval)
    return Compared(figure, place, tuple(used), medians[0], medians[1], ratio, interval, verdict, counts, why)


def _values(side: _Repeats, figure: Figure, point: str) -> list[float]:
    found = (runs[point].figures[figure.name] for runs in side.values() if point in runs)
    return [value for value in found if value is not None]


def _median(values: Sequence[float]) -> float | None:
    return median(values) if values else None


def _mean(runs: dict[str, RunResult], figure: Figure, points: Sequence[str]) -> float | None:
    """Return the geometric mean over points, 0 if one value is; None if one is missing."""
    values = [runs[point].figures[figure.name] if point in runs else None for point in points]
    defined = [value for value in values if value is not None]
    if not values or len(defined) < len(values):
        return None
    if len(defined) == 1:
        return defined[0]
    return exp(fsum(map(log, defined)) / len(defined)) if min(defined) > 0 else 0.0


def _paired(repeats: Sequence[_Repeat], confidence: float) -> _Found:
    pairs = [(each.a, each.b) for each in repeats if each.a is not None and each.b is not None]
    if not pairs:
        return None, None, "undefined in every pair"
    return _ratio([a for a, _ in pairs], [b for _, b in pairs], paired_ratio, confidence)


def _unpaired(repeats: Sequence[_Repeat], confidence: float) -> _Found:
    a = [each.a for each in repeats if each.a is not None]
    b = [each.b for each in repeats if each.b is not None]
    if not a or not b:
        return None, None, "undefined"
    return _ratio(a, b, unpaired_ratio, confidence)


def _ratio(
    a: Sequence[float],
    b: Sequence[float],
    interval_of: Callable[[Sequence[float], Sequence[float], float], RatioInterval],
    confidence: float,
) -> _Found:
    if min(*a, *b) <= 0:
        return None, None, "zero in some repeats: a ratio says nothing"
    few = min(len(a), len(b))
    if few < MINIMUM_REPEATS:
        ratio = exp(fsum(map(log, b)) / len(b) - fsum(map(log, a)) / len(a))
        return ratio, None, f"{few} repeats, {MINIMUM_REPEATS} are needed"
    interval = interval_of(a, b, confidence)
    return interval.ratio, interval, ""


def _verdict(figure: Figure, interval: RatioInterval) -> Verdict:
    if interval.low <= 1 <= interval.high:
        return Verdict.NOT_SHOWN
    if figure.better is Better.NEITHER:
        return Verdict.DIFFERENT
    return Verdict.BETTER if (interval.low > 1) is (figure.better is Better.HIGHER) else Verdict.WORSE
