"""Cancels, stop requests and deadlines reach the engine, and every request ends exactly once (D03-D08)."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from tests.harness.repository import ROOT
from tests.harness.server import LiveServer, wait_until
from tests.harness.triton_request import (
    Reply,
    TritonStream,
    collect,
    flag,
    infer_request,
    ints,
    stop_request,
    text,
)

LONG = 4000  # tokens; 20 s at 5 ms each


@pytest.fixture
def stream(synthetic: LiveServer) -> Iterator[TritonStream]:
    with TritonStream(synthetic.grpc) as opened:
        yield opened
    wait_until(lambda: synthetic.active() == 0, 5, "the engine is idle after the test")


def long_request(request_id: str = "", *, tokens: int = LONG, **parameters: int):
    tensors = {"text_input": text("one two three"), "max_tokens": ints(tokens), "stream": flag()}
    return infer_request("tensorrt_llm_bls", tensors, request_id=request_id, parameters=parameters)


def test_d03_a_cancel_after_five_chunks_reaches_the_engine(
    stream: TritonStream, synthetic: LiveServer
) -> None:
    call = stream.open(long_request())
    for _, _ in zip(range(5), call, strict=False):
        pass
    wait_until(lambda: synthetic.active() >= 1, 2, "the engine runs it")
    call.cancel()
    wait_until(lambda: synthetic.active() == 0, 1, "the engine has nothing to do")


def test_d04_two_hundred_cancels_at_random_moments(stream: TritonStream, synthetic: LiveServer) -> None:
    randomness = random.Random(4)
    delays_s = [randomness.uniform(0, 0.12) for _ in range(200)]

    def cancel_after(delay_s: float) -> int:
        """Return how many final messages came; a cancelled call may have had none."""
        call = stream.open(long_request(tokens=20))  # about 0.1 s: many cancels race the last chunk
        started_s = time.monotonic()
        finals = 0
        try:
            for message in call:
                finals += message.infer_response.parameters["triton_final_response"].bool_param
                if time.monotonic() - started_s >= delay_s:
                    call.cancel()
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.CANCELLED:
                raise
        return finals

    with ThreadPoolExecutor(16) as threads:
        finals = list(threads.map(cancel_after, delays_s))
    assert max(finals) <= 1
    wait_until(lambda: synthetic.active() == 0, 1, "the engine has nothing to do")
    assert stream.ask(long_request(tokens=2)).finals == 1
    assert synthetic.supervisor.state is not None
    assert synthetic.supervisor.state.restarts == 0


def test_d05_cancelling_twice_or_after_the_end_changes_nothing(stream: TritonStream) -> None:
    call = stream.open(long_request())
    next(call)
    call.cancel()
    call.cancel()
    ended = stream.open(long_request(tokens=2))
    assert (
        sum(message.infer_response.parameters["triton_final_response"].bool_param for message in ended) == 1
    )
    ended.cancel()
    assert stream.ask(long_request(tokens=2)).finals == 1


def test_d06_a_client_that_is_killed_counts_as_a_cancel(synthetic: LiveServer) -> None:
    program = (
        "from tests.integration.test_cancellation import long_request\n"
        "from tests.harness.triton_request import TritonStream\n"
        f"call = TritonStream({synthetic.grpc!r}).open(long_request())\n"
        "next(call); print('streaming', flush=True)\n"
        "list(call)\n"
    )
    client = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    with client:
        assert client.stdout is not None
        assert client.stdout.readline() == "streaming\n"
        wait_until(lambda: synthetic.active() >= 1, 2, "the engine runs it")
        client.kill()
    wait_until(lambda: synthetic.active() == 0, 2, "the engine has nothing to do")


def test_d07_one_of_ten_on_a_stream_errs_and_one_is_stopped_and_the_others_finish(
    stream: TritonStream, synthetic: LiveServer
) -> None:
    engine = {"input_ids": ints(5, 6, 7), "input_lengths": ints(3), "streaming": flag()}
    requests = [
        infer_request("tensorrt_llm", {**engine, "request_output_len": ints(40)}, request_id=f"ok{number}")
        for number in range(8)
    ]
    requests.append(
        infer_request("tensorrt_llm", {**engine, "request_output_len": ints(0)}, request_id="bad")
    )
    requests.append(
        infer_request("tensorrt_llm", {**engine, "request_output_len": ints(LONG)}, request_id="gone")
    )
    replies = {request.id: Reply() for request in requests}
    errors = []
    stopped = False
    for message in stream.open(*requests):
        if message.error_message:
            errors.append(message.error_message)
            continue
        reply = replies[message.infer_response.id]
        collect(reply, message)
        if not stopped and len(replies["gone"].responses) >= 3:
            stopped = True
            stream.ask(stop_request("gone"))
    assert len(errors) == 1
    assert "request_output_len" in errors[0]
    assert all(len(replies[f"ok{number}"].responses) == 40 for number in range(8))
    assert all(replies[f"ok{number}"].finals == 1 for number in range(8))
    assert replies["gone"].finish_reason == "cancelled"


def test_d08_a_stopped_request_still_gets_its_final_and_nothing_after_it(stream: TritonStream) -> None:
    engine = {
        "input_ids": ints(5, 6),
        "input_lengths": ints(2),
        "request_output_len": ints(LONG),
        "streaming": flag(),
    }
    reply = Reply()
    for message in stream.open(infer_request("tensorrt_llm", engine, request_id="d08")):
        collect(reply, message)  # refuses what comes after a final
        if len(reply.responses) == 3:
            stream.ask(stop_request("d08"))
    assert reply.finals == 1


@pytest.mark.parametrize("model", ["tensorrt_llm", "tensorrt_llm_bls"])
def test_a_deadline_in_the_request_ends_it_and_the_engines_work(
    stream: TritonStream, synthetic: LiveServer, model: str
) -> None:
    tensors = (
        {
            "input_ids": ints(5, 6),
            "input_lengths": ints(2),
            "request_output_len": ints(LONG),
            "streaming": flag(),
        }
        if model == "tensorrt_llm"
        else {"text_input": text("one two"), "max_tokens": ints(LONG), "stream": flag()}
    )
    started_s = time.monotonic()
    reply = stream.ask(infer_request(model, tensors, parameters={"timeout": 300_000}))
    assert reply.error is not None
    assert "[DEADLINE_EXCEEDED]" in reply.error
    assert "partial answer was delivered" in reply.error
    assert 0.3 <= time.monotonic() - started_s < 2
    wait_until(lambda: synthetic.active() == 0, 1, "the engine has nothing to do")


def test_a_grpc_deadline_ends_the_engines_work(stream: TritonStream, synthetic: LiveServer) -> None:
    call = stream.open(long_request(), timeout_s=0.3)
    with pytest.raises(grpc.RpcError) as caught:
        list(call)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    wait_until(lambda: synthetic.active() == 0, 1, "the engine has nothing to do")
