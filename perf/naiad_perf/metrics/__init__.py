"""What is read out of a run: small declared metrics, and the figures they give."""

from __future__ import annotations

from naiad_perf.metrics.base import Better, Distribution, Metric, RequestMetric, RunMetric, Unit
from naiad_perf.metrics.figures import (
    DISTRIBUTIONS,
    FIGURES,
    METRICS,
    RUN_METRICS,
    STATISTICS,
    Figure,
    figures_of,
)
from naiad_perf.metrics.slos import Promise, Slos, read_promise

__all__ = [
    "DISTRIBUTIONS",
    "FIGURES",
    "METRICS",
    "RUN_METRICS",
    "STATISTICS",
    "Better",
    "Distribution",
    "Figure",
    "Metric",
    "Promise",
    "RequestMetric",
    "RunMetric",
    "Slos",
    "Unit",
    "figures_of",
    "read_promise",
]
