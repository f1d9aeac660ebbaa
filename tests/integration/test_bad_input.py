"""Input that is wrong, odd or just at a limit: the error names the input, the engine never hears of it.

What has a wrong name, data type or rank is refused by Triton itself, in its own words; values by the models.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from naiad.server.config import CanaryPolicy
from tests.harness.bad_inputs import BAD_TEXT_INPUTS, BAD_TOKEN_INPUTS, ENSEMBLE_NAMES, INF, NAN, NO_TEXT
from tests.harness.http_calls import infer_body, post
from tests.harness.prompts import STREAMING_MODELS, TEXT_MODELS, inputs_for, text_inputs, token_inputs
from tests.harness.repository import write_repository
from tests.harness.server import LiveServer, serving, wait_until
from tests.harness.triton_request import TritonStream, flag, infer_request, seed, text

KV_TOKENS = 128  # what the small server's engine can hold, so that limits are cheap to reach


def _named(rows: list[tuple[str, Any, str]]) -> list[Any]:
    return [pytest.param(*row, id=f"{row[0]}-{index}") for index, row in enumerate(rows)]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """Holds few tokens; nobody but the tests asks it anything."""
    folder = tmp_path_factory.mktemp("small")
    repository = write_repository(folder / "models", tensorrt_llm={"max_tokens_in_paged_kv_cache": KV_TOKENS})
    with serving(repository, folder / "artifacts", canary=CanaryPolicy(period_s=3600)) as server:
        yield server


@pytest.fixture
def stream(small: LiveServer) -> Iterator[TritonStream]:
    with TritonStream(small.grpc) as opened:
        yield opened


def refusal(stream: TritonStream, model: str, tensors: dict[str, Any]) -> str:
    """Send a bad request and then a good one; return the error of the first."""
    reply = stream.ask(infer_request(model, tensors))
    assert reply.error is not None, f"was taken: {reply}"
    assert reply.responses == []
    assert stream.ask(infer_request(model, inputs_for(model, 2))).error is None
    return reply.error


class TestRefusals:
    """C01, C02, C04, C05 over gRPC."""

    @pytest.mark.parametrize(("name", "value", "says"), _named(BAD_TOKEN_INPUTS))
    def test_token_inputs(self, stream: TritonStream, name: str, value: Any, says: str) -> None:
        error = refusal(stream, "tensorrt_llm", token_inputs(**{name: value}))
        # A wrong batch size shows as a difference between two inputs; either may be named.
        assert name in error or says == "batch size"
        assert says in error

    @pytest.mark.parametrize("model", TEXT_MODELS)
    @pytest.mark.parametrize(("name", "value", "says"), _named(BAD_TEXT_INPUTS))
    def test_text_inputs(self, stream: TritonStream, model: str, name: str, value: Any, says: str) -> None:
        error = refusal(stream, model, text_inputs(**{name: value}))
        assert name in error or (model == "ensemble" and ENSEMBLE_NAMES[name] in error)
        assert says in error

    def test_max_tokens_left_out(self, stream: TritonStream) -> None:
        error = refusal(stream, "tensorrt_llm_bls", text_inputs(max_tokens=None))
        assert "max_tokens is missing" in error

    def test_max_tokens_left_out_of_the_ensemble(self, stream: TritonStream) -> None:
        error = refusal(stream, "ensemble", text_inputs(max_tokens=None))
        assert "REQUEST_OUTPUT_LEN (of the ensemble: max_tokens) is missing" in error

    def test_more_stop_words_than_can_be_watched(self, stream: TritonStream) -> None:
        words = text(*(f"w{number}" for number in range(257)))
        error = refusal(stream, "tensorrt_llm_bls", text_inputs(stop_words=words))
        assert "257" in error
        assert "256" in error

    def test_fewer_elements_than_the_shape_says(self, stream: TritonStream) -> None:
        request = infer_request("tensorrt_llm", token_inputs())
        request.raw_input_contents[0] = request.raw_input_contents[0][:4]
        error = stream.ask(request).error
        assert error is not None
        assert "input_ids" in error
        assert "Expected 12, got 4" in error

    def test_none_of_them_reaches_the_engine(self, small: LiveServer, stream: TritonStream) -> None:
        before = settled(small)
        for name, value, _ in BAD_TOKEN_INPUTS:
            stream.ask(infer_request("tensorrt_llm", token_inputs(**{name: value})))
        for name, value, _ in BAD_TEXT_INPUTS:
            stream.ask(infer_request("tensorrt_llm_bls", text_inputs(**{name: value})))
        stream.ask(infer_request("tensorrt_llm", token_inputs()))
        wait_until(lambda: scheduled(small) > before, 10, "the good request is counted")
        assert settled(small) == before + 1


def scheduled(server: LiveServer) -> float:
    """Sequences that the engine has begun so far."""
    return server.metric("naiad_queue_time_seconds_count")


def settled(server: LiveServer) -> float:
    """Return `scheduled` once it has not changed for three pushing periods."""
    count, since_s = scheduled(server), time.monotonic()
    while time.monotonic() - since_s < 0.3:
        time.sleep(0.05)
        if scheduled(server) != count:
            count, since_s = scheduled(server), time.monotonic()
    return count


class TestHttp:
    """The same over HTTP, where numbers come as JSON."""

    @pytest.mark.parametrize("model", TEXT_MODELS)
    @pytest.mark.parametrize(
        ("name", "value", "says"),
        [
            ("max_tokens", 0, "from 1 to 1048576"),
            ("max_tokens", 2**31, "from 1 to 1048576, not -2147483648"),
            ("temperature", NAN, "not nan"),
            ("temperature", INF, "not inf"),
            ("temperature", -1, "from 0 to 100"),
            ("top_p", 1.5, "from 0 to 1"),
            ("text_input", "", "is empty"),
            ("text_input", ["a", "b"], "batch size"),
            ("unheard_of", 1, "no input or parameter"),
        ],
    )
    def test_generate(self, small: LiveServer, model: str, name: str, value: Any, says: str) -> None:
        body = {"text_input": "one two", "max_tokens": 2, name: value}
        status, reply = post(small, f"{model}/generate", body)
        assert status == 400
        assert name in reply or ENSEMBLE_NAMES.get(name, name) in reply
        assert says in reply
        self.is_alive(small, model)

    @pytest.mark.parametrize("model", TEXT_MODELS)
    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"{",
            b"[]",
            b"null",
            b'{"text_input": "a", "max_tokens": 1e400}',
            b'{"text_input": "a", "max_tokens": 1.5}',
            b'{"text_input": "a", "max_tokens": "1"}',
            b'{"text_input": "a", "max_tokens": null}',
            b'{"text_input": "a", "max_tokens": 1, "seed": -1}',
            b'{"text_input": 5, "max_tokens": 1}',
            b'{"text_input": "a", "text_input": "b", "max_tokens": 1}',
            b'{"text_input": "\\ud800", "max_tokens": 1}',
            b'{"text_input": "\xff\xfe", "max_tokens": 1}',
        ],
    )
    def test_json_that_is_none_or_of_other_types(self, small: LiveServer, model: str, body: bytes) -> None:
        status, reply = post(small, f"{model}/generate", body)
        assert status in {400, 500}  # Triton's own parser says 500
        assert "error" in reply
        self.is_alive(small, model)

    @pytest.mark.parametrize(
        ("tensor", "says"),
        [
            (("max_tokens", [1, 1], "INT32", [0]), "max_tokens must be from 1"),
            (("max_tokens", [1, 1], "INT32", [2**31]), "not -2147483648"),
            (("max_tokens", [1, 1], "INT32", [1, 2]), "Shape does not match"),
            (("max_tokens", [1, 1], "INT32", []), "Shape does not match"),
            (("max_tokens", [1, 2], "INT32", [1, 2]), "unexpected shape for input 'max_tokens'"),
            (("max_tokens", [1], "INT32", [2]), "unexpected shape for input 'max_tokens'"),
            (("max_tokens", [2**32, 2**32], "INT32", [2]), "unexpected shape for input 'max_tokens'"),
            (("max_tokens", [-1, 1], "INT32", [2]), "shape"),
            (("max_tokens", [1, 1], "INT64", [2]), "expects 'INT32'"),
            (("max_tokens", [1, 1], "COMPLEX", [2]), "invalid datatype for input max_tokens"),
        ],
    )
    def test_infer(self, unary: LiveServer, tensor: Any, says: str) -> None:
        prompt = ("text_input", [1, 1], "BYTES", ["one two"])
        status, reply = post(unary, "tensorrt_llm_bls/infer", infer_body(prompt, tensor))
        assert status in {400, 500}
        assert says in reply
        good = infer_body(prompt, ("max_tokens", [1, 1], "INT32", [1]))
        assert post(unary, "tensorrt_llm_bls/infer", good)[0] == 200

    def is_alive(self, server: LiveServer, model: str) -> None:
        assert post(server, f"{model}/generate", {"text_input": "one two", "max_tokens": 2})[0] == 200


class TestOddButGood:
    """C03, C04, C12, C18."""

    @pytest.mark.parametrize("model", TEXT_MODELS)
    @pytest.mark.parametrize("words", [NO_TEXT, text(""), text("", "")])
    def test_empty_word_lists_are_as_none(self, stream: TritonStream, model: str, words: Any) -> None:
        tensors = text_inputs(stop_words=words, bad_words=words)
        reply = stream.ask(infer_request(model, tensors))
        assert (reply.error, reply.text) == (None, "one two")

    @pytest.mark.parametrize("model", TEXT_MODELS)
    def test_nul_bytes_are_text_like_any_other(self, stream: TritonStream, model: str) -> None:
        assert stream.ask(infer_request(model, text_inputs("a\0b", 3))).text == "a\0b"

    @pytest.mark.parametrize("model", TEXT_MODELS)
    def test_nul_bytes_over_http(self, small: LiveServer, model: str) -> None:
        body = {"text_input": "a\0b", "max_tokens": 3, "exclude_input_in_output": True}
        status, reply = post(small, f"{model}/generate", body)
        assert status == 200
        assert r'"text_output":"a\u0000b"' in reply

    def test_a_stop_word_may_hold_nul(self, stream: TritonStream) -> None:
        tensors = text_inputs("a\0b", 3, stop_words=text("\0b"))
        assert stream.ask(infer_request("tensorrt_llm_bls", tensors)).text == "a"

    @pytest.mark.parametrize("model", TEXT_MODELS)
    def test_whitespace_is_a_prompt(self, stream: TritonStream, model: str) -> None:
        reply = stream.ask(infer_request(model, text_inputs("  \n ", 2)))
        assert (reply.error, reply.text) == (None, "  \n ")

    @pytest.mark.parametrize("model", TEXT_MODELS)
    def test_special_tokens_alone_end_like_anything(self, stream: TritonStream, model: str) -> None:
        reply = stream.ask(infer_request(model, text_inputs("<|im_end|><|im_end|>", 2)))
        assert (reply.error, reply.text, reply.finals) == (None, "", 1)

    def test_the_largest_seed(self, stream: TritonStream) -> None:
        tensors = token_inputs(seed=seed(2**64 - 1))
        assert stream.ask(infer_request("tensorrt_llm", tensors)).error is None

    @pytest.mark.parametrize("model", STREAMING_MODELS)
    @pytest.mark.parametrize("request_id", ["x" * 65536, "a\nFORGED line\x1b[31m", "ünï", "1' OR 1=1"])
    def test_any_request_id_comes_back_whole(self, stream: TritonStream, model: str, request_id: str) -> None:
        reply = stream.ask(infer_request(model, inputs_for(model, 2), request_id=request_id))
        assert reply.error is None
        assert set(reply.ids) == {request_id}

    def test_a_request_id_cannot_forge_lines_of_the_log(
        self, small: LiveServer, stream: TritonStream
    ) -> None:
        request_id = "a\nFORGED 1" + "y" * 1000
        stream.ask(infer_request("tensorrt_llm_bls", text_inputs(), request_id=request_id))
        wait_until(lambda: r"a\nFORGED 1" in small.config.log_path.read_text(), 10, "the request is logged")
        lines = [line for line in small.config.log_path.read_text().splitlines() if "FORGED 1" in line]
        assert all(r"id='a\nFORGED 1" in line and "y" * 200 not in line for line in lines)

    @pytest.mark.parametrize("model", STREAMING_MODELS)
    def test_two_requests_of_one_id_are_both_served(self, stream: TritonStream, model: str) -> None:
        requests = [
            infer_request(model, inputs_for(model, tokens, streaming=True), request_id="twin")
            for tokens in (3, 5)
        ]
        messages = list(stream.open(*requests))
        assert not any(message.error_message for message in messages)
        responses = [message.infer_response for message in messages]
        assert sum(bool(response.outputs) for response in responses) == 3 + 5
        assert sum(response.parameters["triton_final_response"].bool_param for response in responses) == 2


class TestLimits:
    """C06, C07: a request that can never fit is refused with both numbers; one that just fits is served."""

    @pytest.mark.parametrize(("prompt", "output"), [(KV_TOKENS - 1, 1), (1, KV_TOKENS - 1), (64, 64)])
    @pytest.mark.parametrize("model", STREAMING_MODELS)
    def test_exactly_at_the_limit(self, stream: TritonStream, model: str, prompt: int, output: int) -> None:
        reply = stream.ask(infer_request(model, self.sized(model, prompt, output)))
        assert reply.error is None
        assert reply.column("num_output_tokens") == [output]

    @pytest.mark.parametrize("model", STREAMING_MODELS)
    def test_one_over_it(self, small: LiveServer, stream: TritonStream, model: str) -> None:
        before = settled(small)
        for prompt, output in ((KV_TOKENS + 1, 1), (KV_TOKENS, 1), (1, KV_TOKENS), (65, 64)):
            error = stream.ask(infer_request(model, self.sized(model, prompt, output))).error
            assert error is not None
            assert "[PROMPT_TOO_LONG]" in error
            assert f"{prompt} tokens plus {output} output tokens" in error
            assert f"of {KV_TOKENS} tokens" in error
        assert settled(small) == before

    @pytest.mark.parametrize("model", STREAMING_MODELS)
    def test_the_context_of_the_model_itself(self, synthetic: LiveServer, model: str) -> None:
        with TritonStream(synthetic.grpc) as stream:
            assert stream.ask(infer_request(model, self.sized(model, 8191, 1))).error is None
            error = stream.ask(infer_request(model, self.sized(model, 8191, 2))).error
        assert error is not None
        assert "[PROMPT_TOO_LONG]" in error
        assert "8191 tokens plus 2 output tokens exceeds the context of 8192" in error

    def sized(self, model: str, prompt: int, output: int) -> dict[str, Any]:
        count = {"return_num_output_tokens": flag()}
        if model == "tensorrt_llm":
            return token_inputs([11] * prompt, output, **count)
        return text_inputs(" a" * prompt, output, **count)
