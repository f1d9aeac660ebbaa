"""When a load called for a request, worked out from when it was sent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from naiad_perf.drivers.intended import freed_places, scheduled


class TestClosedLoop:
    def test_a_place_becomes_free_when_its_last_request_ended(self) -> None:
        assert freed_places([0, 12, 30], [10, 28, 40], places=1) == [0, 10, 28]

    def test_a_late_client_is_late_by_the_whole_wait(self) -> None:
        """The place was free at 10; the client slept until 1010."""
        intended = freed_places([0, 1010], [10, 1020], places=1)
        assert [sent - since for sent, since in zip([0, 1010], intended, strict=True)] == [0, 1000]

    def test_the_place_that_was_free_first_is_taken_first(self) -> None:
        sent, ended = [0, 0, 21, 22], [20, 15, 50, 60]
        assert freed_places(sent, ended, places=2) == [0, 0, 15, 20]

    def test_the_first_ones_wait_for_nobody(self) -> None:
        assert freed_places([5, 7, 9], [20, 20, 20], places=3) == [5, 7, 9]

    def test_a_place_freed_at_no_known_time_is_taken_without_a_wait(self) -> None:
        assert freed_places([0, 40, 60], [None, 55, 70], places=1) == [0, 40, 55]

    def test_known_places_are_taken_before_unknown_ones(self) -> None:
        assert freed_places([0, 0, 30, 31], [None, 25, 50, 60], places=2) == [0, 0, 25, 31]

    def test_more_at_once_than_places_is_another_load(self) -> None:
        with pytest.raises(ValueError, match="request 2 was sent while 2 others were under way"):
            freed_places([0, 0, 9], [10, 12, 20], places=2)

    @given(
        st.integers(1, 4),
        st.lists(st.tuples(st.integers(0, 5), st.integers(1, 50)), min_size=1, max_size=30),
    )
    def test_it_recovers_the_waits_of_a_simulated_client(
        self, places: int, steps: list[tuple[int, int]]
    ) -> None:
        """Each step: how late the client takes the earliest free place, and how long the answer takes."""
        free = [0] * places
        sent: list[int] = []
        ended: list[int] = []
        since: list[int] = []
        for position, (late, took) in enumerate(steps):
            place = min(range(places), key=lambda one: free[one])
            since.append(free[place])
            sent.append(free[place] if position < places else free[place] + late)
            ended.append(sent[-1] + took)
            free[place] = ended[-1]
        order = sorted(range(len(steps)), key=lambda index: sent[index])
        recovered = freed_places([sent[one] for one in order], [ended[one] for one in order], places)
        assert sorted(recovered) == sorted(since)
        assert all(free_at <= sent[index] for free_at, index in zip(recovered, order, strict=True))


class TestOpenLoop:
    def test_the_most_punctual_request_tells_the_start(self) -> None:
        assert scheduled([1003, 1010, 1052], [0, 10, 50]) == [1000, 1010, 1050]

    def test_a_stalled_client_is_late_and_its_schedule_is_not(self) -> None:
        sent, due = [100, 1110, 1111, 1130], [0, 10, 20, 1030]
        intended = scheduled(sent, due)
        assert intended == [100, 110, 120, 1130]
        assert [late - on_time for late, on_time in zip(sent, intended, strict=True)] == [0, 1000, 991, 0]

    def test_nothing_sent(self) -> None:
        assert scheduled([], []) == []

    @given(st.integers(0, 10**9), st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100)), min_size=1))
    def test_no_request_is_intended_after_it_was_sent(self, start: int, steps: list[tuple[int, int]]) -> None:
        due: list[int] = []
        for gap, _ in steps:
            due.append((due[-1] if due else 0) + gap)
        sent = [start + at + late for at, (_, late) in zip(due, steps, strict=True)]
        intended = scheduled(sent, due)
        assert all(on_time <= late for on_time, late in zip(intended, sent, strict=True))
        assert intended[0] - due[0] - start == min(late for _, late in steps)
