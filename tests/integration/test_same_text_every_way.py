"""E01, E02: the same text comes back whichever way it is asked for, whatever characters it is made of."""

from __future__ import annotations

import json
from typing import Any

import pytest

from naiad.tokenization import Tokenizer
from tests.harness.http_calls import infer_body, post
from tests.harness.prompts import TEXT_MODELS, text_inputs
from tests.harness.repository import MODEL_DIRECTORY
from tests.harness.server import LiveServer
from tests.harness.triton_request import TritonStream, flag, infer_request, read_outputs

TEXTS = {
    "emoji": "👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽 🤖",
    "scripts": "日本語 한국어 العربية हिन्दी ไทย Ω½é e\u0301",
    "code": 'def f(x):\r\n\treturn {"a": "b\\n"}[x]  # "q" \\ /\x00\x7f',
    "events": "one\n\ndata: [DONE]\n\nevent: error\ndata: x\n\n",  # what separates events of generate_stream
}
WIDE = ("emoji", "scripts")  # some characters take several tokens


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.load(MODEL_DIRECTORY)


def events(reply: str) -> list[dict[str, Any]]:
    """Read server-sent events as the standard has it: a blank line ends one, `data:` lines are joined."""
    return [
        json.loads("".join(line.removeprefix("data: ") for line in block.split("\n")))
        for block in reply.split("\n\n")
        if block
    ]


@pytest.mark.parametrize("model", TEXT_MODELS)
@pytest.mark.parametrize("kind", TEXTS)
def test_every_way_gives_the_same_text(
    synthetic: LiveServer, unary: LiveServer, tokenizer: Tokenizer, model: str, kind: str
) -> None:
    prompt = TEXTS[kind]
    tokens = len(tokenizer.encode(prompt))  # the engine echoes: just as many give the prompt back
    body = {"text_input": prompt, "max_tokens": tokens, "exclude_input_in_output": True}
    one_shot, streaming = text_inputs(prompt, tokens), text_inputs(prompt, tokens, stream=flag())

    with TritonStream(synthetic.grpc) as stream:
        assert stream.ask(infer_request(model, one_shot)).text == prompt
        streamed = stream.ask(infer_request(model, streaming))
    status, reply = post(synthetic, f"{model}/generate_stream", {**body, "stream": True})
    assert status == 200
    if model == "ensemble" and kind in WIDE:
        # Its postprocessing decodes every response on its own, as upstream's does, so characters get torn.
        assert "\ufffd" in "".join(event["text_output"] for event in events(reply))
    else:
        assert (streamed.error, streamed.text) == (None, prompt)
        assert "".join(event["text_output"] for event in events(reply)) == prompt

    status, reply = post(synthetic, f"{model}/generate", body)
    assert (status, json.loads(reply)["text_output"]) == (200, prompt)

    with TritonStream(unary.grpc) as stream:
        outputs = read_outputs(stream.stub.ModelInfer(infer_request(model, one_shot), timeout=30))
        assert outputs["text_output"] == [prompt.encode()]

    status, reply = post(
        unary,
        f"{model}/infer",
        infer_body(
            ("text_input", [1, 1], "BYTES", [prompt]),
            ("max_tokens", [1, 1], "INT32", [tokens]),
            ("exclude_input_in_output", [1, 1], "BOOL", [True]),
        ),
    )
    assert status == 200
    outputs = {output["name"]: output["data"] for output in json.loads(reply)["outputs"]}
    assert outputs["text_output"] == [prompt]
