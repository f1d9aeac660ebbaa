"""One request over our client against a scripted gRPC server: what came, when, and how it ended."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from naiad_perf.drivers.timed_streams import IdsRequest, StreamingClient, request_for
from naiad_perf.records import Outcome
from naiad_perf.workload.load import Prompt
from tests.harness.polling import poll
from tests.unit.client.scripted import delta, final
from tests.unit.client.triton_server import ScriptedTriton, Visit, running


@pytest.fixture
def triton() -> Iterator[ScriptedTriton]:
    with running() as server:
        yield server


@pytest.fixture
def asker(triton: ScriptedTriton) -> Iterator[StreamingClient]:
    client = StreamingClient(triton.address, "tensorrt_llm_bls", timeout_s=10)
    yield client
    client.close()


def text(prompt: str) -> Any:
    return request_for(Prompt(prompt, (), 5), takes_ids=False)


def now_ns() -> int:
    return round(time.monotonic() * 1e9)


def test_responses_with_their_tokens_and_the_end(asker: StreamingClient) -> None:
    """The script: 1, 2 and 2 tokens, a message of closing words only, the final one."""
    before = now_ns()
    answer = asker.ask(text("words"))
    after = now_ns()
    assert answer.outcome is Outcome.OK
    assert answer.response_tokens == [1, 2, 2]
    assert answer.input_tokens == 5
    assert answer.ended_ns is not None
    times = [before, answer.sent_ns, *answer.response_ns, answer.ended_ns, after]
    assert times == sorted(times)


def test_times_are_of_arrival_not_of_reading(triton: ScriptedTriton, asker: StreamingClient) -> None:
    """The second token leaves the server after the first has been seen to arrive, a known while later."""
    arrived = threading.Event()

    def slow(visit: Visit) -> Iterator[Any]:
        yield delta("one")
        arrived.wait(0.25)  # nobody sets it: a pause
        yield delta("two", finish="length")
        yield final()

    triton.behaviours["slow"] = slow
    answer = asker.ask(text("slow"))
    first, second = answer.response_ns
    assert second - first >= 240_000_000
    assert answer.ended_ns is not None
    assert answer.ended_ns - second < 240_000_000


def test_a_refusal_is_an_error_with_its_code(asker: StreamingClient) -> None:
    answer = asker.ask(text("refused"))
    assert (answer.outcome, answer.error, answer.response_tokens) == (Outcome.ERROR, "PROMPT_TOO_LONG", [])
    assert answer.ended_ns is not None
    assert answer.ended_ns >= answer.sent_ns


def test_a_failure_is_never_tried_again(triton: ScriptedTriton, asker: StreamingClient) -> None:
    answer = asker.ask(text("full twice"))
    assert (answer.outcome, answer.error) == (Outcome.ERROR, "QUEUE_FULL")
    assert len(triton.visits_for("full twice")) == 1


@pytest.mark.parametrize(
    ("prompt", "code"),
    [("full late", "QUEUE_FULL"), ("dies", "ENGINE_UNAVAILABLE"), ("truncated", "INCOMPLETE_STREAM")],
)
def test_tokens_before_a_failure_are_kept_and_it_is_no_success(
    asker: StreamingClient, prompt: str, code: str
) -> None:
    answer = asker.ask(text(prompt))
    assert (answer.outcome, answer.error, answer.response_tokens) == (Outcome.ERROR, code, [1])


def test_too_long_is_an_error(triton: ScriptedTriton) -> None:
    client = StreamingClient(triton.address, "tensorrt_llm_bls", timeout_s=0.2)
    try:
        answer = client.ask(text("slow"))
    finally:
        client.close()
    assert (answer.outcome, answer.error) == (Outcome.ERROR, "TOTAL_TIMEOUT")


def test_nobody_there_is_an_error() -> None:
    client = StreamingClient("127.0.0.1:1", "tensorrt_llm_bls", timeout_s=5)
    try:
        answer = client.ask(text("words"))
    finally:
        client.close()
    assert (answer.outcome, answer.error) == (Outcome.ERROR, "CONNECT_FAILED")


def test_hanging_up_ends_the_request_when_it_happened(triton: ScriptedTriton, asker: StreamingClient) -> None:
    answer = asker.ask(text("slow"), cancel_after_s=0.2)
    assert answer.outcome is Outcome.CANCELLED
    assert answer.error == ""
    assert answer.ended_ns is not None
    assert answer.ended_ns - answer.sent_ns >= 190_000_000
    assert sum(answer.response_tokens) >= 1
    assert all(at <= answer.ended_ns for at in answer.response_ns)
    (visit,) = triton.visits_for("slow")
    assert visit.ended.wait(10)


def test_an_answer_that_ends_before_hanging_up_is_whole(asker: StreamingClient) -> None:
    answer = asker.ask(text("words"), cancel_after_s=60)
    assert (answer.outcome, answer.response_tokens) == (Outcome.OK, [1, 2, 2])
    poll(lambda: not any(isinstance(thread, threading.Timer) for thread in threading.enumerate()))


def test_an_answer_that_the_server_cut_is_no_success(triton: ScriptedTriton, asker: StreamingClient) -> None:
    def cut(visit: Visit) -> Iterator[Any]:
        yield delta("one", finish="cancelled")
        yield final()

    triton.behaviours["cut"] = cut
    answer = asker.ask(text("cut"))
    assert (answer.outcome, answer.error) == (Outcome.ERROR, "CANCELLED")


def test_text_asks_for_an_exact_length_and_for_counts(triton: ScriptedTriton, asker: StreamingClient) -> None:
    asker.ask(text("words"))
    (visit,) = triton.visits_for("words")
    names = [tensor.name for tensor in visit.request.inputs]
    sent = dict(zip(names, visit.request.raw_input_contents, strict=True))
    assert sent["max_tokens"] == sent["min_tokens"] == struct.pack("<i", 5)
    assert sent["stream"] == sent["return_num_output_tokens"] == b"\x01"
    assert visit.request.parameters["timeout"].int64_param == pytest.approx(10_000_000, rel=0.01)


def test_ids_are_what_the_engine_model_takes() -> None:
    request = request_for(Prompt("", (3, 4, 5), 9), takes_ids=True)
    assert isinstance(request, IdsRequest)
    message = request.to_protobuf(model="tensorrt_llm", request_id="7", timeout_s=2.5)
    sent = {
        tensor.name: (tensor.datatype, list(tensor.shape), raw)
        for tensor, raw in zip(message.inputs, message.raw_input_contents, strict=True)
    }
    assert sent == {
        "input_ids": ("INT32", [1, 3], struct.pack("<3i", 3, 4, 5)),
        "input_lengths": ("INT32", [1, 1], struct.pack("<i", 3)),
        "request_output_len": ("INT32", [1, 1], struct.pack("<i", 9)),
        "end_id": ("INT32", [1, 1], struct.pack("<i", -1)),
        "streaming": ("BOOL", [1, 1], b"\x01"),
        "return_num_input_tokens": ("BOOL", [1, 1], b"\x01"),
        "return_num_output_tokens": ("BOOL", [1, 1], b"\x01"),
    }
    assert (message.model_name, message.id) == ("tensorrt_llm", "7")
    assert message.parameters["timeout"].int64_param == 2_500_000
