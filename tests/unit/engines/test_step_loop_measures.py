"""What a step loop reports about itself: times, observer calls, counts."""

from __future__ import annotations

from naiad.contract.generation import FinishReason, RequestTimes
from tests.harness.manual_stepper import Tokens
from tests.harness.recording_sink import RecordingSink

STOP = FinishReason.STOP


def test_the_last_chunk_carries_the_stations_of_the_request(make_bench):
    bench = make_bench(max_sequences=1)
    bench.running("a")
    bench.clock.advance(1)
    sink = bench.submit("b")
    bench.clock.advance(2)
    bench.stepper.advance(a=Tokens([1], STOP))
    bench.stepper.wait_for("b")
    bench.clock.advance(4)
    bench.stepper.advance(b=[1])
    bench.clock.advance(8)
    bench.stepper.advance(b=[2])
    bench.clock.advance(16)
    bench.stepper.advance(b=Tokens([0], STOP))
    assert sink.reason() is STOP
    assert [chunk.times for chunk in sink.chunks] == [None, None, RequestTimes(1001, 1003, 1007, 1031)]


def test_an_end_without_a_token_moves_no_token_time(bench):
    sink = bench.running("a", end_ids=frozenset({0}))
    bench.clock.advance(1)
    bench.stepper.advance(a=[5])
    bench.clock.advance(1)
    bench.stepper.advance(a=[0])
    assert sink.reason() is STOP
    assert sink.chunks[-1].times == RequestTimes(1000, 1000, 1001, 1001)


def test_the_observer_hears_of_queueing_first_token_intervals_and_end(bench):
    bench.running("a", prompt=(1, 2, 3, 4), end_ids=frozenset({0}))
    bench.clock.advance(0.5)
    bench.stepper.advance(a=[5, 6])
    bench.clock.advance(0.25)
    bench.stepper.advance(a=[7, 8, 9])
    bench.clock.advance(0.125)
    bench.stepper.advance(a=[0])
    assert bench.observer.events == [
        ("scheduled", 0.0), ("first", 0.5), ("next", 0.25, 3), ("finished", 4, 5, STOP),
    ]  # fmt: skip


def test_the_observer_hears_of_the_time_in_the_queue(make_bench):
    bench = make_bench(max_sequences=1)
    bench.running("a")
    bench.submit("b")
    bench.clock.advance(3)
    bench.stepper.advance(a=Tokens([1], STOP))
    bench.stepper.wait_for("b")
    bench.stepper.advance(b=Tokens([1], STOP))
    assert ("scheduled", 3.0) in bench.observer.events


def test_a_request_that_comes_while_callers_are_asked_has_no_negative_queue_time(bench):
    class Sink(RecordingSink):
        """While it is asked, time passes and another request comes in."""

        def is_cancelled(self) -> bool:
            if "late" not in {sink_name for sink_name, _ in submitted}:
                bench.clock.advance(1)
                submitted.append(("late", bench.submit("late")))
            return super().is_cancelled()

    submitted: list[tuple[str, RecordingSink]] = []
    bench.submit("a", sink=Sink())
    bench.stepper.wait_for("a", "late")
    bench.stepper.advance(late=Tokens([1], STOP))
    (late,) = (sink for _, sink in submitted)
    assert late.reason() is STOP
    times = late.chunks[-1].times
    assert times is not None
    assert times.arrival_s <= times.first_scheduled_s
    assert all(event[1] >= 0 for event in bench.observer.events if event[0] == "scheduled")


def test_the_observer_hears_of_cancels_and_deadlines_but_not_of_failures(bench):
    bench.running("cancelled", prompt=(1, 2))
    bench.running("late", prompt=(1,), deadline_s=1)
    broken = bench.running("broken")
    bench.stepper.advance(cancelled=[1], late=[2, 3])
    bench.loop.stop("cancelled")
    bench.clock.advance(1)
    bench.stepper.advance(broken=[4])
    bench.stepper.break_down()
    broken.failure()
    ends = [event[1:] for event in bench.observer.events if event[0] == "finished"]
    assert ends == [(2, 1, FinishReason.CANCELLED), (1, 2, FinishReason.TIMEOUT)]


def test_stats_count_waiting_and_running_as_they_are_now(make_bench):
    bench = make_bench(max_sequences=2)
    idle = bench.loop.stats()
    assert (idle.active, idle.scheduled, idle.waiting) == (0, 0, 0)
    for name in "abc":
        bench.submit(name)
    bench.stepper.wait_for("a", "b")
    stats = bench.loop.stats()
    assert (stats.active, stats.scheduled, stats.waiting, stats.max_active) == (3, 2, 1, 2)


def test_stats_of_the_engine_are_refreshed_once_a_period_and_when_it_falls_idle(make_bench):
    bench = make_bench(poll_period_s=5)
    bench.running("a")
    bench.stepper.advance(a=[1])
    bench.stepper.advance(a=[2])
    assert bench.loop.stats().kv_blocks_used == 0
    bench.clock.advance(5)
    bench.stepper.advance(a=[3])
    assert (bench.loop.stats().kv_blocks_used, bench.loop.stats().iterations) == (1, 3)
    bench.stepper.advance(a=Tokens([4], STOP))
    assert (bench.loop.stats().kv_blocks_used, bench.loop.stats().iterations) == (0, 4)
