"""The stretch of time that rates are taken over."""

from __future__ import annotations

from naiad_perf.records import RequestRecord, Run

__all__ = ["per_second", "window_ns"]

_NS_PER_S = 1_000_000_000


def window_ns(run: Run) -> int | None:
    """Return nanoseconds from the first intended send of a measured request to the last thing heard of any.

    None where nothing was measured, or all of it at one instant. Failed and cancelled requests belong to it.
    """
    measured = run.measured
    if not measured:
        return None
    first = min(record.intended_ns for record in measured)
    return max(_last_heard_ns(record) for record in measured) - first or None


def _last_heard_ns(record: RequestRecord) -> int:
    if record.ended_ns is not None:
        return record.ended_ns
    return record.response_ns[-1] if record.response_ns else record.sent_ns


def per_second(run: Run, count: int) -> float | None:
    """Return so many of anything for each second of the window; None without a window."""
    window = window_ns(run)
    return None if window is None else count * _NS_PER_S / window
