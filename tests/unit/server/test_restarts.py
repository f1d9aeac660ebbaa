from __future__ import annotations

import pytest

from naiad.server.config import RestartPolicy
from naiad.server.restarts import RestartHistory

POLICY = RestartPolicy(max_restarts=5, window_s=100, first_pause_s=1, max_pause_s=3)


def test_the_first_restart_is_immediate_and_pauses_double_to_their_bound() -> None:
    history = RestartHistory(POLICY)
    assert [history.next_pause_s(now_s) for now_s in range(5)] == [0, 1, 2, 3, 3]


def test_one_restart_too_many_within_the_window_is_refused() -> None:
    history = RestartHistory(POLICY)
    for now_s in range(5):
        history.next_pause_s(now_s)
    assert history.next_pause_s(50) is None


def test_restarts_are_forgotten_after_the_window() -> None:
    history = RestartHistory(POLICY)
    for now_s in range(5):
        history.next_pause_s(now_s)
    assert history.next_pause_s(204.5) == 0


@pytest.mark.parametrize("now_s", [100.0, 100.5])
def test_the_window_moves(now_s: float) -> None:
    history = RestartHistory(POLICY)
    for at_s in range(5):
        history.next_pause_s(at_s)
    assert history.next_pause_s(now_s) == (None if now_s == 100 else 3)


def test_no_restart_at_all_may_be_the_policy() -> None:
    assert RestartHistory(RestartPolicy(max_restarts=0)).next_pause_s(0) is None
