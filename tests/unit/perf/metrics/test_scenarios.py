"""Whole runs with a known timeline; every number here is worked out by hand, in milliseconds."""

from __future__ import annotations

from typing import Any

import pytest

from naiad_perf.metrics import Slos, figures_of
from naiad_perf.records import RequestRecord, Run
from tests.harness.recorded_runs import failed, hung_up, request, run_of

ALL_OF = ("mean", "p50", "p90", "p95", "p99", "max")


def computed(run: Run, slos: Slos) -> dict[str, Any]:
    return dict(figures_of(run, slos))


def stalled(*, one_at_a_time: bool) -> list[RequestRecord]:
    """Thirty requests due every 100 ms. Each takes 30 ms, but from 1000 to 2000 ms the server stands still.

    A client that has one request at a time sends the 15 requests due from 1000 to 2400 ms late, request k of
    them at `2000 + 30 k`, and catches up with that due at 2500 ms.
    """
    records, free_ms = [], 0.0
    for number in range(30):
        due = 100 * number
        sent = max(due, free_ms) if one_at_a_time else due
        starts = 2000 if 1000 <= sent < 2000 else sent
        free_ms = starts + 30
        records.append(request(due, [(starts + 10, 1), (starts + 20, 1), (starts + 30, 1)], sent_ms=sent))
    return records


def test_a_stall_is_seen_in_full_from_when_requests_were_due_and_hidden_from_when_they_were_sent():
    """I09."""
    found = computed(run_of(*stalled(one_at_a_time=True)), Slos())

    # From sent, one request of thirty took 1030 ms and 29 took 30.
    assert found["latency_from_sent_ms_max"] == 1030
    assert found["latency_from_sent_ms_mean"] == pytest.approx((29 * 30 + 1030) / 30)
    assert found["latency_from_sent_ms_p50"] == 30
    assert found["latency_from_sent_ms_p95"] == 30
    assert found["latency_from_sent_ms_p99"] == pytest.approx(740)  # rank 28.71 of 0..29

    # From due, request k of the late fifteen took 1030 - 70 k: 1030, 960, ..., 50.
    assert found["latency_ms_max"] == 1030
    assert found["latency_ms_mean"] == pytest.approx((15 * 30 + 8100) / 30)
    assert found["latency_ms_p50"] == pytest.approx(40)  # between 30 and 50
    assert found["latency_ms_p90"] == pytest.approx(827)  # rank 26.1: 820 + 7
    assert found["latency_ms_p95"] == pytest.approx(928.5)  # rank 27.55: 890 + 38.5
    assert found["latency_ms_p99"] == pytest.approx(1009.7)  # rank 28.71: 960 + 49.7

    # The first token comes 20 ms before the end in all of them.
    for statistic in ALL_OF:
        assert found[f"ttft_ms_{statistic}"] == pytest.approx(found[f"latency_ms_{statistic}"] - 20)
        from_sent = found[f"latency_from_sent_ms_{statistic}"]
        assert found[f"ttft_from_sent_ms_{statistic}"] == pytest.approx(from_sent - 20)
    assert found["send_delay_ms_max"] == 930  # the second of the late ones: due 1100, sent 2030
    assert found["itl_ms_mean"] == found["itl_ms_max"] == 10  # once a stream runs, it runs


def test_a_client_that_sends_on_time_sees_the_stall_either_way():
    """I09: requests due in the stall all start at 2000 ms, and nothing is hidden."""
    found = computed(run_of(*stalled(one_at_a_time=False)), Slos())
    for statistic in ALL_OF:
        assert found[f"latency_ms_{statistic}"] == found[f"latency_from_sent_ms_{statistic}"]
    assert found["latency_ms_max"] == 1030
    assert found["latency_ms_mean"] == pytest.approx((20 * 30 + sum(range(130, 1031, 100))) / 30)
    assert found["send_delay_ms_max"] == 0


def test_errors_are_a_rate_and_in_no_latency():
    """I10: seven answers of 4 tokens within 100 ms each, one after the other, and three quick failures."""
    good = [request(100 * n, [(100 * n + 40, 1), (100 * n + 100, 3)]) for n in range(7)]
    bad = [failed(700, 701), failed(800, 801, [(801, 1)]), failed(900, 1000)]
    found = computed(run_of(*good, *bad), Slos(ttft_ms=40, latency_ms=100))

    assert found["requests"] == 10
    assert found["errors"] == 3
    assert found["error_rate"] == pytest.approx(30)  # percent
    assert found["cancels"] == 0
    assert found["cancel_rate"] == 0
    for statistic in ALL_OF:
        assert found[f"ttft_ms_{statistic}"] == 40
        assert found[f"latency_ms_{statistic}"] == 100
        assert found[f"itl_ms_{statistic}"] == 20
        assert found[f"output_tokens_{statistic}"] == 4
    # Failures belong to the window, which is 0 to 1000 ms, but add neither tokens nor requests.
    assert found["duration_s"] == 1
    assert found["tokens_per_s"] == 28
    assert found["requests_per_s"] == 7
    assert found["responses_per_s"] == 14
    assert found["tokens_per_response"] == 2
    # Seven of ten kept the SLOs: each limit is met by exactly its value.
    assert found["goodput_per_s"] == 7
    assert found["goodput_share"] == pytest.approx(70)


def test_chunks_of_five_after_a_first_of_eight():
    """I11, over a run: the answer of one response gives a TTFT and a latency, but no ITL and no TPOT."""
    chunked = request(0, [(100, 8), (150, 5), (250, 5)])
    single = request(0, [(400, 1)])
    found = computed(run_of(chunked, single), Slos())
    assert found["itl_ms_mean"] == 15
    assert found["itl_ms_p50"] == 15  # five of 10 and five of 20
    assert found["itl_ms_max"] == 20
    for statistic in ALL_OF:
        assert found[f"tpot_ms_{statistic}"] == 15
        assert found[f"tokens_per_s_per_user_{statistic}"] == pytest.approx(1000 / 15)
    assert found["ttft_ms_mean"] == 250
    assert found["ttft_ms_max"] == 400
    assert found["tokens_per_s"] == pytest.approx(19 / 0.4)
    assert found["tokens_per_response"] == 4.75


def test_one_token_answers_only_leave_everything_between_tokens_undefined():
    """I11."""
    found = computed(run_of(*(request(10 * n, [(10 * n + 5, 1)]) for n in range(4))), Slos(tpot_ms=1))
    for statistic in ALL_OF:
        for name in ("itl_ms", "tpot_ms", "tokens_per_s_per_user"):
            assert found[f"{name}_{statistic}"] is None
    assert found["goodput_share"] == 100  # no decode that could have been slow


def test_warm_up_and_cancelled_requests_are_in_no_latency_and_the_window_has_exact_edges():
    """I13: warm-up overlaps the first measured request, and the last measured one is cancelled."""
    records = [
        request(0, [(900, 1), (990, 9)], warm_up=True),
        request(10, [(1090, 1), (1190, 99)], 1200, warm_up=True),  # still running when measuring begins
        request(1000, [(1100, 1), (1300, 4)], 1310, sent_ms=1001),
        request(1100, [(1300, 2), (1500, 1)]),
        hung_up(1400, 3000, [(1500, 1), (2000, 50)]),
        request(1450, [(1550, 1)], 2050),
    ]
    found = computed(run_of(*records), Slos(ttft_ms=150))

    assert found["requests"] == 4
    assert found["cancels"] == 1
    assert found["cancel_rate"] == pytest.approx(25)
    assert found["errors"] == 0
    # From 1000, when the first measured one was due (not sent), to 3000, when the cancelled one ended.
    assert found["duration_s"] == 2
    assert found["tokens_per_s"] == (5 + 3 + 1) / 2
    assert found["requests_per_s"] == 1.5
    assert found["responses_per_s"] == 2.5
    assert found["tokens_per_response"] == pytest.approx(9 / 5)
    assert found["ttft_ms_mean"] == pytest.approx((100 + 200 + 100) / 3)
    assert found["ttft_ms_max"] == 200
    assert found["latency_ms_mean"] == pytest.approx((310 + 400 + 600) / 3)
    assert found["latency_ms_p50"] == 400
    assert found["latency_from_sent_ms_mean"] == pytest.approx((309 + 400 + 600) / 3)
    # Gaps: 200 ms for 4 tokens, 200 ms for 1; one response gives none.
    assert found["itl_ms_mean"] == (4 * 50 + 200) / 5
    assert found["tpot_ms_mean"] == (50 + 200) / 2
    assert found["output_tokens_max"] == 5
    # Two of the four measured kept 150 ms; one of the others was late, one was cancelled.
    assert found["goodput_share"] == 50
    assert found["goodput_per_s"] == 1
    # 9 tokens in 2 s at 3.60 USD an hour: 3.60 / (4.5 * 3600) a token.
    assert found["usd_per_million_tokens"] == pytest.approx(3.6 / (4.5 * 3600) * 1e6)
