"""Streamed text is right, whatever the tokens look like (E01-E10), on the echoing and on the real engine."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from naiad.tokenization import Tokenizer
from tests.harness.repository import MODEL_DIRECTORY, write_repository
from tests.harness.server import LiveServer, serving
from tests.harness.triton_request import Reply, TritonStream, flag, floats, infer_request, ints, seed, text

SCRIPT = (
    "Grüße! 日本語のテキスト、绝对没有问题。 👩‍👩‍👧‍👦🏳️‍🌈 🤖 naïve café — “quotes” … "
    "def f(x):\n\treturn x**2  # ok\n\n1234567890 ½ Ω ∑ मानक हिन्दी العربية עברית ไทย 한국어 e\u0301"
)


def ask(stream: TritonStream, prompt: str, *, tokens: int = 32, streaming: bool = True, **more: Any) -> Reply:
    """One request of the text model; the prompt is left out of the answer."""
    tensors = {
        "text_input": text(prompt),
        "max_tokens": ints(tokens),
        "stream": flag(streaming),
        "exclude_input_in_output": flag(),
        "return_num_input_tokens": flag(),
        "return_num_output_tokens": flag(),
        **more,
    }
    reply = stream.ask(infer_request("tensorrt_llm_bls", tensors), timeout_s=120)
    assert reply.error is None
    assert reply.finals == 1
    return reply


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.load(MODEL_DIRECTORY)


@pytest.fixture
def echo(synthetic: LiveServer) -> Iterator[TritonStream]:
    with TritonStream(synthetic.grpc) as opened:
        yield opened


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonStream]:
    """An engine that answers every prompt with `SCRIPT`, token by token, at once."""
    folder = tmp_path_factory.mktemp("scripted")
    repository = write_repository(folder / "models", tensorrt_llm={"synthetic_script": SCRIPT})
    with serving(repository, folder / "artifacts") as server, TritonStream(server.grpc) as opened:
        yield opened


@pytest.fixture
def genuine(real: LiveServer) -> Iterator[TritonStream]:
    with TritonStream(real.grpc) as opened:
        yield opened


def test_e01_e02_joined_deltas_are_the_one_shot_text_without_broken_characters(
    scripted: TritonStream,
) -> None:
    streamed = ask(scripted, "x", tokens=1000)
    assert streamed.text == SCRIPT
    assert len(streamed.responses) > 50
    assert all("\ufffd" not in response["text_output"][0].decode() for response in streamed.responses)
    assert ask(scripted, "x", tokens=1000, streaming=False).text == SCRIPT


def test_e03_an_answer_cut_inside_a_character_ends_before_it(
    scripted: TritonStream, tokenizer: Tokenizer
) -> None:
    ids = tokenizer.encode(SCRIPT, add_special_tokens=False)
    for tokens in range(1, 60):
        streamed = ask(scripted, "x", tokens=tokens)
        assert streamed.finish_reason == "length"
        assert SCRIPT.startswith(streamed.text)
        assert streamed.text == tokenizer.decode(ids[:tokens])


def test_e04_e08_every_response_counts_its_own_tokens_and_the_sum_is_exact(
    scripted: TritonStream, tokenizer: Tokenizer
) -> None:
    expected = len(tokenizer.encode(SCRIPT, add_special_tokens=False))
    streamed, single = (
        ask(scripted, "x y z", tokens=1000),
        ask(scripted, "x y z", tokens=1000, streaming=False),
    )
    assert sum(streamed.column("num_output_tokens")) == expected
    assert single.column("num_output_tokens") == [expected]
    assert set(streamed.column("num_input_tokens")) == {len(tokenizer.encode("x y z"))}


def test_e05_an_answer_of_no_tokens_is_one_message_with_its_usage(tmp_path: Path) -> None:
    repository = write_repository(tmp_path / "models", tensorrt_llm={"synthetic_script": "<|im_end|>"})
    with serving(repository, tmp_path / "artifacts") as server, TritonStream(server.grpc) as stream:
        reply = ask(stream, "x")
    assert len(reply.responses) == 1
    assert (reply.text, reply.finish_reason, reply.column("num_output_tokens")) == ("", "stop", [0])


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("stop", ["绝对", "👧", "return x**2", "é —", "90 ½"])
def test_e07_a_stop_string_cuts_the_answer_just_before_it(
    scripted: TritonStream, stop: str, streaming: bool
) -> None:
    reply = ask(scripted, "x", tokens=1000, streaming=streaming, stop_words=text(stop, "never there"))
    assert reply.text == SCRIPT[: SCRIPT.index(stop)]
    assert reply.finish_reason == "stop"


def test_e07_a_script_that_runs_out_stops_and_a_limit_is_a_length(scripted: TritonStream) -> None:
    assert ask(scripted, "x", tokens=1000).finish_reason == "stop"
    assert ask(scripted, "x", tokens=3).finish_reason == "length"


def test_e09_the_last_response_repeats_nothing(echo: TritonStream) -> None:
    pieces = [response["text_output"][0] for response in ask(echo, "one two three four", tokens=4).responses]
    assert pieces == [b"one", b" two", b" three", b" four"]


def test_e09_accumulate_tokens_sends_the_whole_text_so_far(tmp_path: Path) -> None:
    repository = write_repository(tmp_path / "models", tensorrt_llm_bls={"accumulate_tokens": True})
    with serving(repository, tmp_path / "artifacts") as server, TritonStream(server.grpc) as stream:
        pieces = [response["text_output"][0] for response in ask(stream, "one two three", tokens=3).responses]
    assert pieces == [b"one", b"one two", b"one two three"]


def test_e10_no_token_of_one_client_reaches_another(echo: TritonStream) -> None:
    def check(number: int) -> None:
        prompt = f"client {number} says {number * 7919}"
        assert ask(echo, prompt, tokens=24).text.startswith(prompt)

    with ThreadPoolExecutor(16) as threads:
        list(threads.map(check, range(300)))


def test_requests_of_the_one_instance_run_side_by_side(tmp_path: Path) -> None:
    """16 streams of 20 steps of 50 ms take about as long as one, 1 s; in turn they would take 16."""
    repository = write_repository(tmp_path / "models", tensorrt_llm={"synthetic_step_ms": 50})
    with serving(repository, tmp_path / "artifacts") as server, TritonStream(server.grpc) as stream:
        started_s = time.monotonic()
        with ThreadPoolExecutor(16) as threads:
            list(threads.map(lambda number: ask(stream, f"stream {number}", tokens=20), range(16)))
        assert time.monotonic() - started_s < 5


class TestRealModel:
    """The default model on the CPU engine."""

    QUESTION = '[{"role": "user", "content": "What is the capital of Japan?"}]'

    def chat(self, stream: TritonStream, model: str, *, streaming: bool) -> Reply:
        tensors = {"messages": text(self.QUESTION), "max_tokens": ints(24), "stream": flag(streaming)}
        tensors["exclude_input_in_output"] = flag()
        return stream.ask(infer_request(model, tensors), timeout_s=120)

    def test_it_knows_tokyo_and_both_ways_of_serving_text_agree(self, genuine: TritonStream) -> None:
        answers = {
            self.chat(genuine, model, streaming=streaming).text
            for model in ("tensorrt_llm_bls", "ensemble")
            for streaming in (True, False)
        }
        assert len(answers) == 1
        assert "Tokyo" in answers.pop()

    def test_a_seed_repeats_and_another_one_differs(self, genuine: TritonStream) -> None:
        def sampled(number: int) -> str:
            more: dict[str, Any] = {"top_p": floats(0.95), "temperature": floats(1.2), "seed": seed(number)}
            return ask(genuine, "Once upon a time", **more).text

        assert sampled(7) == sampled(7)
        assert sampled(7) != sampled(8)

    def test_it_knows_what_the_weights_know(self, genuine: TritonStream) -> None:
        """As llama.cpp and transformers go on from the same file; read inexactly, it says Mars to both."""
        assert "Jupiter" in ask(genuine, "The largest planet of our solar system is", tokens=8).text
        assert "moon" in ask(genuine, "In 1969 the first man walked", tokens=8).text

    def test_bad_words_do_not_appear(self, genuine: TritonStream) -> None:
        assert "Paris" in ask(genuine, "The capital of France is", tokens=8).text
        assert "Paris" not in ask(genuine, "The capital of France is", tokens=8, bad_words=text("Paris")).text

    def test_log_probs_are_real_also_when_greedy(self, genuine: TritonStream) -> None:
        reply = ask(genuine, "The capital of France is", tokens=6, return_log_probs=flag())
        log_probs = np.concatenate([np.ravel(response["output_log_probs"]) for response in reply.responses])
        assert len(log_probs) == 6
        assert (log_probs < 0).all()
        assert reply.column("cum_log_probs")[-1] == pytest.approx(log_probs.sum(), rel=1e-4)

    def test_min_tokens_holds_the_end_back(self, genuine: TritonStream) -> None:
        reply = ask(genuine, "The capital of France is", tokens=40, min_length=ints(40))
        assert sum(reply.column("num_output_tokens")) == 40
