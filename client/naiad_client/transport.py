"""The seam between the client and the wire: open one stream, make one unary call, close.

`naiad_client.grpc_sync` and `naiad_client.grpc_aio` implement it over gRPC; tests script it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from tritonclient.grpc import service_pb2

from naiad_client.errors import InvalidArgument

__all__ = ["AsyncTransport", "AsyncWire", "Received", "Transport", "Wire", "channel_options", "check_address"]

_MESSAGE_LIMIT_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Received:
    """One message of the stream and the monotonic time at which it arrived."""

    at_s: float
    message: service_pb2.ModelStreamInferResponse


class Wire(Protocol):
    """One open stream that carries one request."""

    def receive(self, wait_s: float | None) -> Received | None:
        """Return the next message; None when the server ended the stream well.

        Args:
            wait_s: how long to wait, 0 for not at all, None for as long as it takes.

        Raises:
            TimeoutError: nothing came within `wait_s`.
            NaiadError: the RPC failed, or was cancelled.
        """

    def cancel(self) -> None:
        """End the RPC at once, from any thread, any number of times; `receive` then raises `Cancelled`."""


class Transport(Protocol):
    """A connection to one server, shared by all streams of a client. Thread-safe."""

    def open(self, request: service_pb2.ModelInferRequest, *, deadline_s: float | None) -> Wire:
        """Send `request` on a stream of its own, to be ended by gRPC after `deadline_s` seconds."""

    def call(self, method: str, request: Any, *, timeout_s: float) -> Any:
        """Return the answer of a unary method of Triton's service, for example ``ServerLive``.

        Raises:
            NaiadError: the call failed.
        """

    def close(self) -> None:
        """End every stream and the connection."""


class AsyncWire(Protocol):
    """`Wire` for asyncio; `cancel` is called in the loop that reads."""

    async def receive(self, wait_s: float | None) -> Received | None:
        """As `Wire.receive`."""

    def cancel(self) -> None:
        """As `Wire.cancel`."""


class AsyncTransport(Protocol):
    """`Transport` for asyncio; used in one event loop."""

    def open(self, request: service_pb2.ModelInferRequest, *, deadline_s: float | None) -> AsyncWire:
        """As `Transport.open`."""

    async def call(self, method: str, request: Any, *, timeout_s: float) -> Any:
        """As `Transport.call`."""

    async def close(self) -> None:
        """As `Transport.close`."""


def check_address(address: str) -> str:
    """Return `address` when it has the form ``host:port``.

    Raises:
        InvalidArgument: it has a scheme, or no port.
    """
    host, _, port = address.rpartition(":")
    if "/" in address or not host or not port.isdigit():
        raise InvalidArgument(
            f"the server's address must look like host:port (its gRPC port), not {address!r}"
        )
    return address


def channel_options(address: str, connect_s: float) -> list[tuple[str, int]]:
    """Return the gRPC channel options, the same for both kinds of client."""
    options = [
        # gRPC's limit on one connection attempt has this name. An RPC then fails instead of waiting for more.
        ("grpc.min_reconnect_backoff_ms", max(1, round(connect_s * 1000))),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 1000),
        ("grpc.use_local_subchannel_pool", 1),  # closing this client closes its connection, no other one's
        ("grpc.max_receive_message_length", _MESSAGE_LIMIT_BYTES),
    ]
    host = address.rpartition(":")[0].strip("[]")
    if host == "localhost" or host == "::1" or host.startswith("127."):
        options.append(("grpc.enable_http_proxy", 0))  # no proxy can reach this machine's own loopback
    return options
