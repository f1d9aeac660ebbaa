"""A burst in two numbers, for what is only tried out; counted bursts have all of `naiad_perf.metrics`."""

from __future__ import annotations

from collections.abc import Sequence

from naiad_perf.records import RequestRecord

__all__ = ["decode_rate", "tokens_per_s"]


def tokens_per_s(records: Sequence[RequestRecord]) -> float:
    """Return output tokens of a burst divided by its seconds, as in all figures."""
    first_ns = min(record.intended_ns for record in records)
    last_ns = max(record.ended_ns or 0 for record in records)
    return sum(record.output_tokens for record in records) * 1e9 / (last_ns - first_ns)


def decode_rate(records: Sequence[RequestRecord], output_tokens: int) -> float:
    """Return the tokens/s that one batch would have if its answers were longer and its steps as they are.

    Formula: `batch * N / (first + (last - first) / (n - 1) * (N - 1))`, n tokens measured, N wanted.
    """
    record = records[0]
    first_ns = record.response_ns[0] - record.intended_ns
    step_ns = (record.response_ns[-1] - record.response_ns[0]) / (len(record.response_ns) - 1)
    return len(records) * output_tokens * 1e9 / (first_ns + step_ns * (output_tokens - 1))
