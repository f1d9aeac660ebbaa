"""Speed and price: what a run delivered for each second of its measured window."""

from __future__ import annotations

from naiad_perf.metrics.base import PER_SECOND, SECONDS, TOKENS, TOKENS_PER_S, USD, Better, RunMetric
from naiad_perf.metrics.slos import Slos
from naiad_perf.metrics.window import per_second, window_ns
from naiad_perf.records import Run

__all__ = [
    "CostPerMillionTokens",
    "Duration",
    "RequestsPerSecond",
    "ResponsesPerSecond",
    "TokensPerResponse",
    "TokensPerSecond",
]


class TokensPerSecond(RunMetric):
    """Output tokens of successful requests, for each second of the measured window.

    Formula: `tokens / (last end - first intended send)`, over measured requests. The window holds failed and
    cancelled requests too, their tokens do not count.
    """

    name = "tokens_per_s"
    header = "Tokens/s"
    unit = TOKENS_PER_S
    better = Better.HIGHER

    def of(self, run: Run, slos: Slos) -> float | None:
        """Return tokens a second."""
        return per_second(run, sum(record.output_tokens for record in run.succeeded))


class RequestsPerSecond(RunMetric):
    """Successful requests for each second of the measured window (see tokens/s)."""

    name = "requests_per_s"
    header = "Requests/s"
    unit = PER_SECOND
    better = Better.HIGHER

    def of(self, run: Run, slos: Slos) -> float | None:
        """Return requests a second."""
        return per_second(run, len(run.succeeded))


class ResponsesPerSecond(RunMetric):
    """Responses with tokens, of successful requests, for each second of the measured window (see tokens/s).

    Neither way is better: a server that puts more tokens into a response sends fewer.
    """

    name = "responses_per_s"
    header = "Responses/s"
    unit = PER_SECOND
    better = Better.NEITHER

    def of(self, run: Run, slos: Slos) -> float | None:
        """Return responses a second."""
        return per_second(run, sum(len(record.response_ns) for record in run.succeeded))


class TokensPerResponse(RunMetric):
    """Mean tokens of a response: above 1 where tokens that wait together are sent together.

    Formula: `tokens / responses`, over successful requests.
    """

    name = "tokens_per_response"
    header = "Tokens/response"
    unit = TOKENS
    better = Better.NEITHER

    def of(self, run: Run, slos: Slos) -> float | None:
        """Return tokens a response."""
        responses = sum(len(record.response_ns) for record in run.succeeded)
        return sum(record.output_tokens for record in run.succeeded) / responses if responses else None


class Duration(RunMetric):
    """Length of the measured window: from the first intended send to the last end of a measured request."""

    name = "duration_s"
    header = "Duration"
    unit = SECONDS
    better = Better.NEITHER

    def of(self, run: Run, slos: Slos) -> float | None:
        """Return nanoseconds."""
        return window_ns(run)


class CostPerMillionTokens(RunMetric):
    """Price of a million output tokens at the stated hourly price of the serving machine.

    Formula: `hourly price / (tokens/s * 3600) * 1,000,000`. Undefined without a price, or without tokens.
    """

    name = "usd_per_million_tokens"
    header = "Cost per million tokens"
    unit = USD
    better = Better.LOWER

    def of(self, run: Run, slos: Slos) -> float | None:
        """Return US dollars."""
        price, speed = run.facts.hourly_price_usd, TokensPerSecond().of(run, slos)
        return None if price is None or not speed else price / (speed * 3600) * 1_000_000
