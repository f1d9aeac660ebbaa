"""The responses of one request: in order, nothing after the end, and always an end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from naiad.contract.errors import (
    DeadlineExceeded,
    EngineStalled,
    InternalError,
    InvalidArgument,
    NaiadError,
    Overloaded,
    Unsupported,
    parse_error,
)
from naiad.triton.responses import ResponseStream, as_naiad_error, error_response
from tests.harness.fake_triton import FakeServer, IncomingRequest
from tests.harness.fake_triton_data import TritonError
from tests.unit.triton.conftest import LogLines


def numbers(*values: int) -> Any:
    return {"n": np.array([values], dtype=np.int32)}


def test_responses_are_sent_in_order_and_the_last_is_final(triton: FakeServer) -> None:
    request = triton.request({})
    stream = ResponseStream(request)
    stream.send(numbers(1))
    ended = [stream.ended]
    stream.send(numbers(2), final=True)
    assert [*ended, stream.ended] == [False, True]
    assert [message.tensors["n"].tolist() for message in request.sent] == [[[1]], [[2]]]
    assert [message.final for message in request.sent] == [False, True]


def test_what_comes_after_the_end_is_dropped_in_silence(triton: FakeServer, log: LogLines) -> None:
    request = triton.request({})
    stream = ResponseStream(request)
    stream.finish()
    stream.send(numbers(1))
    stream.send(numbers(1), final=True)
    stream.fail(Overloaded("late"))
    stream.finish()
    assert len(request.sent) == 1
    assert request.sent[0].empty
    assert log.lines == []


def test_an_error_ends_the_stream_unless_said_otherwise(triton: FakeServer) -> None:
    request = triton.request({})
    stream = ResponseStream(request)
    stream.fail(InvalidArgument("row 0"), final=False)
    assert not request.ended
    stream.fail(InvalidArgument("row 1"))
    assert [message.error for message in request.sent] == [
        "[INVALID_ARGUMENT] row 0", "[INVALID_ARGUMENT] row 1",
    ]  # fmt: skip
    assert stream.ended


def test_a_cancel_is_seen_while_the_stream_is_open_and_not_after(triton: FakeServer) -> None:
    request = triton.request({})
    stream = ResponseStream(request)
    assert not stream.is_cancelled()
    request.cancel()
    assert stream.is_cancelled()
    stream.finish()
    assert not stream.is_cancelled()


def test_d04_of_many_ends_at_once_exactly_one_is_sent(triton: FakeServer, log: LogLines) -> None:
    for _ in range(50):
        request = triton.request({})
        stream = ResponseStream(request)
        barrier = threading.Barrier(4)

        def end(kind: int, stream: ResponseStream = stream, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            if kind == 0:
                stream.finish()
            elif kind == 1:
                stream.fail(Overloaded("x"))
            else:
                stream.send(numbers(kind), final=True)

        threads = [threading.Thread(target=end, args=(kind,)) for kind in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(request.sent) == 1
    assert log.lines == []


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidArgument("m"), TritonError.INVALID_ARG),
        (Unsupported("m"), TritonError.UNSUPPORTED),
        (Overloaded("m"), TritonError.UNAVAILABLE),
        (EngineStalled("m", partial=True), TritonError.UNAVAILABLE),
        (DeadlineExceeded("m"), TritonError.UNAVAILABLE),
        (InternalError(), TritonError.INTERNAL),
    ],
)
def test_d13_an_error_carries_tritons_code_and_ours_in_the_text(error: NaiadError, code: int) -> None:
    sent = error_response(error).error()
    assert sent.code() == code
    read = parse_error(sent.message())
    assert type(read) is type(error)
    assert (read.message, read.partial) == (error.message, error.partial)


def test_every_error_of_the_tree_can_be_sent() -> None:
    kinds, todo = [], [NaiadError]
    while todo:
        kind = todo.pop()
        kinds.append(kind)
        # The client's own kinds never cross the server.
        todo += [sub for sub in kind.__subclasses__() if sub.__module__ == NaiadError.__module__]
    for kind in kinds:
        error = InternalError() if kind is InternalError else kind("m")
        assert error_response(error).has_error()


def test_g05_an_unexpected_error_shows_an_incident_id_and_is_logged_whole(log: LogLines) -> None:
    def fail() -> None:
        raise KeyError("/srv/secret/path")

    try:
        fail()
    except KeyError as error:
        shown = as_naiad_error(error, "reading a request")
    assert isinstance(shown, InternalError)
    assert "secret" not in shown.message
    (line,) = log.about(f"incident {shown.incident} while reading a request")
    assert "/srv/secret/path" in line
    assert "Traceback" in line


def test_our_own_errors_pass_unchanged(log: LogLines) -> None:
    error = Overloaded("busy")
    assert as_naiad_error(error, "x") is error
    assert log.lines == []


class FullMemory:
    """Refuses responses with data for lack of shared memory, as long as it is full."""

    full = True

    def __call__(self, response: Any) -> None:
        if self.full and response is not None and response.output_tensors():
            raise MemoryError("/srv/shm is full")


def test_b18_a_response_that_cannot_be_sent_ends_the_request_with_an_error(
    triton: FakeServer, log: LogLines
) -> None:
    request = triton.request({}, before_send=FullMemory())
    stream = ResponseStream(request)
    stream.send(numbers(1))
    (message,) = request.sent
    assert message.final
    assert message.error is not None
    assert "incident" in message.error
    assert "/srv/shm" not in message.error
    assert log.about("/srv/shm is full")
    assert stream.ended
    stream.send(numbers(2))
    assert len(request.sent) == 1


def test_b18_a_final_response_that_cannot_be_sent_harms_nobody_else(
    triton: FakeServer, log: LogLines
) -> None:
    request = triton.request({}, before_send=FullMemory())
    ResponseStream(request).send(numbers(1), final=True)
    assert log.about("the request cannot be ended")


OVERLAP_S = 0.2  # long enough for another thread to do what it should not; the right code always uses it up


def while_another(act: Callable[[], object]) -> threading.Thread:
    """Run `act` on another thread and give it time, for it may have to wait for this one."""
    thread = threading.Thread(target=act)
    thread.start()
    thread.join(OVERLAP_S)
    return thread


class AskedRequest:
    """A request that notes how often Triton is asked for a cancel; the caller has gone away.

    Args:
        while_asked: is called as often, while Triton is being asked.
    """

    def __init__(self, request: IncomingRequest, while_asked: Callable[[], object] = lambda: None) -> None:
        self.request, self.asked = request, 0
        self._while_asked = while_asked
        self._sender = request.get_response_sender()
        self.send = self._sender.send

    def get_response_sender(self) -> AskedRequest:
        return self

    def is_cancelled(self) -> bool:
        self.asked += 1
        self._while_asked()
        return True


@pytest.mark.parametrize("full", [False, True], ids=["sent", "cannot be sent"])
@pytest.mark.parametrize(
    "end",
    [
        lambda stream: stream.send(numbers(1), final=True),
        lambda stream: (stream.send(numbers(1)), stream.finish()),
        lambda stream: (stream.send(numbers(1)), stream.fail(Overloaded("x"))),
    ],
    ids=["a final response", "an empty end", "an error"],
)
def test_triton_is_not_asked_for_a_cancel_after_the_final_response(
    triton: FakeServer, end: Callable[[ResponseStream], None], full: bool
) -> None:
    """Triton 2.51 dies of SIGSEGV when it is."""
    request = AskedRequest(triton.request({}, before_send=FullMemory() if full else None))
    stream = ResponseStream(request)
    assert stream.is_cancelled()
    end(stream)
    assert not stream.is_cancelled()
    assert request.asked == 1


def test_triton_is_not_asked_for_a_cancel_while_the_final_response_goes_out(triton: FakeServer) -> None:
    asking: list[threading.Thread] = []
    answers: list[bool] = []

    def ask_meanwhile(_: Any) -> None:
        asking.append(while_another(lambda: answers.append(stream.is_cancelled())))

    request = AskedRequest(triton.request({}, before_send=ask_meanwhile))
    stream = ResponseStream(request)
    stream.finish()
    asking[0].join(10)
    assert answers == [False]
    assert request.asked == 0


def test_the_final_response_waits_while_triton_is_asked_for_a_cancel(triton: FakeServer) -> None:
    finishing: list[threading.Thread] = []
    sent_while_asked: list[int] = []

    def finish_meanwhile() -> None:
        finishing.append(while_another(stream.finish))
        sent_while_asked.append(len(request.request.sent))

    request = AskedRequest(triton.request({}), finish_meanwhile)
    stream = ResponseStream(request)
    assert stream.is_cancelled()
    finishing[0].join(10)
    assert sent_while_asked == [0]
    assert request.request.ended
