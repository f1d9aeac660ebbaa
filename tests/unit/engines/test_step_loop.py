"""What a step loop takes in and delivers: order, ends, cuts and bounds."""

from __future__ import annotations

import pytest

from naiad.contract.errors import (
    EngineUnavailable,
    InvalidArgument,
    Overloaded,
    PromptTooLong,
    Unsupported,
)
from naiad.contract.generation import (
    FinishReason,
    GenerationRequest,
    SamplingParams,
)
from naiad.engines import EngineLimits, StepLoop
from naiad.engines.synthetic import SyntheticStepper, SyntheticTiming
from tests.harness.manual_stepper import Tokens
from tests.harness.recording_sink import RecordingSink

STOP, LENGTH = FinishReason.STOP, FinishReason.LENGTH


# Tokens.


def test_tokens_arrive_in_order_as_they_are_made(bench):
    sink = bench.running("a")
    bench.stepper.advance(a=[11])
    assert sink.ids == [11]
    bench.stepper.advance(a=[12, 13])
    assert sink.ids == [11, 12, 13]
    assert not sink.ended
    bench.stepper.advance(a=Tokens([14], STOP))
    assert sink.reason() is STOP
    assert [chunk.ids for chunk in sink.chunks] == [[11], [12, 13], [14]]


def test_each_sequence_of_a_batch_gets_its_own_tokens(bench):
    first, second = bench.running("a"), bench.running("b")
    bench.stepper.advance()  # a step may have no news
    bench.stepper.advance(a=[1], b=[2])
    bench.stepper.advance(b=Tokens([3], LENGTH), a=[4])
    assert (first.ids, second.ids) == ([1, 4], [2, 3])
    assert second.reason() is LENGTH
    assert not first.ended


def test_log_probabilities_stay_beside_their_tokens(bench):
    sink = bench.running("a", end_ids=frozenset({0}), log_probs=True)
    bench.stepper.advance(a=Tokens([1, 2], None, [-0.1, -0.2]))
    bench.stepper.advance(a=Tokens([3, 0, 4], None, [-0.3, -9.0, -8.0]))
    assert sink.reason() is STOP
    assert sink.log_probs == [-0.1, -0.2, -0.3]


@pytest.mark.parametrize(("ids", "kept"), [([0], []), ([4, 0], [4]), ([4, 0, 5], [4]), ([0, 0], [])])
def test_an_end_id_ends_the_answer_and_is_not_part_of_it(bench, ids, kept):
    sink = bench.running("a", end_ids=frozenset({0, 99}))
    bench.stepper.advance(a=[3])
    bench.stepper.advance(a=ids)
    assert sink.reason() is STOP
    assert sink.ids == [3, *kept]
    assert bench.stepper.aborted == ["a"]


def test_an_end_id_the_engine_stopped_at_itself_is_not_aborted(bench):
    sink = bench.running("a", end_ids=frozenset({0}))
    bench.stepper.advance(a=Tokens([3, 0], STOP))
    assert sink.reason() is STOP
    assert sink.ids == [3]
    assert bench.stepper.aborted == []


def test_without_end_ids_nothing_is_cut(bench):
    sink = bench.running("a", max_tokens=3)
    bench.stepper.advance(a=[0, 0])
    bench.stepper.advance(a=[0])
    assert sink.reason() is LENGTH
    assert sink.ids == [0, 0, 0]


def test_an_end_id_before_min_tokens_neither_ends_the_answer_nor_enters_it(bench):
    sink = bench.running("a", end_ids=frozenset({0}), min_tokens=3, log_probs=True)
    bench.stepper.advance(a=Tokens([1, 0, 2], None, [-1.0, -9.0, -2.0]))
    assert not sink.ended
    assert (sink.ids, sink.log_probs) == ([1, 2], [-1.0, -2.0])
    bench.stepper.advance(a=[0])
    assert not sink.ended
    bench.stepper.advance(a=[3, 0])
    assert sink.reason() is STOP
    assert sink.ids == [1, 2, 3]


def test_an_engine_that_stops_before_min_tokens_still_delivers_no_end_id(bench):
    sink = bench.running("a", end_ids=frozenset({0}), min_tokens=8)
    bench.stepper.advance(a=Tokens([1, 0], STOP))
    assert sink.reason() is STOP
    assert sink.ids == [1]


@pytest.mark.parametrize(
    "steps", [[[7, 8, 9]], [[7], [8], [9]], [[1, 7], [8, 9, 2]], [[7, 7, 8], [9, 0]], [[7, 8, 8, 7, 8], [9]]]
)
def test_a_stop_sequence_ends_the_answer_and_is_part_of_it(bench, steps):
    sink = bench.running("a", stop_sequences=((5, 5), (7, 8, 9)))
    for ids in steps:
        assert not sink.ended
        bench.stepper.advance(a=ids)
    assert sink.reason() is STOP
    assert sink.ids[-3:] == [7, 8, 9]
    assert bench.stepper.aborted == ["a"]


def test_the_prompt_does_not_count_towards_a_stop_sequence(bench):
    sink = bench.running("a", prompt=(7, 8), stop_sequences=((7, 8, 9),), max_tokens=2)
    bench.stepper.advance(a=[9])
    assert not sink.ended
    bench.stepper.advance(a=[9])
    assert sink.reason() is LENGTH


def test_a_stop_sequence_waits_for_min_tokens(bench):
    sink = bench.running("a", stop_sequences=((7,),), min_tokens=3)
    bench.stepper.advance(a=[7, 7])
    assert not sink.ended
    bench.stepper.advance(a=[7])
    assert sink.reason() is STOP
    assert sink.ids == [7, 7, 7]


@pytest.mark.parametrize("steps", [[[1, 2, 3, 4, 5]], [[1], [2], [3]], [[1, 2], [3, 4]]])
def test_the_answer_is_cut_at_max_tokens(bench, steps):
    sink = bench.running("a", max_tokens=3)
    for ids in steps:
        bench.stepper.advance(a=ids)
    assert sink.reason() is LENGTH
    assert sink.ids == [1, 2, 3]
    assert bench.stepper.aborted == ["a"]


def test_what_the_engine_still_yields_after_a_cut_goes_nowhere(bench):
    cut, other = bench.running("a", max_tokens=1), bench.running("b")
    bench.stepper.advance(a=[1, 2], b=[3])
    bench.stepper.advance(b=[4])
    assert cut.ids == [1]
    assert other.ids == [3, 4]
    assert bench.stepper.live == ["b"]


# Admission.


def test_requests_are_admitted_in_the_order_they_came(make_bench):
    bench = make_bench(max_sequences=2)
    sinks = {name: bench.submit(name) for name in "abcdef"}
    bench.stepper.wait_for("a", "b")
    while bench.stepper.live:
        oldest = bench.stepper.live[0]
        bench.stepper.advance(**{oldest: Tokens([1], STOP)})
        assert sinks[oldest].ended
    assert bench.stepper.added == list("abcdef")


def test_the_waiting_queue_is_bounded_exactly(make_bench):
    bench = make_bench(max_sequences=2, max_waiting=3)
    bench.running("a")
    bench.running("b")
    waiting = [bench.submit(name) for name in "cde"]
    with pytest.raises(Overloaded, match="3 requests are waiting"):
        bench.submit("f")
    assert bench.loop.stats().waiting == 3
    bench.stepper.advance(a=Tokens([1], STOP))
    bench.stepper.wait_for("c")
    bench.submit("f")
    with pytest.raises(Overloaded):
        bench.submit("g")
    assert not any(sink.ended for sink in waiting)
    assert "g" not in bench.stepper.added


def test_a_burst_fills_the_free_places_before_the_queue(make_bench):
    bench = make_bench(max_sequences=2, max_waiting=3)
    bench.running("a")  # the engine is inside a step now: nothing is admitted until it ends
    for name in "bcde":
        bench.submit(name)
    with pytest.raises(Overloaded):
        bench.submit("f")


@pytest.mark.parametrize(
    ("prompt", "sampling", "error", "words"),
    [
        ((), {}, InvalidArgument, "input_ids is empty"),
        ((1, 1000), {}, InvalidArgument, r"\[0, 1000\)"),
        ((1, 2), {"max_tokens": 127}, PromptTooLong, "128"),
    ],
)
def test_what_can_never_be_served_is_refused_at_once(bench, prompt, sampling, error, words):
    with pytest.raises(error, match=words):
        bench.submit("a", prompt=prompt, **sampling)
    assert bench.stepper.added == []


def test_what_the_engine_cannot_do_is_refused_at_once():
    limits = EngineLimits(100, 100, 100, frozenset())
    loop = StepLoop(SyntheticStepper(limits, SyntheticTiming(), max_sequences=1), max_waiting=1)
    request = GenerationRequest("a", (1,), SamplingParams(2, bad_sequences=((3,),)))
    with pytest.raises(Unsupported, match="bad_words_list"):
        loop.submit(request, RecordingSink())
    loop.close()
    with pytest.raises(EngineUnavailable):
        loop.submit(GenerationRequest("a", (1,), SamplingParams(2)), RecordingSink())
