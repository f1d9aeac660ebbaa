"""Timelines against numbers worked out by hand."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naiad_perf.records import Outcome, RequestRecord
from naiad_perf.report.timeline import MOST_SHOWN, Timeline, timeline_of
from naiad_perf.report.timeline_chart import timeline_spec
from tests.harness.recorded_runs import failed, hung_up, request, run_of

STRETCHES = 120


def rates(timeline: Timeline, column: str) -> list[float]:
    at = timeline.rates.columns.index(column)
    return [row[at] for row in timeline.rates.rows]  # type: ignore[misc]


def test_a_request_is_told_by_its_four_moments_in_seconds_since_the_first_was_due():
    run = run_of(
        request(1000, [(1100, 1), (1400, 4)], 1500, sent_ms=1010),
        failed(1200, 1300),
        hung_up(1250, 1400, [(1350, 2)]),
        request(1260, [], 1270, warm_up=True),
    )
    shown: list[dict[str, Any]] = [*timeline_of(run).requests.as_objects()]
    moments = [[each[name] for name in ("due", "sent", "first", "end", "tokens")] for each in shown]
    assert moments == [
        [0, 0.01, 0.1, 0.5, 5],
        [0.2, 0.2, 0.3, 0.3, 0],  # no token came: it waited for the first until its end
        [0.25, 0.25, 0.35, 0.4, 2],
        [0.26, 0.26, 0.27, 0.27, 0],
    ]
    assert [each["outcome"] for each in shown] == ["ok", "error: QUEUE_FULL", "cancelled", "ok"]
    assert [each["warm_up"] for each in shown] == [False, False, False, True]
    assert [each["row"] for each in shown] == [0, 1, 2, 3]


def test_rows_follow_when_requests_were_due():
    run = run_of(request(200, [(300, 1)]), request(0, [(400, 1)]), request(100, [(150, 1)]))
    assert [each["request"] for each in timeline_of(run).requests.as_objects()] == [1, 2, 0]


def test_tokens_of_the_first_response_come_at_once_and_later_ones_spread_over_their_gap():
    """1.2 s in stretches of 10 ms: 3 tokens at 0.105 s, then 60 over the 600 ms to 0.705 s."""
    run = run_of(request(0, [(105, 3), (705, 60)], 1200))
    found = rates(timeline_of(run), "tokens_per_s")
    assert len(found) == STRETCHES
    assert found[:10] == [0] * 10
    assert found[10] == pytest.approx(300 + 50)  # 3 tokens, and half a stretch of 100 tokens/s
    assert found[11:70] == pytest.approx([100] * 59)
    assert found[70] == pytest.approx(50)
    assert found[71:] == [0] * 49


def test_requests_in_flight_are_those_sent_and_not_ended():
    """1.2 s in stretches of 10 ms: one request throughout, one due at 0.1 s but sent from 0.3 to 0.605 s."""
    run = run_of(request(0, [(100, 1)], 1200), request(100, [(400, 1)], 605, sent_ms=300))
    found = rates(timeline_of(run), "in_flight")
    assert found[:30] == pytest.approx([1] * 30)
    assert found[30:60] == pytest.approx([2] * 30)
    assert found[60] == pytest.approx(1.5)
    assert found[61:] == pytest.approx([1] * 59)


gaps = st.lists(st.tuples(st.integers(0, 10**9), st.integers(1, 20)), min_size=1)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10**9), gaps), min_size=1, max_size=8))
def test_no_token_is_lost_or_made_up(drawn):
    records = []
    for due, steps in drawn:
        times, now = [], due
        for gap, _ in steps:
            now += gap
            times.append(now)
        records.append(RequestRecord(0, due, due, tuple(times), tuple(tokens for _, tokens in steps), now))
    timeline = timeline_of(run_of(*records))
    if not timeline.rates.rows:
        return
    begin, end = rates(timeline, "from"), rates(timeline, "to")
    tokens = sum(
        rate * (to - start)
        for rate, start, to in zip(rates(timeline, "tokens_per_s"), begin, end, strict=True)
    )
    span_s = (max(record.response_ns[-1] for record in records) - min(r.intended_ns for r in records)) / 1e9
    if span_s > 0.1:  # times are rounded to 10 microseconds
        assert tokens == pytest.approx(sum(record.output_tokens for record in records), rel=0.02)


def test_of_many_requests_evenly_spread_ones_are_shown_and_every_failure():
    many = [request(n, [(n + 50, 1)]) for n in range(1000)]
    bad = [failed(n + 0.5, n + 1) for n in range(0, 1000, 200)]
    timeline = timeline_of(run_of(*many, *bad))
    shown: list[dict[str, Any]] = [*timeline.requests.as_objects()]
    assert timeline.total == 1005
    assert len(shown) == MOST_SHOWN + 5
    assert sum(str(each["outcome"]).startswith("error") for each in shown) == 5
    good = [each["request"] for each in shown if each["outcome"] == "ok"]
    assert good[0] == 0
    assert good[-1] == 999
    assert {later - earlier for earlier, later in pairwise(good)} == {4, 5}


def test_a_run_without_requests_or_at_one_instant_is_empty_not_wrong():
    assert timeline_of(run_of()).requests.rows == []
    instant = timeline_of(run_of(request(5, [(5, 1)])))
    assert len(instant.requests.rows) == 1
    assert instant.rates.rows == []


def test_a_request_that_never_ended_goes_to_what_was_last_heard():
    record = RequestRecord(0, 0, 0, (10**9,), (1,), None, Outcome.ERROR, "timeout")
    (shown,) = timeline_of(run_of(record)).requests.as_objects()
    assert shown["end"] == 1


def test_the_chart_takes_its_data_by_name_so_that_a_page_can_change_it():
    timeline = timeline_of(run_of(request(0, [(100, 1)])))
    spec = timeline_spec(timeline)
    assert spec["datasets"]["requests"] == timeline.requests.as_objects()
    assert len(spec["datasets"]["rates"]) == STRETCHES
    assert len(spec["vconcat"]) == 3
