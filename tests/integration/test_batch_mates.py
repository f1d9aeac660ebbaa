"""B20: one bad request among many that Triton may batch together fails alone; everybody else is answered."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.harness.prompts import STREAMING_MODELS, text_inputs, token_inputs
from tests.harness.server import LiveServer
from tests.harness.together import together
from tests.harness.triton_request import (
    Reply,
    TritonStream,
    infer_request,
    ints,
    read_outputs,
    text,
)

CALLERS = 32
BAD = 13  # which of them


def prompts() -> list[str]:
    return [f"caller {number} wants {number * 7919}" for number in range(CALLERS)]


def test_preprocessing(synthetic: LiveServer) -> None:
    with TritonStream(synthetic.grpc) as stream:

        def ask(number: int) -> Any:
            query: str | bytes = b"\xff" if number == BAD else prompts()[number]
            tensors = {"QUERY": text(query), "REQUEST_OUTPUT_LEN": ints(number)}
            call = stream.stub.ModelInfer.future(infer_request("preprocessing", tensors), timeout=30)
            return call.exception() or read_outputs(call.result())

        answers = together(ask, range(CALLERS))
        assert "QUERY is not valid UTF-8" in answers.pop(BAD).details()
        assert [answer["REQUEST_OUTPUT_LEN"] for answer in answers] == [
            [[number]] for number in range(CALLERS) if number != BAD
        ]


def test_postprocessing(synthetic: LiveServer) -> None:
    with TritonStream(synthetic.grpc) as stream:

        def ask(number: int) -> Any:
            ids = np.full((1, 1, 3), -5 if number == BAD else 1000 + number, dtype=np.int32)
            tensors = {"TOKENS_BATCH": ids, "SEQUENCE_LENGTH": ints(3)}
            call = stream.stub.ModelInfer.future(infer_request("postprocessing", tensors), timeout=30)
            return call.exception() or read_outputs(call.result())["OUTPUT"]

        answers = together(ask, range(CALLERS))
        assert "token id -5" in answers.pop(BAD).details()
        assert len({bytes(output) for (output,) in answers}) == CALLERS - 1


@pytest.mark.parametrize("model", STREAMING_MODELS)
def test_streaming_models(synthetic: LiveServer, model: str) -> None:
    def ask(number: int) -> Reply:
        if model == "tensorrt_llm":
            tensors = token_inputs([100 + number] * 3, 0 if number == BAD else 3)
        else:
            tensors = text_inputs(prompts()[number], 0 if number == BAD else 3)
        with TritonStream(synthetic.grpc) as stream:
            return stream.ask(infer_request(model, tensors))

    replies = together(ask, range(CALLERS))
    error = replies.pop(BAD).error
    assert error is not None
    assert "from 1 to 1048576, not 0" in error
    assert [reply.error for reply in replies] == [None] * (CALLERS - 1)
    good = [number for number in range(CALLERS) if number != BAD]
    if model == "tensorrt_llm":
        assert [reply.column("output_ids") for reply in replies] == [[100 + number] for number in good]
    else:
        assert all(prompts()[n].startswith(r.text) and r.text for n, r in zip(good, replies, strict=True))
