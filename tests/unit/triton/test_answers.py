"""The answer of a request with several rows: each row ends once, the request with the last of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from naiad.contract.errors import EngineUnavailable, InvalidArgument, parse_error
from naiad.telemetry import Recorder
from naiad.triton.answers import Answer
from naiad.triton.responses import ResponseStream
from tests.harness.fake_triton import FakeServer, IncomingRequest
from tests.harness.fake_triton_data import TritonModelException


class Made:
    """An answer with its request and recorder."""

    def __init__(self, triton: FakeServer, rows: int, *, decoupled: bool = True, **options: bool) -> None:
        self.request: IncomingRequest = triton.request({}, decoupled=decoupled)
        self.recorder = Recorder()
        self.answer = Answer(
            ResponseStream(self.request), rows, self.recorder, decoupled=decoupled, **options
        )

    def failures(self) -> dict[str, int]:
        return self.recorder.drain()[1]

    def outline(self) -> list[tuple[Any, bool]]:
        """What was sent: a text's bytes, an error, or nothing; and whether it was the end."""
        return [
            (message.error or ("end" if message.empty else message.tensors["text"].tolist()), message.final)
            for message in self.request.sent
        ]


def text(*items: bytes) -> dict[str, Any]:
    return {"text": np.array(items, dtype=np.object_)}


def test_rows_interleave_and_the_last_end_is_the_requests(triton: FakeServer) -> None:
    made = Made(triton, 2)
    made.answer.send(0, text(b"a"), last=False)
    made.answer.send(1, text(b"b"), last=True)
    made.answer.send(0, text(b"c"), last=True)
    assert made.outline() == [([b"a"], False), ([b"b"], False), ([b"c"], True)]
    assert made.answer.ended


def test_an_empty_end_follows_the_last_response(triton: FakeServer) -> None:
    made = Made(triton, 2, empty_end=True)
    made.answer.send(0, text(b"a"), last=True)
    made.answer.send(1, text(b"b"), last=True)
    assert made.outline() == [([b"a"], False), ([b"b"], False), ("end", True)]


def test_b20_one_rows_error_leaves_the_others_alone(triton: FakeServer) -> None:
    made = Made(triton, 3)
    made.answer.fail(0, InvalidArgument("row 0"))
    made.answer.send(1, text(b"b"), last=True)
    made.answer.send(2, text(b"c"), last=True)
    assert made.outline() == [("[INVALID_ARGUMENT] row 0", False), ([b"b"], False), ([b"c"], True)]
    assert made.failures() == {"INVALID_ARGUMENT": 1}


@pytest.mark.parametrize("empty_end", [True, False])
def test_an_error_of_the_last_open_row_is_the_end(triton: FakeServer, empty_end: bool) -> None:
    made = Made(triton, 2, empty_end=empty_end)
    made.answer.send(0, text(b"a"), last=True)
    made.answer.fail(1, InvalidArgument("row 1"))
    assert made.outline() == [([b"a"], False), ("[INVALID_ARGUMENT] row 1", True)]


def test_an_abandoned_request_ends_at_once_and_takes_nothing_more(triton: FakeServer) -> None:
    made = Made(triton, 2)
    made.answer.send(0, text(b"a"), last=False)
    made.answer.abandon(EngineUnavailable("gone"))
    made.answer.send(0, text(b"b"), last=True)
    made.answer.fail(1, InvalidArgument("late"))
    made.answer.abandon(EngineUnavailable("again"))
    assert made.outline() == [([b"a"], False), ("[ENGINE_UNAVAILABLE] gone", True)]
    assert made.failures() == {"ENGINE_UNAVAILABLE": 1}


def test_an_answer_knows_whether_part_of_it_was_delivered(triton: FakeServer) -> None:
    several, single = Made(triton, 1), Made(triton, 2, decoupled=False)
    assert not several.answer.started
    several.answer.send(0, text(b"a"), last=False)
    single.answer.send(0, text(b"a"), last=True)
    assert (several.answer.started, single.answer.started) == (True, False)
    several.answer.abandon(EngineUnavailable("x"))
    single.answer.abandon(EngineUnavailable("x"))


def test_errors_in_band_travel_as_a_finish_reason(triton: FakeServer) -> None:
    made = Made(triton, 1, errors_in_band=True)
    made.answer.fail(0, EngineUnavailable("gone", partial=True))
    (message,) = made.request.sent
    assert (message.error, message.final) == (None, True)
    read = parse_error(message.tensors["finish_reason"].item().decode())
    assert isinstance(read, EngineUnavailable)
    assert (read.message, read.partial) == ("gone", True)


def test_a_non_decoupled_answer_is_one_stacked_response(triton: FakeServer) -> None:
    made = Made(triton, 3, decoupled=False)
    widths = {1: [7], 0: [1, 2, 3], 2: []}
    for row, ids in widths.items():
        outputs: dict[str, Any] = {
            "output_ids": np.array(ids, dtype=np.int32).reshape(1, 1, -1),
            "sequence_length": np.array([[len(ids)]], dtype=np.int32),
            "batch_index": np.array([[row]], dtype=np.int32),
            **text(b"row %d" % row),
        }
        made.answer.send(row, outputs, last=True)
    (message,) = made.request.sent
    assert message.final
    assert message.tensors["output_ids"].tolist() == [[[1, 2, 3]], [[7, 0, 0]], [[0, 0, 0]]]
    assert message.tensors["sequence_length"].tolist() == [[3], [1], [0]]
    assert message.tensors["text"].tolist() == [b"row 0", b"row 1", b"row 2"]
    assert "batch_index" not in message.tensors
    assert message.tensors["output_ids"].dtype == np.int32


def test_a_single_row_of_a_non_decoupled_model_is_sent_as_it_is(triton: FakeServer) -> None:
    made = Made(triton, 1, decoupled=False)
    made.answer.send(0, text(b"a"), last=True)
    assert made.outline() == [([b"a"], True)]


def test_what_only_some_rows_return_is_zero_in_the_others(triton: FakeServer) -> None:
    made = Made(triton, 2, decoupled=False)
    log_prob = np.array([[-1.5]], dtype=np.float32)
    made.answer.send(0, text(b"a"), last=True)
    made.answer.send(1, {**text(b"b"), "cum_log_probs": log_prob, "why": text(b"x")["text"]}, last=True)
    (message,) = made.request.sent
    assert message.tensors["cum_log_probs"].tolist() == [[0.0], [-1.5]]
    assert message.tensors["why"].tolist() == [b"", b"x"]


def test_the_first_error_is_the_whole_answer_of_a_non_decoupled_batch(triton: FakeServer) -> None:
    made = Made(triton, 3, decoupled=False)
    made.answer.send(0, text(b"a"), last=True)
    made.answer.fail(1, InvalidArgument("row 1"))
    made.answer.send(2, text(b"c"), last=True)
    made.answer.fail(2, InvalidArgument("late"))
    assert made.outline() == [("[INVALID_ARGUMENT] row 1", True)]
    assert made.failures() == {"INVALID_ARGUMENT": 1}


def test_a_cancel_of_the_caller_is_seen(triton: FakeServer) -> None:
    made = Made(triton, 1)
    assert not made.answer.is_cancelled()
    made.request.cancel()
    assert made.answer.is_cancelled()
    made.answer.send(0, text(b"a"), last=True)


def test_a_row_that_fails_after_its_last_response_does_not_end_the_others(triton: FakeServer) -> None:
    made = Made(triton, 3)
    made.answer.send(0, text(b"a"), last=True)
    made.answer.fail(0, InvalidArgument("late"))
    made.answer.send(1, text(b"b"), last=True)
    made.answer.fail(1, InvalidArgument("late"))
    assert not made.answer.ended
    made.answer.send(2, text(b"c"), last=True)
    made.answer.fail(2, InvalidArgument("late"))
    assert made.outline() == [([b"a"], False), ([b"b"], False), ([b"c"], True)]
    assert made.failures() == {}


def test_a_row_that_fails_twice_does_not_end_the_others(triton: FakeServer) -> None:
    made = Made(triton, 2)
    made.answer.fail(0, InvalidArgument("row 0"))
    made.answer.fail(0, InvalidArgument("again"))
    made.answer.send(0, text(b"late"), last=True)
    made.answer.send(1, text(b"b"), last=True)
    made.answer.fail(1, InvalidArgument("late"))
    assert made.outline() == [("[INVALID_ARGUMENT] row 0", False), ([b"b"], True)]
    assert made.failures() == {"INVALID_ARGUMENT": 1}


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("options", [{}, {"empty_end": True}, {"errors_in_band": True}, {"decoupled": False}])
def test_a_row_whose_last_response_cannot_be_made_ends_the_request_when_it_fails(
    triton: FakeServer, rows: int, options: dict[str, bool]
) -> None:
    """The row is still open then: to count it as ended twice would leave the request without an end."""
    made = Made(triton, rows, **options)
    for row in range(rows - 1):
        made.answer.send(row, text(b"a"), last=True)
    last = rows - 1
    with pytest.raises(TritonModelException):
        made.answer.send(last, {"text": np.array([object()])}, last=True)
    assert not made.answer.ended
    made.answer.fail(last, InvalidArgument("row"))
    assert [message.final for message in made.request.sent].count(True) == 1
    assert made.request.sent[-1].final
    assert made.failures() == {"INVALID_ARGUMENT": 1}


def test_a_non_decoupled_row_that_ends_twice_is_answered_once_with_its_first_end(triton: FakeServer) -> None:
    made = Made(triton, 2, decoupled=False)
    made.answer.send(0, text(b"a"), last=True)
    made.answer.fail(0, InvalidArgument("late"))
    made.answer.send(0, text(b"late"), last=True)
    made.answer.send(1, text(b"b"), last=True)
    (message,) = made.request.sent
    assert message.final
    assert message.tensors["text"].tolist() == [b"a", b"b"]
    assert made.failures() == {}
