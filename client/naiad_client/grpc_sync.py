"""`Transport` over a blocking gRPC channel."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from naiad_client.errors import NaiadError
from naiad_client.transport import Received, Wire, channel_options, check_address
from naiad_client.wire_errors import error_from_status

__all__ = ["GrpcTransport"]


class GrpcTransport:
    """One insecure channel to ``host:port``; many streams at once, from any thread."""

    def __init__(
        self, address: str, *, connect_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._address = check_address(address)
        self._clock = clock
        self._channel = grpc.insecure_channel(address, options=channel_options(address, connect_s))
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)

    def open(self, request: service_pb2.ModelInferRequest, *, deadline_s: float | None) -> Wire:
        """See `Transport.open`; sending ends at once, so the server ends the stream by itself."""
        try:
            call = self._stub.ModelStreamInfer(iter([request]), timeout=deadline_s)
        except ValueError as error:  # gRPC's word for a closed channel
            raise NaiadError("the client is closed") from error
        return _GrpcWire(call, self._address, self._clock)

    def call(self, method: str, request: Any, *, timeout_s: float) -> Any:
        """See `Transport.call`."""
        try:
            return getattr(self._stub, method)(request, timeout=timeout_s)
        except grpc.RpcError as error:
            raise _typed(error, self._address) from error
        except ValueError as error:
            raise NaiadError("the client is closed") from error

    def close(self) -> None:
        """See `Transport.close`."""
        self._channel.close()


class _GrpcWire:
    """Reads in a thread of its own, because gRPC's blocking iterator cannot wait with a limit.

    That also makes the arrival times independent of how fast the caller reads.
    """

    def __init__(self, call: Any, address: str, clock: Callable[[], float]) -> None:
        self._call = call
        self._inbox: queue.SimpleQueue[Received | NaiadError | None] = queue.SimpleQueue()
        reader = threading.Thread(
            target=_pump, args=(call, self._inbox, address, clock), name="naiad-client-stream", daemon=True
        )
        reader.start()

    def receive(self, wait_s: float | None) -> Received | None:
        try:
            item = self._inbox.get(timeout=wait_s)
        except queue.Empty:
            raise TimeoutError from None
        if isinstance(item, NaiadError):
            raise item
        return item

    def cancel(self) -> None:
        self._call.cancel()


def _pump(
    call: Any,
    inbox: queue.SimpleQueue[Received | NaiadError | None],
    address: str,
    clock: Callable[[], float],
) -> None:
    try:
        for message in call:
            inbox.put(Received(clock(), message))
    except grpc.RpcError as error:
        inbox.put(_typed(error, address))
    else:
        inbox.put(None)


def _typed(error: Any, address: str) -> NaiadError:
    return error_from_status(error.code().name, error.details() or "", address=address)
