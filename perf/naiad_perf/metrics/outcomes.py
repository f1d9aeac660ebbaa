"""How requests ended. Errors and cancels are counts of their own, never part of a latency."""

from __future__ import annotations

from naiad_perf.metrics.base import COUNT, SHARE, Better, RunMetric
from naiad_perf.metrics.slos import Slos
from naiad_perf.records import Outcome, Run

__all__ = ["CancelRate", "Cancels", "ErrorRate", "Errors", "MeasuredRequests"]


def _share_of_measured(run: Run, count: int) -> float | None:
    return count / len(run.measured) if run.measured else None


def _ended(run: Run, outcome: Outcome) -> int:
    return sum(record.outcome is outcome for record in run.measured)


class MeasuredRequests(RunMetric):
    """Requests measured, however they ended; warm-up is not among them."""

    name = "requests"
    header = "Requests"
    unit = COUNT
    better = Better.NEITHER

    def of(self, run: Run, slos: Slos) -> float | None:
        """Return a count."""
        return len(run.measured)


class Errors(RunMetric):
    """Measured requests that failed; they are in no latency."""

    name = "errors"
    header = "Errors"
    unit = COUNT
    better = Better.LOWER

    def of(self, run: Run, slos: Slos) -> float | None:
        """Return a count."""
        return _ended(run, Outcome.ERROR)


class ErrorRate(RunMetric):
    """Share of measured requests that failed. Formula: `errors / measured requests`."""

    name = "error_rate"
    header = "Error rate"
    unit = SHARE
    better = Better.LOWER

    def of(self, run: Run, slos: Slos) -> float | None:
        """Return a share from 0 to 1."""
        return _share_of_measured(run, _ended(run, Outcome.ERROR))


class Cancels(RunMetric):
    """Measured requests that their client cancelled; they are in no latency and are no errors."""

    name = "cancels"
    header = "Cancels"
    unit = COUNT
    better = Better.NEITHER

    def of(self, run: Run, slos: Slos) -> float | None:
        """Return a count."""
        return _ended(run, Outcome.CANCELLED)


class CancelRate(RunMetric):
    """Share of measured requests that their client cancelled. Formula: `cancels / measured requests`."""

    name = "cancel_rate"
    header = "Cancel rate"
    unit = SHARE
    better = Better.NEITHER

    def of(self, run: Run, slos: Slos) -> float | None:
        """Return a share from 0 to 1."""
        return _share_of_measured(run, _ended(run, Outcome.CANCELLED))
