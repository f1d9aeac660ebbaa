"""When a sweep has failed too often."""

from __future__ import annotations

from dataclasses import replace

from naiad_perf.metrics.error_budget import overruns
from tests.harness.recorded_runs import FACTS, failed, hung_up, request, run_of


def run_with(errors: int, answers: int, *, subject: str = "bls", repeat: int = 0):
    records = [failed(n, n + 1) for n in range(errors)] + [request(n, [(n + 1, 1)]) for n in range(answers)]
    return run_of(*records, facts=replace(FACTS, subject=subject, repeat=repeat))


def test_the_budget_itself_may_be_spent():
    assert overruns([run_with(1, 9)], 0.1) == ()


def test_one_more_is_too_many_and_said_with_numbers():
    (over,) = overruns([run_with(2, 8)], 0.1)
    assert str(over) == ("bls at c2-i8-o16: 2 of 10 requests failed (20.00%), the error budget is 10.00%")


def test_repeats_of_a_point_are_taken_together_and_subjects_apart():
    runs = [run_with(2, 8), run_with(0, 10, repeat=1), run_with(0, 10, subject="ensemble")]
    assert overruns(runs, 0.1) == ()
    (over,) = overruns(runs, 0.09)
    assert (over.subject, over.errors, over.requests) == ("bls", 2, 20)


def test_no_budget_is_never_exceeded_and_a_budget_of_nothing_by_one():
    assert overruns([run_with(10, 0)], None) == ()
    assert len(overruns([run_with(1, 999)], 0.0)) == 1
    assert overruns([run_with(0, 10)], 0.0) == ()


def test_warm_up_and_cancels_spend_nothing():
    warming = replace(failed(0, 1), warm_up=True)
    assert overruns([run_of(warming, hung_up(0, 1), request(0, [(1, 1)]))], 0.0) == ()
