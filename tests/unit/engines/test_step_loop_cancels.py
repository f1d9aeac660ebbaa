"""How a step loop ends what is no longer wanted: stopped by id, caller gone, deadline passed."""

from __future__ import annotations

from naiad.contract.errors import DeadlineExceeded
from naiad.contract.generation import FinishReason, RequestTimes, TokenChunk
from tests.harness.manual_stepper import Tokens

STOP, LENGTH, CANCELLED = FinishReason.STOP, FinishReason.LENGTH, FinishReason.CANCELLED


def test_stopping_a_running_request_frees_it_in_the_engine(bench):
    sink, other = bench.running("a"), bench.running("b")
    bench.stepper.advance(a=[1], b=[2])
    bench.loop.stop("a")
    bench.stepper.advance(b=[3])
    assert sink.reason() is CANCELLED
    assert sink.ids == [1]
    assert bench.stepper.aborted == ["a"]
    assert other.ids == [2, 3]
    assert not other.ended


def test_stopping_a_waiting_request_never_reaches_the_engine(make_bench):
    bench = make_bench(max_sequences=1)
    bench.running("a")
    waiting = bench.submit("b")
    bench.loop.stop("b")
    bench.stepper.advance(a=[1])
    assert waiting.reason() is CANCELLED
    assert waiting.chunks == [TokenChunk([], [], CANCELLED, RequestTimes(1000, 1000, None, None))]
    assert bench.stepper.added == ["a"]


def test_a_stop_is_served_before_the_next_step_however_long_the_polling_period(make_bench):
    bench = make_bench(poll_period_s=1e9)
    sink = bench.running("a")
    bench.stepper.advance(a=[1])
    bench.loop.stop("a")
    bench.stepper.advance(a=[2])
    assert sink.reason() is CANCELLED
    assert sink.ids == [1, 2]


def test_stop_ends_every_row_of_a_request(bench):
    rows = [bench.submit("same") for _ in range(3)]
    other = bench.running("other")
    bench.loop.stop("same")
    bench.stepper.advance(other=[1])
    assert [row.reason() for row in rows] == [CANCELLED] * 3
    assert not other.ended


def test_stopping_twice_ends_once(bench):
    sink = bench.running("a")
    bench.loop.stop("a")
    bench.loop.stop("a")
    bench.stepper.advance()
    bench.loop.stop("a")
    assert sink.reason() is CANCELLED


def test_stopping_an_unknown_id_has_no_effect(bench):
    sink = bench.running("a")
    for name in ("", "A", "nobody"):
        bench.loop.stop(name)
    bench.stepper.advance(a=[1])
    bench.stepper.advance(a=Tokens([2], STOP))
    assert sink.reason() is STOP


def test_stopping_an_ended_request_has_no_effect_on_it_or_its_successor(bench):
    sink = bench.running("a")
    bench.stepper.advance(a=Tokens([1], STOP))
    bench.loop.stop("a")
    again = bench.submit("a")
    bench.stepper.wait_for("a")
    bench.running("b")
    bench.stepper.advance(a=Tokens([2], LENGTH))
    assert (sink.reason(), again.reason()) == (STOP, LENGTH)


def test_a_caller_who_went_away_is_noticed_while_running(make_bench):
    bench = make_bench(poll_period_s=5)
    sink = bench.running("a")
    sink.cancel()
    bench.stepper.advance(a=[1])
    assert not sink.ended, "polled before the period was over"
    bench.clock.advance(5)
    bench.stepper.advance(a=[2])
    assert sink.reason() is CANCELLED
    assert bench.stepper.aborted == ["a"]


def test_a_caller_who_went_away_is_noticed_while_waiting(make_bench):
    bench = make_bench(max_sequences=1)
    bench.running("a")
    waiting, next_one = bench.submit("b"), bench.submit("c")
    waiting.cancel()
    bench.stepper.advance(a=Tokens([1], STOP))
    assert waiting.reason() is CANCELLED
    bench.stepper.wait_for("c")
    assert bench.stepper.added == ["a", "c"]
    assert not next_one.ended


def test_callers_are_asked_once_a_period_not_once_a_step(make_bench):
    bench = make_bench(poll_period_s=5)
    sink = bench.running("a", max_tokens=100)
    polls = sink.polls
    for _ in range(50):
        bench.stepper.advance(a=[1])
    assert sink.polls == polls
    bench.clock.advance(5)
    bench.stepper.advance(a=[1])
    assert sink.polls == polls + 1


def test_a_deadline_ends_a_running_request_with_what_it_has(bench):
    sink = bench.running("a", deadline_s=3)
    bench.clock.advance(2.9)
    bench.stepper.advance(a=[1])
    assert not sink.ended
    bench.clock.advance(0.1)
    bench.stepper.advance(a=[2])
    error = sink.failure()
    assert isinstance(error, DeadlineExceeded)
    assert error.partial
    assert sink.ids == [1, 2]
    assert bench.stepper.aborted == ["a"]


def test_a_deadline_ends_a_waiting_request_before_it_costs_anything(make_bench):
    bench = make_bench(max_sequences=1)
    bench.running("a")
    waiting = bench.submit("b", deadline_s=1)
    bench.clock.advance(1)
    bench.stepper.advance(a=[1])
    error = waiting.failure()
    assert isinstance(error, DeadlineExceeded)
    assert not error.partial
    assert bench.stepper.added == ["a"]


def test_a_deadline_that_passed_before_submission_is_refused_unserved(bench):
    late = bench.submit("late", deadline_s=-1)
    assert isinstance(late.failure(), DeadlineExceeded)
    assert bench.stepper.added == []
