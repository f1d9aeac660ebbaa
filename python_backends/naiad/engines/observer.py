"""What an engine tells whoever measures it."""

from __future__ import annotations

from typing import Protocol

from naiad.contract.generation import FinishReason

__all__ = ["EngineObserver", "NullObserver"]


class EngineObserver(Protocol):
    """Called from the engine's own thread: must be quick and must not raise. Times in seconds."""

    def scheduled(self, queue_s: float) -> None:
        """A request left the waiting queue for its first step."""

    def first_token(self, ttft_s: float) -> None:
        """The first token of a request was delivered, `ttft_s` after it was submitted."""

    def next_tokens(self, interval_s: float, count: int) -> None:
        """`count` further tokens were delivered, `interval_s` after the previous delivery."""

    def finished(self, prompt_tokens: int, output_tokens: int, reason: FinishReason) -> None:
        """A request ended by itself or by cancellation."""


class NullObserver:
    """Measures nothing."""

    def scheduled(self, queue_s: float) -> None:
        """Ignore."""

    def first_token(self, ttft_s: float) -> None:
        """Ignore."""

    def next_tokens(self, interval_s: float, count: int) -> None:
        """Ignore."""

    def finished(self, prompt_tokens: int, output_tokens: int, reason: FinishReason) -> None:
        """Ignore."""
