"""Metrics of single requests. Only measured requests that got their whole answer have any."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from naiad_perf.metrics.base import (
    MILLISECONDS,
    TOKENS,
    TOKENS_PER_S,
    Better,
    Distribution,
    RequestMetric,
)
from naiad_perf.records import RequestRecord

__all__ = [
    "InputTokens",
    "InterTokenLatency",
    "Latency",
    "LatencyFromSent",
    "OutputTokens",
    "SendDelay",
    "TimePerOutputToken",
    "TimeToFirstToken",
    "TimeToFirstTokenFromSent",
    "TokensPerSecondPerUser",
]

_NS_PER_S = 1_000_000_000


class TimeToFirstToken(RequestMetric):
    """Time to first token: from when the load called for the request until its first response with tokens.

    Formula: `response_ns[0] - intended_ns`. Counting from the intended time keeps the wait that a stalled
    server or a late client causes (coordinated omission). Undefined for an answer without tokens.
    """

    name = "ttft_ms"
    header = "TTFT"
    unit = MILLISECONDS
    better = Better.LOWER

    def of(self, record: RequestRecord) -> float | None:
        """Return nanoseconds."""
        return record.response_ns[0] - record.intended_ns if record.response_ns else None


class TimeToFirstTokenFromSent(RequestMetric):
    """Time to first token as counted from the actual sending, which hides what a late client waited.

    Formula: `response_ns[0] - sent_ns`. Shown beside TTFT so that coordinated omission is visible.
    """

    name = "ttft_from_sent_ms"
    header = "TTFT from sent"
    unit = MILLISECONDS
    better = Better.LOWER

    def of(self, record: RequestRecord) -> float | None:
        """Return nanoseconds."""
        return record.response_ns[0] - record.sent_ns if record.response_ns else None


class InterTokenLatency(Distribution):
    """Inter-token latency: time between one token and the next, of all tokens after the first response.

    Formula: response k with `n` tokens gives `n` values of `(response_ns[k] - response_ns[k-1]) / n`: its
    gap is spread evenly over its tokens, so the values of a request average to its TPOT however tokens
    are grouped. The first response gives none, so neither does an answer of one response.
    """

    name = "itl_ms"
    header = "ITL"
    unit = MILLISECONDS
    better = Better.LOWER

    def values(self, record: RequestRecord) -> Sequence[float]:
        """Return nanoseconds, one value a token after the first response."""
        values: list[float] = []
        for (before, now), tokens in zip(
            pairwise(record.response_ns), record.response_tokens[1:], strict=True
        ):
            values += [(now - before) / tokens] * tokens
        return values


class TimePerOutputToken(RequestMetric):
    """Time per output token: mean time of a token after the first response.

    Formula: `(response_ns[-1] - response_ns[0]) / (output tokens - response_tokens[0])`. Undefined when all
    tokens came in one response: nothing was decoded after it.
    """

    name = "tpot_ms"
    header = "TPOT"
    unit = MILLISECONDS
    better = Better.LOWER

    def of(self, record: RequestRecord) -> float | None:
        """Return nanoseconds a token."""
        if len(record.response_ns) < 2:
            return None
        decoded = record.output_tokens - record.response_tokens[0]
        return (record.response_ns[-1] - record.response_ns[0]) / decoded


class Latency(RequestMetric):
    """Request latency: from when the load called for the request until its final message.

    Formula: `ended_ns - intended_ns`.
    """

    name = "latency_ms"
    header = "Latency"
    unit = MILLISECONDS
    better = Better.LOWER

    def of(self, record: RequestRecord) -> float | None:
        """Return nanoseconds."""
        return None if record.ended_ns is None else record.ended_ns - record.intended_ns


class LatencyFromSent(RequestMetric):
    """Request latency as counted from the actual sending, which hides what a late client waited.

    Formula: `ended_ns - sent_ns`. Shown beside latency so that coordinated omission is visible.
    """

    name = "latency_from_sent_ms"
    header = "Latency from sent"
    unit = MILLISECONDS
    better = Better.LOWER

    def of(self, record: RequestRecord) -> float | None:
        """Return nanoseconds."""
        return None if record.ended_ns is None else record.ended_ns - record.sent_ns


class SendDelay(RequestMetric):
    """How late the client sent: high values say that the client, or its limit of streams, was the bottleneck.

    Formula: `sent_ns - intended_ns`.
    """

    name = "send_delay_ms"
    header = "Send delay"
    unit = MILLISECONDS
    better = Better.LOWER

    def of(self, record: RequestRecord) -> float | None:
        """Return nanoseconds."""
        return record.sent_ns - record.intended_ns


class TokensPerSecondPerUser(RequestMetric):
    """Speed at which one user sees tokens appear, after the first response.

    Formula: `1 / TPOT`. Undefined where TPOT is, and where it is zero.
    """

    name = "tokens_per_s_per_user"
    header = "Tokens/s/user"
    unit = TOKENS_PER_S
    better = Better.HIGHER

    def of(self, record: RequestRecord) -> float | None:
        """Return tokens a second."""
        tpot_ns = TimePerOutputToken().of(record)
        return _NS_PER_S / tpot_ns if tpot_ns else None


class InputTokens(RequestMetric):
    """Length of the prompt. Undefined where nobody counted."""

    name = "input_tokens"
    header = "Input tokens"
    unit = TOKENS
    better = Better.NEITHER

    def of(self, record: RequestRecord) -> float | None:
        """Return tokens."""
        return record.input_tokens


class OutputTokens(RequestMetric):
    """Length of the answer."""

    name = "output_tokens"
    header = "Output tokens"
    unit = TOKENS
    better = Better.NEITHER

    def of(self, record: RequestRecord) -> float | None:
        """Return tokens."""
        return record.output_tokens
