"""The responses of one request: in order, nothing after the end, and always an end."""

from __future__ import annotations

import threading
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
from tests.harness.fake_triton import FakeServer
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
