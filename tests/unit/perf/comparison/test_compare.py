"""Comparing two subjects: which repeats meet which, what the ratio is, and when a verdict is allowed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from naiad_perf.comparison.compare import OVERALL, Comparison, Verdict, compare
from naiad_perf.comparison.intervals import paired_ratio, unpaired_ratio
from naiad_perf.errors import RecordError
from naiad_perf.results import RunResult
from tests.harness.recorded_runs import FACTS, result_with

SPEEDS_A = [100.0, 50.0, 80.0, 120.0, 90.0]  # a machine of many moods
SPEEDS_B = [value * ratio for value, ratio in zip(SPEEDS_A, [1.10, 1.12, 1.09, 1.11, 1.10], strict=True)]


def taking_turns(
    a: Sequence[float | None],
    b: Sequence[float | None],
    figure: str = "tokens_per_s",
    point: str = "c1",
    at: int = 0,
) -> tuple[list[RunResult], list[RunResult]]:
    """A first in even repeats, B first in odd ones."""
    sides: tuple[list[RunResult], list[RunResult]] = ([], [])
    for repeat, values in enumerate(zip(a, b, strict=True)):
        for side, value in enumerate(values):
            position = at + 2 * repeat + (side if repeat % 2 == 0 else 1 - side)
            sides[side].append(
                result_with("AB"[side], repeat, position, point=point, figures={figure: value})
            )
    return sides


def compared(a: Sequence[RunResult], b: Sequence[RunResult], *, same_sweep: bool = True) -> Comparison:
    return compare(a, b, names=("A", "B"), same_sweep=same_sweep)


def test_repeats_that_took_turns_are_paired_and_their_common_mood_cancels():
    found = compared(*taking_turns(SPEEDS_A, SPEEDS_B))
    row = found.at("tokens_per_s")
    assert found.paired
    assert found.warnings == ()
    assert row.interval == paired_ratio(SPEEDS_A, SPEEDS_B, 0.95)
    assert row.interval is not None
    assert row.ratio == row.interval.ratio
    assert row.verdict is Verdict.BETTER
    assert row.a == 90
    assert row.b == pytest.approx(99)
    assert row.repeats == (5, 5)
    assert row.point == "c1"
    assert row.over == ("c1",)


def test_runs_of_different_sweeps_are_not_paired_and_a_warning_says_so():
    found = compared(*taking_turns(SPEEDS_A, SPEEDS_B), same_sweep=False)
    row = found.at("tokens_per_s")
    assert not found.paired
    assert "different sweeps" in found.warnings[0]
    assert row.interval == unpaired_ratio(SPEEDS_A, SPEEDS_B, 0.95)
    assert row.verdict is Verdict.NOT_SHOWN


def test_all_of_one_before_all_of_the_other_is_no_pairing_even_in_one_sweep():
    a = [result_with("A", n, n, figures={"tokens_per_s": speed}) for n, speed in enumerate(SPEEDS_A)]
    b = [result_with("B", n, 5 + n, figures={"tokens_per_s": speed}) for n, speed in enumerate(SPEEDS_B)]
    found = compared(a, b)
    assert not found.paired
    assert "took no turns" in found.warnings[0]


def test_one_always_first_is_paired_with_a_warning():
    a = [result_with("A", n, 2 * n, figures={"tokens_per_s": speed}) for n, speed in enumerate(SPEEDS_A)]
    b = [result_with("B", n, 2 * n + 1, figures={"tokens_per_s": speed}) for n, speed in enumerate(SPEEDS_B)]
    found = compared(a, b)
    assert found.paired
    assert found.warnings == ("A ran first in every pair: let them take turns in going first",)
    assert compared(b, a).warnings == ("B ran first in every pair: let them take turns in going first",)


def test_pairs_follow_the_repeat_s_number_not_the_order_of_the_list():
    a, b = taking_turns(SPEEDS_A, SPEEDS_B)
    shuffled = [b[3], b[0], b[4], b[2], b[1]]
    assert compared(a, shuffled).at("tokens_per_s").interval == paired_ratio(SPEEDS_A, SPEEDS_B, 0.95)


def test_a_repeat_that_one_side_lacks_is_left_out_of_pairs():
    a, b = taking_turns(SPEEDS_A, SPEEDS_B)
    found = compared(a, b[:2] + b[3:]).at("tokens_per_s")
    kept = [0, 1, 3, 4]
    assert found.interval == paired_ratio([SPEEDS_A[n] for n in kept], [SPEEDS_B[n] for n in kept], 0.95)
    assert found.repeats == (5, 4)


def test_unpaired_sides_keep_all_their_repeats():
    a, b = taking_turns(SPEEDS_A, SPEEDS_B)
    for fewer, more in ((a[:3], b), (a, b[:3])):
        row = compared(fewer, more, same_sweep=False).at("tokens_per_s")
        expected = unpaired_ratio(SPEEDS_A[: len(fewer)], SPEEDS_B[: len(more)], 0.95)
        assert row.repeats == (len(fewer), len(more))
        assert row.ratio == expected.ratio


@pytest.mark.parametrize(
    ("figure", "up", "down"),
    [
        ("tokens_per_s", Verdict.BETTER, Verdict.WORSE),
        ("ttft_ms_p99", Verdict.WORSE, Verdict.BETTER),
        ("tokens_per_response", Verdict.DIFFERENT, Verdict.DIFFERENT),
    ],
)
def test_better_depends_on_the_figure(figure, up, down):
    a, b = SPEEDS_A, SPEEDS_B
    assert compared(*taking_turns(a, b, figure)).at(figure).verdict is up
    assert compared(*taking_turns(b, a, figure)).at(figure).verdict is down
    assert compared(*taking_turns(a, a, figure)).at(figure).verdict is Verdict.NOT_SHOWN


def test_a_difference_within_the_noise_is_not_shown():
    noisy = [a * ratio for a, ratio in zip(SPEEDS_A, [1.3, 0.8, 1.2, 0.9, 1.25], strict=True)]
    row = compared(*taking_turns(SPEEDS_A, noisy)).at("tokens_per_s")
    assert row.ratio is not None
    assert row.ratio > 1.05
    assert row.verdict is Verdict.NOT_SHOWN


def test_too_few_repeats_give_a_ratio_without_interval_and_no_verdict():
    row = compared(*taking_turns([100, 100], [200, 800])).at("tokens_per_s")
    assert row.ratio == pytest.approx(4)
    assert row.interval is None
    assert row.verdict is Verdict.NONE
    assert row.why == "2 repeats, 3 are needed"


def test_a_figure_that_is_undefined_has_no_ratio():
    row = compared(*taking_turns(SPEEDS_A, SPEEDS_B)).at("ttft_ms_p50")
    assert (row.a, row.b, row.ratio, row.interval) == (None, None, None, None)
    assert row.verdict is Verdict.NONE
    assert row.why == "undefined"


def test_a_figure_defined_for_one_side_only_has_no_ratio():
    row = compared(*taking_turns(SPEEDS_A, [None] * 5)).at("tokens_per_s")
    assert (row.a, row.b) == (90, None)
    assert row.verdict is Verdict.NONE


def test_zero_has_no_ratio_and_is_not_called_equal():
    row = compared(*taking_turns([0, 0, 0], [0, 0, 0], "error_rate")).at("error_rate")
    assert (row.a, row.b, row.ratio) == (0, 0, None)
    assert row.verdict is Verdict.NONE
    assert row.why.startswith("zero")


def two_points() -> tuple[list[RunResult], list[RunResult]]:
    """B is twice as fast at c1 and half as fast at c2, but for a repeat in which it is 4 times as fast."""
    a1, b1 = taking_turns([10, 10, 10], [20, 20, 20], point="c1")
    a2, b2 = taking_turns([100, 100, 100], [50, 50, 400], point="c2", at=6)
    return [*a1, *a2], [*b1, *b2]


def test_overall_is_the_geometric_mean_over_points_taken_within_repeats():
    found = compared(*two_points())
    row = found.at("tokens_per_s")
    assert found.points == ("c1", "c2")
    assert row.point == OVERALL
    assert row.over == ("c1", "c2")
    assert (row.a, row.b) == (None, None)
    # Repeats: sqrt(2 * 0.5), sqrt(2 * 0.5), sqrt(2 * 4).
    assert row.ratio == pytest.approx(8 ** (1 / 6))
    expected = paired_ratio([1, 1, 1], [1, 1, 8**0.5], 0.95)
    assert row.interval is not None
    assert row.interval.low == pytest.approx(expected.low)
    assert row.interval.high == pytest.approx(expected.high)
    assert found.at("tokens_per_s", "c1").ratio == pytest.approx(2)
    assert found.at("tokens_per_s", "c2").ratio == pytest.approx(1)


def test_overall_leaves_out_points_where_a_figure_is_undefined_and_says_which_it_has():
    a, b = two_points()
    b = [replace(r, figures=r.figures | {"tokens_per_s": None}) if r.facts.point == "c2" else r for r in b]
    row = compared(a, b).at("tokens_per_s")
    assert row.over == ("c1",)
    assert row.ratio == pytest.approx(2)


def test_overall_leaves_out_repeats_that_lack_a_point():
    a, b = two_points()
    b = [r for r in b if (r.facts.point, r.facts.repeat) != ("c2", 0)]
    row = compared(a, b).at("tokens_per_s")
    assert row.repeats == (3, 2)
    assert row.why == "2 repeats, 3 are needed"


def test_with_one_point_there_is_no_overall():
    found = compared(*taking_turns(SPEEDS_A, SPEEDS_B))
    assert {row.point for row in found.compared} == {"c1"}


def test_points_of_one_side_only_are_left_out_with_a_warning():
    a, b = two_points()
    found = compared(a, [result for result in b if result.facts.point == "c1"])
    assert found.points == ("c1",)
    assert "measured for one of both only, so left out: c2" in found.warnings


def test_nothing_in_common_is_refused():
    a, _ = taking_turns(SPEEDS_A, SPEEDS_B, point="c1")
    _, b = taking_turns(SPEEDS_A, SPEEDS_B, point="c2")
    with pytest.raises(RecordError, match="A has c1; B has c2"):
        compared(a, b)


def test_what_else_differs_is_said():
    a, b = taking_turns(SPEEDS_A, SPEEDS_B)
    facts = replace(FACTS, driver="locust", environment={"cpu": "other"}, attempts=2)
    moved = [
        replace(
            r, facts=replace(facts, subject="B", repeat=r.facts.repeat, position=r.facts.position, point="c1")
        )
        for r in b
    ]
    assert compared(a, moved).warnings == (
        "different load generators: by hand 1 for A, locust 1 for B",
        "the environment differs in: cpu",
        "runs that were started more than once until they completed: 5",
    )
