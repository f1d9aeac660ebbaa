"""The recorder between serving threads and the metric thread."""

from __future__ import annotations

import random
import statistics
import threading
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from naiad.contract.generation import FinishReason
from naiad.telemetry import Recorder
from naiad.telemetry.families import FAILURES, INPUT_TOKENS, ITL, OUTPUT_TOKENS, QUEUE, TTFT
from naiad.telemetry.recorder import MAX_INTERVALS


def test_observations_come_out_under_their_familys_name():
    recorder = Recorder()
    recorder.scheduled(0.5)
    recorder.first_token(0.75)
    recorder.next_tokens(0.25, 1)
    recorder.finished(10, 3, FinishReason.STOP)
    observations, failures = recorder.drain()
    assert observations == {
        QUEUE.name: [0.5],
        TTFT.name: [0.75],
        ITL.name: [0.25],
        INPUT_TOKENS.name: [10],
        OUTPUT_TOKENS.name: [3],
    }
    assert failures == {}


def test_what_was_drained_is_forgotten():
    recorder = Recorder()
    recorder.first_token(0.1)
    recorder.failed("QUEUE_FULL")
    recorder.drain()
    assert recorder.drain() == ({}, {})


def test_tokens_that_came_together_share_their_interval():
    recorder = Recorder()
    recorder.next_tokens(0.5, 4)
    recorder.next_tokens(0.25, 1)
    observations, _ = recorder.drain()
    assert observations[ITL.name] == [0.125] * 4 + [0.25]


def intervals_after(values: list[float]) -> list[float]:
    recorder = Recorder()
    for value in values:
        recorder.next_tokens(value, 1)
    return recorder.drain()[0][ITL.name]


@pytest.mark.parametrize("count", [1, MAX_INTERVALS - 1, MAX_INTERVALS])
def test_few_intervals_are_kept_exactly(count):
    values = [float(index) for index in range(count)]
    assert sorted(intervals_after(values)) == values


@pytest.mark.parametrize("count", [MAX_INTERVALS + 1, 2 * MAX_INTERVALS, 10_007])
def test_many_intervals_are_thinned_to_the_bound(count):
    assert len(intervals_after([0.01] * count)) == MAX_INTERVALS


def test_thinning_keeps_the_distribution():
    values = [((index * 7919) % 10_000) / 10_000 for index in range(10_000)]
    thinned = intervals_after(values)
    assert set(thinned) <= set(values)
    for kept, all_values in zip(
        statistics.quantiles(thinned, n=20), statistics.quantiles(values, n=20), strict=True
    ):
        assert kept == pytest.approx(all_values, abs=1 / MAX_INTERVALS)


@pytest.mark.parametrize("period", [2, 3, 4, 8])
def test_thinning_keeps_the_distribution_of_what_comes_in_turns(period):
    """Every n-th step is slow where prompts are prefilled in between."""
    values = [1.0 if index % period == 0 else 0.125 for index in range(period * MAX_INTERVALS)]
    slow = Counter(intervals_after(values))[1.0]
    assert slow == pytest.approx(MAX_INTERVALS / period, abs=1)


@pytest.mark.parametrize("count", [MAX_INTERVALS + 1, 300, 777, 5000])
def test_thinning_invents_nothing_and_moves_no_quantile_by_more_than_a_rank(count):
    dice = random.Random(count)
    values = [dice.expovariate(50) for _ in range(count)]
    thinned = sorted(intervals_after(values))
    assert len(thinned) == MAX_INTERVALS
    assert not Counter(thinned) - Counter(values)
    ordered, stride = sorted(values), len(values) / MAX_INTERVALS
    for rank, value in enumerate(thinned):
        assert ordered[int(rank * stride)] <= value <= ordered[min(int((rank + 1) * stride), len(values) - 1)]


def test_nothing_but_intervals_is_thinned():
    recorder = Recorder()
    for index in range(3 * MAX_INTERVALS):
        recorder.first_token(float(index))
    assert len(recorder.drain()[0][TTFT.name]) == 3 * MAX_INTERVALS


def test_failures_are_counted_by_code():
    recorder = Recorder()
    for code in ("QUEUE_FULL", "CANCELLED", "QUEUE_FULL"):
        recorder.failed(code)
    assert recorder.drain()[1] == {"QUEUE_FULL": 2, "CANCELLED": 1}


@given(st.lists(st.one_of(st.text(), st.sampled_from(FAILURES.values))))
def test_a_code_outside_the_closed_set_counts_as_internal(codes):
    recorder = Recorder()
    for code in codes:
        recorder.failed(code)
    failures = recorder.drain()[1]
    assert failures.keys() <= set(FAILURES.values)
    assert sum(failures.values()) == len(codes)
    assert failures.get("INTERNAL", 0) == sum(
        code == "INTERNAL" or code not in FAILURES.values for code in codes
    )


def test_nothing_is_lost_between_threads():
    recorder, threads, each = Recorder(), 8, 2000
    seen: Counter[str] = Counter()

    def observe() -> None:
        for _ in range(each):
            recorder.first_token(0.1)
            recorder.failed("QUEUE_FULL")

    workers = [threading.Thread(target=observe) for _ in range(threads)]
    for worker in workers:
        worker.start()
    while True:
        still_running = any(worker.is_alive() for worker in workers)
        observations, failures = recorder.drain()
        seen["observations"] += len(observations.get(TTFT.name, []))
        seen["failures"] += failures.get("QUEUE_FULL", 0)
        if not still_running:
            break
    assert seen == {"observations": threads * each, "failures": threads * each}
