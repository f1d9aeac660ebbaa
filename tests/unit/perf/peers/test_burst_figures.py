"""Bursts in two numbers, worked out by hand."""

from __future__ import annotations

import pytest

from naiad_perf.peers.burst_figures import decode_rate, tokens_per_s
from tests.harness.recorded_runs import request

BURST = (
    request(0, [(100, 1), (200, 2), (300, 1)], sent_ms=20),
    request(50, [(150, 1), (550, 3)]),
    request(0, [(400, 4)]),
)


def test_tokens_per_second_are_from_the_first_intended_to_the_last_end() -> None:
    assert tokens_per_s(BURST) == pytest.approx(12 / 0.55)


def test_longer_answers_are_first_token_and_more_of_the_same_steps() -> None:
    batch = [request(0, [(200, 1), (230, 1), (260, 1)])] * 4
    assert decode_rate(batch, 3) == pytest.approx(4 * 3 / 0.26)
    assert decode_rate(batch, 11) == pytest.approx(4 * 11 / (0.2 + 10 * 0.03))
