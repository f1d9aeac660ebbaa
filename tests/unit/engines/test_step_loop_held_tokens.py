"""How a step loop keeps to a rate of chunks: tokens are held and travel together, and none is lost."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from naiad.contract.errors import DeadlineExceeded, EngineUnavailable
from naiad.contract.generation import FinishReason, TokenChunk
from tests.harness.manual_stepper import Tokens
from tests.harness.recording_sink import RecordingSink

STOP, CANCELLED = FinishReason.STOP, FinishReason.CANCELLED


def _ids(sink: RecordingSink) -> list[list[int]]:
    return [chunk.ids for chunk in sink.chunks]


def test_without_a_rate_every_step_is_a_chunk(bench):
    sink = bench.running("a")
    for token in (1, 2, 3):
        bench.stepper.advance(a=[token])
    assert _ids(sink) == [[1], [2], [3]]


def test_the_first_token_is_never_held(make_bench):
    bench = make_bench(max_chunks_per_s=0.001)
    first, second = bench.running("a"), bench.running("b")
    bench.stepper.advance(a=[1], b=[2])
    assert _ids(first) == [[1]]
    assert _ids(second) == [[2]]


def test_requests_in_flight_share_the_rate(make_bench):
    bench = make_bench(max_chunks_per_s=4)
    sinks = [bench.running(name) for name in ("a", "b")]
    for token in range(1, 10):  # a step every eighth of a second; two streams, so two chunks a second each
        bench.stepper.advance(a=[token], b=[token])
        bench.clock.advance(0.125)
    bench.stepper.advance()
    assert [_ids(sink) for sink in sinks] == [[[1], [2, 3, 4, 5], [6, 7, 8, 9]]] * 2


def test_an_interval_holds_all_but_the_first_and_the_last_until_there_are_enough(make_bench):
    bench = make_bench(tokens_per_chunk=3)
    sink = bench.running("a")
    for token in range(1, 9):
        bench.stepper.advance(a=[token])
    assert _ids(sink) == [[1], [2, 3, 4], [5, 6, 7]]
    bench.stepper.advance(a=Tokens([9], STOP))
    assert _ids(sink) == [[1], [2, 3, 4], [5, 6, 7], [8, 9]]


def test_who_gets_a_single_answer_takes_no_share_of_the_rate(make_bench):
    bench = make_bench(max_chunks_per_s=4)
    sink, _ = bench.running("a"), bench.running("b", streaming=False)
    for token in (1, 2, 3):
        bench.stepper.advance(a=[token])
        bench.clock.advance(0.25)
    assert _ids(sink) == [[1], [2], [3]]


def test_an_engine_slower_than_the_rate_has_nothing_held(make_bench):
    bench = make_bench(max_chunks_per_s=4)
    sink = bench.running("a")
    for token in (1, 2, 3):
        bench.stepper.advance(a=[token])
        bench.clock.advance(0.25)
    assert _ids(sink) == [[1], [2], [3]]


def test_held_tokens_go_with_a_step_that_brings_the_request_none(make_bench):
    bench = make_bench(max_chunks_per_s=2)
    sink, _ = bench.running("a"), bench.running("b")
    bench.stepper.advance(a=[1], b=[1])
    bench.stepper.advance(a=[2], b=[2])
    assert _ids(sink) == [[1]]
    bench.clock.advance(1)
    bench.stepper.advance(b=[3])
    assert _ids(sink) == [[1], [2]]


def test_the_end_takes_what_was_held_with_it(make_bench):
    bench = make_bench(max_chunks_per_s=0.001)
    sink = bench.running("a", log_probs=True)
    bench.stepper.advance(a=Tokens([1], log_probs=[-0.5]))
    bench.stepper.advance(a=Tokens([2], log_probs=[-0.25]))
    bench.stepper.advance(a=Tokens([3], STOP, log_probs=[-0.125]))
    assert sink.reason() is STOP
    assert _ids(sink) == [[1], [2, 3]]
    assert sink.log_probs == [-0.5, -0.25, -0.125]
    assert sink.chunks[-1].times is not None


def test_a_cancelled_request_still_gets_what_was_held(make_bench):
    bench = make_bench(max_chunks_per_s=0.001)
    sink = bench.running("a")
    bench.stepper.advance(a=[1])
    bench.stepper.advance(a=[2])
    bench.loop.stop("a")
    bench.stepper.advance()
    assert sink.reason() is CANCELLED
    assert _ids(sink) == [[1], [2]]


def test_an_overdue_request_still_gets_what_was_held(make_bench):
    bench = make_bench(max_chunks_per_s=0.001)
    sink = bench.running("a", deadline_s=5)
    bench.stepper.advance(a=[1])
    bench.stepper.advance(a=[2])
    bench.clock.advance(6)
    bench.stepper.advance()
    assert isinstance(sink.failure(), DeadlineExceeded)
    assert _ids(sink) == [[1], [2]]


def test_a_failing_engine_takes_no_held_token_with_it(make_bench):
    bench = make_bench(max_chunks_per_s=0.001)
    sink = bench.running("a")
    bench.stepper.advance(a=[1])
    bench.stepper.advance(a=[2])
    bench.stepper.break_down()
    failure = sink.failure()
    assert isinstance(failure, EngineUnavailable)
    assert failure.partial
    assert _ids(sink) == [[1], [2]]


def test_what_is_observed_is_the_engine_and_not_the_chunks(make_bench):
    bench = make_bench(max_chunks_per_s=0.001)
    bench.running("a")
    for token in (1, 2, 3):
        bench.clock.advance(0.5)
        bench.stepper.advance(a=[token])
    assert bench.observer.events == [("scheduled", 0.0), ("first", 0.5), ("next", 0.5, 1), ("next", 0.5, 1)]


@pytest.mark.parametrize("rate", [0.0, 0.5, 3.0, 40.0])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # each example makes its own bench
@given(steps=st.lists(st.tuples(st.integers(0, 2), st.sampled_from([0.0, 0.125, 1.0])), max_size=12))
def test_whatever_the_rate_the_tokens_are_the_same(make_bench, rate, steps):
    bench = make_bench(max_chunks_per_s=rate)
    sink = bench.running("a", max_tokens=100)
    numbers = itertools.count(1)
    sent = []
    for count, seconds in steps:
        tokens = list(itertools.islice(numbers, count))
        sent += tokens
        bench.stepper.advance(a=tokens)
        bench.clock.advance(seconds)
    bench.stepper.advance(a=Tokens([999], STOP))
    assert sink.reason() is STOP
    assert sink.ids == [*sent, 999]
    assert all(isinstance(chunk, TokenChunk) and chunk.ids for chunk in sink.chunks)
    bench.close()
