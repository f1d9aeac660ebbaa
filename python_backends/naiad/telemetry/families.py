"""Every Prometheus family that Naiad adds to Triton's endpoint, with its closed label set.

`nv_trt_llm_*` and `nv_llm_*` are NVIDIA's names, labels and buckets, which its C++ backend reports. The
`naiad_*` families are what its users asked for and it does not have: TTFT, inter-token latency, queue time
and failures by reason. All carry the labels `model` and `version` as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["FAMILIES", "Family", "Kind"]

_TOKENS = (10.0, 50.0, 100.0, 500.0, 1000.0)
_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)


class Kind(Enum):
    """Prometheus metric type."""

    COUNTER = "COUNTER"
    GAUGE = "GAUGE"
    HISTOGRAM = "HISTOGRAM"


@dataclass(frozen=True, slots=True)
class Family:
    """One metric family: its one label beside `model` and `version`, and that label's possible values."""

    name: str
    kind: Kind
    description: str
    label: str | None = None
    values: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


REQUESTS = Family(
    "nv_trt_llm_request_metrics",
    Kind.GAUGE,
    "TRT LLM request metrics",
    "request_type",
    ("active", "max", "scheduled", "context", "waiting"),
)
MEMORY = Family(
    "nv_trt_llm_runtime_memory_metrics",
    Kind.GAUGE,
    "TRT LLM runtime memory metrics",
    "memory_type",
    ("cpu", "gpu", "pinned"),
)
KV_BLOCKS = Family(
    "nv_trt_llm_kv_cache_block_metrics",
    Kind.GAUGE,
    "TRT LLM KV cache block metrics",
    "kv_cache_block_type",
    ("max", "free", "used", "tokens_per", "reused", "fraction"),
)
IN_FLIGHT = Family(
    "nv_trt_llm_inflight_batcher_metrics",
    Kind.GAUGE,
    "TRT LLM inflight_batcher-specific metrics",
    "inflight_batcher_specific_metric",
    ("total_context_tokens", "generation_requests", "micro_batch_id", "paused_requests"),
)
GENERAL = Family(
    "nv_trt_llm_general_metrics",
    Kind.GAUGE,
    "General TRT LLM metrics",
    "general_type",
    ("timestamp", "iteration_counter"),
)
DISAGGREGATED = Family(
    "nv_trt_llm_disaggregated_serving_metrics",
    Kind.COUNTER,
    "TRT LLM disaggregated serving metrics",
    "disaggregated_serving_type",
    ("kv_cache_transfer_ms", "request_count"),
)
OUTPUT_TOKENS = Family(
    "nv_llm_output_token_len",
    Kind.HISTOGRAM,
    "TRT LLM response metrics",
    "response_metric_type",
    ("total_output_tokens",),
    _TOKENS,
)
INPUT_TOKENS = Family(
    "nv_llm_input_token_len",
    Kind.HISTOGRAM,
    "TRT LLM response metrics",
    "response_metric_type",
    ("total_input_tokens",),
    _TOKENS,
)
TTFT = Family(
    "naiad_time_to_first_token_seconds",
    Kind.HISTOGRAM,
    "From a request's arrival at the model to its first token",
    buckets=_SECONDS,
)
ITL = Family(
    "naiad_inter_token_latency_seconds",
    Kind.HISTOGRAM,
    "Between one token and the next of a sequence",
    buckets=_SECONDS,
)
QUEUE = Family(
    "naiad_queue_time_seconds",
    Kind.HISTOGRAM,
    "From a request's arrival at the engine to its first step",
    buckets=_SECONDS,
)
FAILURES = Family(
    "naiad_request_failures",
    Kind.COUNTER,
    "Requests that ended in an error, by its code",
    "reason",
    (
        "INVALID_ARGUMENT", "PROMPT_TOO_LONG", "UNSUPPORTED", "QUEUE_FULL", "DRAINING", "ENGINE_UNAVAILABLE",
        "ENGINE_STALLED", "DEADLINE_EXCEEDED", "CANCELLED", "INTERNAL",
    ),
)  # fmt: skip

ENGINE_FAMILIES = (
    REQUESTS, MEMORY, KV_BLOCKS, IN_FLIGHT, GENERAL, DISAGGREGATED, OUTPUT_TOKENS, INPUT_TOKENS, TTFT, ITL,
    QUEUE, FAILURES,
)  # fmt: skip
TEXT_FAMILIES = (TTFT, FAILURES)
FAMILIES = ENGINE_FAMILIES
