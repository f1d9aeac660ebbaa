"""Metrics of whole runs, at their edges: what is undefined stays undefined, and what is zero is zero."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naiad_perf.metrics import FIGURES, Slos, figures_of
from naiad_perf.records import Outcome, RequestRecord, ServerFigures
from tests.harness.recorded_runs import FACTS, failed, hung_up, request, run_of

ANSWER = request(0, [(100, 2), (200, 8)])
NO_SLOS = Slos()


def figure(name: str, *records, slos: Slos = NO_SLOS, facts=FACTS, server=None) -> float | None:
    return figures_of(run_of(*records, facts=facts, server=server), slos)[name]


def test_without_measured_requests_only_counts_are_defined():
    found = figures_of(run_of(request(0, [(1, 1)], warm_up=True)), Slos(ttft_ms=1))
    defined = {name for name, value in found.items() if value is not None}
    assert defined == {"requests", "errors", "cancels", "client_cpu_share"}
    assert found["requests"] == 0


def test_a_run_in_which_all_failed_has_a_speed_of_zero_and_no_price():
    found = figures_of(run_of(failed(0, 500), failed(0, 1000)), Slos(latency_ms=2000))
    assert found["tokens_per_s"] == 0
    assert found["requests_per_s"] == 0
    assert found["error_rate"] == 100
    assert found["goodput_share"] == 0
    assert found["usd_per_million_tokens"] is None
    assert found["tokens_per_response"] is None
    assert found["latency_ms_mean"] is None


def test_everything_at_one_instant_has_no_rate():
    assert figure("tokens_per_s", request(5, [(5, 1)])) is None
    assert figure("duration_s", request(5, [(5, 1)])) is None


def test_the_window_ends_with_what_was_last_heard_of_a_request_without_end():
    silent = RequestRecord(0, 0, 0, (300_000_000,), (1,), None, Outcome.ERROR, "timeout")
    mute = RequestRecord(0, 0, 400_000_000, (), (), None, Outcome.ERROR, "timeout")
    assert figure("duration_s", ANSWER, silent) == 0.3
    assert figure("duration_s", ANSWER, silent, mute) == 0.4


def test_without_slos_there_is_no_goodput():
    assert figure("goodput_share", ANSWER) is None
    assert figure("goodput_per_s", ANSWER) is None


@pytest.mark.parametrize(
    ("slos", "kept"),
    [
        (Slos(ttft_ms=100), True),
        (Slos(ttft_ms=99.999), False),
        (Slos(tpot_ms=12.5), True),
        (Slos(tpot_ms=12.4), False),
        (Slos(latency_ms=200), True),
        (Slos(latency_ms=199), False),
        (Slos(ttft_ms=100, tpot_ms=13, latency_ms=200), True),
        (Slos(ttft_ms=100, tpot_ms=13, latency_ms=199), False),
    ],
)
def test_a_good_request_keeps_every_stated_limit(slos, kept):
    assert figure("goodput_share", ANSWER, slos=slos) == (100 if kept else 0)


def test_an_answer_without_tokens_keeps_no_limit_on_its_first_token():
    assert figure("goodput_share", request(0, [], 10), slos=Slos(ttft_ms=1000)) == 0
    assert figure("goodput_share", request(0, [], 10), slos=Slos(latency_ms=1000)) == 100


def test_cancelled_requests_are_measured_but_never_good():
    assert figure("goodput_share", ANSWER, hung_up(0, 150, [(50, 1)]), slos=Slos(ttft_ms=100)) == 50


def test_the_client_s_share_is_of_all_processors():
    assert figure("client_cpu_share", ANSWER) == 25  # 5 s of 10 s on 2 processors
    assert figure("client_cpu_share", ANSWER, facts=replace(FACTS, client_cpu_s=None)) is None
    assert figure("client_cpu_share", ANSWER, facts=replace(FACTS, wall_s=0.0)) is None


def test_what_the_server_counted_is_shared_among_its_requests():
    server = ServerFigures(
        requests=4,
        queue_ns=6_000_000,
        compute_ns=400_000_000,
        engine_queue_ns=8_000_000,
        engine_ns=1_200_000_000,
        kv_tokens_peak=512,
        kv_tokens_max=2048,
        cpu_s=15,
        memory_bytes=3 * 2**20,
    )
    found = figures_of(run_of(ANSWER, server=server), Slos())
    assert found["server_queue_ms"] == 1.5
    assert found["server_compute_ms"] == 100
    assert found["kv_share"] == 25
    assert found["engine_queue_ms"] == 2
    assert found["engine_ms"] == 300
    assert found["server_cores"] == 1.5
    assert found["server_memory_mib"] == 3


@pytest.mark.parametrize(
    "server",
    [
        ServerFigures(),
        ServerFigures(requests=0, queue_ns=0, compute_ns=0, kv_tokens_peak=0, kv_tokens_max=0),
        ServerFigures(queue_ns=5, compute_ns=5, kv_tokens_peak=5),
    ],
)
def test_what_the_server_does_not_say_is_undefined(server):
    found = figures_of(run_of(ANSWER, server=server), Slos())
    undefined = {name for name in found if name.startswith(("server_", "engine_", "kv_"))}
    assert len(undefined) == 7
    assert all(found[name] is None for name in undefined)


def test_an_idle_queue_and_an_unused_cache_are_zero():
    server = ServerFigures(requests=4, queue_ns=0, kv_tokens_peak=0, kv_tokens_max=8)
    assert figure("server_queue_ms", ANSWER, server=server) == 0
    assert figure("kv_share", ANSWER, server=server) == 0


def test_a_million_tokens_cost_the_hours_they_take():
    # 10 tokens in 0.2 s are 50 a second: a million takes 20,000 s, 5.55 hours of 3.60 USD.
    assert figure("usd_per_million_tokens", ANSWER) == pytest.approx(20)
    assert figure("usd_per_million_tokens", ANSWER, facts=replace(FACTS, hourly_price_usd=None)) is None
    assert figure("usd_per_million_tokens", ANSWER, facts=replace(FACTS, hourly_price_usd=0.0)) == 0


outcomes = st.lists(
    st.tuples(st.sampled_from([*Outcome]), st.booleans(), st.integers(0, 5000), st.integers(1, 500)),
    max_size=25,
)


@settings(deadline=None)
@given(outcomes)
def test_shares_add_up_and_no_warm_up_counts(drawn):
    records = [
        request(due, [(due + took, 2)], outcome=outcome, warm_up=warm_up)
        for outcome, warm_up, due, took in drawn
    ]
    found: dict[str, Any] = dict(figures_of(run_of(*records), Slos(latency_ms=250)))
    measured = [entry for entry in drawn if not entry[1]]
    assert found["requests"] == len(measured)
    if not measured:
        return
    answered = sum(entry[0] is Outcome.OK for entry in measured) / len(measured)
    assert found["error_rate"] + found["cancel_rate"] + 100 * answered == pytest.approx(100)
    assert found["goodput_share"] <= 100 * answered + 1e-9
    assert found["goodput_per_s"] <= found["requests_per_s"] + 1e-9
    assert found["tokens_per_s"] == pytest.approx(2 * found["requests_per_s"])


@settings(deadline=None)
@given(outcomes, st.integers(0, 10**6))
def test_the_clock_s_zero_does_not_matter(drawn, shift):
    def moved(by: int):
        return run_of(
            *(
                request(due + by, [(due + by + took, 2)], outcome=outcome, warm_up=warm_up)
                for outcome, warm_up, due, took in drawn
            )
        )

    assert figures_of(moved(0), Slos(ttft_ms=100)) == figures_of(moved(shift), Slos(ttft_ms=100))


def test_all_figures_are_computed_in_the_order_of_their_table():
    assert list(figures_of(run_of(ANSWER), Slos())) == list(FIGURES)
