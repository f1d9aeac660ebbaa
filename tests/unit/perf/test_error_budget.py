"""When a sweep has failed too often."""

from __future__ import annotations

from dataclasses import replace

from naiad_perf.error_budget import overruns
from naiad_perf.metrics import Slos
from naiad_perf.results import result_of
from tests.harness.recorded_runs import FACTS, failed, hung_up, request, run_of


def run_with(errors: int, answers: int, *, subject: str = "bls", repeat: int = 0):
    records = [failed(n, n + 1) for n in range(errors)] + [request(n, [(n + 1, 1)]) for n in range(answers)]
    return result_of(run_of(*records, facts=replace(FACTS, subject=subject, repeat=repeat)), Slos())


def test_the_budget_itself_may_be_spent():
    assert overruns([run_with(1, 9)], 0.1) == ()


def test_one_more_is_too_many_and_said_with_numbers():
    (over,) = overruns([run_with(2, 8)], 0.1)
    assert str(over) == (
        "bls at c2-i8-o16, repeat 0: 2 of 10 requests failed (20 %), the error budget is 10 %"
    )


def test_every_run_has_a_budget_of_its_own():
    runs = [run_with(2, 8), run_with(0, 10, repeat=1), run_with(3, 7, subject="ensemble")]
    found = [(over.result.facts.subject, over.result.facts.repeat) for over in overruns(runs, 0.1)]
    assert found == [("bls", 0), ("ensemble", 0)]


def test_no_budget_is_never_exceeded_and_a_budget_of_nothing_by_one():
    assert overruns([run_with(10, 0)], None) == ()
    assert len(overruns([run_with(1, 999)], 0.0)) == 1
    assert overruns([run_with(0, 10)], 0.0) == ()


def test_warm_up_and_cancels_spend_nothing():
    warming = replace(failed(0, 1), warm_up=True)
    run = run_of(warming, hung_up(0, 1), request(0, [(1, 1)]))
    assert overruns([result_of(run, Slos())], 0.0) == ()
