"""Curves: which points lie on a Pareto front, and what is drawn where."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naiad_perf.metrics import Slos
from naiad_perf.report.by_point import cost_card, percentile_card
from naiad_perf.report.chart import Row
from naiad_perf.report.curves import latency_card, pareto_card, pareto_front
from naiad_perf.report.placing import add_labels, axis_for, scale_for, spans_far
from naiad_perf.results import result_of, summarise
from tests.harness.recorded_runs import failed, request, run_of


def rows_of(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of the only data set of a chart."""
    (rows,) = spec["datasets"].values()
    assert isinstance(rows, list)
    return rows


def test_a_front_is_what_no_other_point_beats():
    points = {"slow": (1, 9), "middle": (5, 5), "beaten": (4, 4), "as good in one": (5, 3), "fast": (9, 1)}
    rows: list[Row] = [{"name": name, "x": x, "y": y} for name, (x, y) in points.items()]
    assert [row["name"] for row in pareto_front(rows, "x", "y")] == ["slow", "middle", "fast"]


def test_equal_points_are_both_on_the_front():
    rows: list[Row] = [{"x": 1, "y": 1}, {"x": 1, "y": 1}]
    assert pareto_front(rows, "x", "y") == rows


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=20))
def test_a_front_falls_and_covers_everything(points):
    rows: list[Row] = [{"x": x, "y": y} for x, y in points]
    front: list[Any] = [(row["x"], row["y"]) for row in pareto_front(rows, "x", "y")]
    front.sort()
    assert [y for _, y in front] == sorted((y for _, y in front), reverse=True)
    for x, y in points:
        assert any(at_x >= x and at_y >= y for at_x, at_y in front)


def test_throughput_has_a_row_for_every_point_and_percentile_with_its_spread(summaries):
    card = latency_card(summaries)
    assert [chart.name for chart in card.charts] == [
        "throughput_ttft_ms",
        "throughput_itl_ms",
        "throughput_latency_ms",
    ]
    rows = rows_of(card.charts[0].spec)
    assert len(rows) == 3 * len(summaries)
    point = summaries[0]
    row = next(row for row in rows if row["percentile"] == "p90" and row["subject"] == "engine")
    spread, speed = point.figures["ttft_ms_p90"], point.figures["tokens_per_s"]
    assert spread is not None
    assert speed is not None
    assert (row["value"], row["value_low"], row["value_high"]) == (spread.median, spread.low, spread.high)
    assert (row["tokens_per_s"], row["tokens_per_s_low"]) == (speed.median, speed.low)
    assert (row["load"], row["workload"]) == ("1 stream", "64 → 6 tokens")


def test_the_pareto_card_marks_beaten_points(summaries):
    (chart,) = pareto_card(summaries).charts
    rows = rows_of(chart.spec)
    assert len(rows) == len(summaries)
    series: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        series.setdefault((row["subject"], row["workload"]), []).append(row)
    for members in series.values():
        front = pareto_front(members, "tokens_per_s_per_user_p50", "tokens_per_s")
        assert [row for row in members if not row["beaten"]] == front


def test_percentiles_are_rising_and_of_every_point(summaries):
    card = percentile_card(summaries)
    assert [chart.tab for chart in card.charts] == ["TTFT", "ITL", "TPOT", "Latency"]
    for chart in card.charts:
        rows = rows_of(chart.spec)
        assert len(rows) == len(summaries)
        for row in rows:
            assert row["p50"] <= row["p90"] <= row["p95"] <= row["p99"] <= row["max"]


def test_cost_is_of_subjects_with_a_price_only(summaries):
    card = cost_card(summaries)
    rows = rows_of(card.charts[0].spec)
    assert {row["subject"] for row in rows} == {"engine", "bls"}
    assert "engine: 0.5 USD, bls: 1 USD, <img src=x>: not stated" in card.text
    engine = next(summary for summary in summaries if summary.facts.subject == "engine")
    assert rows[0]["cost"] == engine.median("usd_per_million_tokens")


def test_where_nothing_succeeded_every_card_says_what_is_undefined():
    points = summarise([result_of(run_of(failed(0, 1)), Slos())])
    for card in (latency_card(points), pareto_card(points), percentile_card(points), cost_card(points)):
        assert card.charts == ()
        assert card.missing


def test_one_token_answers_have_a_ttft_but_no_pareto_front():
    points = summarise([result_of(run_of(request(0, [(10, 1)])), Slos())])
    assert [chart.name for chart in latency_card(points).charts] == [
        "throughput_ttft_ms",
        "throughput_latency_ms",
    ]
    assert pareto_card(points).charts == ()
    assert [chart.tab for chart in percentile_card(points).charts] == ["TTFT", "Latency"]


@pytest.mark.parametrize(
    ("values", "far"), [([1.0, 20.0], False), ([1.0, 20.1], True), ([0.0, 100.0], False), ([5.0], False)]
)
def test_scales_are_logarithmic_where_values_span_far(values, far):
    assert spans_far(values) is far
    assert (scale_for(values).to_dict().get("type") == "log") is far


def test_a_logarithmic_axis_has_1_2_and_5_of_each_decade_within_its_scale():
    values = axis_for([3.0, 400.0]).to_dict()["values"]
    assert values == pytest.approx([5, 10, 20, 50, 100, 200, 500])


def test_labels_do_not_cover_each_other():
    rows: list[dict[str, Any]] = [
        {"x": 100.0, "y": 100.0, "load_value": 1},
        {"x": 101.0, "y": 101.0, "load_value": 2},  # right beside it
        {"x": 101.0, "y": 50.0, "load_value": 2.5},
        {"x": 10.0, "y": 100.0, "load_value": None},
    ]
    add_labels(rows, "x", "y")
    assert [row["label"] for row in rows] == ["1", "", "2.5", ""]


def test_near_on_a_linear_scale_may_be_far_on_a_logarithmic_one():
    def labels(*, log_y: bool) -> list[str]:
        rows: list[dict[str, Any]] = [{"x": 1.0, "y": y, "load_value": 7} for y in (1.0, 10.0, 1000.0)]
        add_labels(rows, "x", "y", log_y=log_y)
        return [row["label"] for row in rows]

    assert labels(log_y=False) == ["7", "", "7"]
    assert labels(log_y=True) == ["7", "7", "7"]
