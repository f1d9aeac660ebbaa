"""Whether more requests failed than may."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from naiad_perf.results import RunResult

__all__ = ["Overrun", "overruns"]


@dataclass(frozen=True, slots=True)
class Overrun:
    """A run in which too many requests failed.

    Attributes:
        result: of that run.
        budget: share of its measured requests that might have failed.
    """

    result: RunResult
    budget: float

    def __str__(self) -> str:
        """Say it in one line."""
        facts, figures = self.result.facts, self.result.figures
        return (
            f"{facts.subject} at {facts.point}, repeat {facts.repeat}: {figures['errors']:.0f} of "
            f"{figures['requests']:.0f} requests failed ({figures['error_rate']:.3g} %), "
            f"the error budget is {self.budget * 100:.3g} %"
        )


def overruns(results: Iterable[RunResult], budget: float | None) -> tuple[Overrun, ...]:
    """Return the runs whose share of failed requests exceeds the budget; none where no budget is stated."""
    if budget is None:
        return ()
    return tuple(
        Overrun(result, budget)
        for result in results
        if (result.figures["errors"] or 0) > budget * (result.figures["requests"] or 0)
    )
