"""Token chunks as `tensorrt_llm`'s output tensors: what both who writes and who reads them needs to know."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from naiad.contract.generation import FinishReason, RequestTimes, TokenChunk
from naiad.serving.tensor_inputs import Array

__all__ = ["PERF_METRICS", "perf_metrics", "read_chunk"]

PERF_METRICS = ("arrival_time_ns", "first_scheduled_time_ns", "first_token_time_ns", "last_token_time_ns")


def perf_metrics(times: RequestTimes) -> dict[str, Array]:
    """Write the times that were reached as INT64 nanoseconds of the steady clock, `[1, 1]`."""
    stations = (times.arrival_s, times.first_scheduled_s, times.first_token_s, times.last_token_s)
    return {
        name: np.array([[round(seconds * 1e9)]], dtype=np.int64)
        for name, seconds in zip(PERF_METRICS, stations, strict=True)
        if seconds is not None
    }


def read_chunk(tensors: Mapping[str, Array]) -> TokenChunk | None:
    """Read one response of an engine model, batch and beam width 1; None when it holds no tokens at all."""
    if "output_ids" not in tensors:
        return None
    length = int(tensors["sequence_length"].reshape(-1)[0])
    chunk = TokenChunk(tensors["output_ids"].reshape(-1)[:length].tolist())
    if "output_log_probs" in tensors:
        chunk.log_probs = tensors["output_log_probs"].reshape(-1)[:length].tolist()
    if "finish_reason" in tensors:
        chunk.finish_reason = FinishReason(bytes(tensors["finish_reason"].reshape(-1)[0]).decode())
    if "sequence_index" in tensors:
        chunk.sequence = int(tensors["sequence_index"].reshape(-1)[0])
    if PERF_METRICS[0] in tensors:
        stations = [
            int(tensors[name].reshape(-1)[0]) / 1e9 if name in tensors else None for name in PERF_METRICS
        ]
        chunk.times = RequestTimes(stations[0] or 0.0, stations[1] or 0.0, *stations[2:])
    return chunk
