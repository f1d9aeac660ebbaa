"""Metrics reach Triton: every family with its labels, counted and observed, and a failure harms nobody."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from naiad.contract import TENSORRT_LLM, FinishReason
from naiad.engines.base import EngineStats
from naiad.telemetry import FAMILIES, Kind, Recorder
from naiad.telemetry.families import TEXT_FAMILIES
from naiad.triton.metrics import EngineMetrics, MetricPusher
from naiad.triton.requests import ModelConfiguration
from tests.harness.fake_triton import FakeServer
from tests.harness.fake_triton_metrics import Metric, MetricFamily
from tests.harness.polling import poll
from tests.unit.triton.conftest import LogLines, initialize_arguments

CONFIG = ModelConfiguration.of(TENSORRT_LLM, initialize_arguments("tensorrt_llm", {}))
SOON_S, NEVER_S = 0.002, 1000.0


class StandingEngine:
    """An engine that only has statistics."""

    def __init__(self, **stats: int) -> None:
        self.now = EngineStats(**stats)
        self.looked_at = 0

    def stats(self) -> EngineStats:
        self.looked_at += 1
        return self.now


def engine_metrics(engine: StandingEngine, recorder: Recorder, period_s: float) -> EngineMetrics:
    standing: Any = engine
    return EngineMetrics(CONFIG, standing, recorder, period_s)


def test_i01_every_family_exists_with_its_closed_label_set_from_the_start(triton: FakeServer) -> None:
    pusher = engine_metrics(StandingEngine(), Recorder(), NEVER_S)
    try:
        for family in FAMILIES:
            made = triton.families[family.name]
            assert made.kind == getattr(MetricFamily, family.kind.value)
            assert len(made.metrics) == max(len(family.values), 1)
            for metric in made.metrics:
                assert metric.labels["model"] == "tensorrt_llm"
                assert metric.labels["version"] == "1"
                assert set(metric.labels) - {"model", "version"} == ({family.label} - {None})
            if family.kind is Kind.HISTOGRAM:
                assert made.metrics[0].buckets == list(family.buckets)
    finally:
        pusher.close()


def test_observations_and_failures_are_pushed_when_closing_at_the_latest(triton: FakeServer) -> None:
    recorder = Recorder()
    pusher = engine_metrics(StandingEngine(), recorder, NEVER_S)
    recorder.scheduled(0.5)
    recorder.first_token(0.25)
    recorder.next_tokens(0.3, 3)
    recorder.finished(7, 9, FinishReason.STOP)
    recorder.failed("QUEUE_FULL")
    recorder.failed("QUEUE_FULL")
    recorder.failed("NO_SUCH_CODE")
    pusher.close()
    assert triton.metric("naiad_queue_time_seconds").observations == [0.5]
    assert triton.metric("naiad_time_to_first_token_seconds").observations == [0.25]
    assert triton.metric("naiad_inter_token_latency_seconds").observations == pytest.approx([0.1] * 3)
    assert triton.metric("nv_llm_input_token_len").observations == [7]
    assert triton.metric("nv_llm_output_token_len").observations == [9]
    assert triton.metric("naiad_request_failures", reason="QUEUE_FULL").number == 2
    assert triton.metric("naiad_request_failures", reason="INTERNAL").number == 1


def test_the_text_model_pushes_its_own_two_families(triton: FakeServer) -> None:
    recorder = Recorder()
    pusher = MetricPusher(CONFIG, TEXT_FAMILIES, recorder, NEVER_S)
    recorder.first_token(0.25)
    recorder.failed("CANCELLED")
    pusher.close()
    assert set(triton.families) == {family.name for family in TEXT_FAMILIES}
    assert triton.metric("naiad_time_to_first_token_seconds").observations == [0.25]
    assert triton.metric("naiad_request_failures", reason="CANCELLED").number == 1


def test_the_engines_counts_become_gauges_and_fall_again(triton: FakeServer) -> None:
    engine = StandingEngine(
        active=3, max_active=8, scheduled=2, context=1, waiting=1, generation=1, context_tokens=40,
        kv_blocks_max=10, kv_blocks_used=4, kv_tokens_per_block=32, memory_bytes=5, iterations=6,
    )  # fmt: skip
    pusher = engine_metrics(engine, Recorder(), SOON_S)

    def gauge(family: str, **label: str) -> float:
        return triton.metric(f"nv_trt_llm_{family}", **label).number

    try:
        poll(lambda: gauge("request_metrics", request_type="active") == 3)
        poll(lambda: gauge("general_metrics", general_type="timestamp") > 0)
        seen = {
            "max": gauge("request_metrics", request_type="max"),
            "waiting": gauge("request_metrics", request_type="waiting"),
            "free": gauge("kv_cache_block_metrics", kv_cache_block_type="free"),
            "fraction": gauge("kv_cache_block_metrics", kv_cache_block_type="fraction"),
            "tokens_per": gauge("kv_cache_block_metrics", kv_cache_block_type="tokens_per"),
            "cpu": gauge("runtime_memory_metrics", memory_type="cpu"),
            "context": gauge(
                "inflight_batcher_metrics", inflight_batcher_specific_metric="total_context_tokens"
            ),
            "iterations": gauge("general_metrics", general_type="iteration_counter"),
        }
        assert seen == {
            "max": 8, "waiting": 1, "free": 6, "fraction": 0.4, "tokens_per": 32, "cpu": 5, "context": 40,
            "iterations": 6,
        }  # fmt: skip
        engine.now = EngineStats(max_active=8)
        poll(lambda: gauge("request_metrics", request_type="active") == 0)
        poll(lambda: gauge("request_metrics", request_type="waiting") == 0)
    finally:
        pusher.close()


def test_an_unchanged_gauge_is_not_pushed_again(triton: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = StandingEngine(max_active=8)
    pushed: list[float] = []
    set_gauge = Metric.set

    def counted(metric: Metric, value: float) -> None:
        pushed.append(value)
        set_gauge(metric, value)

    monkeypatch.setattr(Metric, "set", counted)
    pusher = engine_metrics(engine, Recorder(), SOON_S)
    try:
        poll(lambda: engine.looked_at >= 2)
        first = len(pushed)
        poll(lambda: engine.looked_at >= 6)
        assert len(pushed) == first
    finally:
        pusher.close()


def test_a_push_that_fails_is_logged_once_and_observations_do_not_pile_up(
    triton: FakeServer, log: LogLines, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(metric: Metric, value: float) -> None:
        raise RuntimeError("metrics are off")

    monkeypatch.setattr(Metric, "observe", refuse)
    recorder = Recorder()
    engine = StandingEngine()
    pusher = engine_metrics(engine, recorder, SOON_S)
    try:
        for _ in range(3):
            recorder.first_token(0.1)
            poll(lambda: not recorder._observations)
        assert len(log.about("metrics could not be pushed")) == 1
    finally:
        monkeypatch.undo()
        pusher.close()


def test_closing_ends_the_thread(triton: FakeServer) -> None:
    pusher = engine_metrics(StandingEngine(), Recorder(), NEVER_S)
    pusher.close()
    assert "naiad-metrics" not in {thread.name for thread in threading.enumerate()}
