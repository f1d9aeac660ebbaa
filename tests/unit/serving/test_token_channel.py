"""Tokens through a local socket: each arrives, in order, at the call it belongs to; both ends can vanish."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

import pytest

from naiad.contract.errors import InvalidArgument, NaiadError, Overloaded
from naiad.contract.generation import FinishReason, RequestTimes, TokenChunk
from naiad.serving import token_channel
from naiad.serving.token_channel import TokenReceiver, TokenSender, TokenSenders
from tests.harness.polling import poll


class Call:
    """Collects what one call is handed."""

    def __init__(self, receiver: TokenReceiver, key: str) -> None:
        self.chunks: list[TokenChunk] = []
        self.errors: list[NaiadError] = []
        receiver.expect(key, self.chunks.append, self.errors.append)

    @property
    def ids(self) -> list[int]:
        return [token for chunk in self.chunks for token in chunk.ids]


class Gate:
    """Keeps the receiver's thread busy until it is opened."""

    def __init__(self, receiver: TokenReceiver, sender: TokenSender) -> None:
        self.entered, self._open = threading.Event(), threading.Event()
        receiver.expect("gate", self._wait, lambda error: None)
        sender.put("gate", TokenChunk([0]))
        sender.flush()
        assert self.entered.wait(10)

    def _wait(self, chunk: TokenChunk) -> None:
        self.entered.set()
        assert self._open.wait(10)

    def open(self) -> None:
        self._open.set()


@pytest.fixture(params=[True, False], ids=["merging", "one by one"])
def receiver(request: pytest.FixtureRequest) -> Iterator[TokenReceiver]:
    made = TokenReceiver(merge=request.param)
    yield made
    made.close()


@pytest.fixture
def merging() -> Iterator[TokenReceiver]:
    made = TokenReceiver(merge=True)
    yield made
    made.close()


@pytest.fixture
def senders() -> Iterator[TokenSenders]:
    made = TokenSenders()
    yield made
    made.close()


def test_a_chunk_arrives_as_it_was(receiver: TokenReceiver, senders: TokenSenders) -> None:
    call = Call(receiver, "a")
    times = RequestTimes(1.0, 2.0, 3.0, None)
    sent = TokenChunk([5, 6], [-0.5, -0.25], FinishReason.LENGTH, times, sequence=2)
    senders.to(receiver.address).put("a", sent)
    senders.flush()
    poll(lambda: bool(call.chunks))
    assert call.chunks == [sent]


def test_tokens_of_many_calls_arrive_in_order_and_do_not_mix(
    receiver: TokenReceiver, senders: TokenSenders
) -> None:
    calls = {str(number): Call(receiver, str(number)) for number in range(20)}
    sender = senders.to(receiver.address)
    for step in range(200):
        for number, key in enumerate(calls):
            sender.put(key, TokenChunk([1000 * number + step]))
        senders.flush()
    poll(lambda: all(len(call.ids) == 200 for call in calls.values()))
    for number, call in enumerate(calls.values()):
        assert call.ids == [1000 * number + step for step in range(200)]


def test_a_receiver_that_is_behind_takes_tokens_of_a_sequence_together(
    merging: TokenReceiver, senders: TokenSenders
) -> None:
    call = Call(merging, "a")
    sender = senders.to(merging.address)
    gate = Gate(merging, sender)
    for token in range(3):
        sender.put("a", TokenChunk([token], [-1.0 * token]))
        sender.put("a", TokenChunk([10 + token], sequence=1))
        senders.flush()
    sender.put("a", TokenChunk([], finish_reason=FinishReason.STOP, times=RequestTimes(1.0, 1.0, 2.0, 3.0)))
    senders.flush()
    gate.open()
    poll(lambda: len(call.chunks) == 2)
    assert call.chunks == [
        TokenChunk([0, 1, 2], [0.0, -1.0, -2.0], FinishReason.STOP, RequestTimes(1.0, 1.0, 2.0, 3.0)),
        TokenChunk([10, 11, 12], sequence=1),
    ]


def test_tokens_before_an_error_are_still_delivered(merging: TokenReceiver, senders: TokenSenders) -> None:
    call = Call(merging, "a")
    sender = senders.to(merging.address)
    gate = Gate(merging, sender)
    sender.put("a", TokenChunk([1]))
    sender.fail("a", Overloaded("busy"))
    senders.flush()
    gate.open()
    poll(lambda: bool(call.errors))
    assert call.ids == [1]
    assert (call.errors[0].code, call.errors[0].message) == ("QUEUE_FULL", "busy")


def test_nothing_is_sent_before_the_flush(merging: TokenReceiver, senders: TokenSenders) -> None:
    first, second = Call(merging, "a"), Call(merging, "b")
    sender = senders.to(merging.address)
    sender.put("a", TokenChunk([1]))
    other = TokenSender(merging.address)
    other.put("b", TokenChunk([2]))
    other.flush()
    poll(lambda: second.ids == [2])
    assert first.ids == []
    senders.flush()
    poll(lambda: first.ids == [1])
    other.close()


def test_what_comes_for_a_forgotten_call_is_dropped(receiver: TokenReceiver, senders: TokenSenders) -> None:
    gone, here = Call(receiver, "gone"), Call(receiver, "here")
    receiver.forget("gone")
    sender = senders.to(receiver.address)
    sender.put("gone", TokenChunk([1]))
    sender.put("here", TokenChunk([2]))
    senders.flush()
    poll(lambda: here.ids == [2])
    assert gone.ids == []


def test_a_call_that_raises_does_not_keep_the_others_from_their_tokens(
    receiver: TokenReceiver, senders: TokenSenders
) -> None:
    def broken(_: Any) -> None:
        raise RuntimeError("a bug")

    receiver.expect("broken", broken, broken)
    call = Call(receiver, "a")
    sender = senders.to(receiver.address)
    sender.put("broken", TokenChunk([1]))
    sender.put("a", TokenChunk([2]))
    senders.flush()
    poll(lambda: call.ids == [2])


def test_an_engine_that_goes_away_fails_every_call_after_its_last_tokens(receiver: TokenReceiver) -> None:
    calls = [Call(receiver, "a"), Call(receiver, "b")]
    sender = TokenSender(receiver.address)
    sender.put("a", TokenChunk([1]))
    sender.flush()
    sender.close()
    poll(lambda: all(call.errors for call in calls))
    assert calls[0].ids == [1]
    assert [(call.errors[0].code, call.errors[0].retryable) for call in calls] == [
        ("ENGINE_UNAVAILABLE", True)
    ] * 2


def test_another_engine_may_connect_after_that(receiver: TokenReceiver) -> None:
    TokenSender(receiver.address).close()
    call = Call(receiver, "a")
    sender = TokenSender(receiver.address)
    sender.put("a", TokenChunk([1]))
    sender.flush()
    poll(lambda: call.ids == [1])
    sender.close()


def test_a_caller_that_is_gone_breaks_the_channel_and_nothing_else(senders: TokenSenders) -> None:
    caller, other = TokenReceiver(merge=True), TokenReceiver(merge=True)
    lost, kept = senders.to(caller.address), senders.to(other.address)
    call = Call(other, "a")
    caller.close()
    poll(lambda: _broken_after_sending(lost))
    kept.put("a", TokenChunk([1]))
    senders.flush()
    poll(lambda: call.ids == [1])
    other.close()


def _broken_after_sending(sender: TokenSender) -> bool:
    sender.put("x", TokenChunk([1]))
    sender.flush()
    return sender.broken


def test_a_caller_that_reads_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_channel, "_SEND_LIMIT_S", 1)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as deaf:
        deaf.bind("\0naiad-test-deaf")
        deaf.listen()
        sender = TokenSender("naiad-test-deaf")
        while not sender.broken:
            sender.put("a", TokenChunk(list(range(1000))))
            sender.flush()


@pytest.mark.parametrize("address", ["naiad-test-nobody", "", "a\0b", "x" * 200])
def test_a_channel_that_does_not_exist_is_refused(address: str) -> None:
    with pytest.raises(InvalidArgument, match="token channel"):
        TokenSender(address)


def test_another_users_process_is_refused(receiver: TokenReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
    call = Call(receiver, "a")
    monkeypatch.setattr(token_channel, "_same_user", lambda connected: False)
    with pytest.raises(InvalidArgument, match="another user"):
        TokenSender(receiver.address)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as foreign:
        foreign.connect(f"\0{receiver.address}")
        connection: Connection[Any, Any] = Connection(foreign.detach())
        with contextlib.suppress(BrokenPipeError):  # it may have been closed before
            connection.send([("a", 0, [1], [], None, None, None)])
        with pytest.raises((EOFError, ConnectionResetError)):
            connection.recv()
        connection.close()
    assert call.chunks == []


def test_each_caller_has_one_channel(receiver: TokenReceiver, senders: TokenSenders) -> None:
    first = senders.to(receiver.address)
    assert senders.to(receiver.address) is first
    first.close()
    assert senders.to(receiver.address) is not first
