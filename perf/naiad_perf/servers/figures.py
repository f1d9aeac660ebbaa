"""What a server counted during a run: Triton's statistics, Naiad's metrics, KV cache use, processor time.

What the numbers mean (Triton 2.51, seen on a server):

- Triton counts a request of a streaming (decoupled) model as ended, and as a success, when the model has
  taken it over, however long it then answers and even if the answer is an error. Its queue time is right,
  its compute time is that of the handing over, so it is not used; `response_stats`, where a backend reports
  them, are. Errors and cancels that Naiad's own counter knows are taken off the successes.
- Of an ensemble Triton counts the whole time from arrival to the last response.
- From arrival at the engine to the first step and to the last token is in Naiad's histograms, for any model.
"""

from __future__ import annotations

import http.client
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from tritonclient.grpc import service_pb2

from naiad.server.endpoints import parse_metrics
from naiad_client import ConnectFailed, NaiadError
from naiad_perf.records import ServerFigures

__all__ = ["ModelFacts", "ServerWatch", "TritonCalls", "read_metrics"]

SAMPLE_PERIOD_S = 0.5
_SETTLE_S = 2.0
_POLL_S = 0.05
_TIMEOUT_S = 5.0
_SERIES = re.compile(r"^(?P<name>[\w:]+)\{(?P<labels>.*)\}$")
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_NS_PER_S = 1_000_000_000


class TritonCalls(Protocol):
    """Unary calls of Triton's gRPC service."""

    def call(self, method: str, request: Any, *, timeout_s: float) -> Any:
        """Return the answer; raises `naiad_client.NaiadError`."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What a server says about a model.

    Attributes:
        name: of the model.
        takes_ids: whether prompts are token ids (`input_ids`) instead of text (`text_input`).
        decoupled: whether its requests have many responses (not known of an ensemble: False).
        ensemble: whether it is a chain of other models.
    """

    name: str
    takes_ids: bool
    decoupled: bool
    ensemble: bool

    @classmethod
    def ask(cls, triton: TritonCalls, name: str) -> ModelFacts:
        """Ask a server; raises `naiad_client.NaiadError` when it has no such model or cannot be asked."""
        request = service_pb2.ModelConfigRequest(name=name)
        config = triton.call("ModelConfig", request, timeout_s=_TIMEOUT_S).config
        inputs = {tensor.name for tensor in config.input}
        return cls(
            name,
            takes_ids="input_ids" in inputs and "text_input" not in inputs,
            decoupled=bool(config.model_transaction_policy.decoupled),
            ensemble=config.platform == "ensemble",
        )


@dataclass(frozen=True, slots=True)
class _Counts:
    """Counters of Triton and Naiad at one moment; None where nobody counts."""

    succeeded: int
    failed: int
    queue_ns: int
    compute_ns: int | None
    refused: int
    cancelled: int
    engine_requests: int | None
    engine_queue_ns: int | None
    engine_ns: int | None


class ServerWatch:
    """Watches one server for the length of one run."""

    def __init__(
        self,
        triton: TritonCalls,
        model: ModelFacts,
        metrics: Callable[[], dict[str, float]],
        cpu_s: Callable[[], float | None],
        forget_memory: Callable[[], None] = lambda: None,
        memory_bytes: Callable[[], int | None] = lambda: None,
    ) -> None:
        """Prepare; entering looks for the first time.

        Args:
            triton: to ask for statistics.
            model: that is measured.
            metrics: reads the Prometheus page, series -> value; empty when there is none.
            cpu_s: processor time of the server's processes so far; None when not known.
            forget_memory: forgets what memory they held at most, so that loading does not count.
            memory_bytes: most memory they held since then; None when not known.
        """
        self._triton = triton
        self._model = model
        self._metrics = metrics
        self._cpu_s = cpu_s
        self._forget_memory = forget_memory
        self._memory_bytes = memory_bytes
        self._kv_peak: int | None = None
        self._kv_max: int | None = None
        self.outage = False
        """Whether the server could not be reached at some time during the run."""
        self._stop = threading.Event()
        self._sampler: threading.Thread | None = None

    def __enter__(self) -> ServerWatch:
        self._before = self._counts()
        self._forget_memory()
        self._cpu_before_s = self._cpu_s()
        self._sampler = threading.Thread(target=self._sample, name="kv-sampler", daemon=True)
        self._sampler.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._sampler is not None:
            self._sampler.join()

    def figures(self, expected: int) -> ServerFigures:
        """Return the figures of the run that just ended.

        Args:
            expected: requests that got an answer; counters lag behind, so they are waited for a little.

        Raises:
            NaiadError: the server cannot be asked.
        """
        cpu_s = self._cpu_s()
        before, after = self._before, self._counts()
        deadline_s = time.monotonic() + _SETTLE_S
        while not _complete(before, after, expected) and time.monotonic() < deadline_s:
            time.sleep(_POLL_S)
            after = self._counts()
        refused, cancelled = after.refused - before.refused, after.cancelled - before.cancelled
        succeeded, failed = after.succeeded - before.succeeded, after.failed - before.failed
        if self._model.decoupled:
            succeeded, failed = succeeded - refused - cancelled, failed + refused
        return ServerFigures(
            requests=succeeded,
            failed=failed,
            queue_ns=after.queue_ns - before.queue_ns,
            compute_ns=_difference(after.compute_ns, before.compute_ns),
            engine_queue_ns=_difference(after.engine_queue_ns, before.engine_queue_ns),
            engine_ns=_difference(after.engine_ns, before.engine_ns),
            kv_tokens_peak=self._kv_peak,
            kv_tokens_max=self._kv_max,
            cpu_s=None if cpu_s is None or self._cpu_before_s is None else cpu_s - self._cpu_before_s,
            memory_bytes=self._memory_bytes(),
        )

    def _sample(self) -> None:
        while True:
            used, most = kv_tokens(self._metrics())
            if used is not None:
                self._kv_peak = max(used, self._kv_peak or 0)
                self._kv_max = most
            try:
                self._triton.call("ServerLive", service_pb2.ServerLiveRequest(), timeout_s=_TIMEOUT_S)
            except ConnectFailed:
                self.outage = True
            except NaiadError:  # slow is not away
                pass
            if self._stop.wait(SAMPLE_PERIOD_S):
                return

    def _counts(self) -> _Counts:
        request = service_pb2.ModelStatisticsRequest(name=self._model.name)
        answer = self._triton.call("ModelStatistics", request, timeout_s=_TIMEOUT_S)
        statistics = [model.inference_stats for model in answer.model_stats]
        series = _by_family(self._metrics())
        failures = series.get("naiad_request_failures", [])
        ours = [(labels, value) for labels, value in failures if labels.get("model") == self._model.name]
        engine = series.get("naiad_queue_time_seconds_sum", [])
        engines = {labels.get("model") for labels, _ in engine}
        alive_s = [
            value
            for family in ("naiad_time_to_first_token_seconds_sum", "naiad_inter_token_latency_seconds_sum")
            for labels, value in series.get(family, [])
            if labels.get("model") in engines
        ]
        queued = series.get("naiad_queue_time_seconds_count", [])
        return _Counts(
            succeeded=sum(each.success.count for each in statistics),
            failed=sum(each.fail.count for each in statistics),
            queue_ns=sum(each.queue.ns for each in statistics),
            compute_ns=self._compute_ns(answer.model_stats),
            refused=round(sum(value for labels, value in ours if labels.get("reason") != "CANCELLED")),
            cancelled=round(sum(value for labels, value in ours if labels.get("reason") == "CANCELLED")),
            engine_requests=round(sum(value for _, value in queued)) if queued else None,
            engine_queue_ns=round(sum(value for _, value in engine) * _NS_PER_S) if engine else None,
            engine_ns=round(sum(alive_s) * _NS_PER_S) if alive_s else None,
        )

    def _compute_ns(self, models: Any) -> int | None:
        statistics = [each.inference_stats for each in models]
        if self._model.ensemble:
            return int(sum(each.success.ns - each.queue.ns for each in statistics))
        parts: list[tuple[Any, ...]]
        if self._model.decoupled:
            responses = [response for each in models for response in each.response_stats.values()]
            if not responses:
                return None
            parts = [(each.compute_infer, each.compute_output) for each in responses]
        else:
            parts = [(each.compute_input, each.compute_infer, each.compute_output) for each in statistics]
        return int(sum(part.ns for each in parts for part in each))


def _complete(before: _Counts, after: _Counts, expected: int) -> bool:
    """Whether Triton and, where it counts, Naiad's engine have counted all requests."""
    counted = after.succeeded + after.failed - before.succeeded - before.failed
    if after.engine_requests is None or before.engine_requests is None:
        return counted >= expected
    return counted >= expected and after.engine_requests - before.engine_requests >= expected


def _difference(after: int | None, before: int | None) -> int | None:
    return None if after is None or before is None else after - before


def kv_tokens(metrics: dict[str, float]) -> tuple[int | None, int | None]:
    """Return tokens of KV cache in use and in all, over all engines; None where none reports them."""
    blocks: dict[str, dict[str, float]] = {}
    for labels, value in _by_family(metrics).get("nv_trt_llm_kv_cache_block_metrics", []):
        blocks.setdefault(labels.get("model", ""), {})[labels.get("kv_cache_block_type", "")] = value
    known = [each for each in blocks.values() if {"used", "max", "tokens_per"} <= each.keys()]
    if not known:
        return None, None
    used = round(sum(each["used"] * each["tokens_per"] for each in known))
    return used, round(sum(each["max"] * each["tokens_per"] for each in known))


def _by_family(metrics: dict[str, float]) -> dict[str, list[tuple[dict[str, str], float]]]:
    families: dict[str, list[tuple[dict[str, str], float]]] = {}
    for series, value in metrics.items():
        found = _SERIES.match(series)
        if found is not None:
            families.setdefault(found["name"], []).append((dict(_LABEL.findall(found["labels"])), value))
    return families


def read_metrics(address: str) -> dict[str, float]:
    """Return the samples of the Prometheus page at ``host:port``; empty when it cannot be read."""
    connection = http.client.HTTPConnection(address, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        text = answer.read().decode(errors="replace")
    except (OSError, http.client.HTTPException):
        return {}
    finally:
        connection.close()
    return parse_metrics(text) if answer.status == http.client.OK else {}
