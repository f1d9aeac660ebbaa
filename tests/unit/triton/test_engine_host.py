"""The engine's host over the synthetic engine: every request ends once, whatever it asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from naiad.contract import TENSORRT_LLM
from naiad.contract.errors import NaiadError, parse_error
from naiad.triton import drain
from naiad.triton.engine_host import EngineHost
from naiad.triton.requests import ERRORS_IN_BAND
from tests.harness.fake_triton import FakeServer, IncomingRequest, Sent
from tests.harness.fake_triton_data import TritonError
from tests.harness.tensors import arrays_of
from tests.harness.tiny_model import CONTEXT, END
from tests.unit.triton.conftest import LogLines, poll

PROMPT: dict[str, Any] = {"input_ids": (40, 41, 42), "input_lengths": 3, "request_output_len": 5}
BATCH: dict[str, Any] = {
    "input_ids": [[40, 41], [50, 51]], "input_lengths": [[2], [2]], "request_output_len": [[3], [3]],
}  # fmt: skip


class Engine:
    """One host and short ways to call it."""

    def __init__(self, host: EngineHost, triton: FakeServer, *, decoupled: bool) -> None:
        self.host, self.triton, self.decoupled = host, triton, decoupled

    def send(self, values: dict[str, Any] = PROMPT, **options: Any) -> IncomingRequest:
        request = self.triton.request(arrays_of(TENSORRT_LLM, **values), decoupled=self.decoupled, **options)
        self.host.execute([request])
        return request

    def answer(self, values: dict[str, Any] = PROMPT, **options: Any) -> list[Sent]:
        return self.send(values, **options).wait_ended()

    def refusal(self, values: dict[str, Any] = PROMPT, **options: Any) -> NaiadError:
        (message,) = self.answer(values, **options)
        assert message.error is not None
        error = parse_error(message.error)
        assert error is not None
        return error


Start = Callable[..., Engine]


@pytest.fixture
def started(start: Callable[..., Any], triton: FakeServer, model_directory: Path) -> Start:
    def make(*, decoupled: bool = True, **parameters: str) -> Engine:
        given = {
            "engine": "synthetic",
            "gpt_model_type": "inflight_fused_batching",
            "gpt_model_path": str(model_directory),
            "exclude_input_in_output": "true",
            "cancellation_check_period_ms": "2",
            **parameters,
        }
        return Engine(
            start(EngineHost, "tensorrt_llm", decoupled=decoupled, **given), triton, decoupled=decoupled
        )

    return make


def ids(messages: list[Sent]) -> list[int]:
    return [
        int(token)
        for message in messages
        if "output_ids" in message.tensors
        for token in message.tensors["output_ids"].reshape(-1)
    ]


def reasons(messages: list[Sent]) -> list[str]:
    return [
        message.tensors["finish_reason"].item().decode()
        for message in messages
        if "finish_reason" in message.tensors
    ]


@pytest.mark.parametrize("decoupled", [True, False])
def test_a_request_that_does_not_stream_is_one_final_response(started: Start, decoupled: bool) -> None:
    (only,) = started(decoupled=decoupled).answer()
    assert only.final
    assert only.tensors["output_ids"].tolist() == [[[40, 41, 42, 40, 41]]]
    assert only.tensors["sequence_length"].tolist() == [[5]]
    assert reasons([only]) == ["length"]


def test_a_stream_is_a_response_a_token_and_the_last_one_is_final(started: Start) -> None:
    messages = started().answer({**PROMPT, "streaming": True})
    assert [message.tensors["sequence_length"].item() for message in messages] == [1] * 5
    assert ids(messages) == [40, 41, 42, 40, 41]
    assert reasons(messages) == ["length"]
    assert [message.final for message in messages] == [False] * 4 + [True]


def test_the_models_default_decides_about_the_echo(started: Start) -> None:
    assert ids(started(exclude_input_in_output="false").answer()) == [40, 41, 42, 40, 41, 42, 40, 41]


def test_log_probs_of_a_stream_add_up(started: Start) -> None:
    messages = started().answer({**PROMPT, "streaming": True, "return_log_probs": True})
    assert [message.tensors["cum_log_probs"].item() for message in messages] == [-0.5, -1.0, -1.5, -2.0, -2.5]
    (only,) = started().answer({**PROMPT, "return_log_probs": True})
    assert only.tensors["cum_log_probs"].tolist() == [[-2.5]]
    assert only.tensors["output_log_probs"].tolist() == [[[-0.5] * 5]]


def test_only_requested_outputs_are_sent(started: Start) -> None:
    (only,) = started().answer(outputs=["output_ids"])
    assert set(only.tensors) == {"output_ids"}


def test_a_batch_is_one_response_a_row_with_its_index(started: Start) -> None:
    messages = started().answer(BATCH)
    by_row = {message.tensors["batch_index"].item(): ids([message]) for message in messages}
    assert by_row == {0: [40, 41, 40], 1: [50, 51, 50]}
    assert [message.final for message in messages] == [False, True]


def test_a_batch_of_a_non_decoupled_model_is_one_stacked_response(started: Start) -> None:
    (only,) = started(decoupled=False).answer({**BATCH, "return_log_probs": [[True], [False]]})
    assert only.tensors["output_ids"].tolist() == [[[40, 41, 40]], [[50, 51, 50]]]
    assert only.tensors["cum_log_probs"].tolist() == [[-1.5], [0.0]]


def test_several_sequences_are_told_apart(started: Start) -> None:
    messages = started().answer({**PROMPT, "num_return_sequences": 2})
    assert sorted(message.tensors["sequence_index"].item() for message in messages) == [0, 1]
    assert [message.final for message in messages] == [False, True]


def test_b20_a_row_that_cannot_be_served_fails_alone(started: Start) -> None:
    too_long = {**BATCH, "request_output_len": [[3], [CONTEXT]]}
    messages = started().answer(too_long)
    assert ids(messages) == [40, 41, 40]
    (error,) = [message.error for message in messages if message.error]
    assert error.startswith("[PROMPT_TOO_LONG]")
    assert sum(message.final for message in messages) == 1


def test_b20_a_row_that_cannot_be_served_is_the_answer_of_a_non_decoupled_batch(started: Start) -> None:
    error = started(decoupled=False).refusal({**BATCH, "request_output_len": [[3], [CONTEXT]]})
    assert error.code == "PROMPT_TOO_LONG"


def test_b20_a_request_that_cannot_be_read_fails_alone(started: Start, triton: FakeServer) -> None:
    engine = started()
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
    started: Start, values: dict[str, Any], options: dict[str, Any], code: str, triton_code: int, names: str,
    decoupled: bool,
) -> None:  # fmt: skip
    (message,) = started(decoupled=decoupled).answer({**PROMPT, **values}, **options)
    assert message.error is not None
    assert message.error.startswith(f"[{code}] ")
    assert names in message.error
    assert (message.code, message.final) == (triton_code, True)


def test_c06_a_prompt_that_just_fits_is_served(started: Start) -> None:
    values = {**PROMPT, "request_output_len": CONTEXT - 3}
    assert len(ids(started(max_tokens_in_paged_kv_cache="1024").answer(values))) == CONTEXT - 3


@pytest.mark.parametrize("decoupled", [True, False])
def test_c17_streaming_from_a_non_decoupled_model_is_refused(started: Start, decoupled: bool) -> None:
    engine = started(decoupled=decoupled)
    messages = engine.answer({**PROMPT, "streaming": True})
    if decoupled:
        assert len(messages) == 5
    else:
        assert messages[0].error is not None
        assert messages[0].error.startswith("[UNSUPPORTED] streaming needs the decoupled profile")


SLOW = {"synthetic_step_ms": "5"}
LONG: dict[str, Any] = {**PROMPT, "request_output_len": 400}
STOP: dict[str, Any] = {"input_ids": (0,), "input_lengths": 1, "request_output_len": 0, "stop": True}


def test_d7_a_stop_request_ends_the_request_of_that_id_and_is_answered_empty(started: Start) -> None:
    engine = started(**SLOW)
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


def test_d7_a_stop_request_is_answered_by_a_non_decoupled_model_too(started: Start) -> None:
    engine = started(decoupled=False, **SLOW)
    victim = engine.send(LONG, request_id="a")
    (reply,) = engine.answer(STOP, request_id="a")
    assert (reply.error, dict(reply.tensors), reply.final) == (None, {}, True)
    (ended,) = victim.wait_ended()
    assert reasons([ended]) == ["cancelled"]


def test_d7_a_stop_without_an_id_is_refused_and_an_unknown_id_is_none_of_its_business(started: Start) -> None:
    engine = started()
    assert "request id" in engine.refusal(STOP).message
    (reply,) = engine.answer(STOP, request_id="nobody")
    assert reply.error is None


def test_d7_a_stop_ends_every_row_of_its_request(started: Start) -> None:
    engine = started(**SLOW)
    values = {**BATCH, "request_output_len": [[200], [200]]}
    victim = engine.send(values, request_id="a")
    engine.answer(STOP, request_id="a")
    messages = victim.wait_ended()
    assert reasons(messages) == ["cancelled", "cancelled"]
    assert sum(message.final for message in messages) == 1


@pytest.mark.parametrize("streaming", [True, False])
def test_d03_a_cancelled_request_ends_as_cancelled_with_what_it_has(started: Start, streaming: bool) -> None:
    request = started(**SLOW).send({**LONG, "streaming": streaming})
    request.cancel()
    messages = request.wait_ended()
    assert reasons(messages) == ["cancelled"]
    assert len(ids(messages)) < 400


@pytest.mark.parametrize("streaming", [True, False])
def test_d09_a_deadline_ends_the_request_and_says_whether_part_was_delivered(
    started: Start, streaming: bool
) -> None:
    messages = started(**SLOW).answer({**LONG, "streaming": streaming}, timeout_us=60_000)
    error = messages[-1].error
    assert error is not None
    read = parse_error(error)
    assert read is not None
    assert read.code == "DEADLINE_EXCEEDED"
    assert read.partial is (len(messages) > 1)
    assert streaming or not read.partial


def test_d10_a_deadline_that_passed_before_the_first_step_costs_nothing(started: Start) -> None:
    error = started(**SLOW).refusal(LONG, timeout_us=1)
    assert (error.code, error.partial) == ("DEADLINE_EXCEEDED", False)


def test_a01_a_full_queue_refuses_at_once_with_a_retryable_error(started: Start) -> None:
    engine = started(max_num_sequences="1", max_waiting_requests="1", **SLOW)
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
    started: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drain, "_path", str(tmp_path / "drain"))
    engine = started()
    assert len(ids(engine.answer())) == 5
    (tmp_path / "drain").touch()
    error = engine.refusal()
    assert (error.code, error.retryable) == ("DRAINING", True)
    assert len(ids(engine.answer(parameters={ERRORS_IN_BAND: True}))) == 5
    (reply,) = engine.answer(STOP, request_id="a")
    assert reply.error is None


def test_errors_of_the_engine_travel_in_band_where_asked_for(started: Start) -> None:
    options = {"parameters": {ERRORS_IN_BAND: True}, "timeout_us": 60_000}
    *_, last = started(**SLOW).answer({**LONG, "streaming": True}, **options)
    assert last.error is None
    error = parse_error(reasons([last])[0])
    assert error is not None
    assert error.code == "DEADLINE_EXCEEDED"


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


def test_g05_an_unexpected_error_while_reading_leaks_nothing(
    started: Start, log: LogLines, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = started()

    def broken(*_: Any) -> None:
        raise KeyError("/srv/secret")

    monkeypatch.setattr(engine.host._engine, "submit", broken)
    (message,) = engine.answer()
    leaks_nothing(message, log)


def test_g05_an_unexpected_error_while_writing_leaks_nothing_and_harms_nobody_else(
    started: Start, log: LogLines, monkeypatch: pytest.MonkeyPatch
) -> None:
    from naiad.serving.engine_requests import EngineRow

    engine = started()
    encode = EngineRow.encode

    def broken(row: EngineRow, *arguments: Any) -> Any:
        if row.request.request_id == "bad":
            raise KeyError("/srv/secret")
        return encode(row, *arguments)

    monkeypatch.setattr(EngineRow, "encode", broken)
    *_, message = engine.answer({**LONG, "streaming": True}, request_id="bad")
    leaks_nothing(message, log)
    assert len(ids(engine.answer())) == 5


def test_b18_a_response_that_triton_refuses_harms_nobody_else(started: Start, log: LogLines) -> None:
    def full(response: Any) -> None:
        if response is not None and response.output_tensors():
            raise MemoryError("/srv/secret is full")

    engine = started()
    *_, message = engine.answer({**LONG, "streaming": True}, before_send=full)
    leaks_nothing(message, log)
    assert len(ids(engine.answer())) == 5


def test_the_engine_stops_working_for_a_request_that_has_ended(started: Start) -> None:
    engine = started(decoupled=False, synthetic_step_ms="50")
    values = {**BATCH, "request_output_len": [[400], [CONTEXT]]}  # 20 s of work in row 0
    assert engine.refusal(values).code == "PROMPT_TOO_LONG"
    poll(lambda: engine.host._engine.stats().active == 0)


def test_the_end_id_of_the_model_ends_an_answer(started: Start, tokenizer: Any) -> None:
    script = tokenizer.decode(tokenizer.encode("one two"))
    messages = started(synthetic_script=script).answer({**LONG, "end_id": END})
    assert tokenizer.decode(ids(messages)) == "one two"
    assert reasons(messages) == ["stop"]


def test_live_requests_end_when_the_model_is_unloaded(started: Start) -> None:
    engine = started(**SLOW)
    request = engine.send(LONG)
    engine.host.finalize()
    (message,) = request.wait_ended()
    assert str(message.error).startswith("[ENGINE_UNAVAILABLE]")


def test_i01_failures_are_counted_by_their_code(started: Start, triton: FakeServer) -> None:
    engine = started(stats_check_period_ms="1000000")
    engine.refusal({**PROMPT, "temperature": -1.0})
    engine.refusal({**PROMPT, "request_output_len": CONTEXT})
    engine.refusal({**PROMPT, "lora_task_id": 1})
    engine.answer()
    counted = triton.families["naiad_request_failures"]
    engine.host.finalize()
    assert {metric.labels["reason"]: metric.number for metric in counted.metrics if metric.number} == {
        "INVALID_ARGUMENT": 1, "PROMPT_TOO_LONG": 1, "UNSUPPORTED": 1,
    }  # fmt: skip


def test_g07_no_prompt_is_logged(started: Start, log: LogLines) -> None:
    engine = started()
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
    started: Start, parameters: dict[str, str], message: str
) -> None:
    with pytest.raises(NaiadError, match=message):
        started(**parameters)
