"""Declarations of metrics, and the statistics of many values."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naiad_perf.metrics import DISTRIBUTIONS, FIGURES, METRICS, RUN_METRICS, STATISTICS, Metric
from naiad_perf.metrics.figures import summary


def concrete(kind: type) -> set[type]:
    children: list[type] = kind.__subclasses__()
    below = {each for child in children for each in concrete(child)}
    return below | {kind} if "name" in vars(kind) else below


def test_every_metric_there_is_has_its_place_in_tables():
    assert {type(metric) for metric in METRICS} == concrete(Metric)
    assert len(METRICS) == len({metric.name for metric in METRICS})
    assert len(METRICS) == len({metric.header for metric in METRICS})


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_every_metric_is_fully_declared(metric):
    assert re.fullmatch(r"[a-z][a-z_]*", metric.name)
    assert metric.definition.splitlines()[0]
    if metric.unit.symbol == "ms":
        assert metric.name.endswith("_ms")
    if metric.unit.symbol == "%":
        assert metric.name.endswith(("_share", "_rate"))


def test_figures_are_all_run_metrics_and_all_statistics_of_the_others():
    assert len(FIGURES) == len(RUN_METRICS) + len(STATISTICS) * len(DISTRIBUTIONS)
    assert FIGURES["tokens_per_s"].header == "Tokens/s"
    assert FIGURES["ttft_ms_p99"].header == "TTFT p99"
    assert FIGURES["ttft_ms_p99"].unit.symbol == "ms"


def test_statistics_of_known_values():
    found = summary([float(value) for value in range(101)])
    assert found == {"mean": 50, "p50": 50, "p90": 90, "p95": 95, "p99": 99, "max": 100}


def test_a_percentile_between_two_values_lies_on_the_line():
    assert summary([10.0, 20.0]) == {"mean": 15, "p50": 15, "p90": 19, "p95": 19.5, "p99": 19.9, "max": 20}


def test_statistics_of_nothing_are_undefined():
    assert summary([]) == dict.fromkeys(STATISTICS)


@settings(deadline=None)
@given(st.lists(st.floats(0, 1e12), min_size=1, max_size=50))
def test_percentiles_never_fall_and_stay_within_the_values(values):
    found: dict[str, Any] = dict(summary(values))
    ranked = [found[name] for name in ("p50", "p90", "p95", "p99", "max")]
    assert ranked == sorted(ranked)
    assert found["max"] == max(values)
    assert min(values) <= ranked[0]
    assert min(values) <= found["mean"] * (1 + 1e-12)
    assert found["mean"] <= max(values) * (1 + 1e-12)
