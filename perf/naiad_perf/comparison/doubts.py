"""What to know before believing a comparison."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from naiad_perf.results import RunResult

__all__ = ["doubts"]


def doubts(
    a: Sequence[RunResult], b: Sequence[RunResult], points: Sequence[str], *, same_sweep: bool, paired: bool
) -> Iterable[str]:
    """Yield a sentence for everything that may make A and B differ besides what they are.

    Args:
        a: runs of A.
        b: runs of B.
        points: points compared.
        same_sweep: whether both come from one sweep.
        paired: whether their repeats took turns, and are paired.
    """
    if paired:
        yield from _always_first(a, b)
    else:
        where = "took no turns within their sweep" if same_sweep else "come from different sweeps"
        yield (
            f"A and B {where}, so their repeats are not paired: a change of the machine between them looks "
            "like a difference. Better run both as subjects of one sweep"
        )
    yield from _different_surroundings(a, b)
    alone = {result.facts.point for result in (*a, *b)} - set(points)
    if alone:
        yield f"measured for one of both only, so left out: {', '.join(sorted(alone))}"
    retried = sum(result.facts.attempts > 1 for result in (*a, *b))
    if retried:
        yield f"runs that were started more than once until they completed: {retried}"


def _always_first(a: Sequence[RunResult], b: Sequence[RunResult]) -> Iterable[str]:
    places = {(result.facts.point, result.facts.repeat): result.facts.position for result in a}
    b_later = [
        result.facts.position > places[key]
        for result in b
        if (key := (result.facts.point, result.facts.repeat)) in places
    ]
    if len(b_later) > 1 and len(set(b_later)) == 1:
        yield f"{'A' if b_later[0] else 'B'} ran first in every pair: let them take turns in going first"


def _different_surroundings(a: Sequence[RunResult], b: Sequence[RunResult]) -> Iterable[str]:
    drivers_a, drivers_b = _drivers(a), _drivers(b)
    if drivers_a != drivers_b:
        yield f"different load generators: {', '.join(drivers_a)} for A, {', '.join(drivers_b)} for B"
    keys = sorted({key for result in (*a, *b) for key in result.facts.environment})
    differing = [
        key
        for key in keys
        if {each.facts.environment.get(key) for each in a} != {each.facts.environment.get(key) for each in b}
    ]
    if differing:
        yield f"the environment differs in: {', '.join(differing)}"


def _drivers(results: Sequence[RunResult]) -> list[str]:
    return sorted({f"{each.facts.driver} {each.facts.driver_version}" for each in results})
