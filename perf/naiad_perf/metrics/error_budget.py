"""Whether more requests failed than may."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from naiad_perf.records import Outcome, Run

__all__ = ["Overrun", "overruns"]


@dataclass(frozen=True, slots=True)
class Overrun:
    """A subject that failed too often at a point, over all repeats of it.

    Attributes:
        subject: which.
        point: where.
        errors: measured requests that failed.
        requests: measured requests.
        budget: share of them that might have failed.
    """

    subject: str
    point: str
    errors: int
    requests: int
    budget: float

    def __str__(self) -> str:
        """Say it in one line."""
        share = self.errors / self.requests
        return (
            f"{self.subject} at {self.point}: {self.errors} of {self.requests} requests failed "
            f"({share:.2%}), the error budget is {self.budget:.2%}"
        )


def overruns(runs: Iterable[Run], budget: float | None) -> tuple[Overrun, ...]:
    """Return where errors exceeded the budget; nothing where no budget is stated.

    Repeats of a point are taken together: a budget is about requests, and few of them make one run.
    """
    if budget is None:
        return ()
    counts: dict[tuple[str, str], tuple[int, int]] = {}
    for run in runs:
        place = run.facts.subject, run.facts.point
        errors, requests = counts.get(place, (0, 0))
        failed = sum(record.outcome is Outcome.ERROR for record in run.measured)
        counts[place] = errors + failed, requests + len(run.measured)
    return tuple(
        Overrun(subject, point, errors, requests, budget)
        for (subject, point), (errors, requests) in counts.items()
        if errors > budget * requests
    )
