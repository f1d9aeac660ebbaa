"""Gates: when CI stops a change."""

from __future__ import annotations

import pytest

from naiad_perf.comparison.compare import Compared, Verdict, compare
from naiad_perf.comparison.gates import Gate, figure_named, parse_gate, pass_through
from naiad_perf.comparison.intervals import RatioInterval
from naiad_perf.errors import ScenarioError
from naiad_perf.metrics import FIGURES
from tests.harness.recorded_runs import result_with


def row(figure: str, ratio: float, low: float, high: float, verdict: Verdict) -> Compared:
    return Compared(
        FIGURES[figure], "c1", ("c1",), 1.0, ratio, ratio, RatioInterval(ratio, low, high), verdict, (5, 5)
    )


def test_a_gate_is_a_figure_and_a_tolerance():
    assert parse_gate("tokens_per_s:0.05") == Gate(FIGURES["tokens_per_s"], 0.05)
    assert parse_gate("ttft_ms_p99:0").tolerance == 0


@pytest.mark.parametrize(
    "text",
    [
        "tokens_per_s",
        "tokens_per_s:",
        "tokens_per_s:much",
        "tokens_per_s:-0.1",
        ":1",
        "tokens_per_s:5",
        "tokens_per_s:nan",
    ],
)
def test_what_is_no_gate_is_refused_with_an_example(text):
    with pytest.raises(ScenarioError, match=r"tokens_per_s:0\.05"):
        parse_gate(text)


def test_a_figure_without_a_better_way_is_no_gate():
    with pytest.raises(ScenarioError, match="neither more nor less"):
        parse_gate("tokens_per_response:0.1")


def test_an_unknown_figure_is_refused_with_near_ones_or_all():
    with pytest.raises(ScenarioError, match=r"did you mean .*tokens_per_s\b"):
        figure_named("token_per_s")
    with pytest.raises(ScenarioError, match=r"did you mean .*ttft_ms_p99"):
        figure_named("ttft_ms")
    with pytest.raises(ScenarioError, match=r"known are tokens_per_s, .*behind it, ttft_ms"):
        figure_named("zzz")


@pytest.mark.parametrize(
    ("figure", "ratio", "verdict", "held"),
    [
        ("tokens_per_s", 0.94, Verdict.WORSE, False),
        ("tokens_per_s", 0.96, Verdict.WORSE, True),  # worse, but within the tolerance
        ("tokens_per_s", 0.90, Verdict.NOT_SHOWN, True),  # beyond it, but not shown
        ("tokens_per_s", 1.20, Verdict.BETTER, True),
        ("ttft_ms_p99", 1.06, Verdict.WORSE, False),
        ("ttft_ms_p99", 1.04, Verdict.WORSE, True),
        ("ttft_ms_p99", 0.50, Verdict.BETTER, True),
    ],
)
def test_a_gate_fails_when_worse_is_shown_and_beyond_the_tolerance(figure, ratio, verdict, held):
    gate = parse_gate(f"{figure}:0.05")
    assert gate.holds(row(figure, ratio, ratio - 0.01, ratio + 0.01, verdict)) is held


def comparison(speeds_at_c2: list[float]):
    a, b = [], []
    for repeat in range(len(speeds_at_c2)):
        for number, (point, speed) in enumerate((("c1", 100.0), ("c2", speeds_at_c2[repeat]))):
            at = 4 * repeat + 2 * number
            a.append(result_with("A", repeat, at, point=point, figures={"tokens_per_s": 100.0}))
            b.append(result_with("B", repeat, at + 1, point=point, figures={"tokens_per_s": speed}))
    return compare(a, b, names=("A", "B"), same_sweep=True)


def test_gates_hold_overall_or_at_every_point():
    found = comparison([92.0, 92.5, 91.5])
    gate = parse_gate("tokens_per_s:0.05")
    (overall,) = pass_through([gate], found, every_point=False)
    assert overall.compared.point == "overall"
    assert overall.held is True  # 4 % over both points
    each = list(pass_through([gate], found, every_point=True))
    assert [(result.compared.point, result.held) for result in each] == [("c1", True), ("c2", False)]


def test_a_gate_without_an_interval_cannot_be_judged():
    (result,) = pass_through([parse_gate("tokens_per_s:0.05")], comparison([50.0, 50.0]), every_point=False)
    assert result.held is None
