"""Cancels, deadlines and stops by every way there is into either model: each reaches the engine.

Two ways Triton 2.51 does not pass a cancel on: it never tells an ensemble's running step, and it does not
notice that the caller of `generate`, who waits for a single response, hung up. There `timeout` is the limit.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from naiad.server.config import CanaryPolicy
from tests.harness.http_calls import post
from tests.harness.prompts import STREAMING_MODELS, inputs_for
from tests.harness.repository import write_repository
from tests.harness.server import LiveServer, serving, wait_until
from tests.harness.triton_request import TritonStream, infer_request, stop_request

MODELS = ("tensorrt_llm", "tensorrt_llm_bls")
LONG = 4000  # tokens; 20 s at 5 ms each
CANCEL_LIMIT_S = 1.0  # measured: 0.1 s, which is the period of the metrics


@pytest.fixture(scope="module")
def unary_slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """The non-decoupled profile at 5 ms a token; nobody but the tests asks it anything."""
    folder = tmp_path_factory.mktemp("unary-slow")
    repository = write_repository(folder / "models", decoupled=False, tensorrt_llm={"synthetic_step_ms": 5})
    with serving(repository, folder / "artifacts", canary=CanaryPolicy(period_s=3600)) as server:
        yield server


@pytest.fixture
def stream(synthetic: LiveServer) -> Iterator[TritonStream]:
    with TritonStream(synthetic.grpc) as opened:
        yield opened
    becomes_idle(synthetic)


def becomes_idle(server: LiveServer) -> None:
    wait_until(lambda: server.active() == 0, CANCEL_LIMIT_S, "the engine has nothing to do")


def is_busy(server: LiveServer) -> None:
    wait_until(lambda: server.active() >= 1, 10, "the engine works on the request")


class TestStreams:
    @pytest.mark.parametrize("model", MODELS)
    def test_a_cancel_mid_stream(self, stream: TritonStream, synthetic: LiveServer, model: str) -> None:
        call = stream.open(infer_request(model, inputs_for(model, LONG, streaming=True)))
        for _ in range(5):
            next(call)
        is_busy(synthetic)
        call.cancel()
        becomes_idle(synthetic)

    @pytest.mark.parametrize("model", MODELS)
    def test_a_cancel_before_the_single_response(
        self, stream: TritonStream, synthetic: LiveServer, model: str
    ) -> None:
        call = stream.open(infer_request(model, inputs_for(model, LONG)))
        is_busy(synthetic)
        call.cancel()
        becomes_idle(synthetic)

    @pytest.mark.parametrize("model", MODELS)
    def test_a_grpc_deadline(self, stream: TritonStream, synthetic: LiveServer, model: str) -> None:
        request = infer_request(model, inputs_for(model, LONG, streaming=True))
        with pytest.raises(grpc.RpcError) as caught:
            stream.ask(request, timeout_s=0.3)
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        becomes_idle(synthetic)

    @pytest.mark.parametrize("model", STREAMING_MODELS)
    def test_a_deadline_in_the_request(self, stream: TritonStream, model: str) -> None:
        request = infer_request(
            model, inputs_for(model, LONG, streaming=True), parameters={"timeout": 300_000}
        )
        error = stream.ask(request, timeout_s=5).error
        assert error is not None
        assert "[DEADLINE_EXCEEDED]" in error
        assert "partial answer was delivered" in error

    @pytest.mark.parametrize("model", MODELS)
    def test_a_deadline_that_is_over_on_arrival(self, stream: TritonStream, model: str) -> None:
        request = infer_request(model, inputs_for(model, LONG, streaming=True), parameters={"timeout": 1})
        started_s = time.monotonic()
        reply = stream.ask(request)
        assert reply.error is not None
        assert "[DEADLINE_EXCEEDED]" in reply.error
        assert time.monotonic() - started_s < 2

    def test_a_stop_ends_what_runs_and_not_what_comes_later_with_the_same_id(
        self, stream: TritonStream
    ) -> None:
        for _ in range(2):
            assert stream.ask(stop_request("again")).error is None
        request = infer_request("tensorrt_llm", inputs_for("tensorrt_llm", 5), request_id="again")
        assert stream.ask(request).finish_reason == "length"
        assert stream.ask(stop_request("again")).error is None
        assert stream.ask(request).finish_reason == "length"


class TestHttp:
    @pytest.mark.parametrize("model", MODELS)
    def test_a_connection_closed_mid_stream(self, synthetic: LiveServer, model: str) -> None:
        with self.connect(synthetic, f"{model}/generate_stream", self.long_body(model)) as connection:
            while b"data:" not in connection.recv(65536):
                pass
            is_busy(synthetic)
        becomes_idle(synthetic)

    @pytest.mark.parametrize("model", STREAMING_MODELS)
    def test_a_timeout_beside_the_inputs(self, synthetic: LiveServer, model: str) -> None:
        body = self.long_body(model).replace(b"true", b'false, "timeout": 300000')
        status, reply = post(synthetic, f"{model}/generate", body, timeout_s=5)
        assert status >= 400
        assert "[DEADLINE_EXCEEDED]" in reply
        becomes_idle(synthetic)

    def long_body(self, model: str) -> bytes:
        if model == "tensorrt_llm":
            return (
                b'{"input_ids": [5, 6], "input_lengths": 2, "request_output_len": %d, "streaming": true}'
                % LONG
            )
        return b'{"text_input": "one two", "max_tokens": %d, "stream": true}' % LONG

    def connect(self, server: LiveServer, path: str, body: bytes) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", server.config.http_port), timeout=10)
        head = f"POST /v2/models/{path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        return connection


class TestUnaryProfile:
    """ModelInfer on the non-decoupled profile."""

    @pytest.fixture
    def calls(self, unary_slow: LiveServer) -> Iterator[TritonStream]:
        with TritonStream(unary_slow.grpc) as opened:
            yield opened
        becomes_idle(unary_slow)

    @pytest.mark.parametrize("model", MODELS)
    def test_a_cancel(self, calls: TritonStream, unary_slow: LiveServer, model: str) -> None:
        call = self.start(calls, model, timeout_s=30)
        is_busy(unary_slow)
        call.cancel()
        becomes_idle(unary_slow)

    @pytest.mark.parametrize("model", MODELS)
    def test_a_grpc_deadline(self, calls: TritonStream, unary_slow: LiveServer, model: str) -> None:
        with pytest.raises(grpc.RpcError) as caught:
            self.start(calls, model, timeout_s=0.3).result()
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        becomes_idle(unary_slow)

    @pytest.mark.parametrize("model", STREAMING_MODELS)
    def test_a_deadline_in_the_request(self, calls: TritonStream, model: str) -> None:
        with pytest.raises(grpc.RpcError) as caught:
            self.start(calls, model, timeout_s=10, timeout=300_000).result()
        assert "[DEADLINE_EXCEEDED]" in (caught.value.details() or "")
        assert "partial" not in (caught.value.details() or "")

    def start(self, calls: TritonStream, model: str, timeout_s: float, **parameters: int) -> Any:
        request = infer_request(model, inputs_for(model, LONG), parameters=parameters)
        return calls.stub.ModelInfer.future(request, timeout=timeout_s)
