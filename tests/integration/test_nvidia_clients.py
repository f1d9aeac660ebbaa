"""What NVIDIA's clients, genai-perf, perf_analyzer and the HTTP endpoints send, and what they expect back.

Sections refer to what each tool sends, in docs/contract.md.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import pytest

from tests.harness.server import LiveServer
from tests.harness.triton_request import (
    Reply,
    TritonStream,
    collect,
    flag,
    floats,
    infer_request,
    ints,
    read_outputs,
    text,
)

PROMPT = [504, 3575, 282, 4649]


@pytest.fixture
def stream(synthetic: LiveServer) -> Iterator[TritonStream]:
    with TritonStream(synthetic.grpc) as opened:
        yield opened


def inflight_client(prompt: list[int], output_len: int, *, streaming: bool, **more: Any) -> dict[str, Any]:
    """Tensors that inflight_batcher_llm_client.py always sends."""
    return {
        "input_ids": np.array([prompt], dtype=np.int32),
        "input_lengths": ints(len(prompt)),
        "request_output_len": ints(output_len),
        "beam_width": ints(1),
        "temperature": floats(1.0),
        "streaming": flag(streaming),
        "end_id": ints(2),
        "pad_id": ints(2),
        "runtime_top_k": ints(1),
        "runtime_top_p": floats(0.0),
        **more,
    }


def end_to_end_client(prompt: str, *, stream: bool, max_tokens: int = 8, **more: Any) -> dict[str, Any]:
    """Tensors that end_to_end_grpc_client.py always sends."""
    return {
        "text_input": text(prompt),
        "max_tokens": ints(max_tokens),
        "stream": flag(stream),
        "beam_width": ints(1),
        "temperature": floats(1.0),
        "exclude_input_in_output": flag(True),
        **more,
    }


class TestInflightBatcherClient:
    """E.1: token ids, gRPC; unary by default, a stream with --streaming."""

    def test_streaming_gives_one_token_a_response_and_the_requested_outputs(
        self, stream: TritonStream
    ) -> None:
        request = infer_request(
            "tensorrt_llm",
            inflight_client(PROMPT, 6, streaming=True),
            request_id="17",
            outputs=("output_ids", "sequence_length"),
        )
        reply = stream.ask(request)
        assert reply.error is None
        assert [response["output_ids"][0][0] for response in reply.responses] == [
            [token] for token in [*PROMPT, *PROMPT[:2]]
        ]
        assert [response["sequence_length"][0][0] for response in reply.responses] == [1] * 6
        assert all(set(response) == {"output_ids", "sequence_length"} for response in reply.responses)
        assert reply.finals == 1
        assert set(reply.ids) == {"17"}

    def test_the_default_mode_is_a_unary_call_that_echoes_the_prompt(self, unary: LiveServer) -> None:
        request = infer_request(
            "tensorrt_llm",
            inflight_client(PROMPT, 3, streaming=False),
            outputs=("output_ids", "sequence_length"),
            parameters={"Streaming": False},
        )
        with TritonStream(unary.grpc) as stream:
            outputs = read_outputs(stream.stub.ModelInfer(request, timeout=30))
        assert outputs["output_ids"][0][0] == [*PROMPT, *PROMPT[:3]]
        assert outputs["sequence_length"][0][0] == len(PROMPT) + 3

    def test_the_prompt_is_left_out_when_asked(self, unary: LiveServer) -> None:
        tensors = inflight_client(PROMPT, 3, streaming=False, exclude_input_in_output=flag())
        with TritonStream(unary.grpc) as stream:
            outputs = read_outputs(stream.stub.ModelInfer(infer_request("tensorrt_llm", tensors), timeout=30))
        assert outputs["output_ids"][0][0] == PROMPT[:3]

    def test_log_probs_and_token_counts_on_demand(self, stream: TritonStream) -> None:
        tensors = inflight_client(
            PROMPT,
            3,
            streaming=True,
            return_log_probs=flag(),
            return_num_input_tokens=flag(),
            return_num_output_tokens=flag(),
            return_perf_metrics=flag(),
        )
        reply = stream.ask(infer_request("tensorrt_llm", tensors))
        assert [response["output_log_probs"] for response in reply.responses] == [[[[-0.5]]]] * 3
        assert reply.column("cum_log_probs") == [-0.5, -1.0, -1.5]
        assert reply.column("num_input_tokens") == [len(PROMPT)] * 3
        assert reply.column("num_output_tokens") == [1, 1, 1]
        (arrival,) = reply.column("arrival_time_ns")
        (first,) = reply.column("first_token_time_ns")
        (last,) = reply.column("last_token_time_ns")
        assert arrival <= first <= last

    def test_stop_after_ms_ends_the_request_and_answers_the_stop_itself(
        self, stream: TritonStream, synthetic: LiveServer
    ) -> None:
        call = stream.open(
            infer_request("tensorrt_llm", inflight_client(PROMPT, 4000, streaming=True), request_id="77")
        )
        reply = Reply()
        for message in call:
            collect(reply, message)
            if len(reply.responses) == 5:
                stop = {
                    "input_ids": ints(0),
                    "input_lengths": ints(1),
                    "request_output_len": ints(0),
                    "stop": flag(),
                }
                stopped = stream.ask(infer_request("tensorrt_llm", stop, request_id="77"))
                assert (stopped.error, stopped.responses, stopped.finals) == (None, [], 1)
            if reply.finals:
                break
        assert reply.finals == 1
        assert len(reply.responses) < 1000
        assert reply.finish_reason == "cancelled"

    def test_a_stop_for_an_unknown_id_is_no_error_and_an_empty_id_is(self, stream: TritonStream) -> None:
        tensors = {
            "input_ids": ints(0),
            "input_lengths": ints(1),
            "request_output_len": ints(0),
            "stop": flag(),
        }
        assert stream.ask(infer_request("tensorrt_llm", tensors, request_id="nobody")).error is None
        refused = stream.ask(infer_request("tensorrt_llm", tensors)).error
        assert refused is not None
        assert "request id" in refused

    def test_stop_via_request_cancel_ends_with_cancelled(self, stream: TritonStream) -> None:
        call = stream.open(infer_request("tensorrt_llm", inflight_client(PROMPT, 4000, streaming=True)))
        next(call)
        call.cancel()
        with pytest.raises(grpc.RpcError) as caught:
            list(call)
        assert caught.value.code() is grpc.StatusCode.CANCELLED

    def test_several_sequences_are_told_apart(self, stream: TritonStream) -> None:
        tensors = inflight_client(PROMPT, 2, streaming=False, num_return_sequences=ints(3))
        reply = stream.ask(infer_request("tensorrt_llm", tensors))
        assert sorted(reply.column("sequence_index")) == [0, 1, 2]
        assert reply.finals == 1

    def test_a_batch_comes_back_row_by_row(self, stream: TritonStream) -> None:
        tensors = {
            "input_ids": np.array([[11, 12, 13], [21, 22, 0]], dtype=np.int32),
            "input_lengths": np.array([[3], [2]], dtype=np.int32),
            "request_output_len": np.array([[2], [4]], dtype=np.int32),
            "exclude_input_in_output": np.array([[True], [True]]),
        }
        reply = stream.ask(infer_request("tensorrt_llm", tensors))
        rows = {response["batch_index"][0][0]: response["output_ids"][0][0] for response in reply.responses}
        assert rows == {0: [11, 12], 1: [21, 22, 21, 22]}
        assert reply.finals == 1


class TestEndToEndClient:
    """E.2: text over a gRPC stream, whether streaming or not."""

    @pytest.mark.parametrize("model", ["ensemble", "tensorrt_llm_bls"])
    @pytest.mark.parametrize("streaming", [True, False])
    def test_text_output_is_one_string_and_the_joined_text_is_the_answer(
        self, stream: TritonStream, model: str, streaming: bool
    ) -> None:
        request = infer_request(
            model,
            end_to_end_client("The quick brown fox", stream=streaming, max_tokens=4),
            request_id="a",
            outputs=("text_output",),
        )
        reply = stream.ask(request)
        assert reply.error is None
        assert reply.text == "The quick brown fox"
        assert all(isinstance(response["text_output"][0], bytes) for response in reply.responses)
        assert len(reply.responses) == (4 if streaming else 1)
        assert reply.finals == 1

    @pytest.mark.parametrize("model", ["ensemble", "tensorrt_llm_bls"])
    def test_the_prompt_comes_first_unless_excluded(self, stream: TritonStream, model: str) -> None:
        tensors = end_to_end_client("one two", stream=False, max_tokens=2)
        del tensors["exclude_input_in_output"]
        assert stream.ask(infer_request(model, tensors)).text == "one twoone two"

    @pytest.mark.parametrize("model", ["ensemble", "tensorrt_llm_bls"])
    def test_everything_it_sends_on_demand_is_taken(self, stream: TritonStream, model: str) -> None:
        tensors = end_to_end_client(
            "one two three",
            stream=True,
            repetition_penalty=floats(1.1),
            presence_penalty=floats(0.1),
            frequency_penalty=floats(0.1),
            top_k=ints(1),
            top_p=floats(0.0),
            length_penalty=floats(1.0),
            return_log_probs=flag(),
            return_context_logits=flag(False),
            return_generation_logits=flag(False),
            return_num_input_tokens=flag(),
            return_num_output_tokens=flag(),
            seed=np.array([[7]], dtype=np.uint64),
            end_id=ints(2),
            pad_id=ints(2),
            stop_words=text("never seen"),
        )
        reply = stream.ask(infer_request(model, tensors))
        assert reply.error is None
        assert sum(reply.column("num_output_tokens")) == 8
        assert reply.column("num_input_tokens")[0] == 3

    def test_a_text_batch_is_told_apart_by_batch_index(self, stream: TritonStream) -> None:
        tensors = {
            "text_input": np.array([[b"aa bb"], [b"cc dd"]], dtype=object),
            "max_tokens": np.array([[2], [2]], dtype=np.int32),
            "stream": np.array([[False], [False]]),
            "exclude_input_in_output": np.array([[True], [True]]),
        }
        reply = stream.ask(infer_request("tensorrt_llm_bls", tensors))
        rows = {response["batch_index"][0][0]: response["text_output"] for response in reply.responses}
        assert rows == {0: [b"aa bb"], 1: [b"cc dd"]}


class TestMessages:
    """Naiad's own optional input, beside `text_input`."""

    MESSAGES = json.dumps([{"role": "user", "content": "hello there"}])

    @pytest.mark.parametrize("model", ["ensemble", "tensorrt_llm_bls"])
    def test_a_chat_goes_through_the_template(self, stream: TritonStream, model: str) -> None:
        tensors = {"messages": text(self.MESSAGES), "max_tokens": ints(40), "stream": flag()}
        reply = stream.ask(infer_request(model, tensors))
        assert reply.error is None
        assert "hello there" in reply.text

    @pytest.mark.parametrize("model", ["ensemble", "tensorrt_llm_bls"])
    @pytest.mark.parametrize("both", [True, False])
    def test_exactly_one_of_the_two(self, stream: TritonStream, model: str, both: bool) -> None:
        tensors: dict[str, Any] = {"max_tokens": ints(4)}
        if both:
            tensors |= {"messages": text(self.MESSAGES), "text_input": text("x")}
        error = stream.ask(infer_request(model, tensors)).error
        assert error is not None
        assert "exactly one of" in error


def test_benchmark_core_model_sends_ids_with_a_request_id(stream: TritonStream) -> None:
    """E.3."""
    tensors = {
        "input_ids": np.array([PROMPT], dtype=np.int32),
        "input_lengths": ints(len(PROMPT)),
        "request_output_len": ints(5),
        "end_id": ints(-1),
        "pad_id": ints(-1),
        "streaming": flag(False),
    }
    reply = stream.ask(infer_request("tensorrt_llm", tensors, request_id="1"))
    assert reply.column("sequence_length") == [len(PROMPT) + 5]


@pytest.mark.parametrize("model", ["ensemble", "tensorrt_llm_bls"])
def test_genai_perf_counts_deltas_and_may_ask_for_a_minimum_length(stream: TritonStream, model: str) -> None:
    """E.4: every response's text is tokenised and summed: chunks are deltas, the prompt is not among them."""
    tensors = {
        "text_input": text("a b c d"),
        "max_tokens": ints(6),
        "min_length": ints(6),
        "exclude_input_in_output": flag(),
        "stream": flag(),
    }
    reply = stream.ask(infer_request(model, tensors))
    assert len(reply.responses) == 6
    assert reply.text == "a b c da b"


@pytest.mark.parametrize("model", ["tensorrt_llm", "ensemble", "tensorrt_llm_bls"])
def test_perf_analyzer_asks_for_every_output_of_the_configuration(stream: TritonStream, model: str) -> None:
    """E.5: absent outputs are tolerated, the final flag completes the request."""
    metadata = stream.stub.ModelMetadata(_metadata_request(model))
    outputs = [tensor.name for tensor in metadata.outputs]
    tensors: dict[str, Any] = (
        inflight_client(PROMPT, 3, streaming=True)
        if model == "tensorrt_llm"
        else {"text_input": text("a b c"), "max_tokens": ints(3), "stream": flag()}
    )
    reply = stream.ask(infer_request(model, tensors, request_id="5", outputs=outputs))
    assert reply.error is None
    assert reply.finals == 1
    assert set(reply.ids) == {"5"}
    assert reply.column("finish_reason") == [b"length"]


def _metadata_request(model: str) -> Any:
    from tritonclient.grpc import service_pb2

    return service_pb2.ModelMetadataRequest(name=model)


class TestHttp:
    """E.6: generate and generate_stream."""

    def post(self, server: LiveServer, path: str, body: dict[str, Any] | bytes) -> tuple[int, str]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(f"{server.http}/v2/models/{path}", data=data, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=30) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    @pytest.mark.parametrize("model", ["ensemble", "tensorrt_llm_bls"])
    def test_generate_gives_one_answer(self, synthetic: LiveServer, model: str) -> None:
        body = {"text_input": "one two", "max_tokens": 4, "exclude_input_in_output": True}
        status, reply = self.post(synthetic, f"{model}/generate", body)
        assert status == 200
        assert json.loads(reply)["text_output"] == "one twoone two"

    @pytest.mark.parametrize("model", ["ensemble", "tensorrt_llm_bls"])
    def test_generate_stream_sends_a_delta_an_event(self, synthetic: LiveServer, model: str) -> None:
        body = {"text_input": "one two", "max_tokens": 2, "stream": True}
        status, reply = self.post(synthetic, f"{model}/generate_stream", body)
        events = [json.loads(line.removeprefix("data: ")) for line in reply.splitlines() if line]
        assert status == 200
        assert [event["text_output"] for event in events] == ["one", " two"]

    def test_a_misspelt_field_is_refused_with_the_nearest_name(self, synthetic: LiveServer) -> None:
        body = {"text_input": "x", "max_tokens": 4, "temprature": 0.5}
        status, reply = self.post(synthetic, "tensorrt_llm_bls/generate", body)
        assert status == 400
        assert "temprature" in reply
        assert "did you mean temperature" in reply

    def test_plain_infer_on_a_decoupled_model_is_refused_by_triton(self, synthetic: LiveServer) -> None:
        body = {"inputs": [{"name": "text_input", "shape": [1, 1], "datatype": "BYTES", "data": ["x"]}]}
        status, _ = self.post(synthetic, "tensorrt_llm_bls/infer", body)
        assert status >= 400


class TestUnaryProfile:
    """The non-decoupled profile: exactly one response, for clients of ModelInfer."""

    def infer(self, server: LiveServer, model: str, tensors: dict[str, Any]) -> dict[str, Any]:
        with TritonStream(server.grpc) as stream:
            return read_outputs(stream.stub.ModelInfer(infer_request(model, tensors), timeout=30))

    @pytest.mark.parametrize("model", ["ensemble", "tensorrt_llm_bls"])
    def test_text(self, unary: LiveServer, model: str) -> None:
        outputs = self.infer(unary, model, end_to_end_client("a b", stream=False, max_tokens=3))
        assert outputs["text_output"] == [b"a ba"]
        assert outputs["finish_reason"] == [[b"length"]]

    def test_a_batch_is_one_response(self, unary: LiveServer) -> None:
        tensors = {
            "text_input": np.array([[b"aa bb"], [b"cc"]], dtype=object),
            "max_tokens": np.array([[2], [3]], dtype=np.int32),
            "exclude_input_in_output": np.array([[True], [True]]),
        }
        assert self.infer(unary, "tensorrt_llm_bls", tensors)["text_output"] == [b"aa bb", b"cccccc"]

    @pytest.mark.parametrize("model", ["ensemble", "tensorrt_llm_bls"])
    def test_streaming_is_refused_with_what_to_do(self, unary: LiveServer, model: str) -> None:
        with pytest.raises(grpc.RpcError) as caught:
            self.infer(unary, model, end_to_end_client("a b", stream=True))
        assert "needs the decoupled profile" in (caught.value.details() or "")
