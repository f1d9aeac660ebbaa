"""`AsyncTransport` over a gRPC channel for asyncio."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from naiad_client.errors import Cancelled, NaiadError
from naiad_client.transport import AsyncWire, Received, channel_options, check_address
from naiad_client.wire_errors import error_from_status

__all__ = ["AioGrpcTransport"]

_ALREADY_HERE_S = 0.05
"""The least wait: a message that has already arrived takes some turns of the loop to come out."""


class AioGrpcTransport:
    """One insecure channel to ``host:port``, opened at first use and bound to that event loop."""

    def __init__(
        self, address: str, *, connect_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._address = check_address(address)
        self._connect_s = connect_s
        self._clock = clock
        self._channel: Any = None
        self._stub: Any = None
        self._closed = False

    def open(self, request: service_pb2.ModelInferRequest, *, deadline_s: float | None) -> AsyncWire:
        """See `Transport.open`; must be called inside a running event loop."""
        call = self._connected().ModelStreamInfer(iter([request]), timeout=deadline_s)
        return _AioWire(call, self._address, self._clock)

    async def call(self, method: str, request: Any, *, timeout_s: float) -> Any:
        """See `Transport.call`."""
        try:
            return await getattr(self._connected(), method)(request, timeout=timeout_s)
        except grpc.RpcError as error:
            raise _typed(error, self._address) from error

    async def close(self) -> None:
        """See `Transport.close`."""
        self._closed = True
        if self._channel is not None:
            await self._channel.close()

    def _connected(self) -> Any:
        if self._closed:
            raise NaiadError("the client is closed")
        if self._stub is None:
            options = channel_options(self._address, self._connect_s)
            self._channel = grpc.aio.insecure_channel(self._address, options=options)
            self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)
        return self._stub


class _AioWire:
    def __init__(self, call: Any, address: str, clock: Callable[[], float]) -> None:
        self._call = call
        self._address = address
        self._clock = clock
        self._expired = False
        self._cancelled = False

    async def receive(self, wait_s: float | None) -> Received | None:
        # A timer costs less than a task for each read, and a limit that is hit ends the call anyway.
        timer = None
        if wait_s is not None:
            timer = asyncio.get_running_loop().call_later(max(wait_s, _ALREADY_HERE_S), self._expire)
        try:
            message = await self._call.read()
        except grpc.RpcError as error:
            raise _typed(error, self._address) from error
        except asyncio.CancelledError:
            # gRPC reports a call that this side ended in the same way as a task that somebody cancels.
            if _task_is_being_cancelled():
                raise
            if self._expired:
                raise TimeoutError from None
            if self._cancelled:
                raise Cancelled("the call was cancelled by this client") from None
            raise
        finally:
            if timer is not None:
                timer.cancel()
        if message is grpc.aio.EOF:  # type: ignore[attr-defined]
            return None
        return Received(self._clock(), message)

    def cancel(self) -> None:
        self._cancelled = True
        self._call.cancel()

    def _expire(self) -> None:
        self._expired = True
        self._call.cancel()


def _task_is_being_cancelled() -> bool:
    task = asyncio.current_task()
    # Python 3.10 cannot tell; there only what this side did decides.
    cancelling = getattr(task, "cancelling", None)
    return cancelling is not None and cancelling() > 0


def _typed(error: Any, address: str) -> NaiadError:
    return error_from_status(error.code().name, error.details() or "", address=address)
