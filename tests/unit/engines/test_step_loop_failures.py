"""What a step loop survives: broken steps, refused sequences, bad sinks, races; and how it closes."""

from __future__ import annotations

import queue
import random
import threading
import time

import pytest

from naiad.contract.errors import EngineUnavailable, InternalError, Overloaded, Unsupported
from naiad.contract.generation import FinishReason, GenerationRequest, SamplingParams, TokenChunk
from naiad.engines import EngineLimits, StepLoop
from naiad.engines.synthetic import SyntheticStepper, SyntheticTiming
from tests.harness.manual_stepper import DEADLINE_S, Tokens
from tests.harness.recording_sink import RecordingSink

STOP, LENGTH, CANCELLED = FinishReason.STOP, FinishReason.LENGTH, FinishReason.CANCELLED


# Broken engines.


def test_a_failed_step_ends_what_ran_and_keeps_what_waited(make_bench):
    bench = make_bench(max_sequences=2)
    started, fresh = bench.running("a"), bench.running("b")
    waiting = bench.submit("c")
    bench.stepper.advance(a=[1])
    bench.stepper.break_down()
    errors = [started.failure(), fresh.failure()]
    assert all(isinstance(error, EngineUnavailable) and error.retryable for error in errors)
    assert [error.partial for error in errors] == [True, False]
    assert all("/paths" not in error.message for error in errors)
    bench.stepper.wait_for("c")
    bench.stepper.advance(c=Tokens([1], STOP))
    assert waiting.reason() is STOP
    assert bench.stepper.rebuilds == 1


def test_a_rebuilt_engine_serves_later_requests_and_may_fail_again(bench):
    for round_number in (1, 2, 3):
        sink = bench.running(f"broken{round_number}")
        bench.stepper.break_down()
        sink.failure()
        later = bench.running(f"served{round_number}")
        bench.stepper.advance(**{f"served{round_number}": Tokens([1], STOP)})
        assert later.reason() is STOP
        assert bench.stepper.rebuilds == round_number


def test_an_engine_that_cannot_be_rebuilt_refuses_everything_and_hangs_nobody(make_bench):
    bench = make_bench(max_sequences=1, rebuild_fails=RuntimeError("no memory at /paths"))
    running, waiting = bench.running("a"), bench.submit("b")
    bench.stepper.break_down()
    for sink in (running, waiting):
        error = sink.failure()
        assert isinstance(error, EngineUnavailable)
        assert "/paths" not in error.message
    with pytest.raises(EngineUnavailable, match="could not be rebuilt"):
        bench.submit("c")
    bench.loop.stop("a")
    assert bench.loop.stats().active == 0
    bench.loop.close()


def test_a_request_the_engine_refuses_hurts_no_other(make_bench):
    def refuse(request: GenerationRequest) -> None:
        if request.request_id == "unsupported":
            raise Unsupported("draft_input_ids is not supported")
        if request.request_id == "odd":
            raise RuntimeError("check failed at /src/cpp/file.cpp:12")

    bench = make_bench(refuse_add=refuse)
    before = bench.running("before")
    unsupported, odd = bench.submit("unsupported"), bench.submit("odd")
    after = bench.submit("after")
    bench.stepper.advance(before=[1])
    bench.stepper.wait_for("after")
    bench.stepper.advance(before=Tokens([2], STOP), after=Tokens([3], STOP))
    assert unsupported.failure().code == "UNSUPPORTED"
    error = odd.failure()
    assert isinstance(error, InternalError)
    assert "/src" not in error.message
    assert (before.ids, after.ids) == ([1, 2], [3])
    assert bench.stepper.rebuilds == 0


def test_an_abort_that_fails_leaves_no_request_without_its_end(make_bench):
    bench = make_bench(refuse_abort=RuntimeError("cancel failed"))
    stopped, other = bench.running("a"), bench.running("b")
    bench.loop.stop("a")
    bench.stepper.advance()
    assert stopped.reason() is CANCELLED
    assert isinstance(other.failure(), EngineUnavailable)  # its step failed, as OpenVINO's do from then on
    later = bench.running("c")
    bench.stepper.advance(c=Tokens([1], STOP))
    assert later.reason() is STOP
    assert bench.stepper.rebuilds == 1


# Sinks that raise.


@pytest.mark.parametrize("reason", [None, STOP])
def test_a_sink_that_cannot_take_a_chunk_ends_its_own_request_only(bench, reason):
    def refuse(chunk: TokenChunk) -> None:
        raise OSError("the caller's shared memory is gone")

    broken = bench.running("a", sink=RecordingSink(refuse))
    other = bench.running("b")
    bench.stepper.advance(a=Tokens([1], reason), b=[2])
    assert isinstance(broken.failure(), InternalError)
    bench.stepper.advance(b=Tokens([3], STOP))
    assert other.reason() is STOP
    assert bench.stepper.aborted == ([] if reason else ["a"])


def test_a_sink_that_cannot_say_whether_it_is_cancelled_is_cancelled(bench):
    class Sink(RecordingSink):
        def is_cancelled(self) -> bool:
            raise OSError("no answer")

    broken = bench.submit("a", sink=Sink())
    other = bench.running("b")
    bench.stepper.advance(b=Tokens([3], STOP))
    assert broken.reason() is CANCELLED
    assert other.reason() is STOP


def test_a_sink_that_cannot_take_its_error_hurts_no_other(bench):
    class Sink(RecordingSink):
        def fail(self, error: Exception) -> None:
            super().fail(error)
            raise OSError("gone")

    broken = bench.running("a", sink=Sink())
    other = bench.running("b")
    bench.stepper.break_down()
    broken.failure()
    other.failure()
    later = bench.running("c")
    bench.stepper.advance(c=Tokens([1], STOP))
    assert later.reason() is STOP


# Closing.


def test_closing_ends_everything_and_refuses_what_comes_later(make_bench):
    bench = make_bench(max_sequences=1)
    running, waiting = bench.running("a"), bench.submit("b")
    bench.stepper.advance(a=[1])
    bench.stepper.let_go()
    bench.loop.close()
    assert [sink.failure().code for sink in (running, waiting)] == ["ENGINE_UNAVAILABLE"] * 2
    assert [sink.failure().partial for sink in (running, waiting)] == [True, False]
    assert bench.stepper.aborted == ["a"]
    with pytest.raises(EngineUnavailable, match="shutting down"):
        bench.submit("c")
    bench.loop.close()


def test_closing_an_idle_engine_ends_its_thread(bench):
    def engines() -> int:
        return sum(thread.name == "naiad-engine" for thread in threading.enumerate())

    before = engines()
    assert before >= 1
    bench.loop.close()
    assert engines() == before - 1


# Races.

LIMITS = EngineLimits(vocab_size=100, max_seq_len=100, kv_capacity_tokens=100, end_ids=frozenset())


def synthetic_loop(*, max_waiting: int, max_sequences: int = 32) -> tuple[StepLoop, SyntheticStepper]:
    stepper = SyntheticStepper(LIMITS, SyntheticTiming(), max_sequences=max_sequences)
    return StepLoop(stepper, max_waiting=max_waiting, poll_period_s=0.0), stepper


def test_a_cancel_that_races_the_last_chunk_leaves_exactly_one_end_10000_times():
    total, loop_and_stepper = 10_000, synthetic_loop(max_waiting=10_000)
    loop, stepper = loop_and_stepper
    dice = random.Random(4)
    racing: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def race() -> None:
        while (name := racing.get()) is not None:
            loop.stop(name)

    def canceller(name: str) -> RecordingSink:
        """The second chunk is the last: cancel in one of three ways when the first one comes."""
        way = dice.choice(["another thread", "this thread", "the caller leaves", "not at all"])

        def at(chunk: TokenChunk) -> None:
            if len(sink.chunks) != 1:
                return
            if way == "another thread":
                racing.put(name)
            elif way == "this thread":
                loop.stop(name)
            elif way == "the caller leaves":
                sink.cancel()

        sink = RecordingSink(at)
        return sink

    thread = threading.Thread(target=race)
    thread.start()
    try:
        reasons = {}
        for start in range(0, total, 100):
            sinks = {f"r{index}": canceller(f"r{index}") for index in range(start, start + 100)}
            for name, sink in sinks.items():
                loop.submit(GenerationRequest(name, (1, 2), SamplingParams(2)), sink)
            reasons.update({name: sink.reason() for name, sink in sinks.items()})
            assert not any(sink.violations for sink in sinks.values())
    finally:
        racing.put(None)
        thread.join(DEADLINE_S)
        loop.close()
    assert len(reasons) == total
    assert {LENGTH, CANCELLED} == set(reasons.values()), "the race must go both ways"
    assert stepper.stats().generation + stepper.stats().context == 0
    assert loop.stats().active == 0


def test_many_threads_submitting_at_once_lose_nothing():
    threads, each = 16, 50
    loop, stepper = synthetic_loop(max_waiting=40)
    accepted: queue.SimpleQueue[tuple[int, RecordingSink]] = queue.SimpleQueue()
    overloads: queue.SimpleQueue[None] = queue.SimpleQueue()

    def submit(first: int) -> None:
        for number in range(first, first + each):
            sink = RecordingSink()
            deadline = time.monotonic() + DEADLINE_S
            while time.monotonic() < deadline:
                try:
                    prompt = (number % 97, number % 89, number % 83)
                    loop.submit(GenerationRequest(str(number), prompt, SamplingParams(7)), sink)
                except Overloaded:
                    overloads.put(None)
                    sink_done = threading.Event()
                    sink_done.wait(0.001)  # as a client backs off
                    continue
                accepted.put((number, sink))
                break

    workers = [threading.Thread(target=submit, args=(index * each,)) for index in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(DEADLINE_S)
    assert accepted.qsize() == threads * each
    while not accepted.empty():
        number, sink = accepted.get()
        assert sink.reason() is LENGTH
        prompt = [number % 97, number % 89, number % 83]
        assert sink.ids == (prompt * 3)[:7]
    loop.close()
    assert stepper.stats().kv_blocks_used == 0
