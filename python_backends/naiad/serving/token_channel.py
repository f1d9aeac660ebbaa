"""Tokens on their way from the engine model to a model of the same server that calls it.

Triton 2.51's Python backend delivers the responses of a call one at a time, each through two processes and
three thread switches (0.24 ms of processor time, measured), and its iterator of a decoupled call can deadlock
the whole process when several threads call at once (see `naiad.triton.bls`). So a caller may name a channel:
the call itself still goes through Triton and is answered there once, at its end, while its tokens come
through a local socket, one message a step for all streams.

    message: a list of (key, sequence, ids, log_probs, finish_reason, times, error)

The caller listens (`TokenReceiver`), the engine model connects (`TokenSenders`). Both are the same user's
processes on one machine; a peer of another user is refused before anything of it is read.
"""

from __future__ import annotations

import logging
import math
import os
import secrets
import socket
import struct
import threading
from collections.abc import Callable, Iterable
from dataclasses import astuple
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

from naiad.contract.errors import EngineUnavailable, InvalidArgument, NaiadError, format_error, parse_error
from naiad.contract.generation import FinishReason, RequestTimes, TokenChunk

__all__ = ["TokenReceiver", "TokenSender", "TokenSenders"]

_log = logging.getLogger(__name__)
_SEND_LIMIT_S = 15.0
"""A caller that reads nothing for so long is given up; the engine serves others too."""
_MERGED_MESSAGES = 64
"""Most messages taken together: what a reader that is behind may put into one response is bounded."""

Take = Callable[[TokenChunk], None]
Fail = Callable[[NaiadError], None]


class _Entry(NamedTuple):
    key: str
    sequence: int
    ids: list[int]
    log_probs: list[float]
    finish_reason: str | None
    times: tuple[float | None, ...] | None
    error: str | None


class TokenSender:
    """The engine's end of one caller's channel; for any thread."""

    def __init__(self, address: str) -> None:
        """Connect.

        Raises:
            InvalidArgument: nothing of this user listens at `address`.
        """
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connected:
            try:
                connected.connect(f"\0{address}")
            except (OSError, ValueError) as error:
                raise InvalidArgument("the token channel named does not exist on this machine") from error
            if not _same_user(connected):
                raise InvalidArgument("the token channel named belongs to another user")
            limit = struct.pack("ll", math.ceil(_SEND_LIMIT_S), 0)
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
            self._connection: Connection[Any, Any] = Connection(connected.detach())
        self._pending: list[_Entry] = []
        self._pending_lock = threading.Lock()
        self._sending_lock = threading.Lock()
        self._broken = False

    @property
    def broken(self) -> bool:
        """Whether the caller is gone; what is sent then is lost."""
        return self._broken

    def put(self, key: str, chunk: TokenChunk) -> None:
        """Queue tokens for the next `flush`."""
        reason = chunk.finish_reason.value if chunk.finish_reason else None
        times = astuple(chunk.times) if chunk.times else None
        self._put(_Entry(key, chunk.sequence, chunk.ids, chunk.log_probs, reason, times, None))

    def fail(self, key: str, error: NaiadError) -> None:
        """Queue the error that ended a call."""
        self._put(_Entry(key, 0, [], [], None, None, format_error(error)))

    def flush(self) -> None:
        """Send what is queued."""
        with self._sending_lock:
            with self._pending_lock:
                entries, self._pending = self._pending, []
            if not entries or self._broken:
                return
            try:
                self._connection.send([tuple(entry) for entry in entries])
            except OSError as error:
                _log.error("a caller's token channel failed: %r", error)
                self._broken = True
                self._connection.close()

    def close(self) -> None:
        """End the connection."""
        with self._sending_lock:
            self._broken = True
            self._connection.close()

    def _put(self, entry: _Entry) -> None:
        with self._pending_lock:
            self._pending.append(entry)


class TokenSenders:
    """The engine's ends of all callers' channels, one a caller."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._senders: dict[str, TokenSender] = {}

    def to(self, address: str) -> TokenSender:
        """Return the channel to a caller, connecting at first use; see `TokenSender` for the error."""
        with self._lock:
            known = self._senders.get(address)
            if known is None or known.broken:
                known = self._senders[address] = TokenSender(address)
            return known

    def flush(self) -> None:
        """Send what is queued for every caller; call it after each step of the engine."""
        for sender in list(self._senders.values()):
            sender.flush()

    def close(self) -> None:
        """End all connections."""
        for sender in list(self._senders.values()):
            sender.close()


class TokenReceiver:
    """The caller's end: hands every token to the call it belongs to, from a thread of its own.

    Args:
        merge: when the reader is behind, tokens of a sequence that have arrived are handed over together;
            otherwise as the engine sent them.
    """

    def __init__(self, *, merge: bool) -> None:
        self._merge = merge
        self._address = f"naiad-tokens-{os.getpid()}-{secrets.token_hex(8)}"
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(f"\0{self._address}")
        self._listener.listen()
        self._lock = threading.Lock()
        self._calls: dict[str, tuple[Take, Fail]] = {}
        self._closing, self._close = os.pipe()
        self._thread = threading.Thread(target=self._run, name="naiad-tokens", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """What a call names to have its tokens sent here."""
        return self._address

    def expect(self, key: str, take: Take, fail: Fail) -> None:
        """Have `take` called with every chunk of call `key`, `fail` with the error it ends in."""
        with self._lock:
            self._calls[key] = (take, fail)

    def forget(self, key: str) -> None:
        """Drop whatever still comes for a call."""
        with self._lock:
            self._calls.pop(key, None)

    def close(self) -> None:
        """End the thread."""
        os.write(self._close, b"x")
        self._thread.join(timeout=10)
        self._listener.close()

    def _run(self) -> None:
        connections: list[Connection[Any, Any]] = []
        while True:
            ready = wait([self._closing, self._listener, *connections])
            if self._closing in ready:
                break
            for source in ready:
                if source is self._listener:
                    connections += self._accepted()
                elif not self._read(source):  # type: ignore[arg-type]
                    connections.remove(source)  # type: ignore[arg-type]
        for connection in connections:
            connection.close()

    def _accepted(self) -> list[Connection[Any, Any]]:
        connected, _ = self._listener.accept()
        with connected:
            if _same_user(connected):
                return [Connection(connected.detach())]
        _log.error("a process of another user tried to send tokens; refused")
        return []

    def _read(self, connection: Connection[Any, Any]) -> bool:
        """Hand over what has arrived; False when the engine is gone."""
        entries: list[_Entry] = []
        try:
            entries += map(_Entry._make, connection.recv())
            for _ in range(_MERGED_MESSAGES - 1):
                if not self._merge or not connection.poll(0):
                    break
                entries += map(_Entry._make, connection.recv())
        except (EOFError, OSError):
            connection.close()
            self._hand_over(entries)
            self._lost()
            return False
        self._hand_over(_merged(entries) if self._merge else entries)
        return True

    def _hand_over(self, entries: Iterable[_Entry]) -> None:
        for entry in entries:
            with self._lock:
                call = self._calls.get(entry.key)
            if call is None:
                continue
            take, fail = call
            try:
                if entry.error is not None:
                    fail(parse_error(entry.error) or EngineUnavailable("the engine failed; retry later"))
                else:
                    reason = FinishReason(entry.finish_reason) if entry.finish_reason else None
                    times = RequestTimes(*entry.times) if entry.times else None  # type: ignore[arg-type]
                    take(TokenChunk(entry.ids, entry.log_probs, reason, times, entry.sequence))
            except Exception:  # noqa: BLE001 - the thread serves the other calls too
                _log.exception("tokens of call %s could not be handed over", entry.key)

    def _lost(self) -> None:
        """The engine model's process is gone, and with it every call."""
        with self._lock:
            calls = list(self._calls.values())
        for _, fail in calls:
            try:
                fail(EngineUnavailable("the engine went away; retry later"))
            except Exception:  # noqa: BLE001 - as above
                _log.exception("a call could not be ended")


def _merged(entries: list[_Entry]) -> Iterable[_Entry]:
    """Join the tokens of each sequence; order among sequences is that of their first tokens."""
    joined: dict[tuple[str, int], _Entry] = {}
    for entry in entries:
        place = entry.key, entry.sequence
        before = joined.get(place)
        if before is None:
            joined[place] = entry
        elif entry.error is not None:  # what was delivered before the failure still counts
            joined[entry.key, -1] = entry
        else:
            before.ids.extend(entry.ids)
            before.log_probs.extend(entry.log_probs)
            joined[place] = before._replace(finish_reason=entry.finish_reason, times=entry.times)
    return joined.values()


def _same_user(connected: socket.socket) -> bool:
    credentials = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, user, _ = struct.unpack("3i", credentials)
    return bool(user == os.getuid())
