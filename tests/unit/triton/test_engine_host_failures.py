"""What an engine request's caller hears of refusals and failures; none harms another request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from naiad.contract import TENSORRT_LLM
from naiad.contract.errors import NaiadError, parse_error
from naiad.triton import drain
from naiad.triton.requests import ERRORS_IN_BAND
from tests.harness.fake_triton import FakeServer, Sent
from tests.harness.fake_triton_data import TritonError
from tests.harness.tensors import arrays_of
from tests.harness.tiny_model import CONTEXT
from tests.unit.triton.conftest import LogLines
from tests.unit.triton.engine_calls import BATCH, LONG, PROMPT, SLOW, STOP, Start, ids


def leaks_nothing(message: Sent, log: LogLines) -> None:
    """G05: an incident id, and the cause in the log only."""
    error = parse_error(str(message.error))
    assert error is not None
    assert error.code == "INTERNAL"
    incident: Any = getattr(error, "incident", None)
    assert message.error is not None
    for secret in ("/srv", "Traceback", "KeyError", ".py"):
        assert secret not in message.error
    assert any("/srv/secret" in line for line in log.about(incident))


def test_b20_a_row_that_cannot_be_served_fails_alone(engine_model: Start) -> None:
    too_long = {**BATCH, "request_output_len": [[3], [CONTEXT]]}
    messages = engine_model().answer(too_long)
    assert ids(messages) == [40, 41, 40]
    (error,) = [message.error for message in messages if message.error]
    assert error.startswith("[PROMPT_TOO_LONG]")
    assert sum(message.final for message in messages) == 1


def test_b20_a_row_that_cannot_be_served_is_the_answer_of_a_non_decoupled_batch(engine_model: Start) -> None:
    error = engine_model(decoupled=False).refusal({**BATCH, "request_output_len": [[3], [CONTEXT]]})
    assert error.code == "PROMPT_TOO_LONG"


def test_b20_a_request_that_cannot_be_read_fails_alone(engine_model: Start, triton: FakeServer) -> None:
    engine = engine_model()
    good, bad = arrays_of(TENSORRT_LLM, **PROMPT), arrays_of(TENSORRT_LLM, input_ids=(1,))
    requests = [triton.request(values) for values in (good, bad, good)]
    engine.host.execute(requests)
    outcome = [request.wait_ended() for request in requests]
    assert ids(outcome[0]) == ids(outcome[2]) == [40, 41, 42, 40, 41]
    assert outcome[1][0].error is not None


@pytest.mark.parametrize(
    ("values", "options", "code", "triton_code", "names"),
    [
        ({"temperature": float("nan")}, {}, "INVALID_ARGUMENT", TritonError.INVALID_ARG, "temperature"),
        ({"request_output_len": 0}, {}, "INVALID_ARGUMENT", TritonError.INVALID_ARG, "request_output_len"),
        ({"input_ids": (40, 41, 99999)}, {}, "INVALID_ARGUMENT", TritonError.INVALID_ARG, "input_ids"),
        ({"beam_width": 2}, {}, "INVALID_ARGUMENT", TritonError.INVALID_ARG, "beam_width"),
        ({"lora_task_id": 1}, {}, "UNSUPPORTED", TritonError.UNSUPPORTED, "lora_task_id"),
        (
            {"bad_words_list": [[[5], [1]]]}, {}, "UNSUPPORTED", TritonError.UNSUPPORTED, "bad_words_list",
        ),
        ({}, {"parameters": {"temprature": 1}}, "INVALID_ARGUMENT", TritonError.INVALID_ARG, "temprature"),
        ({"request_output_len": CONTEXT}, {}, "PROMPT_TOO_LONG", TritonError.INVALID_ARG, str(CONTEXT)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("decoupled", [True, False])
def test_a_refusal_is_one_typed_message(
    engine_model: Start, values: dict[str, Any], options: dict[str, Any], code: str, triton_code: int,
    names: str, decoupled: bool,
) -> None:  # fmt: skip
    (message,) = engine_model(decoupled=decoupled).answer({**PROMPT, **values}, **options)
    assert message.error is not None
    assert message.error.startswith(f"[{code}] ")
    assert names in message.error
    assert (message.code, message.final) == (triton_code, True)


def test_c06_a_prompt_that_just_fits_is_served(engine_model: Start) -> None:
    values = {**PROMPT, "request_output_len": CONTEXT - 3}
    assert len(ids(engine_model(max_tokens_in_paged_kv_cache="1024").answer(values))) == CONTEXT - 3


@pytest.mark.parametrize("decoupled", [True, False])
def test_c17_streaming_from_a_non_decoupled_model_is_refused(engine_model: Start, decoupled: bool) -> None:
    engine = engine_model(decoupled=decoupled)
    messages = engine.answer({**PROMPT, "streaming": True})
    if decoupled:
        assert len(messages) == 5
    else:
        assert messages[0].error is not None
        assert messages[0].error.startswith("[UNSUPPORTED] streaming needs the decoupled profile")


def test_a01_a_full_queue_refuses_at_once_with_a_retryable_error(engine_model: Start) -> None:
    engine = engine_model(max_num_sequences="1", max_waiting_requests="1", **SLOW)
    requests = [engine.send(LONG) for _ in range(8)]
    refused = [request for request in requests if request.ended]
    assert len(refused) >= 5
    for request in refused:
        error = parse_error(str(request.sent[0].error))
        assert error is not None
        assert (error.code, error.retryable) == ("QUEUE_FULL", True)
    for request in requests:
        request.cancel()
    for request in requests:
        request.wait_ended()


def test_a_draining_server_refuses_new_requests_but_not_those_of_live_ones(
    engine_model: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drain, "_path", str(tmp_path / "drain"))
    engine = engine_model()
    assert len(ids(engine.answer())) == 5
    (tmp_path / "drain").touch()
    error = engine.refusal()
    assert (error.code, error.retryable) == ("DRAINING", True)
    assert len(ids(engine.answer(parameters={ERRORS_IN_BAND: True}))) == 5
    (reply,) = engine.answer(STOP, request_id="a")
    assert reply.error is None


def test_g05_an_unexpected_error_while_reading_leaks_nothing(
    engine_model: Start, log: LogLines, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_model()

    def broken(*_: Any) -> None:
        raise KeyError("/srv/secret")

    monkeypatch.setattr(engine.host._engine, "submit", broken)
    (message,) = engine.answer()
    leaks_nothing(message, log)


def test_g05_an_unexpected_error_while_writing_leaks_nothing_and_harms_nobody_else(
    engine_model: Start, log: LogLines, monkeypatch: pytest.MonkeyPatch
) -> None:
    from naiad.serving.engine_requests import EngineRow

    engine = engine_model()
    encode = EngineRow.encode

    def broken(row: EngineRow, *arguments: Any) -> Any:
        if row.request.request_id == "bad":
            raise KeyError("/srv/secret")
        return encode(row, *arguments)

    monkeypatch.setattr(EngineRow, "encode", broken)
    *_, message = engine.answer({**LONG, "streaming": True}, request_id="bad")
    leaks_nothing(message, log)
    assert len(ids(engine.answer())) == 5


def test_b18_a_response_that_triton_refuses_harms_nobody_else(engine_model: Start, log: LogLines) -> None:
    def full(response: Any) -> None:
        if response is not None and response.output_tensors():
            raise MemoryError("/srv/secret is full")

    engine = engine_model()
    *_, message = engine.answer({**LONG, "streaming": True}, before_send=full)
    leaks_nothing(message, log)
    assert len(ids(engine.answer())) == 5


def test_i01_failures_are_counted_by_their_code(engine_model: Start, triton: FakeServer) -> None:
    engine = engine_model(stats_check_period_ms="1000000")
    engine.refusal({**PROMPT, "temperature": -1.0})
    engine.refusal({**PROMPT, "request_output_len": CONTEXT})
    engine.refusal({**PROMPT, "lora_task_id": 1})
    engine.answer()
    counted = triton.families["naiad_request_failures"]
    engine.host.finalize()
    assert {metric.labels["reason"]: metric.number for metric in counted.metrics if metric.number} == {
        "INVALID_ARGUMENT": 1, "PROMPT_TOO_LONG": 1, "UNSUPPORTED": 1,
    }  # fmt: skip


def test_g07_no_prompt_is_logged(engine_model: Start, log: LogLines) -> None:
    engine = engine_model()
    engine.answer({**PROMPT, "input_ids": (43, 44, 45)})
    engine.refusal({**PROMPT, "input_ids": (43, 44, 45), "temperature": -1.0})
    assert not log.about("43")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"max_beam_width": "two"}, "max_beam_width"),
        ({"gpt_model_path": "/no/such"}, "no prepared model"),
        ({"stats_check_period_ms": "0"}, "stats_check_period_ms"),
        ({"exclude_input_in_output": "perhaps"}, "exclude_input_in_output"),
    ],
)
def test_b03_a_wrong_setting_refuses_the_load(
    engine_model: Start, parameters: dict[str, str], message: str
) -> None:
    with pytest.raises(NaiadError, match=message):
        engine_model(**parameters)
