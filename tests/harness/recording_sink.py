"""A sink that keeps what it is sent and refuses, as Triton's sender does, what comes after the end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NoReturn

from naiad.contract.errors import NaiadError
from naiad.contract.generation import FinishReason, TokenChunk

__all__ = ["RecordingSink", "SinkViolation"]

DEADLINE_S = 20.0


class SinkViolation(AssertionError):
    """The engine broke its promise to a sink."""


class RecordingSink:
    """Records one request's chunks and its end.

    Args:
        on_chunk: called with every accepted chunk, on the engine's thread, after it was recorded.
    """

    def __init__(self, on_chunk: Callable[[TokenChunk], None] | None = None) -> None:
        self.chunks: list[TokenChunk] = []
        self.error: NaiadError | None = None
        self.violations: list[str] = []
        self.polls = 0
        self._on_chunk = on_chunk
        self._thread: int | None = None
        self._cancelled = threading.Event()
        self._ended = threading.Event()

    # What the engine calls.

    def emit(self, chunk: TokenChunk) -> None:
        """Take a chunk."""
        self._on_one_thread()
        self._refuse_after_end(f"chunk {chunk}")
        if not chunk.ids and chunk.finish_reason is None:
            self._violated("an empty chunk that ends nothing")
        if (chunk.finish_reason is None) != (chunk.times is None):
            self._violated("times belong to the last chunk, and only to it")
        if chunk.log_probs and len(chunk.log_probs) != len(chunk.ids):
            self._violated(f"{len(chunk.log_probs)} log probabilities for {len(chunk.ids)} ids")
        self.chunks.append(chunk)
        if self._on_chunk is not None:
            self._on_chunk(chunk)
        if chunk.finish_reason is not None:
            self._ended.set()

    def fail(self, error: Exception) -> None:
        """Take the error that ends the request."""
        self._on_one_thread()
        self._refuse_after_end(f"error {error!r}")
        if not isinstance(error, NaiadError):
            self._ended.set()
            self._violated(f"{error!r} is outside the error tree")
        self.error = error
        self._ended.set()

    def is_cancelled(self) -> bool:
        """Whether `cancel` was called."""
        self.polls += 1
        return self._cancelled.is_set()

    # What a test calls.

    def cancel(self) -> None:
        """Be the caller who goes away."""
        self._cancelled.set()

    @property
    def ended(self) -> bool:
        """Whether the terminal message came."""
        return self._ended.is_set()

    @property
    def ids(self) -> list[int]:
        """All ids so far, in order."""
        return [token for chunk in self.chunks for token in chunk.ids]

    @property
    def log_probs(self) -> list[float]:
        """All log probabilities so far, in order."""
        return [value for chunk in self.chunks for value in chunk.log_probs]

    def wait(self, timeout_s: float = DEADLINE_S) -> RecordingSink:
        """Wait for the end.

        Raises:
            SinkViolation: it did not come in time, or the engine broke a promise.
        """
        if not self._ended.wait(timeout_s):
            raise SinkViolation(f"no terminal message within {timeout_s:g} s; got {self.ids}")
        if self.violations:
            raise SinkViolation("; ".join(self.violations))
        return self

    def reason(self, timeout_s: float = DEADLINE_S) -> FinishReason:
        """Wait for the end and return its finish reason; SinkViolation when it was an error."""
        self.wait(timeout_s)
        last = self.chunks[-1].finish_reason if self.chunks and self.error is None else None
        if last is None:
            raise SinkViolation(f"ended with {self.error!r}, not with a finish reason")
        return last

    def failure(self, timeout_s: float = DEADLINE_S) -> NaiadError:
        """Wait for the end and return its error; SinkViolation when it ended well."""
        self.wait(timeout_s)
        if self.error is None:
            raise SinkViolation(f"ended well after {self.ids}, not with an error")
        return self.error

    def _refuse_after_end(self, what: str) -> None:
        if self._ended.is_set():
            self._violated(f"{what} after the end")

    def _on_one_thread(self) -> None:
        # Identity of the calling thread: a promise of `Sink`, and what keeps chunks in order.
        current = threading.get_ident()
        if self._thread is None:
            self._thread = current
        elif self._thread != current:
            self._violated("called from two threads")

    def _violated(self, what: str) -> NoReturn:
        self.violations.append(what)
        raise SinkViolation(what)
