"""What a text request's caller hears of failures, refusals and a full or draining model."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from naiad.contract.errors import (
    EngineStalled,
    EngineUnavailable,
    NaiadError,
    PromptTooLong,
    format_error,
)
from naiad.tokenization import Tokenizer
from naiad.triton import drain
from tests.harness.fake_triton import FakeServer
from tests.harness.fake_triton_data import TritonModelException
from tests.harness.polling import poll
from tests.harness.scripted_engine import EngineCall, Script, tokens
from tests.unit.triton.conftest import LogLines
from tests.unit.triton.text_calls import (
    ASK,
    Outputs,
    Scripted,
    Start,
    error_of,
    joined,
    reason_of,
)


@pytest.mark.parametrize("in_band", [True, False])
@pytest.mark.parametrize("spoken", [True, False])
def test_b07_the_engines_error_reaches_the_caller_as_it_was_and_says_what_was_delivered(
    text_model: Start, engine: Scripted, triton: FakeServer, tokenizer: Tokenizer, in_band: bool, spoken: bool
) -> None:
    text_of_error = format_error(EngineUnavailable("the engine failed; retry", partial=True))

    def script(call: EngineCall) -> Outputs:
        if spoken:
            yield tokens(tokenizer.encode("two"))
        if not in_band:
            raise TritonModelException(f"in model 'tensorrt_llm': {text_of_error}")
        yield {"finish_reason": np.array([[text_of_error.encode()]], dtype=np.object_)}

    engine(script)
    *before, last = text_model().answer()
    error = error_of(last)
    assert isinstance(error, EngineUnavailable)
    assert error.message == "the engine failed; retry"
    assert error.partial is spoken
    assert len(before) == spoken


def test_an_answer_that_is_sent_whole_is_never_partial(
    text_model: Start, engine: Scripted, tokenizer: Tokenizer
) -> None:
    def script(call: EngineCall) -> Outputs:
        yield tokens(tokenizer.encode("two"))
        raise TritonModelException(format_error(EngineStalled("silent", partial=True)))

    engine(script)
    (message,) = text_model().answer(ASK)
    assert not error_of(message).partial


def test_an_engine_that_refuses_keeps_its_own_code(text_model: Start, engine: Scripted) -> None:
    def script(call: EngineCall) -> Outputs:
        yield from ()
        raise TritonModelException(format_error(PromptTooLong("too long by 3")))

    engine(script)
    (message,) = text_model().answer()
    assert isinstance(error_of(message), PromptTooLong)


def test_g05_a_dead_engine_is_unavailable_and_nothing_of_tritons_words_leaks(
    text_model: Start, engine: Scripted, log: LogLines
) -> None:
    def script(call: EngineCall) -> Outputs:
        yield from ()
        raise TritonModelException("Stub process 'tensorrt_llm_0_0' at /srv/secret is not healthy.")

    engine(script)
    (message,) = text_model().answer()
    error = error_of(message)
    assert (error.code, error.retryable) == ("ENGINE_UNAVAILABLE", True)
    assert "/srv" not in str(message.error)
    assert log.about("/srv/secret")


def test_an_engine_that_is_not_loaded_is_unavailable(text_model: Start) -> None:
    (message,) = text_model(tensorrt_llm_model_name="elsewhere").answer()
    assert error_of(message).code == "ENGINE_UNAVAILABLE"


def test_g05_an_unexpected_error_leaks_nothing(text_model: Start, engine: Scripted, log: LogLines) -> None:
    def script(call: EngineCall) -> Outputs:
        yield from ()
        raise KeyError("/srv/secret")

    engine(script)
    text = text_model()
    (message,) = text.answer()
    assert error_of(message).code == "INTERNAL"
    assert "secret" not in str(message.error)
    incident: Any = getattr(error_of(message), "incident", None)
    assert any("/srv/secret" in line for line in log.about(incident))
    text.idle()


def test_tokens_that_are_no_text_of_the_model_end_the_request(text_model: Start, engine: Scripted) -> None:
    def script(call: EngineCall) -> Outputs:
        yield tokens([999_999])

    engine(script)
    (message,) = text_model().answer()
    assert error_of(message).code == "INVALID_ARGUMENT"


def test_e05_an_engine_that_answers_nothing_ends_the_request(text_model: Start, engine: Scripted) -> None:
    def script(call: EngineCall) -> Outputs:
        yield {}

    engine(script)
    data, end = text_model().answer()
    assert (joined([data]), reason_of(data), end.empty) == ("", "stop", True)


def test_a01_more_requests_than_may_live_are_refused_at_once_without_the_engine(
    text_model: Start, engine: Scripted
) -> None:
    def script(call: EngineCall) -> Outputs:
        call.wait_for_stop()
        yield tokens([], "cancelled")

    scripted = engine(script)
    text = text_model(max_live_requests="3")
    live = [text.send() for _ in range(3)]
    poll(lambda: len(scripted.calls) == 3)
    (message,) = text.answer()
    error = error_of(message)
    assert (error.code, error.retryable) == ("QUEUE_FULL", True)
    assert error.message.startswith("3 requests are being served")
    batch = {
        **ASK,
        "text_input": [["a"], ["b"]],
        "max_tokens": [[1], [1]],
        "exclude_input_in_output": [[True], [True]],
    }
    live[0].cancel()
    live[0].wait_ended()
    poll(lambda: text.host._live == 2)
    (message,) = text.answer(batch)  # two rows do not fit into the one place
    assert error_of(message).code == "QUEUE_FULL"
    assert len(scripted.calls) == 3
    for request in live[1:]:
        request.cancel()
        request.wait_ended()
    text.idle()


def test_i03_a_place_is_free_again_whatever_became_of_its_request(
    text_model: Start, engine: Scripted, tokenizer: Tokenizer
) -> None:
    endings: list[Callable[[], Mapping[str, Any]]] = [
        lambda: tokens(tokenizer.encode("two"), "stop"),
        lambda: tokens([999_999]),
        lambda: {"finish_reason": np.array([[b"no such reason"]], dtype=np.object_), **tokens([])},
    ]

    def script(call: EngineCall) -> Outputs:
        if not endings:
            raise RuntimeError("broken")
        yield endings.pop()()

    engine(script)
    text = text_model(max_live_requests="1")
    for _ in range(5):
        text.answer()
        text.idle()


def test_b20_a_row_whose_engine_call_fails_leaves_the_others_alone(
    text_model: Start, engine: Scripted, tokenizer: Tokenizer
) -> None:
    def script(call: EngineCall) -> Outputs:
        if call.prompt == tokenizer.encode("two"):
            raise TritonModelException(format_error(PromptTooLong("too long")))
        yield tokens(call.prompt, "stop")

    engine(script)
    batch = {"text_input": [["one"], ["two"]], "max_tokens": [[9], [9]], "stream": [[True], [True]]}
    messages = text_model().answer(batch)
    assert joined(messages) == "one"
    assert [error_of(message).code for message in messages if message.error] == ["PROMPT_TOO_LONG"]
    assert sum(message.final for message in messages) == 1


@pytest.mark.parametrize(
    ("values", "options", "code", "names"),
    [
        ({"max_tokens": 0}, {}, "INVALID_ARGUMENT", "max_tokens"),
        ({"top_p": float("nan")}, {}, "INVALID_ARGUMENT", "top_p"),
        ({"text_input": b"\xff"}, {}, "INVALID_ARGUMENT", "text_input is not valid UTF-8"),
        ({"lora_task_id": 1}, {}, "UNSUPPORTED", "lora_task_id"),
        ({"stop_words": tuple("x" * 300)}, {}, "INVALID_ARGUMENT", "300 stop strings"),
        ({}, {"parameters": {"stop_word": "x"}}, "INVALID_ARGUMENT", "did you mean stop_words?"),
    ],
)
@pytest.mark.parametrize("decoupled", [True, False])
def test_a_refusal_is_one_typed_message_that_the_engine_never_hears_of(
    text_model: Start, engine: Scripted, say: Callable[..., Script], values: dict[str, Any],
    options: dict[str, Any], code: str, names: str, decoupled: bool,
) -> None:  # fmt: skip
    scripted = engine(say("two"))
    (message,) = text_model(decoupled=decoupled).answer({**ASK, **values}, **options)
    assert error_of(message).code == code
    assert names in str(message.error)
    assert scripted.calls == []


def test_a_draining_server_refuses_new_requests_and_finishes_live_ones(
    text_model: Start, engine: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tokenizer: Tokenizer
) -> None:
    monkeypatch.setattr(drain, "_path", str(tmp_path / "drain"))
    go_on = threading.Event()

    def script(call: EngineCall) -> Outputs:
        assert go_on.wait(10)
        yield tokens(tokenizer.encode("two"), "stop")

    engine(script)
    text = text_model()
    live = text.send()
    (tmp_path / "drain").touch()
    (message,) = text.answer()
    assert error_of(message).code == "DRAINING"
    go_on.set()
    assert joined(live.wait_ended()) == "two"


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"tokenizer_dir": "/no/such"}, "no prepared model"),
        ({"max_live_requests": "0"}, "max_live_requests"),
        ({"idle_timeout_ms": "soon"}, "idle_timeout_ms"),
        ({"accumulate_tokens": "perhaps"}, "accumulate_tokens"),
    ],
)
def test_b03_a_wrong_setting_refuses_the_load(
    text_model: Start, parameters: dict[str, str], message: str
) -> None:
    with pytest.raises(NaiadError, match=message):
        text_model(**parameters)
