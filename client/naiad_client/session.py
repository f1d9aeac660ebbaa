"""The course of one call, without any I/O: limits, attempts, what a message means, how it ends.

`client.Stream` and `aio.AsyncStream` drive it and differ only in how they wait.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable

from tritonclient.grpc import service_pb2

from naiad_client.errors import (
    FirstTokenTimeout,
    IdleTimeout,
    IncompleteStream,
    NaiadError,
    TotalTimeout,
)
from naiad_client.limits import Retries, Timeouts
from naiad_client.request import GenerationRequest
from naiad_client.response import Assembly, Chunk, Completion
from naiad_client.transport import Received
from naiad_client.wire_errors import error_from_text

__all__ = ["DRAIN_S", "Session"]

DRAIN_S = 1.0
"""After the final flag: how long the server may take to end the stream by itself before it is cancelled."""


class Session:
    """State of one call, over all its attempts. Used by one thread or task."""

    def __init__(
        self,
        request: GenerationRequest,
        *,
        model: str,
        timeouts: Timeouts,
        retries: Retries,
        request_id: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.request_id = request_id or uuid.uuid4().hex
        self._request = request
        self._model = model
        self._timeouts = timeouts
        self._retries = retries
        self._clock = clock
        self._attempt = 0
        self._started_s = clock()
        self._assembly = Assembly()
        self._finished = False
        self._completion: Completion | None = None
        self._error: NaiadError | None = None
        self._awaited: type[NaiadError] = TotalTimeout

    @property
    def finished(self) -> bool:
        """Whether the final flag has come."""
        return self._finished

    @property
    def over(self) -> bool:
        """Whether the call has ended in any way: completed, cancelled or failed."""
        return self._finished or self._completion is not None or self._error is not None

    @property
    def text(self) -> str:
        """The answer so far."""
        return self._assembly.text

    def next_attempt(self) -> service_pb2.ModelInferRequest:
        """Return the message for the next attempt; the first one starts the clock."""
        self._attempt += 1
        if self._attempt == 1:
            self._started_s = self._clock()
        # A failed attempt may still live on the server, and ids of live requests must differ.
        suffix = "" if self._attempt == 1 else f".{self._attempt}"
        return self._request.to_protobuf(
            model=self._model, request_id=self.request_id + suffix, timeout_s=self.left_s()
        )

    def left_s(self) -> float | None:
        """Return what is left of the total limit, at least a millisecond; None without a limit."""
        if self._timeouts.total_s is None:
            return None
        return max(self._started_s + self._timeouts.total_s - self._clock(), 0.001)

    def wait_s(self) -> float | None:
        """Return how long the next message may take from now; None without a limit."""
        limits = self._limits()
        if not limits:
            return None
        self._awaited, wait = min(limits, key=lambda limit: limit[1])
        return max(wait, 0.0)

    def timed_out(self) -> NaiadError:
        """Return the error for the limit that the last `wait_s` stood for."""
        if self._awaited is FirstTokenTimeout:
            return FirstTokenTimeout(f"no token within {self._timeouts.first_token_s:g} s")
        if self._awaited is IdleTimeout:
            return IdleTimeout(
                f"the answer stopped: nothing for {self._timeouts.between_tokens_s:g} s", partial=True
            )
        return TotalTimeout(f"the answer was not complete within {self._timeouts.total_s:g} s")

    def accept(self, received: Received) -> Chunk | None:
        """Take one message; None when it adds nothing to the answer.

        Raises:
            NaiadError: the message reports one, or is malformed.
        """
        message = received.message
        if message.error_message:
            raise error_from_text(message.error_message)
        response = message.infer_response
        chunk = self._assembly.add(response, received.at_s)
        if response.parameters["triton_final_response"].bool_param:
            self._finished = True
            self._completion = self._assembly.completion(started_s=self._started_s, ended_s=received.at_s)
        return chunk

    def truncated(self) -> NaiadError:
        """Return the error for a stream that ended without its final flag."""
        return IncompleteStream("the stream ended before the answer was complete")

    def pause_before_retry(self, error: NaiadError) -> float:
        """Return the pause in seconds after which to try again.

        Raises:
            NaiadError: `error` itself, marked as partial where it is, when the call must not be repeated.
        """
        error.partial = error.partial or self._assembly.started
        if error.partial or not error.retryable or self._attempt >= self._retries.attempts:
            raise self._failed(error)
        pause = self._retries.pause_s(self._attempt, random.random())  # noqa: S311 - only spreads load
        if any(wait <= pause for _, wait in self._limits()):
            raise self._failed(error)
        return pause

    def cancelled(self) -> None:
        """The caller ended it: what there is becomes the completion, unless the call was over before."""
        if not self.over:
            self._completion = self._assembly.completion(
                started_s=self._started_s, ended_s=self._clock(), finish_reason="cancelled"
            )

    def completion(self) -> Completion:
        """Return the whole answer.

        Raises:
            NaiadError: the call failed; the same error as iterating raised.
            RuntimeError: the call is not over yet.
        """
        if self._error is not None:
            raise self._error
        if self._completion is None:
            raise RuntimeError("the answer is not complete yet: read the stream to its end first")
        return self._completion

    def _failed(self, error: NaiadError) -> NaiadError:
        self._error = error
        return error

    def _limits(self) -> list[tuple[type[NaiadError], float]]:
        """Each limit that applies now, with the seconds left of it."""
        limits: list[tuple[type[NaiadError], float]] = []
        now = self._clock()
        if self._timeouts.total_s is not None:
            limits.append((TotalTimeout, self._started_s + self._timeouts.total_s - now))
        if self._assembly.started:
            if self._timeouts.between_tokens_s is not None:
                limits.append((IdleTimeout, self._timeouts.between_tokens_s))
        elif self._timeouts.first_token_s is not None:
            limits.append((FirstTokenTimeout, self._started_s + self._timeouts.first_token_s - now))
        return limits
