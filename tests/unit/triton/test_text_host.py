"""The text model's host over a scripted engine: what becomes of a request whatever the engine does."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from naiad.contract import TENSORRT_LLM_BLS
from naiad.contract.errors import (
    EngineStalled,
    EngineUnavailable,
    NaiadError,
    PromptTooLong,
    format_error,
    parse_error,
)
from naiad.tokenization import Tokenizer
from naiad.triton import drain, watchdog
from naiad.triton.requests import ERRORS_IN_BAND
from naiad.triton.text_host import TextHost
from tests.harness.fake_triton import FakeServer, IncomingRequest, Sent
from tests.harness.fake_triton_data import TritonModelException
from tests.harness.tensors import arrays_of
from tests.unit.triton.conftest import EngineCall, LogLines, Script, ScriptedEngine, poll, tokens

ASK: dict[str, Any] = {"text_input": "one", "max_tokens": 100, "exclude_input_in_output": True}
STREAM: dict[str, Any] = {**ASK, "stream": True}

Outputs = Iterator[Mapping[str, Any]]
Scripted = Callable[[Script], ScriptedEngine]


class Text:
    """One host and short ways to call it."""

    def __init__(self, host: TextHost, triton: FakeServer, *, decoupled: bool) -> None:
        self.host, self.triton, self.decoupled = host, triton, decoupled

    def send(self, values: dict[str, Any] = STREAM, **options: Any) -> IncomingRequest:
        request = self.triton.request(
            arrays_of(TENSORRT_LLM_BLS, **values), decoupled=self.decoupled, **options
        )
        self.host.execute([request])
        return request

    def answer(self, values: dict[str, Any] = STREAM, **options: Any) -> list[Sent]:
        return self.send(values, **options).wait_ended()

    def idle(self) -> None:
        """Wait until no request is live any more."""
        poll(lambda: self.host._live == 0)


Start = Callable[..., Text]


@pytest.fixture
def started(start: Callable[..., Any], triton: FakeServer, model_directory: Path, engine: Scripted) -> Start:
    def make(*, decoupled: bool = True, **parameters: str) -> Text:
        given = {
            "tokenizer_dir": str(model_directory),
            "cancellation_check_period_ms": "2",
            "max_live_requests": "16",
            **parameters,
        }
        return Text(
            start(TextHost, "tensorrt_llm_bls", decoupled=decoupled, **given), triton, decoupled=decoupled
        )

    return make


@pytest.fixture
def say(tokenizer: Tokenizer) -> Callable[..., Script]:
    """A script that streams a text token by token and ends with a reason."""

    def script(text: str, reason: str | None = "stop") -> Script:
        def run(call: EngineCall) -> Outputs:
            for token in tokenizer.encode(text):
                yield tokens([token])
            yield tokens([], reason) if reason else {}

        return run

    return script


def joined(messages: list[Sent]) -> str:
    parts = [message.tensors["text_output"] for message in messages if "text_output" in message.tensors]
    return "".join(part.item().decode() for part in parts)


def reason_of(message: Sent) -> str:
    return str(message.tensors["finish_reason"].item().decode())


def wait_for_data(request: IncomingRequest) -> None:
    request.wait_for(lambda: bool(request.sent))


def error_of(message: Sent) -> NaiadError:
    error = parse_error(str(message.error))
    assert error is not None
    return error


def test_a_stream_is_deltas_a_reason_and_an_empty_end(
    started: Start, engine: Scripted, say: Callable[..., Script]
) -> None:
    engine(say("two three four"))
    *data, end = started().answer()
    assert joined(data) == "two three four"
    assert reason_of(data[-1]) == "stop"
    assert len(data) > 2
    assert (end.empty, end.final) == (True, True)
    assert not any(message.final for message in data)


@pytest.mark.parametrize("decoupled", [True, False])
def test_a_request_that_does_not_stream_is_one_response(
    started: Start, engine: Scripted, say: Callable[..., Script], decoupled: bool
) -> None:
    scripted = engine(say("two three four", "length"))
    messages = started(decoupled=decoupled).answer(ASK)
    assert [message.empty for message in messages] == ([False, True] if decoupled else [False])
    assert joined(messages) == "two three four"
    assert reason_of(messages[0]) == "length"
    assert scripted.calls[0].tensors["streaming"].tolist() == [[decoupled]]


def test_the_engine_is_called_with_a_fresh_id_the_prompt_and_the_remaining_time(
    started: Start, engine: Scripted, say: Callable[..., Script], tokenizer: Tokenizer
) -> None:
    scripted = engine(say("two"))
    text = started()
    text.answer({**STREAM, "temperature": 0.5}, request_id="mine", timeout_us=5_000_000)
    text.answer(request_id="mine")
    first, second = scripted.calls
    assert first.prompt == tokenizer.encode("one")
    assert first.tensors["temperature"].tolist() == [[0.5]]
    assert 0 < first.timeout_us <= 5_000_000
    assert len({first.request_id, second.request_id, "mine"}) == 3


def test_the_engine_is_asked_for_the_outputs_that_are_passed_on(
    started: Start, engine: Scripted, say: Callable[..., Script]
) -> None:
    scripted = engine(say("two"))
    text = started()
    text.answer()
    text.answer({**STREAM, "return_log_probs": True, "return_perf_metrics": True, "num_return_sequences": 2})
    plain, rich = (set(call.requested) for call in scripted.calls)
    assert plain == {"output_ids", "sequence_length", "finish_reason"}
    times = {f"{name}_time_ns" for name in ("arrival", "first_scheduled", "first_token", "last_token")}
    assert rich == plain | times | {"cum_log_probs", "output_log_probs", "sequence_index"}


def test_a_call_of_the_engine_asks_for_errors_in_band(
    started: Start, triton: FakeServer, say: Callable[..., Script], engine: Scripted
) -> None:
    scripted = engine(say("two"))
    seen: list[str] = []

    def spy(request: Any) -> Any:
        seen.append(request.parameters())
        return scripted(request)

    triton.models["tensorrt_llm"] = spy
    started().answer()
    assert ERRORS_IN_BAND in seen[0]


def test_d11_without_a_deadline_the_models_own_applies(
    started: Start, engine: Scripted, say: Callable[..., Script]
) -> None:
    scripted = engine(say("two"))
    started(default_timeout_ms="2000").answer()
    assert 0 < scripted.calls[0].timeout_us <= 2_000_000


def test_requests_are_served_at_the_same_time(started: Start, engine: Scripted, tokenizer: Tokenizer) -> None:
    together = threading.Barrier(8, timeout=10)

    def script(call: EngineCall) -> Outputs:
        together.wait()
        yield tokens(call.prompt, "stop")

    engine(script)
    text = started()
    prompts = ["one", "two", "three", "four", "five", "six", "seven", "eight"]
    requests = [text.send({**STREAM, "text_input": prompt}) for prompt in prompts]
    assert [joined(request.wait_ended()) for request in requests] == prompts


def test_d03_a_cancel_is_sent_to_the_engine_once_under_the_engines_id(
    started: Start, engine: Scripted, tokenizer: Tokenizer
) -> None:
    def script(call: EngineCall) -> Outputs:
        yield tokens(tokenizer.encode("two"))
        call.wait_for_stop()
        yield tokens([], "cancelled")

    scripted = engine(script)
    text = started()
    request = text.send()
    wait_for_data(request)
    request.cancel()
    *_, last, end = request.wait_ended()
    assert reason_of(last) == "cancelled"
    assert end.empty
    text.idle()
    assert scripted.stops == [scripted.calls[0].request_id]


def test_d07_a_cancel_of_one_request_leaves_the_others_alone(
    started: Start, engine: Scripted, tokenizer: Tokenizer
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
    text = started()
    requests = [text.send() for _ in range(5)]
    for request in requests:
        wait_for_data(request)
    requests[2].cancel()
    assert joined(requests[2].wait_ended()) == "two"
    go_on.set()
    others = [joined(request.wait_ended()) for place, request in enumerate(requests) if place != 2]
    assert others == ["two three"] * 4


def test_a_stop_string_ends_the_answer_and_then_the_engines_work(
    started: Start, engine: Scripted, tokenizer: Tokenizer
) -> None:
    def script(call: EngineCall) -> Outputs:
        for token in tokenizer.encode("two STOP three"):
            yield tokens([token])
        call.hang()

    scripted = engine(script)
    text = started()
    messages = text.answer({**STREAM, "stop_words": ("STOP",)})
    assert joined(messages) == "two "
    assert reason_of(messages[-2]) == "stop"
    poll(lambda: bool(scripted.stops))
    text.idle()
    assert scripted.stops == [scripted.calls[0].request_id]


def test_an_answer_that_ends_by_itself_sends_no_stop(
    started: Start, engine: Scripted, say: Callable[..., Script]
) -> None:
    scripted = engine(say("two"))
    text = started()
    text.answer()
    text.idle()
    assert scripted.stops == []


@pytest.mark.parametrize("spoken", [True, False])
def test_b01_an_engine_that_hangs_ends_the_request_as_stalled_within_its_limit(
    started: Start, engine: Scripted, tokenizer: Tokenizer, spoken: bool
) -> None:
    def script(call: EngineCall) -> Outputs:
        if spoken:
            yield tokens(tokenizer.encode("two"))
        call.hang()

    scripted = engine(script)
    short, long = ("idle", "first_token") if spoken else ("first_token", "idle")
    limits = {f"{short}_timeout_ms": "30", f"{long}_timeout_ms": "60000"}
    *before, last = started(**limits).answer()
    error = error_of(last)
    assert isinstance(error, EngineStalled)
    assert error.partial is spoken
    assert ("stopped answering" if spoken else "gave no first token") in error.message
    assert joined(before) == ("two" if spoken else "")
    poll(lambda: scripted.stops == [scripted.calls[0].request_id])


def test_b01_what_a_stalled_engine_says_later_is_dropped(
    started: Start, engine: Scripted, tokenizer: Tokenizer
) -> None:
    def script(call: EngineCall) -> Outputs:
        call.wait_for_stop()
        yield tokens(tokenizer.encode("late"), "stop")

    engine(script)
    text = started(first_token_timeout_ms="20")  # noqa: S106 - a token of text
    request = text.send()
    request.wait_ended()
    text.idle()
    assert len(request.sent) == 1


def test_the_deadline_ends_a_request_whose_engine_does_not(
    started: Start, engine: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "DEADLINE_GRACE_S", 0.01)

    def script(call: EngineCall) -> Outputs:
        call.hang()
        yield {}

    engine(script)
    (message,) = started().answer(timeout_us=20_000)
    assert error_of(message).code == "DEADLINE_EXCEEDED"


def test_d10_a_deadline_that_passed_on_arrival_never_reaches_the_engine(
    started: Start, engine: Scripted, say: Callable[..., Script]
) -> None:
    scripted = engine(say("two"))
    (message,) = started().answer(timeout_us=1)
    assert error_of(message).code == "DEADLINE_EXCEEDED"
    assert scripted.calls == []


@pytest.mark.parametrize("in_band", [True, False])
@pytest.mark.parametrize("spoken", [True, False])
def test_b07_the_engines_error_reaches_the_caller_as_it_was_and_says_what_was_delivered(
    started: Start, engine: Scripted, triton: FakeServer, tokenizer: Tokenizer, in_band: bool, spoken: bool
) -> None:
    text_of_error = format_error(EngineUnavailable("the engine failed; retry", partial=True))

    def script(call: EngineCall) -> Outputs:
        if spoken:
            yield tokens(tokenizer.encode("two"))
        if not in_band:
            raise TritonModelException(f"in model 'tensorrt_llm': {text_of_error}")
        yield {"finish_reason": np.array([[text_of_error.encode()]], dtype=np.object_)}

    engine(script)
    *before, last = started().answer()
    error = error_of(last)
    assert isinstance(error, EngineUnavailable)
    assert error.message == "the engine failed; retry"
    assert error.partial is spoken
    assert len(before) == spoken


def test_an_answer_that_is_sent_whole_is_never_partial(
    started: Start, engine: Scripted, tokenizer: Tokenizer
) -> None:
    def script(call: EngineCall) -> Outputs:
        yield tokens(tokenizer.encode("two"))
        raise TritonModelException(format_error(EngineStalled("silent", partial=True)))

    engine(script)
    (message,) = started().answer(ASK)
    assert not error_of(message).partial


def test_an_engine_that_refuses_keeps_its_own_code(started: Start, engine: Scripted) -> None:
    def script(call: EngineCall) -> Outputs:
        yield from ()
        raise TritonModelException(format_error(PromptTooLong("too long by 3")))

    engine(script)
    (message,) = started().answer()
    assert isinstance(error_of(message), PromptTooLong)


def test_g05_a_dead_engine_is_unavailable_and_nothing_of_tritons_words_leaks(
    started: Start, engine: Scripted, log: LogLines
) -> None:
    def script(call: EngineCall) -> Outputs:
        yield from ()
        raise TritonModelException("Stub process 'tensorrt_llm_0_0' at /srv/secret is not healthy.")

    engine(script)
    (message,) = started().answer()
    error = error_of(message)
    assert (error.code, error.retryable) == ("ENGINE_UNAVAILABLE", True)
    assert "/srv" not in str(message.error)
    assert log.about("/srv/secret")


def test_an_engine_that_is_not_loaded_is_unavailable(started: Start) -> None:
    (message,) = started(tensorrt_llm_model_name="elsewhere").answer()
    assert error_of(message).code == "ENGINE_UNAVAILABLE"


def test_g05_an_unexpected_error_leaks_nothing(started: Start, engine: Scripted, log: LogLines) -> None:
    def script(call: EngineCall) -> Outputs:
        yield from ()
        raise KeyError("/srv/secret")

    engine(script)
    text = started()
    (message,) = text.answer()
    assert error_of(message).code == "INTERNAL"
    assert "secret" not in str(message.error)
    incident: Any = getattr(error_of(message), "incident", None)
    assert any("/srv/secret" in line for line in log.about(incident))
    text.idle()


def test_tokens_that_are_no_text_of_the_model_end_the_request(started: Start, engine: Scripted) -> None:
    def script(call: EngineCall) -> Outputs:
        yield tokens([999_999])

    engine(script)
    (message,) = started().answer()
    assert error_of(message).code == "INVALID_ARGUMENT"


def test_e05_an_engine_that_answers_nothing_ends_the_request(started: Start, engine: Scripted) -> None:
    def script(call: EngineCall) -> Outputs:
        yield {}

    engine(script)
    data, end = started().answer()
    assert (joined([data]), reason_of(data), end.empty) == ("", "stop", True)


def test_a01_more_requests_than_may_live_are_refused_at_once_without_the_engine(
    started: Start, engine: Scripted
) -> None:
    def script(call: EngineCall) -> Outputs:
        call.wait_for_stop()
        yield tokens([], "cancelled")

    scripted = engine(script)
    text = started(max_live_requests="3")
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
    started: Start, engine: Scripted, tokenizer: Tokenizer
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
    text = started(max_live_requests="1")
    for _ in range(5):
        text.answer()
        text.idle()


def test_a_batch_is_answered_row_by_row_and_ends_once(
    started: Start, engine: Scripted, say: Callable[..., Script]
) -> None:
    def script(call: EngineCall) -> Outputs:
        yield tokens(call.prompt, "stop")

    engine(script)
    batch = {
        "text_input": [["one"], ["two"]], "max_tokens": [[9], [9]], "stream": [[True], [False]],
        "exclude_input_in_output": [[True], [True]],
    }  # fmt: skip
    *data, end = started().answer(batch)
    texts = {message.tensors["batch_index"].item(): joined([message]) for message in data}
    assert texts == {0: "one", 1: "two"}
    assert end.final
    (stacked,) = started(decoupled=False).answer({**batch, "stream": [[False], [False]]})
    assert [item.decode() for item in stacked.tensors["text_output"]] == ["one", "two"]


def test_b20_a_row_whose_engine_call_fails_leaves_the_others_alone(
    started: Start, engine: Scripted, tokenizer: Tokenizer
) -> None:
    def script(call: EngineCall) -> Outputs:
        if call.prompt == tokenizer.encode("two"):
            raise TritonModelException(format_error(PromptTooLong("too long")))
        yield tokens(call.prompt, "stop")

    engine(script)
    batch = {"text_input": [["one"], ["two"]], "max_tokens": [[9], [9]], "stream": [[True], [True]]}
    messages = started().answer(batch)
    assert joined(messages) == "one"
    assert [error_of(message).code for message in messages if message.error] == ["PROMPT_TOO_LONG"]
    assert sum(message.final for message in messages) == 1


def test_several_sequences_end_with_the_last_of_them(
    started: Start, engine: Scripted, tokenizer: Tokenizer
) -> None:
    def script(call: EngineCall) -> Outputs:
        for index, word in enumerate(("two", "three")):
            sequence = {"sequence_index": np.array([[index]], dtype=np.int32)}
            yield tokens(tokenizer.encode(word), "stop", **sequence)

    engine(script)
    first, second, end = started().answer({**STREAM, "num_return_sequences": 2})
    assert [first.tensors["sequence_index"].item(), second.tensors["sequence_index"].item()] == [0, 1]
    assert joined([first, second]) == "twothree"
    assert end.empty


def test_accumulated_streams_repeat_the_text_so_far(
    started: Start, engine: Scripted, say: Callable[..., Script]
) -> None:
    engine(say("two three"))
    *data, _ = started(accumulate_tokens="true").answer()
    texts = [joined([message]) for message in data]
    assert texts[-1] == "two three"
    assert all(longer.startswith(shorter) for shorter, longer in itertools.pairwise(texts))


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
    started: Start, engine: Scripted, say: Callable[..., Script], values: dict[str, Any],
    options: dict[str, Any], code: str, names: str, decoupled: bool,
) -> None:  # fmt: skip
    scripted = engine(say("two"))
    (message,) = started(decoupled=decoupled).answer({**ASK, **values}, **options)
    assert error_of(message).code == code
    assert names in str(message.error)
    assert scripted.calls == []


def test_a_draining_server_refuses_new_requests_and_finishes_live_ones(
    started: Start, engine: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tokenizer: Tokenizer
) -> None:
    monkeypatch.setattr(drain, "_path", str(tmp_path / "drain"))
    go_on = threading.Event()

    def script(call: EngineCall) -> Outputs:
        assert go_on.wait(10)
        yield tokens(tokenizer.encode("two"), "stop")

    engine(script)
    text = started()
    live = text.send()
    (tmp_path / "drain").touch()
    (message,) = text.answer()
    assert error_of(message).code == "DRAINING"
    go_on.set()
    assert joined(live.wait_ended()) == "two"


def test_d04_a_cancel_that_races_the_end_leaves_one_end_each(
    started: Start, engine: Scripted, say: Callable[..., Script]
) -> None:
    engine(say("two three"))
    text = started()
    for _ in range(100):
        request = text.send()
        request.cancel()
        request.wait_ended()
        text.idle()
        assert sum(message.final for message in request.sent) == 1
        assert request.sent[-1].final


def test_i01_failures_and_latencies_are_counted(
    started: Start, engine: Scripted, say: Callable[..., Script], triton: FakeServer
) -> None:
    engine(say("two three"))
    text = started(stats_check_period_ms="1000000")
    text.answer({**ASK, "max_tokens": 0})
    text.answer(timeout_us=1)
    *data, _ = text.answer()
    text.answer(ASK)
    text.idle()
    ttft, itl, failures = (
        triton.families[f"naiad_{name}"]
        for name in ("time_to_first_token_seconds", "inter_token_latency_seconds", "request_failures")
    )
    text.host.finalize()
    assert len(ttft.metrics[0].observations) == 1
    assert len(itl.metrics[0].observations) == len(data) - 1
    assert {metric.labels["reason"]: metric.number for metric in failures.metrics if metric.number} == {
        "INVALID_ARGUMENT": 1, "DEADLINE_EXCEEDED": 1,
    }  # fmt: skip


def test_g07_g08_the_log_has_one_line_a_request_without_its_text_and_with_its_id_escaped(
    started: Start, engine: Scripted, say: Callable[..., Script], log: LogLines
) -> None:
    engine(say("secret answer"))
    text = started()
    text.answer({**STREAM, "text_input": "secret prompt"}, request_id="a\nERROR forged" + "x" * 500)
    text.idle()
    poll(lambda: bool(log.lines))
    (line,) = log.about("request id=")
    assert "\n" not in line
    assert "'a\\nERROR forgedxx" in line
    assert "outcome=stop" in line
    assert len(line) < 400
    assert not log.about("secret")


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
    started: Start, parameters: dict[str, str], message: str
) -> None:
    with pytest.raises(NaiadError, match=message):
        started(**parameters)
