"""Both hosts together: text requests to the text model, which calls the engine's host as Triton would."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from naiad.contract import TENSORRT_LLM_BLS
from naiad.contract.errors import parse_error
from naiad.tokenization import Tokenizer
from naiad.triton.engine_host import EngineHost
from naiad.triton.requests import THROUGH_CHANNEL
from naiad.triton.text_host import TextHost
from tests.harness.fake_triton import FakeServer, IncomingRequest, InferenceRequest, Sent
from tests.harness.fake_triton_data import InferenceResponse, Tensor, TritonError
from tests.harness.polling import poll
from tests.harness.tensors import arrays_of
from tests.harness.tiny_model import CONTEXT

ASK: dict[str, Any] = {
    "text_input": "one",
    "max_tokens": 400,
    "stream": True,
    "exclude_input_in_output": True,
}


def message_at(request: IncomingRequest, place: int) -> Sent:
    request.wait_for(lambda: len(request.sent) > place, within_s=20)
    return request.sent[place]


def serve(host: EngineHost, triton: FakeServer, call: InferenceRequest) -> Iterator[InferenceResponse]:
    """Deliver a model's call to the engine's host, and its messages back as they come."""
    delivered = triton.request(
        call.tensors(), outputs=call.requested_output_names(), request_id=call.request_id(),
        timeout_us=call.timeout(), parameters=json.loads(call.parameters()),
    )  # fmt: skip
    host.execute([delivered])
    for place in itertools.count():
        message = message_at(delivered, place)
        if message.error is not None:
            yield InferenceResponse(error=TritonError(message.error, message.code or 0))
        else:
            yield InferenceResponse([Tensor(name, array) for name, array in message.tensors.items()])
        if message.final:
            return


def is_idle(engines: list[EngineHost]) -> bool:
    (host,) = engines
    return host._engine.stats().active == 0


Send = Callable[..., IncomingRequest]


@pytest.fixture
def engines() -> list[EngineHost]:
    """The engine models that were started."""
    return []


@pytest.fixture
def send(
    start: Callable[..., Any],
    triton: FakeServer,
    model_directory: Path,
    engines: list[EngineHost],
) -> Callable[..., Send]:
    def models(*, decoupled: bool = True, text_settings: dict[str, str] | None = None, **engine: str) -> Send:
        defaults = {
            "engine": "synthetic", "gpt_model_type": "inflight_fused_batching",
            "gpt_model_path": str(model_directory), "cancellation_check_period_ms": "2",
        }  # fmt: skip
        engine_host = start(EngineHost, "tensorrt_llm", **{**defaults, **engine})
        engines.append(engine_host)
        triton.models["tensorrt_llm"] = lambda call: serve(engine_host, triton, call)
        text_host = start(
            TextHost, "tensorrt_llm_bls", decoupled=decoupled, tokenizer_dir=str(model_directory),
            cancellation_check_period_ms="2", **(text_settings or {}),
        )  # fmt: skip

        def send_one(**values: Any) -> IncomingRequest:
            options = {name: values.pop(name) for name in ("timeout_us",) if name in values}
            arrays = arrays_of(TENSORRT_LLM_BLS, **{**ASK, **values})
            request = triton.request(arrays, decoupled=decoupled, **options)
            text_host.execute([request])
            return request

        return send_one

    return models


SCRIPT = "seven 𝄞 eight naïve café STOP nine"


def joined(messages: list[Sent]) -> str:
    parts = [message.tensors["text_output"] for message in messages if "text_output" in message.tensors]
    return b"".join(part.item() for part in parts).decode()


def reason(messages: list[Sent]) -> str:
    (last,) = [message.tensors["finish_reason"] for message in messages if "finish_reason" in message.tensors]
    return str(last.item().decode())


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("decoupled", [True, False])
def test_e01_the_text_is_the_engines_script_streamed_or_not(
    send: Callable[..., Send], stream: bool, decoupled: bool
) -> None:
    request = send(decoupled=decoupled, synthetic_script=SCRIPT)(stream=stream and decoupled)
    messages = request.wait_ended()
    assert joined(messages) == SCRIPT
    assert reason(messages) == "stop"


def test_e08_the_counts_of_a_stream_are_those_of_the_tokenizer(
    send: Callable[..., Send], tokenizer: Tokenizer
) -> None:
    ask = send(synthetic_script=SCRIPT)
    messages = ask(return_num_input_tokens=True, return_num_output_tokens=True).wait_ended()
    counts = [message.tensors["num_output_tokens"].item() for message in messages if not message.empty]
    assert sum(counts) == len(tokenizer.encode(SCRIPT))
    assert {message.tensors["num_input_tokens"].item() for message in messages if not message.empty} == {
        len(tokenizer.encode("one"))
    }


def test_a_stop_string_cuts_the_text_and_frees_the_engine(
    send: Callable[..., Send], triton: FakeServer, engines: list[EngineHost]
) -> None:
    ask = send(synthetic_script=SCRIPT * 40, synthetic_step_ms="3")
    messages = ask(stop_words=("STOP",)).wait_ended()
    assert joined(messages) == "seven 𝄞 eight naïve café "
    assert reason(messages) == "stop"
    poll(lambda: is_idle(engines))
    assert any("stop" in request.tensors() for request in triton.requests)


def test_d03_a_cancel_stops_the_engine(send: Callable[..., Send], engines: list[EngineHost]) -> None:
    request = send(synthetic_script=SCRIPT * 40, synthetic_step_ms="5")()
    request.wait_for(lambda: len(request.sent) > 1)
    request.cancel()
    messages = request.wait_ended()
    assert reason(messages) == "cancelled"
    assert 0 < len(joined(messages)) < len(SCRIPT * 40)
    poll(lambda: is_idle(engines))


def test_d09_the_deadline_is_the_engines_too_and_its_error_arrives_in_band(send: Callable[..., Send]) -> None:
    messages = send(synthetic_script=SCRIPT * 40, synthetic_step_ms="5")(timeout_us=100_000).wait_ended()
    error = parse_error(str(messages[-1].error))
    assert error is not None
    assert (error.code, error.partial) == ("DEADLINE_EXCEEDED", len(messages) > 1)


def test_c07_a_prompt_that_does_not_fit_is_refused_by_the_engine_with_both_numbers(
    send: Callable[..., Send],
) -> None:
    (message,) = send()(max_tokens=CONTEXT).wait_ended()
    assert str(message.error).startswith("[PROMPT_TOO_LONG] prompt of ")
    assert f"{CONTEXT} output tokens" in str(message.error)


def test_log_probs_of_several_sequences_stay_apart(send: Callable[..., Send], tokenizer: Tokenizer) -> None:
    ask = send(synthetic_script="one two")
    messages = ask(num_return_sequences=2, return_log_probs=True, stream=False).wait_ended()
    data = [message.tensors for message in messages if not message.empty]
    length = len(tokenizer.encode("one two"))
    assert sorted(tensors["sequence_index"].item() for tensors in data) == [0, 1]
    for tensors in data:
        assert tensors["text_output"].item() == b"one two"
        assert tensors["output_log_probs"].tolist() == [[[-0.5] * length]]
        assert tensors["cum_log_probs"].tolist() == [[-0.5 * length]]


def test_times_are_passed_on(send: Callable[..., Send]) -> None:
    messages = send(synthetic_script="one two")(return_perf_metrics=True).wait_ended()
    last = messages[-2].tensors
    stations = [
        last[f"{name}_time_ns"].item() for name in ("arrival", "first_scheduled", "first_token", "last_token")
    ]
    assert stations == sorted(stations)


def test_e10_many_requests_at_once_never_mix(send: Callable[..., Send], tokenizer: Tokenizer) -> None:
    ask = send()  # without a script the engine echoes the prompt over and over
    words = ["one ", "two ", "three ", "four ", "five ", "six ", "seven ", "eight "] * 4
    requests = [ask(text_input=word, max_tokens=60) for word in words]
    for word, request in zip(words, requests, strict=True):
        echo = (tokenizer.encode(word) * 60)[:60]
        assert joined(request.wait_ended()) == tokenizer.decode(echo)


def test_the_engine_answers_a_call_once_and_its_tokens_come_through_the_channel(
    send: Callable[..., Send], triton: FakeServer
) -> None:
    messages = send(synthetic_script=SCRIPT)().wait_ended()
    assert joined(messages) == SCRIPT
    (call,) = [request for request in triton.requests if "input_ids" in request.tensors()]
    (only,) = call.sent
    assert only.final
    assert only.tensors["finish_reason"].item() == THROUGH_CHANNEL


@pytest.mark.parametrize("coalesce", ["true", "false"])
def test_e08_coalesced_or_not_every_token_is_delivered_and_counted(
    send: Callable[..., Send], tokenizer: Tokenizer, coalesce: str
) -> None:
    ask = send(text_settings={"coalesce_when_behind": coalesce})
    requests = [ask(max_tokens=300, return_num_output_tokens=True) for _ in range(6)]
    for request in requests:
        data = [message for message in request.wait_ended() if not message.empty]
        counts = [message.tensors["num_output_tokens"].item() for message in data]
        assert sum(counts) == 300
        assert joined(data) == tokenizer.decode((tokenizer.encode("one") * 300)[:300])
        if coalesce == "false":
            assert max(counts) == 1


def test_b17_an_engine_that_goes_away_ends_its_calls_with_a_retryable_error(
    send: Callable[..., Send], engines: list[EngineHost]
) -> None:
    request = send(synthetic_script=SCRIPT * 40, synthetic_step_ms="5")()
    request.wait_for(lambda: len(request.sent) > 1)
    engines[0]._channels.close()
    error = parse_error(str(request.wait_ended()[-1].error))
    assert error is not None
    assert (error.code, error.partial, error.retryable) == ("ENGINE_UNAVAILABLE", True, True)
