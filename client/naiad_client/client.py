"""The blocking client."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from tritonclient.grpc import service_pb2

from naiad_client.errors import NaiadError
from naiad_client.grpc_sync import GrpcTransport
from naiad_client.inspection import CANARY, Health, ModelState, model_states, not_well
from naiad_client.limits import Retries, Timeouts
from naiad_client.request import GenerationRequest
from naiad_client.response import Chunk, Completion
from naiad_client.session import DRAIN_S, Session
from naiad_client.transport import Transport, Wire

__all__ = ["DEFAULT_MODEL", "DEFAULT_URL", "Client", "Stream"]

DEFAULT_URL = "127.0.0.1:8001"
DEFAULT_MODEL = "tensorrt_llm_bls"


class Client:
    """A client of one server; safe to share between threads, all streams use one connection.

    Args:
        url: ``host:port`` of the server's gRPC endpoint. The connection is made at the first call.
        model: the model that calls go to unless they name another one.
        timeouts: limits of every call that brings none of its own.
        retries: when a failed call is repeated.
        transport: another way to reach the server; for tests.
        clock: monotonic time in seconds; for tests.

    Raises:
        InvalidArgument: `url` is not ``host:port``.

    Example:
        >>> with Client("127.0.0.1:8001") as client:  # doctest: +SKIP
        ...     with client.stream("Why is the sky blue?") as stream:
        ...         for chunk in stream:
        ...             print(chunk.text, end="", flush=True)
        ...     print(stream.completion.timings.ttft_s)
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        model: str = DEFAULT_MODEL,
        timeouts: Timeouts | None = None,
        retries: Retries | None = None,
        transport: Transport | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._model = model
        self._timeouts = timeouts or Timeouts()
        self._retries = retries or Retries()
        self._clock = clock
        self._transport = transport or GrpcTransport(url, connect_s=self._timeouts.connect_s, clock=clock)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End every stream and the connection."""
        self._transport.close()

    def stream(
        self,
        request: GenerationRequest | str,
        *,
        model: str | None = None,
        timeouts: Timeouts | None = None,
        request_id: str | None = None,
    ) -> Stream:
        """Return the stream of one answer; nothing is sent before it is entered or read.

        Args:
            request: what to generate; a plain text is one question to a chat model.
            model: instead of the client's model.
            timeouts: instead of the client's limits (`connect_s` stays the client's).
            request_id: to find the request in the server's log; made up when None. Must be unique.
        """
        session = Session(
            GenerationRequest.ask(request) if isinstance(request, str) else request,
            model=model or self._model,
            timeouts=timeouts or self._timeouts,
            retries=self._retries,
            request_id=request_id,
            clock=self._clock,
        )
        return Stream(self._transport, session)

    def generate(
        self,
        request: GenerationRequest | str,
        *,
        model: str | None = None,
        timeouts: Timeouts | None = None,
        request_id: str | None = None,
    ) -> Completion:
        """Return the whole answer; arguments as for `stream`.

        Raises:
            NaiadError: it failed; see `naiad_client.errors`.
        """
        with self.stream(request, model=model, timeouts=timeouts, request_id=request_id) as stream:
            return stream.result()

    def models(self) -> tuple[ModelState, ...]:
        """Return all models of the server.

        Raises:
            NaiadError: the server cannot be asked.
        """
        return model_states(self._call("RepositoryIndex", service_pb2.RepositoryIndexRequest()))

    def health(self, *, model: str | None = None, timeouts: Timeouts | None = None) -> Health:
        """Check that the server lives, then that it is ready, then that it can generate one token."""
        live = ready = False
        try:
            live = bool(self._call("ServerLive", service_pb2.ServerLiveRequest()).live)
            ready = live and bool(self._call("ServerReady", service_pb2.ServerReadyRequest()).ready)
            if not ready:
                return not_well(live)
            canary = self.generate(CANARY, model=model, timeouts=timeouts)
        except NaiadError as error:
            return Health(live, ready, None, error)
        return Health(live, ready, canary.timings.total_s, None)

    def _call(self, method: str, request: Any) -> Any:
        return self._transport.call(method, request, timeout_s=self._timeouts.connect_s)


class Stream:
    """One answer as it arrives: a context manager and an iterator of `Chunk`.

    Leaving the context before the end, or with an exception, cancels the request on the server. Use the
    context manager unless you read to the end. One thread reads; any thread may call `cancel`.
    """

    def __init__(self, transport: Transport, session: Session) -> None:
        self._transport = transport
        self._session = session
        self._wire: Wire | None = None
        self._stopped = threading.Event()

    @property
    def request_id(self) -> str:
        """The id under which the server knows the request."""
        return self._session.request_id

    @property
    def text(self) -> str:
        """The answer so far, also after an error."""
        return self._session.text

    @property
    def completion(self) -> Completion:
        """The whole answer, once the stream is over; after `cancel`, what there was of it.

        Raises:
            NaiadError: the request failed.
            RuntimeError: the stream is not over.
        """
        return self._session.completion()

    def __enter__(self) -> Stream:
        if self._wire is None:
            self._open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> Chunk:
        """Return the next chunk.

        Raises:
            NaiadError: the request failed; nothing comes after it.
        """
        try:
            chunk = self._next()
        except BaseException:
            self.close()
            raise
        if chunk is None:
            self._settle()
            raise StopIteration
        return chunk

    def result(self) -> Completion:
        """Read what is left and return the whole answer.

        Raises:
            NaiadError: the request failed.
        """
        for _ in self:
            pass
        return self.completion

    def cancel(self) -> None:
        """End the request; returns at once. Iteration stops without an error. Harmless when it is over."""
        self._stopped.set()
        wire = self._wire
        if wire is not None:
            wire.cancel()

    def close(self) -> None:
        """Cancel the request unless it is over."""
        if self._wire is not None and not self._session.finished:
            self._wire.cancel()
        self._session.cancelled()

    def _open(self) -> None:
        request = self._session.next_attempt()
        self._wire = self._transport.open(request, deadline_s=self._session.left_s())
        if self._stopped.is_set():  # `cancel` may have looked before the wire was there
            self._wire.cancel()

    def _next(self) -> Chunk | None:
        while not self._session.over and not self._stopped.is_set():
            try:
                if self._wire is None:
                    self._open()
                chunk = self._receive()
                if chunk is not None:
                    return chunk
            except NaiadError as error:
                if self._stopped.is_set():
                    break
                pause = self._session.pause_before_retry(error)
                self._drop_wire()
                self._stopped.wait(pause)
        self._session.cancelled()
        return None

    def _receive(self) -> Chunk | None:
        wire = self._wire
        while wire is not None and not self._session.finished:
            try:
                received = wire.receive(self._session.wait_s())
            except TimeoutError:
                raise self._session.timed_out() from None
            if self._stopped.is_set():
                return None
            if received is None:
                raise self._session.truncated()
            chunk = self._session.accept(received)
            if chunk is not None:
                return chunk
        return None

    def _settle(self) -> None:
        """Let the server end the stream after the final flag: a cancel would race with its clean-up."""
        wire, self._wire = self._wire, None
        if wire is None or not self._session.finished:
            return
        try:
            more = wire.receive(DRAIN_S)
        except (TimeoutError, NaiadError):
            more = None
            wire.cancel()
        if more is not None:
            wire.cancel()

    def _drop_wire(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.cancel()
