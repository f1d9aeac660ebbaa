"""The client for asyncio: the same surface as `naiad_client.client`, awaited."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from tritonclient.grpc import service_pb2

from naiad_client.client import DEFAULT_MODEL, DEFAULT_URL
from naiad_client.errors import NaiadError
from naiad_client.grpc_aio import AioGrpcTransport
from naiad_client.inspection import CANARY, Health, ModelState, model_states, not_well
from naiad_client.limits import Retries, Timeouts
from naiad_client.request import GenerationRequest
from naiad_client.response import Chunk, Completion
from naiad_client.session import DRAIN_S, Session
from naiad_client.transport import AsyncTransport, AsyncWire

__all__ = ["AsyncClient", "AsyncStream"]


class AsyncClient:
    """A client of one server for one event loop; arguments as for `naiad_client.client.Client`.

    Example:
        >>> async with AsyncClient() as client:  # doctest: +SKIP
        ...     async with client.stream("Why is the sky blue?") as stream:
        ...         async for chunk in stream:
        ...             print(chunk.text, end="", flush=True)
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        model: str = DEFAULT_MODEL,
        timeouts: Timeouts | None = None,
        retries: Retries | None = None,
        transport: AsyncTransport | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._model = model
        self._timeouts = timeouts or Timeouts()
        self._retries = retries or Retries()
        self._clock = clock
        self._transport = transport or AioGrpcTransport(url, connect_s=self._timeouts.connect_s, clock=clock)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End every stream and the connection."""
        await self._transport.close()

    def stream(
        self,
        request: GenerationRequest | str,
        *,
        model: str | None = None,
        timeouts: Timeouts | None = None,
        request_id: str | None = None,
    ) -> AsyncStream:
        """Return the stream of one answer; as `Client.stream`."""
        session = Session(
            GenerationRequest.ask(request) if isinstance(request, str) else request,
            model=model or self._model,
            timeouts=timeouts or self._timeouts,
            retries=self._retries,
            request_id=request_id,
            clock=self._clock,
        )
        return AsyncStream(self._transport, session)

    async def generate(
        self,
        request: GenerationRequest | str,
        *,
        model: str | None = None,
        timeouts: Timeouts | None = None,
        request_id: str | None = None,
    ) -> Completion:
        """Return the whole answer; as `Client.generate`. Cancelling the task cancels the request.

        Raises:
            NaiadError: it failed; see `naiad_client.errors`.
        """
        async with self.stream(request, model=model, timeouts=timeouts, request_id=request_id) as stream:
            return await stream.result()

    async def models(self) -> tuple[ModelState, ...]:
        """Return all models of the server.

        Raises:
            NaiadError: the server cannot be asked.
        """
        return model_states(await self._call("RepositoryIndex", service_pb2.RepositoryIndexRequest()))

    async def health(self, *, model: str | None = None, timeouts: Timeouts | None = None) -> Health:
        """Check live, ready and a generation of one token; as `Client.health`."""
        live = ready = False
        try:
            live = bool((await self._call("ServerLive", service_pb2.ServerLiveRequest())).live)
            ready = live and bool((await self._call("ServerReady", service_pb2.ServerReadyRequest())).ready)
            if not ready:
                return not_well(live)
            canary = await self.generate(CANARY, model=model, timeouts=timeouts)
        except NaiadError as error:
            return Health(live, ready, None, error)
        return Health(live, ready, canary.timings.total_s, None)

    async def _call(self, method: str, request: Any) -> Any:
        return await self._transport.call(method, request, timeout_s=self._timeouts.connect_s)


class AsyncStream:
    """One answer as it arrives: an async context manager and async iterator of `Chunk`.

    As `naiad_client.client.Stream`; `cancel` is called in the same event loop. Cancelling the reading task
    cancels the request on the server.
    """

    def __init__(self, transport: AsyncTransport, session: Session) -> None:
        self._transport = transport
        self._session = session
        self._wire: AsyncWire | None = None
        self._stopped = asyncio.Event()

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
        """The whole answer, once the stream is over; as `Stream.completion`."""
        return self._session.completion()

    async def __aenter__(self) -> AsyncStream:
        if self._wire is None:
            self._open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __aiter__(self) -> AsyncStream:
        return self

    async def __anext__(self) -> Chunk:
        """Return the next chunk.

        Raises:
            NaiadError: the request failed; nothing comes after it.
        """
        try:
            chunk = await self._next()
        except BaseException:
            self.close()
            raise
        if chunk is None:
            await self._settle()
            raise StopAsyncIteration
        return chunk

    async def result(self) -> Completion:
        """Read what is left and return the whole answer.

        Raises:
            NaiadError: the request failed.
        """
        async for _ in self:
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

    async def _next(self) -> Chunk | None:
        while not self._session.over and not self._stopped.is_set():
            try:
                if self._wire is None:
                    self._open()
                chunk = await self._receive()
                if chunk is not None:
                    return chunk
            except NaiadError as error:
                if self._stopped.is_set():
                    break
                pause = self._session.pause_before_retry(error)
                self._drop_wire()
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._stopped.wait(), pause)
        self._session.cancelled()
        return None

    async def _receive(self) -> Chunk | None:
        wire = self._wire
        while wire is not None and not self._session.finished:
            try:
                received = await wire.receive(self._session.wait_s())
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

    async def _settle(self) -> None:
        """After the final flag let the server end the stream; see `Stream`."""
        wire, self._wire = self._wire, None
        if wire is None or not self._session.finished:
            return
        try:
            more = await wire.receive(DRAIN_S)
        except (TimeoutError, NaiadError):
            more = None
            wire.cancel()
        if more is not None:
            wire.cancel()

    def _drop_wire(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.cancel()
