"""Pushes what the recorder and the engine know to Triton's metrics endpoint, from a thread of its own.

Each value set or observed is a message to Triton's process, so nothing is pushed from the token path.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable
from typing import Any

import triton_python_backend_utils as pb_utils

from naiad.engines.base import Engine, EngineStats
from naiad.telemetry import Family, Kind, Recorder
from naiad.telemetry import families as names
from naiad.triton.requests import ModelConfiguration

__all__ = ["EngineMetrics", "MetricPusher"]

_log = logging.getLogger(__name__)


class MetricPusher:
    """Owns the metric objects of one model and pushes the recorder's observations every period."""

    def __init__(
        self, config: ModelConfiguration, families: Iterable[Family], recorder: Recorder, period_s: float
    ) -> None:
        self._labels = {"model": config.name, "version": config.version}
        self._recorder = recorder
        self._period_s = period_s
        self._families: list[Any] = []  # dropping a family would drop its metrics
        self._metrics: dict[tuple[str, str | None], Any] = {}
        for family in families:
            self._create(family)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="naiad-metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Push what is left and end the thread."""
        self._closing.set()
        self._thread.join(timeout=10)

    def _create(self, family: Family) -> None:
        kind = getattr(pb_utils.MetricFamily, family.kind.value)
        created = pb_utils.MetricFamily(name=family.name, description=family.description, kind=kind)
        self._families.append(created)
        for value in family.values or (None,):
            labels = dict(self._labels)
            if family.label is not None and value is not None:
                labels[family.label] = value
            if family.kind is Kind.HISTOGRAM:
                metric = created.Metric(labels=labels, buckets=list(family.buckets))
            else:
                metric = created.Metric(labels=labels)
            self._metrics[family.name, value] = metric

    def set_gauge(self, family: Family, value: str, number: float) -> None:
        """Set one gauge of a family."""
        self._metrics[family.name, value].set(float(number))

    def _run(self) -> None:
        failing = False
        while True:
            closing = self._closing.wait(self._period_s)
            try:
                self._push()
                failing = False
            except Exception:  # noqa: BLE001 - goes on, so that observations do not pile up in the recorder
                if not failing:
                    _log.exception("metrics could not be pushed; serving goes on without them")
                failing = True
            if closing:
                return

    def _push(self) -> None:
        observations, failures = self._recorder.drain()
        for name, values in observations.items():
            metric = self._metrics.get((name, None)) or self._metrics[name, _TOKEN_LABEL[name]]
            for value in values:
                metric.observe(value)
        for reason, count in failures.items():
            self._metrics[names.FAILURES.name, reason].increment(count)


_TOKEN_LABEL = {family.name: family.values[0] for family in (names.INPUT_TOKENS, names.OUTPUT_TOKENS)}


class EngineMetrics(MetricPusher):
    """Adds NVIDIA's engine gauges; pushed only when they changed."""

    def __init__(
        self, config: ModelConfiguration, engine: Engine, recorder: Recorder, period_s: float
    ) -> None:
        self._engine = engine
        self._pushed: dict[tuple[str, str], float] = {}
        super().__init__(config, names.ENGINE_FAMILIES, recorder, period_s)

    def _push(self) -> None:
        super()._push()
        stats = self._engine.stats()
        for family, value, number in _gauges(stats):
            if self._pushed.get((family.name, value)) != number:
                self._pushed[family.name, value] = number
                self.set_gauge(family, value, number)


def _gauges(stats: EngineStats) -> Iterable[tuple[Family, str, float]]:
    yield names.REQUESTS, "active", stats.active
    yield names.REQUESTS, "max", stats.max_active
    yield names.REQUESTS, "scheduled", stats.scheduled
    yield names.REQUESTS, "context", stats.context
    yield names.REQUESTS, "waiting", stats.waiting
    yield names.MEMORY, "cpu", stats.memory_bytes
    yield names.KV_BLOCKS, "max", stats.kv_blocks_max
    yield names.KV_BLOCKS, "free", stats.kv_blocks_max - stats.kv_blocks_used
    yield names.KV_BLOCKS, "used", stats.kv_blocks_used
    yield names.KV_BLOCKS, "tokens_per", stats.kv_tokens_per_block
    yield names.KV_BLOCKS, "reused", stats.kv_blocks_reused
    yield names.KV_BLOCKS, "fraction", stats.kv_blocks_used / max(stats.kv_blocks_max, 1)
    yield names.IN_FLIGHT, "total_context_tokens", stats.context_tokens
    yield names.IN_FLIGHT, "generation_requests", stats.generation
    yield names.IN_FLIGHT, "paused_requests", stats.paused
    yield names.GENERAL, "iteration_counter", stats.iterations
    if stats.active:
        yield names.GENERAL, "timestamp", time.time_ns() // 1000
