"""The text model's host over a scripted engine: what is asked of the engine, and what the caller gets."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from naiad.tokenization import Tokenizer
from naiad.triton.requests import ERRORS_IN_BAND
from tests.harness.fake_triton import FakeServer
from tests.harness.polling import poll
from tests.harness.scripted_engine import EngineCall, Script, tokens
from tests.unit.triton.conftest import LogLines
from tests.unit.triton.text_calls import (
    ASK,
    STREAM,
    Outputs,
    Scripted,
    Start,
    joined,
    reason_of,
)


def test_a_stream_is_deltas_a_reason_and_an_empty_end(
    text_model: Start, engine: Scripted, say: Callable[..., Script]
) -> None:
    engine(say("two three four"))
    *data, end = text_model().answer()
    assert joined(data) == "two three four"
    assert reason_of(data[-1]) == "stop"
    assert len(data) > 2
    assert (end.empty, end.final) == (True, True)
    assert not any(message.final for message in data)


@pytest.mark.parametrize("decoupled", [True, False])
def test_a_request_that_does_not_stream_is_one_response(
    text_model: Start, engine: Scripted, say: Callable[..., Script], decoupled: bool
) -> None:
    scripted = engine(say("two three four", "length"))
    messages = text_model(decoupled=decoupled).answer(ASK)
    assert [message.empty for message in messages] == ([False, True] if decoupled else [False])
    assert joined(messages) == "two three four"
    assert reason_of(messages[0]) == "length"
    assert scripted.calls[0].tensors["streaming"].tolist() == [[decoupled]]


def test_the_engine_is_called_with_a_fresh_id_the_prompt_and_the_remaining_time(
    text_model: Start, engine: Scripted, say: Callable[..., Script], tokenizer: Tokenizer
) -> None:
    scripted = engine(say("two"))
    text = text_model()
    text.answer({**STREAM, "temperature": 0.5}, request_id="mine", timeout_us=5_000_000)
    text.answer(request_id="mine")
    first, second = scripted.calls
    assert first.prompt == tokenizer.encode("one")
    assert first.tensors["temperature"].tolist() == [[0.5]]
    assert 0 < first.timeout_us <= 5_000_000
    assert len({first.request_id, second.request_id, "mine"}) == 3


def test_the_engine_is_asked_for_the_outputs_that_are_passed_on(
    text_model: Start, engine: Scripted, say: Callable[..., Script]
) -> None:
    scripted = engine(say("two"))
    text = text_model()
    text.answer()
    text.answer({**STREAM, "return_log_probs": True, "return_perf_metrics": True, "num_return_sequences": 2})
    plain, rich = (set(call.requested) for call in scripted.calls)
    assert plain == {"output_ids", "sequence_length", "finish_reason"}
    times = {f"{name}_time_ns" for name in ("arrival", "first_scheduled", "first_token", "last_token")}
    assert rich == plain | times | {"output_log_probs", "sequence_index"}


def test_a_call_of_the_engine_asks_for_errors_in_band(
    text_model: Start, triton: FakeServer, say: Callable[..., Script], engine: Scripted
) -> None:
    scripted = engine(say("two"))
    seen: list[str] = []

    def spy(request: Any) -> Any:
        seen.append(request.parameters())
        return scripted(request)

    triton.models["tensorrt_llm"] = spy
    text_model().answer()
    assert ERRORS_IN_BAND in seen[0]


def test_requests_are_served_at_the_same_time(
    text_model: Start, engine: Scripted, tokenizer: Tokenizer
) -> None:
    together = threading.Barrier(8, timeout=10)

    def script(call: EngineCall) -> Outputs:
        together.wait()
        yield tokens(call.prompt, "stop")

    engine(script)
    text = text_model()
    prompts = ["one", "two", "three", "four", "five", "six", "seven", "eight"]
    requests = [text.send({**STREAM, "text_input": prompt}) for prompt in prompts]
    assert [joined(request.wait_ended()) for request in requests] == prompts


def test_a_batch_is_answered_row_by_row_and_ends_once(
    text_model: Start, engine: Scripted, say: Callable[..., Script]
) -> None:
    def script(call: EngineCall) -> Outputs:
        yield tokens(call.prompt, "stop")

    engine(script)
    batch = {
        "text_input": [["one"], ["two"]], "max_tokens": [[9], [9]], "stream": [[True], [False]],
        "exclude_input_in_output": [[True], [True]],
    }  # fmt: skip
    *data, end = text_model().answer(batch)
    texts = {message.tensors["batch_index"].item(): joined([message]) for message in data}
    assert texts == {0: "one", 1: "two"}
    assert end.final
    (stacked,) = text_model(decoupled=False).answer({**batch, "stream": [[False], [False]]})
    assert [item.decode() for item in stacked.tensors["text_output"]] == ["one", "two"]


def test_several_sequences_end_with_the_last_of_them(
    text_model: Start, engine: Scripted, tokenizer: Tokenizer
) -> None:
    def script(call: EngineCall) -> Outputs:
        for index, word in enumerate(("two", "three")):
            sequence = {"sequence_index": np.array([[index]], dtype=np.int32)}
            yield tokens(tokenizer.encode(word), "stop", **sequence)

    engine(script)
    first, second, end = text_model().answer({**STREAM, "num_return_sequences": 2})
    assert [first.tensors["sequence_index"].item(), second.tensors["sequence_index"].item()] == [0, 1]
    assert joined([first, second]) == "twothree"
    assert end.empty


def test_accumulated_streams_repeat_the_text_so_far(
    text_model: Start, engine: Scripted, say: Callable[..., Script]
) -> None:
    engine(say("two three"))
    *data, _ = text_model(accumulate_tokens="true").answer()
    texts = [joined([message]) for message in data]
    assert texts[-1] == "two three"
    assert all(longer.startswith(shorter) for shorter, longer in itertools.pairwise(texts))


def test_i01_failures_and_latencies_are_counted(
    text_model: Start, engine: Scripted, say: Callable[..., Script], triton: FakeServer
) -> None:
    engine(say("two three"))
    text = text_model(stats_check_period_ms="1000000")
    text.answer({**ASK, "max_tokens": 0})
    text.answer(timeout_us=1)
    text.answer()
    text.answer(ASK)
    text.idle()
    ttft, failures = (
        triton.families[f"naiad_{name}"] for name in ("time_to_first_token_seconds", "request_failures")
    )
    text.host.finalize()
    assert len(ttft.metrics[0].observations) == 1
    assert {metric.labels["reason"]: metric.number for metric in failures.metrics if metric.number} == {
        "INVALID_ARGUMENT": 1, "DEADLINE_EXCEEDED": 1,
    }  # fmt: skip


def test_g07_g08_the_log_has_one_line_a_request_without_its_text_and_with_its_id_escaped(
    text_model: Start, engine: Scripted, say: Callable[..., Script], log: LogLines
) -> None:
    engine(say("secret answer"))
    text = text_model()
    text.answer({**STREAM, "text_input": "secret prompt"}, request_id="a\nERROR forged" + "x" * 500)
    text.idle()
    poll(lambda: bool(log.lines))
    (line,) = log.about("request id=")
    assert "\n" not in line
    assert "'a\\nERROR forgedxx" in line
    assert "outcome=stop" in line
    assert len(line) < 400
    assert not log.about("secret")
