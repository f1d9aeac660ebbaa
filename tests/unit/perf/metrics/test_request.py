"""Metrics of single requests against numbers worked out by hand."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naiad_perf.metrics.request import (
    InputTokens,
    InterTokenLatency,
    Latency,
    LatencyFromSent,
    OutputTokens,
    SendDelay,
    TimePerOutputToken,
    TimeToFirstToken,
    TimeToFirstTokenFromSent,
    TokensPerSecondPerUser,
)
from naiad_perf.records import RequestRecord
from tests.harness.recorded_runs import NS_PER_MS, request

LATE = request(100, [(150, 1), (170, 1), (200, 1)], 205, sent_ms=130)


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        (TimeToFirstToken(), 50 * NS_PER_MS),
        (TimeToFirstTokenFromSent(), 20 * NS_PER_MS),
        (Latency(), 105 * NS_PER_MS),
        (LatencyFromSent(), 75 * NS_PER_MS),
        (SendDelay(), 30 * NS_PER_MS),
        (TimePerOutputToken(), 25 * NS_PER_MS),
        (TokensPerSecondPerUser(), 40),
        (InputTokens(), 8),
        (OutputTokens(), 3),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_every_metric_of_one_late_request(metric, expected):
    assert metric.of(LATE) == expected
    assert metric.values(LATE) == (expected,)


def test_inter_token_latencies_are_the_gaps():
    assert InterTokenLatency().values(LATE) == [20 * NS_PER_MS, 30 * NS_PER_MS]


def test_five_tokens_a_chunk_after_a_first_of_eight_share_their_gaps():
    """I11: 8 tokens at 100 ms, then 5 each after 50 and 100 ms more: 150 ms for 10 tokens."""
    record = request(0, [(100, 8), (150, 5), (250, 5)])
    assert TimeToFirstToken().of(record) == 100 * NS_PER_MS
    assert InterTokenLatency().values(record) == [10 * NS_PER_MS] * 5 + [20 * NS_PER_MS] * 5
    assert TimePerOutputToken().of(record) == 15 * NS_PER_MS
    assert TokensPerSecondPerUser().of(record) == pytest.approx(1000 / 15)
    assert OutputTokens().of(record) == 18


@pytest.mark.parametrize("tokens", [1, 8])
def test_an_answer_in_one_response_has_no_time_between_tokens(tokens):
    """I11: whether it is one token or eight at once, nothing was decoded after the first response."""
    record = request(0, [(100, tokens)], 101)
    assert InterTokenLatency().values(record) == []
    assert TimePerOutputToken().of(record) is None
    assert TimePerOutputToken().values(record) == ()
    assert TokensPerSecondPerUser().of(record) is None
    assert TimeToFirstToken().of(record) == 100 * NS_PER_MS
    assert Latency().of(record) == 101 * NS_PER_MS


def test_an_answer_without_tokens_has_a_latency_only():
    record = request(0, [], 40)
    assert Latency().of(record) == 40 * NS_PER_MS
    assert OutputTokens().of(record) == 0
    for metric in (TimeToFirstToken(), TimeToFirstTokenFromSent(), TimePerOutputToken()):
        assert metric.of(record) is None
    assert InterTokenLatency().values(record) == []


def test_a_final_message_that_never_came_leaves_latency_undefined():
    record = RequestRecord(0, 0, 0, (5,), (1,), None)
    assert Latency().of(record) is None
    assert LatencyFromSent().of(record) is None
    assert TimeToFirstToken().of(record) == 5


def test_a_prompt_that_nobody_counted_has_no_length():
    assert InputTokens().of(request(0, [(1, 1)], input_tokens=None)) is None


def test_two_responses_at_one_instant_leave_the_speed_a_user_sees_undefined():
    record = request(0, [(10, 1), (10, 1)])
    assert TimePerOutputToken().of(record) == 0
    assert TokensPerSecondPerUser().of(record) is None


answers = st.builds(
    lambda late, gaps: _answer(late, gaps),
    late=st.integers(0, 10**10),
    gaps=st.lists(st.tuples(st.integers(0, 10**10), st.integers(1, 40)), min_size=1, max_size=30),
)


def _answer(late_ns: int, gaps: list[tuple[int, int]]) -> RequestRecord:
    times, now_ns = [], late_ns
    for gap_ns, _ in gaps:
        now_ns += gap_ns
        times.append(now_ns)
    return RequestRecord(0, 0, late_ns, tuple(times), tuple(tokens for _, tokens in gaps), now_ns)


@settings(deadline=None)
@given(answers)
def test_inter_token_latencies_add_up_to_the_decode_time_however_tokens_are_grouped(record):
    values = InterTokenLatency().values(record)
    assert len(values) == record.output_tokens - record.response_tokens[0]
    assert sum(values) == pytest.approx(record.response_ns[-1] - record.response_ns[0])
    if values:
        assert sum(values) / len(values) == pytest.approx(TimePerOutputToken().of(record))
    assert all(value >= 0 for value in values)


@settings(deadline=None)
@given(answers)
def test_what_a_late_client_waited_is_the_whole_difference_between_both_countings(record):
    (delay_ns,) = SendDelay().values(record)
    for from_due, from_sent in (
        (TimeToFirstToken(), TimeToFirstTokenFromSent()),
        (Latency(), LatencyFromSent()),
    ):
        assert from_due.values(record)[0] - from_sent.values(record)[0] == delay_ns


@settings(deadline=None)
@given(answers)
def test_a_response_of_n_tokens_counts_as_n_even_steps(record):
    """Splitting every response after the first into single tokens, evenly in time, changes no figure."""
    times, counts = [record.response_ns[0] * 1.0], [record.response_tokens[0]]
    for (before, now), tokens in zip(pairwise(record.response_ns), record.response_tokens[1:], strict=True):
        times += [before + (now - before) * step / tokens for step in range(1, tokens + 1)]
        counts += [1] * tokens
    apart = [later - earlier for earlier, later in pairwise(times)]
    assert InterTokenLatency().values(record) == pytest.approx(apart, rel=1e-6, abs=1e-3)
    assert len(counts) - 1 == len(apart)
