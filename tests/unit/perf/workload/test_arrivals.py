"""Due times of open loops."""

from __future__ import annotations

import statistics
from itertools import pairwise

import pytest

from naiad_perf.workload.arrivals import poisson_arrivals, replayed_arrivals


def gaps(due_ns: tuple[int, ...]) -> list[int]:
    return [later - earlier for earlier, later in pairwise(due_ns)]


def test_a_poisson_process_has_its_rate_and_its_spread():
    due = poisson_arrivals(20_001, rate=4.0, seed=3)
    assert due[0] == 0
    seconds = [gap / 1e9 for gap in gaps(due)]
    assert statistics.fmean(seconds) == pytest.approx(0.25, rel=0.03)
    assert statistics.stdev(seconds) == pytest.approx(0.25, rel=0.03)  # exponential: equal to the mean
    assert sum(gap > 0.25 for gap in seconds) / len(seconds) == pytest.approx(0.368, abs=0.015)  # 1 / e


def test_times_never_fall_and_are_whole():
    due = poisson_arrivals(1000, rate=1e6, seed=0)
    assert all(gap >= 0 for gap in gaps(due))
    assert all(isinstance(time, int) for time in due)


def test_the_same_seed_gives_the_same_times_and_another_one_others():
    assert poisson_arrivals(50, 2.0, 1) == poisson_arrivals(50, 2.0, 1)
    assert poisson_arrivals(50, 2.0, 1) != poisson_arrivals(50, 2.0, 2)


def test_every_rate_meets_the_same_bursts():
    slow, fast = poisson_arrivals(50, 1.0, 1), poisson_arrivals(50, 8.0, 1)
    assert [time / 8 for time in slow] == pytest.approx(fast, abs=1)


def test_more_requests_only_add_to_the_end():
    assert poisson_arrivals(60, 2.0, 1)[:50] == poisson_arrivals(50, 2.0, 1)


def test_a_replay_starts_at_once_and_stretches_every_gap():
    assert replayed_arrivals([5_000, 5_000, 7_000, 10_001], 2.5) == (0, 0, 5_000, 12_502)


def test_nothing_is_no_arrivals():
    assert poisson_arrivals(0, 1.0, 0) == ()
    assert replayed_arrivals([], 2.0) == ()
