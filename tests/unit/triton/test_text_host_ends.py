"""How a text request ends early: cancels, stop strings, silent engines, deadlines."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from naiad.contract.errors import (
    EngineStalled,
)
from naiad.tokenization import Tokenizer
from naiad.triton import watchdog
from tests.harness.polling import poll
from tests.harness.scripted_engine import EngineCall, Script, tokens
from tests.unit.triton.text_calls import (
    STREAM,
    Outputs,
    Scripted,
    Start,
    error_of,
    joined,
    reason_of,
    wait_for_data,
)


def test_d11_without_a_deadline_the_models_own_applies(
    text_model: Start, engine: Scripted, say: Callable[..., Script]
) -> None:
    scripted = engine(say("two"))
    text_model(default_timeout_ms="2000").answer()
    assert 0 < scripted.calls[0].timeout_us <= 2_000_000


def test_d03_a_cancel_is_sent_to_the_engine_once_under_the_engines_id(
    text_model: Start, engine: Scripted, tokenizer: Tokenizer
) -> None:
    def script(call: EngineCall) -> Outputs:
        yield tokens(tokenizer.encode("two"))
        call.wait_for_stop()
        yield tokens([], "cancelled")

    scripted = engine(script)
    text = text_model()
    request = text.send()
    wait_for_data(request)
    request.cancel()
    *_, last, end = request.wait_ended()
    assert reason_of(last) == "cancelled"
    assert end.empty
    text.idle()
    assert scripted.stops == [scripted.calls[0].request_id]


def test_d07_a_cancel_of_one_request_leaves_the_others_alone(
    text_model: Start, engine: Scripted, tokenizer: Tokenizer
) -> None:
    go_on = threading.Event()

    def script(call: EngineCall) -> Outputs:
        yield tokens(tokenizer.encode("two"))
        while not call.stopped.wait(0.001):
            if go_on.is_set():
                yield tokens(tokenizer.encode(" three"), "stop")
                return
        yield tokens([], "cancelled")

    engine(script)
    text = text_model()
    requests = [text.send() for _ in range(5)]
    for request in requests:
        wait_for_data(request)
    requests[2].cancel()
    assert joined(requests[2].wait_ended()) == "two"
    go_on.set()
    others = [joined(request.wait_ended()) for place, request in enumerate(requests) if place != 2]
    assert others == ["two three"] * 4


def test_a_stop_string_ends_the_answer_and_then_the_engines_work(
    text_model: Start, engine: Scripted, tokenizer: Tokenizer
) -> None:
    def script(call: EngineCall) -> Outputs:
        for token in tokenizer.encode("two STOP three"):
            yield tokens([token])
        call.hang()

    scripted = engine(script)
    text = text_model()
    messages = text.answer({**STREAM, "stop_words": ("STOP",)})
    assert joined(messages) == "two "
    assert reason_of(messages[-2]) == "stop"
    poll(lambda: bool(scripted.stops))
    text.idle()
    assert scripted.stops == [scripted.calls[0].request_id]


def test_an_answer_that_ends_by_itself_sends_no_stop(
    text_model: Start, engine: Scripted, say: Callable[..., Script]
) -> None:
    scripted = engine(say("two"))
    text = text_model()
    text.answer()
    text.idle()
    assert scripted.stops == []


@pytest.mark.parametrize("spoken", [True, False])
def test_b01_an_engine_that_hangs_ends_the_request_as_stalled_within_its_limit(
    text_model: Start, engine: Scripted, tokenizer: Tokenizer, spoken: bool
) -> None:
    def script(call: EngineCall) -> Outputs:
        if spoken:
            yield tokens(tokenizer.encode("two"))
        call.hang()

    scripted = engine(script)
    short, long = ("idle", "first_token") if spoken else ("first_token", "idle")
    limits = {f"{short}_timeout_ms": "30", f"{long}_timeout_ms": "60000"}
    *before, last = text_model(**limits).answer()
    error = error_of(last)
    assert isinstance(error, EngineStalled)
    assert error.partial is spoken
    assert ("stopped answering" if spoken else "gave no first token") in error.message
    assert joined(before) == ("two" if spoken else "")
    poll(lambda: scripted.stops == [scripted.calls[0].request_id])


def test_b01_what_a_stalled_engine_says_later_is_dropped(
    text_model: Start, engine: Scripted, tokenizer: Tokenizer
) -> None:
    def script(call: EngineCall) -> Outputs:
        call.wait_for_stop()
        yield tokens(tokenizer.encode("late"), "stop")

    engine(script)
    text = text_model(first_token_timeout_ms="20")  # noqa: S106 - a token of text
    request = text.send()
    request.wait_ended()
    text.idle()
    assert len(request.sent) == 1


def test_the_deadline_ends_a_request_whose_engine_does_not(
    text_model: Start, engine: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "DEADLINE_GRACE_S", 0.01)

    def script(call: EngineCall) -> Outputs:
        call.hang()
        yield {}

    engine(script)
    (message,) = text_model().answer(timeout_us=20_000)
    assert error_of(message).code == "DEADLINE_EXCEEDED"


def test_d10_a_deadline_that_passed_on_arrival_never_reaches_the_engine(
    text_model: Start, engine: Scripted, say: Callable[..., Script]
) -> None:
    scripted = engine(say("two"))
    (message,) = text_model().answer(timeout_us=1)
    assert error_of(message).code == "DEADLINE_EXCEEDED"
    assert scripted.calls == []


def test_d04_a_cancel_that_races_the_end_leaves_one_end_each(
    text_model: Start, engine: Scripted, say: Callable[..., Script]
) -> None:
    engine(say("two three"))
    text = text_model()
    for _ in range(100):
        request = text.send()
        request.cancel()
        request.wait_ended()
        text.idle()
        assert sum(message.final for message in request.sent) == 1
        assert request.sent[-1].final
