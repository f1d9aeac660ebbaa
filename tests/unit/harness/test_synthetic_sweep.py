"""The made-up server of sweeps keeps to its own rules, or what is shown from it means nothing."""

from __future__ import annotations

from itertools import pairwise

import pytest

from naiad_perf.records import Outcome, read_run
from tests.harness.synthetic_sweep import Engine, Load, make_run, synthetic_runs, write_sweep

ENGINE = Engine("engine", most=4)
CLOSED = Load(concurrency=8, requests=20, warm_up=4, output_tokens=6)


def most_at_once(spans: list[tuple[int, int]]) -> int:
    edges = sorted([(start, 1) for start, _ in spans] + [(end, -1) for _, end in spans])
    now, most = 0, 0
    for _, step in sorted(edges, key=lambda edge: (edge[0], edge[1])):
        now += step
        most = max(most, now)
    return most


def test_a_closed_loop_never_exceeds_its_concurrency_and_the_engine_its_streams():
    run = make_run(ENGINE, CLOSED, 0, 0)
    assert len(run.requests) == 24
    assert most_at_once([(r.intended_ns, r.ended_ns or 0) for r in run.requests]) == 8
    assert most_at_once([(r.response_ns[0], r.ended_ns or 0) for r in run.requests]) <= 4
    assert [record.index for record in run.requests] == list(range(24))
    assert sum(record.warm_up for record in run.requests) == 4


def test_an_answer_has_the_tokens_asked_for_however_they_are_grouped():
    one = make_run(ENGINE, CLOSED, 0, 0)
    grouped = make_run(Engine("engine", most=4, coalesced=4), CLOSED, 0, 0)
    assert {record.response_tokens for record in one.requests} == {(1,) * 6}
    assert {record.response_tokens for record in grouped.requests} == {(1, 4, 1)}
    for before, after in zip(one.requests, grouped.requests, strict=True):
        assert after.ended_ns == before.ended_ns
        assert after.response_ns[0] == before.response_ns[0]


def test_without_noise_a_lone_stream_steps_at_the_stated_pace():
    run = make_run(Engine("engine", noise=0), Load(concurrency=1, requests=5, output_tokens=10), 0, 0)
    for record in run.requests:
        gaps = [later - earlier for earlier, later in pairwise(record.response_ns)]
        assert all(8_000_000 < gap < 12_500_000 for gap in gaps)  # 10 ms, the drift of a repeat, 5 % a step


def test_errors_and_cancels_come_in_their_shares():
    run = make_run(Engine("engine", error_share=0.3, cancel_share=0.2), Load(rate=50, requests=500), 0, 0)
    counts = {outcome: sum(r.outcome is outcome for r in run.requests) / 504 for outcome in Outcome}
    assert counts[Outcome.ERROR] == pytest.approx(0.3, abs=0.06)
    assert counts[Outcome.CANCELLED] == pytest.approx(0.2, abs=0.06)
    assert all(not r.response_ns for r in run.requests if r.outcome is Outcome.ERROR)


def test_an_open_loop_arrives_at_its_rate_however_slow_the_server_is():
    run = make_run(Engine("engine", step_ms=200, most=1), Load(rate=20, requests=200), 0, 0)
    assert run.requests[-1].intended_ns / 1e9 == pytest.approx(204 / 20, rel=0.25)


def test_subjects_take_turns_and_every_other_repeat_runs_backwards():
    runs = list(synthetic_runs([ENGINE, Engine("bls")], [CLOSED], 2))
    assert [run.facts.subject for run in runs] == ["engine", "bls", "bls", "engine"]
    assert [run.facts.position for run in runs] == [0, 1, 2, 3]


def test_a_sweep_is_written_whole_and_the_same_each_time(tmp_path):
    for name in ("one", "two"):
        write_sweep(tmp_path / name, [ENGINE], [CLOSED], 2, scenario="slos: {}\n")
    names = {path.name for path in (tmp_path / "one").iterdir()}
    assert names == {"c8-i64-o6__engine__0.parquet", "c8-i64-o6__engine__1.parquet", "scenario.yaml"}
    for name in sorted(names - {"scenario.yaml"}):
        assert read_run(tmp_path / "one" / name) == read_run(tmp_path / "two" / name)
    first, second = (read_run(tmp_path / "one" / f"c8-i64-o6__engine__{n}.parquet") for n in (0, 1))
    assert first.requests != second.requests
