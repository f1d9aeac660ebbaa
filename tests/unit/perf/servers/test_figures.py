"""What a server counted during a run, from Triton's statistics and Prometheus pages."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from tritonclient.grpc import model_config_pb2, service_pb2

from naiad.server.endpoints import parse_metrics
from naiad_client import ConnectFailed, DeadlineExceeded, NaiadError
from naiad_perf.records import ServerFigures
from naiad_perf.servers import figures as server_figures
from naiad_perf.servers.figures import ModelFacts, ServerWatch, kv_tokens, read_metrics
from tests.harness.polling import poll

PLAIN = ModelFacts("m", takes_ids=False, decoupled=False, ensemble=False)
STREAMING = ModelFacts("m", takes_ids=False, decoupled=True, ensemble=False)
ENSEMBLE = ModelFacts("m", takes_ids=False, decoupled=False, ensemble=True)


@dataclass
class Triton:
    """Answers with `statistics`, and fails liveness with `dead`."""

    statistics: Any = field(default_factory=service_pb2.ModelStatisticsResponse)
    dead: NaiadError | None = None
    lives: int = 0

    def call(self, method: str, request: Any, *, timeout_s: float) -> Any:
        if method == "ServerLive":
            self.lives += 1
            if self.dead is not None:
                raise self.dead
            return service_pb2.ServerLiveResponse(live=True)
        assert (method, request.name) == ("ModelStatistics", "m")
        return self.statistics


def statistics(
    *,
    ok: int = 0,
    failed: int = 0,
    total_ns: int = 0,
    queue_ns: int = 0,
    compute: tuple[int, int, int] = (0, 0, 0),
) -> Any:
    answer = service_pb2.ModelStatisticsResponse()
    found = answer.model_stats.add(name="m", version="1").inference_stats
    found.success.count, found.success.ns, found.fail.count, found.queue.ns = ok, total_ns, failed, queue_ns
    found.compute_input.ns, found.compute_infer.ns, found.compute_output.ns = compute
    return answer


def naiads(
    *, queued: int, queue_s: float, ttft_s: float, itl_s: float, refused: int = 0, cancelled: int = 0
) -> str:
    """A page of Naiad's; the text model `m` in front of the engine has a TTFT of its own."""
    return f"""
naiad_queue_time_seconds_count{{model="engine",version="1"}} {queued}
naiad_queue_time_seconds_sum{{model="engine",version="1"}} {queue_s}
naiad_time_to_first_token_seconds_sum{{model="engine",version="1"}} {ttft_s}
naiad_time_to_first_token_seconds_sum{{model="m",version="1"}} {100 * ttft_s}
naiad_inter_token_latency_seconds_sum{{model="engine",version="1"}} {itl_s}
naiad_request_failures{{model="m",reason="QUEUE_FULL",version="1"}} {refused}
naiad_request_failures{{model="m",reason="CANCELLED",version="1"}} {cancelled}
naiad_request_failures{{model="engine",reason="QUEUE_FULL",version="1"}} 50
"""


class Watched:
    """A server whose counters a test moves while it is watched."""

    def __init__(self, model: ModelFacts) -> None:
        self.triton = Triton()
        self.page = ""
        self.cpu_s: float | None = 5.0
        self.memory: int | None = None
        self.watch = ServerWatch(
            self.triton,
            model,
            lambda: parse_metrics(self.page),
            lambda: self.cpu_s,
            self._forget,
            lambda: self.memory,
        )

    def _forget(self) -> None:
        self.memory = None if self.memory is None else 0


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_figures, "SAMPLE_PERIOD_S", 0.001)
    monkeypatch.setattr(server_figures, "_SETTLE_S", 0.05)


def test_a_model_of_one_response_has_queue_and_compute_time_of_triton():
    server = Watched(PLAIN)
    server.triton.statistics = statistics(ok=10, failed=1, queue_ns=1000, compute=(1, 2, 3))
    with server.watch:
        server.triton.statistics = statistics(ok=14, failed=3, queue_ns=1500, compute=(11, 22, 33))
        server.cpu_s = 7.5
        figures = server.watch.figures(expected=4)
    assert figures == ServerFigures(requests=4, failed=2, queue_ns=500, compute_ns=60, cpu_s=2.5)


def test_a_streaming_model_has_no_compute_time_for_triton_counts_only_the_handing_over():
    server = Watched(STREAMING)
    server.triton.statistics = statistics(ok=10, queue_ns=1000, compute=(1, 2, 3))
    with server.watch:
        server.triton.statistics = statistics(ok=14, queue_ns=1500, compute=(11, 22, 33))
        figures = server.watch.figures(expected=4)
    assert (figures.requests, figures.queue_ns, figures.compute_ns) == (4, 500, None)


def test_a_streaming_model_whose_backend_counts_responses_has_their_compute_time():
    server = Watched(STREAMING)

    def counted(scale: int) -> Any:
        answer = statistics(ok=scale)
        for number in range(2):
            response = answer.model_stats[0].response_stats[str(number)]
            response.compute_infer.ns, response.compute_output.ns = 10 * scale, scale
        return answer

    server.triton.statistics = counted(1)
    with server.watch:
        server.triton.statistics = counted(3)
        assert server.watch.figures(expected=2).compute_ns == 2 * 22


def test_an_ensemble_has_the_whole_time_but_the_queue():
    server = Watched(ENSEMBLE)
    server.triton.statistics = statistics(ok=1, total_ns=100, queue_ns=10, compute=(900, 900, 900))
    with server.watch:
        server.triton.statistics = statistics(ok=2, total_ns=400, queue_ns=30, compute=(9000, 9000, 9000))
        assert server.watch.figures(expected=1).compute_ns == 280


def test_errors_and_cancels_of_a_streaming_model_are_no_successes_though_triton_says_so():
    server = Watched(STREAMING)
    server.page = naiads(queued=0, queue_s=0, ttft_s=0, itl_s=0, refused=2, cancelled=1)
    with server.watch:
        server.triton.statistics = statistics(ok=20, failed=1)
        server.page = naiads(queued=14, queue_s=0, ttft_s=0, itl_s=0, refused=5, cancelled=4)
        figures = server.watch.figures(expected=14)
    assert (figures.requests, figures.failed) == (14, 4)


def test_time_in_the_engine_comes_from_naiads_histograms_of_the_engine_alone():
    server = Watched(STREAMING)
    server.page = naiads(queued=1, queue_s=0.5, ttft_s=1.0, itl_s=2.0)
    with server.watch:
        server.triton.statistics = statistics(ok=2)
        server.page = naiads(queued=3, queue_s=0.75, ttft_s=1.5, itl_s=4.0)
        figures = server.watch.figures(expected=2)
    assert (figures.engine_queue_ns, figures.engine_ns) == (250_000_000, 2_500_000_000)


def test_counters_that_lag_behind_are_waited_for(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server_figures, "_SETTLE_S", 30.0)
    server = Watched(STREAMING)
    server.page = naiads(queued=0, queue_s=0, ttft_s=0, itl_s=0)
    with server.watch:

        def late() -> None:
            server.triton.statistics = statistics(ok=3)
            server.page = naiads(queued=3, queue_s=1, ttft_s=1, itl_s=1)

        timer = threading.Timer(0.1, late)
        timer.start()
        figures = server.watch.figures(expected=3)
        timer.join()
    assert (figures.requests, figures.engine_queue_ns) == (3, 1_000_000_000)


def test_triton_is_waited_for_when_the_engine_has_counted_already(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server_figures, "_SETTLE_S", 30.0)
    server = Watched(STREAMING)
    server.page = naiads(queued=0, queue_s=0, ttft_s=0, itl_s=0)
    with server.watch:
        server.page = naiads(queued=3, queue_s=1, ttft_s=1, itl_s=1)

        def late() -> None:
            server.triton.statistics = statistics(ok=3)

        timer = threading.Timer(0.1, late)
        timer.start()
        figures = server.watch.figures(expected=3)
        timer.join()
    assert figures.requests == 3


def test_counters_that_never_come_are_not_waited_for_without_end():
    server = Watched(PLAIN)
    with server.watch:
        server.triton.statistics = statistics(ok=1)
        assert server.watch.figures(expected=3).requests == 1


def test_what_nobody_counts_is_none_and_not_zero():
    server = Watched(PLAIN)
    server.cpu_s = None
    with server.watch:
        figures = server.watch.figures(expected=0)
    assert figures == ServerFigures(requests=0, failed=0, queue_ns=0, compute_ns=0)


def test_memory_is_what_was_held_during_the_run_and_not_while_loading():
    server = Watched(PLAIN)
    server.memory = 900
    with server.watch:
        assert server.memory == 0
        server.memory = 300
        assert server.watch.figures(expected=0).memory_bytes == 300


def test_the_peak_of_the_kv_cache_is_the_most_that_was_sampled():
    server = Watched(PLAIN)

    def blocks(used: int) -> str:
        label = "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="
        values = {"used": used, "max": 100, "tokens_per": 32, "fraction": 0.5}
        return "\n".join(f'{label}"{kind}",model="e",version="1"}} {value}' for kind, value in values.items())

    server.page = blocks(1)
    with server.watch:
        for used in (3, 7, 2):
            server.page = blocks(used)
            seen = server.triton.lives
            poll(lambda seen=seen: server.triton.lives > seen + 1)  # type: ignore[misc]
        figures = server.watch.figures(expected=0)
    assert (figures.kv_tokens_peak, figures.kv_tokens_max) == (7 * 32, 3200)


def test_kv_caches_of_several_engines_add_up_and_half_a_report_is_none():
    label = "nv_trt_llm_kv_cache_block_metrics"
    page = {
        f'{label}{{kv_cache_block_type="{kind}",model="{model}"}}': value
        for model, size in (("large", 16.0), ("small", 32.0))
        for kind, value in (("used", 2.0), ("max", 10.0), ("tokens_per", size))
    }
    assert kv_tokens(page) == (2 * 16 + 2 * 32, 10 * 16 + 10 * 32)
    assert kv_tokens({f'{label}{{kv_cache_block_type="used",model="e"}}': 1.0}) == (None, None)
    assert kv_tokens({}) == (None, None)


@pytest.mark.parametrize(
    ("error", "outage"), [(ConnectFailed("gone"), True), (DeadlineExceeded("slow"), False)]
)
def test_a_server_that_nobody_reaches_is_noticed_and_a_slow_one_is_none(error: NaiadError, outage: bool):
    server = Watched(PLAIN)
    server.triton.dead = error
    with server.watch:
        poll(lambda: server.triton.lives > 1)
    assert server.watch.outage is outage


def test_watching_ends_with_its_context():
    server = Watched(PLAIN)
    with server.watch:
        poll(lambda: server.triton.lives > 0)
    assert not [thread for thread in threading.enumerate() if thread.name == "kv-sampler"]


@pytest.mark.parametrize(
    ("inputs", "platform", "decoupled", "facts"),
    [
        (["text_input", "max_tokens"], "", True, ModelFacts("m", False, True, False)),
        (["input_ids", "request_output_len"], "", False, ModelFacts("m", True, False, False)),
        (["input_ids", "text_input"], "ensemble", False, ModelFacts("m", False, False, True)),
    ],
)
def test_what_a_model_is(inputs: list[str], platform: str, decoupled: bool, facts: ModelFacts):
    config = model_config_pb2.ModelConfig(name="m", platform=platform)
    config.model_transaction_policy.decoupled = decoupled
    for name in inputs:
        config.input.add(name=name)

    class Configured:
        def call(self, method: str, request: Any, *, timeout_s: float) -> Any:
            assert (method, request.name) == ("ModelConfig", "m")
            return service_pb2.ModelConfigResponse(config=config)

    assert ModelFacts.ask(Configured(), "m") == facts


class Pages(BaseHTTPRequestHandler):
    """A Prometheus page at its usual path only."""

    def do_GET(self) -> None:
        found = self.path == "/metrics"
        self.send_response(200 if found else 404)
        self.end_headers()
        self.wfile.write(b'# HELP x\nx{a="1"} 2.5\n' if found else b'x{a="1"} 3')

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_a_prometheus_page_is_read():
    with HTTPServer(("127.0.0.1", 0), Pages) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        assert read_metrics(f"127.0.0.1:{server.server_port}") == {'x{a="1"}': 2.5}
        thread.join()


def test_a_page_that_is_not_there_is_empty():
    with HTTPServer(("127.0.0.1", 0), Pages) as server:
        port = server.server_port
    assert read_metrics(f"127.0.0.1:{port}") == {}
