"""How an engine request ends early: stop requests, cancels, deadlines, an unload."""

from __future__ import annotations

import pytest

from naiad.contract.errors import parse_error
from naiad.triton.requests import ERRORS_IN_BAND
from tests.harness.polling import poll
from tests.harness.tiny_model import CONTEXT
from tests.unit.triton.engine_calls import BATCH, LONG, SLOW, STOP, Start, ids, reasons


def test_d7_a_stop_request_ends_the_request_of_that_id_and_is_answered_empty(engine_model: Start) -> None:
    engine = engine_model(**SLOW)
    victim = engine.send({**LONG, "streaming": True}, request_id="a")
    other = engine.send({**LONG, "streaming": True}, request_id="b")
    victim.wait_for(lambda: len(victim.sent) >= 2)
    (reply,) = engine.answer(STOP, request_id="a")
    assert (reply.error, dict(reply.tensors), reply.final) == (None, {}, True)
    ended = victim.wait_ended()
    assert reasons(ended) == ["cancelled"]
    assert len(ids(ended)) < 400
    assert not other.ended
    other.cancel()
    other.wait_ended()


def test_d7_a_stop_request_is_answered_by_a_non_decoupled_model_too(engine_model: Start) -> None:
    engine = engine_model(decoupled=False, **SLOW)
    victim = engine.send(LONG, request_id="a")
    (reply,) = engine.answer(STOP, request_id="a")
    assert (reply.error, dict(reply.tensors), reply.final) == (None, {}, True)
    (ended,) = victim.wait_ended()
    assert reasons([ended]) == ["cancelled"]


def test_d7_a_stop_without_an_id_is_refused_and_an_unknown_id_is_none_of_its_business(
    engine_model: Start,
) -> None:
    engine = engine_model()
    assert "request id" in engine.refusal(STOP).message
    (reply,) = engine.answer(STOP, request_id="nobody")
    assert reply.error is None


def test_d7_a_stop_ends_every_row_of_its_request(engine_model: Start) -> None:
    engine = engine_model(**SLOW)
    values = {**BATCH, "request_output_len": [[200], [200]]}
    victim = engine.send(values, request_id="a")
    engine.answer(STOP, request_id="a")
    messages = victim.wait_ended()
    assert reasons(messages) == ["cancelled", "cancelled"]
    assert sum(message.final for message in messages) == 1


@pytest.mark.parametrize("streaming", [True, False])
def test_d03_a_cancelled_request_ends_as_cancelled_with_what_it_has(
    engine_model: Start, streaming: bool
) -> None:
    request = engine_model(**SLOW).send({**LONG, "streaming": streaming})
    request.cancel()
    messages = request.wait_ended()
    assert reasons(messages) == ["cancelled"]
    assert len(ids(messages)) < 400


@pytest.mark.parametrize("streaming", [True, False])
def test_d09_a_deadline_ends_the_request_and_says_whether_part_was_delivered(
    engine_model: Start, streaming: bool
) -> None:
    messages = engine_model(**SLOW).answer({**LONG, "streaming": streaming}, timeout_us=60_000)
    error = messages[-1].error
    assert error is not None
    read = parse_error(error)
    assert read is not None
    assert read.code == "DEADLINE_EXCEEDED"
    assert read.partial is (len(messages) > 1)
    assert streaming or not read.partial


def test_d10_a_deadline_that_passed_before_the_first_step_costs_nothing(engine_model: Start) -> None:
    error = engine_model(**SLOW).refusal(LONG, timeout_us=1)
    assert (error.code, error.partial) == ("DEADLINE_EXCEEDED", False)


def test_errors_of_the_engine_travel_in_band_where_asked_for(engine_model: Start) -> None:
    options = {"parameters": {ERRORS_IN_BAND: True}, "timeout_us": 60_000}
    *_, last = engine_model(**SLOW).answer({**LONG, "streaming": True}, **options)
    assert last.error is None
    error = parse_error(reasons([last])[0])
    assert error is not None
    assert error.code == "DEADLINE_EXCEEDED"


def test_the_engine_stops_working_for_a_request_that_has_ended(engine_model: Start) -> None:
    engine = engine_model(decoupled=False, synthetic_step_ms="50")
    values = {**BATCH, "request_output_len": [[400], [CONTEXT]]}  # 20 s of work in row 0
    assert engine.refusal(values).code == "PROMPT_TOO_LONG"
    poll(lambda: engine.host._engine.stats().active == 0)


def test_live_requests_end_when_the_model_is_unloaded(engine_model: Start) -> None:
    engine = engine_model(**SLOW)
    request = engine.send(LONG)
    engine.host.finalize()
    (message,) = request.wait_ended()
    assert str(message.error).startswith("[ENGINE_UNAVAILABLE]")
