"""The real model on the CPU engine: eight different requests at once, streamed and whole, and stop words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.harness.prompts import text_inputs
from tests.harness.repository import write_repository
from tests.harness.server import LiveServer, serving, wait_until
from tests.harness.together import together
from tests.harness.triton_request import Reply, TritonStream, flag, infer_request, text

TOKENS = 24
THINGS = ("rain", "tea", "cats", "iron", "salt", "snow", "bread", "the sea")
PROMPTS = [f"Write one sentence about {thing}:" for thing in THINGS]


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """The real model with answers that do not depend on batch neighbours."""
    folder = tmp_path_factory.mktemp("exact")
    engine = {"engine": "openvino", "enable_chunked_context": True, "dynamic_quantization": False}
    with serving(write_repository(folder / "models", tensorrt_llm=engine), folder / "artifacts") as server:
        yield server


@pytest.fixture
def channel(exact: LiveServer) -> Iterator[TritonStream]:
    with TritonStream(exact.grpc) as opened:
        yield opened


def ask(channel: TritonStream, prompt: str, tokens: int = TOKENS, **more: Any) -> Reply:
    reply = channel.ask(infer_request("tensorrt_llm_bls", text_inputs(prompt, tokens, **more)), timeout_s=90)
    assert (reply.error, reply.finals) == (None, 1)
    return reply


def test_streams_beside_whole_answers_give_what_each_gives_alone(channel: TritonStream) -> None:
    alone = [ask(channel, prompt).text for prompt in PROMPTS]
    assert len(set(alone)) == len(PROMPTS)
    streamed = [(prompt, True) for prompt in PROMPTS]
    whole = [(prompt, False) for prompt in PROMPTS]
    replies = together(lambda one: ask(channel, one[0], stream=flag(one[1])), streamed + whole)
    assert [reply.text for reply in replies] == alone + alone


@pytest.mark.parametrize("streaming", [True, False])
def test_a_stop_word_from_the_middle_of_the_answer_ends_it_there(
    channel: TritonStream, exact: LiveServer, streaming: bool
) -> None:
    prompt = PROMPTS[0]
    answer = ask(channel, prompt).text
    stop = answer[len(answer) // 2 - 4 : len(answer) // 2 + 4]  # begins and ends inside tokens
    reply = ask(channel, prompt, tokens=2000, stop_words=text(stop), stream=flag(streaming))
    assert reply.text == answer[: answer.index(stop)]
    assert reply.finish_reason == "stop"
    wait_until(lambda: exact.active() == 0, 2, "the engine gave up the rest of the 2000 tokens")
