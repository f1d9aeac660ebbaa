"""All figures of a run: every metric, and every statistic of those with many values, under a stable name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from naiad_perf.metrics.base import Better, Distribution, Metric, RunMetric, Unit
from naiad_perf.metrics.goodput import GoodputRate, GoodputShare
from naiad_perf.metrics.machine import (
    ClientCpuShare,
    EngineQueueTime,
    EngineTime,
    KvShare,
    ServerComputeTime,
    ServerCores,
    ServerMemory,
    ServerQueueTime,
)
from naiad_perf.metrics.outcomes import CancelRate, Cancels, ErrorRate, Errors, MeasuredRequests
from naiad_perf.metrics.request import (
    InputTokens,
    InterTokenLatency,
    Latency,
    LatencyFromSent,
    OutputTokens,
    SendDelay,
    TimePerOutputToken,
    TimeToFirstToken,
    TimeToFirstTokenFromSent,
    TokensPerSecondPerUser,
)
from naiad_perf.metrics.slos import Slos
from naiad_perf.metrics.throughput import (
    CostPerMillionTokens,
    Duration,
    RequestsPerSecond,
    ResponsesPerSecond,
    TokensPerResponse,
    TokensPerSecond,
)
from naiad_perf.records import Run

__all__ = [
    "DISTRIBUTIONS",
    "FIGURES",
    "METRICS",
    "RUN_METRICS",
    "STATISTICS",
    "Figure",
    "figures_of",
    "summary",
]

RUN_METRICS: tuple[RunMetric, ...] = (
    TokensPerSecond(),
    RequestsPerSecond(),
    GoodputRate(),
    GoodputShare(),
    MeasuredRequests(),
    Errors(),
    ErrorRate(),
    Cancels(),
    CancelRate(),
    ResponsesPerSecond(),
    TokensPerResponse(),
    Duration(),
    ClientCpuShare(),
    ServerCores(),
    ServerMemory(),
    ServerQueueTime(),
    ServerComputeTime(),
    EngineQueueTime(),
    EngineTime(),
    KvShare(),
    CostPerMillionTokens(),
)
DISTRIBUTIONS: tuple[Distribution, ...] = (
    TimeToFirstToken(),
    TimeToFirstTokenFromSent(),
    InterTokenLatency(),
    TimePerOutputToken(),
    TokensPerSecondPerUser(),
    Latency(),
    LatencyFromSent(),
    SendDelay(),
    InputTokens(),
    OutputTokens(),
)
METRICS: tuple[Metric, ...] = (*RUN_METRICS, *DISTRIBUTIONS)

STATISTICS: Mapping[str, float | None] = {
    "mean": None,
    "p50": 50,
    "p90": 90,
    "p95": 95,
    "p99": 99,
    "max": 100,
}
"""Statistics of a distribution and their percentile ranks; percentiles between two values lie on the line."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One number about a run.

    Attributes:
        name: of the metric, with its statistic behind it where there is one, for example "ttft_ms_p99".
        header: for people.
        metric: what it is of.
        statistic: one of `STATISTICS`; None for a metric of whole runs.
    """

    name: str
    header: str
    metric: Metric
    statistic: str | None = None

    @property
    def unit(self) -> Unit:
        """Unit it is shown in."""
        return self.metric.unit

    @property
    def better(self) -> Better:
        """Which way is better."""
        return self.metric.better


def _figures() -> Iterable[Figure]:
    for metric in RUN_METRICS:
        yield Figure(metric.name, metric.header, metric)
    for spread in DISTRIBUTIONS:
        for statistic in STATISTICS:
            yield Figure(f"{spread.name}_{statistic}", f"{spread.header} {statistic}", spread, statistic)


FIGURES: Mapping[str, Figure] = {figure.name: figure for figure in _figures()}
"""All figures by name, in the order of tables and columns."""


def figures_of(run: Run, slos: Slos) -> dict[str, float | None]:
    """Compute all figures of a run, in the units they are shown in; None where undefined.

    The keys are those of `FIGURES`, in that order.
    """
    found: dict[str, float | None] = {}
    for metric in RUN_METRICS:
        value = metric.of(run, slos)
        found[metric.name] = None if value is None else metric.unit.shown(value)
    for spread in DISTRIBUTIONS:
        values = [value for record in run.succeeded for value in spread.values(record)]
        for statistic, value in summary(values).items():
            found[f"{spread.name}_{statistic}"] = None if value is None else spread.unit.shown(value)
    return found


def summary(values: list[float]) -> dict[str, float | None]:
    """Compute all statistics of some values; each None where there are none."""
    if not values:
        return dict.fromkeys(STATISTICS)
    ranks = {name: rank for name, rank in STATISTICS.items() if rank is not None}
    percentiles = dict(zip(ranks, np.percentile(values, list(ranks.values())).tolist(), strict=True))
    return {name: percentiles.get(name, float(np.mean(values))) for name in STATISTICS}
