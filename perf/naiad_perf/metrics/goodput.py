"""Goodput: requests that were answered as promised."""

from __future__ import annotations

from naiad_perf.metrics.base import PER_SECOND, SHARE, Better, RunMetric
from naiad_perf.metrics.request import Latency, TimePerOutputToken, TimeToFirstToken
from naiad_perf.metrics.slos import Slos
from naiad_perf.metrics.window import per_second
from naiad_perf.records import RequestRecord, Run

__all__ = ["GoodputRate", "GoodputShare", "keeps"]

_NS_PER_MS = 1_000_000


def keeps(record: RequestRecord, slos: Slos) -> bool:
    """Return whether a successful request kept all stated SLOs."""
    tpot_ns = TimePerOutputToken().of(record)
    return (
        _within(TimeToFirstToken().of(record), slos.ttft_ms)
        and (tpot_ns is None or _within(tpot_ns, slos.tpot_ms))  # one response: no decode that could be slow
        and _within(Latency().of(record), slos.latency_ms)
    )


def _within(value_ns: float | None, limit_ms: float | None) -> bool:
    return limit_ms is None or (value_ns is not None and value_ns <= limit_ms * _NS_PER_MS)


def _good(run: Run, slos: Slos) -> int | None:
    """Count requests that kept all stated SLOs; None where none is stated."""
    return sum(keeps(record, slos) for record in run.succeeded) if slos.stated else None


class GoodputRate(RunMetric):
    """Requests that keep all stated SLOs, for each second of the measured window (see tokens/s).

    A failed or cancelled request keeps none. One response holding all tokens keeps any SLO on TPOT.
    Undefined when no SLO is stated.
    """

    name = "goodput_per_s"
    header = "Goodput"
    unit = PER_SECOND
    better = Better.HIGHER

    def of(self, run: Run, slos: Slos) -> float | None:
        """Return requests a second."""
        good = _good(run, slos)
        return None if good is None else per_second(run, good)


class GoodputShare(RunMetric):
    """Share of measured requests that keep all stated SLOs (see goodput)."""

    name = "goodput_share"
    header = "Goodput share"
    unit = SHARE
    better = Better.HIGHER

    def of(self, run: Run, slos: Slos) -> float | None:
        """Return a share from 0 to 1."""
        good = _good(run, slos)
        return None if good is None or not run.measured else good / len(run.measured)
