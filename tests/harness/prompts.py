"""The smallest good requests, to be spoilt one input at a time; None leaves an input out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tritonclient.grpc import service_pb2

from tests.harness.triton_request import Array, flag, infer_request, ints, text

PROMPT_IDS = (11, 12, 13)
TEXT_MODELS = ("tensorrt_llm_bls", "ensemble")
STREAMING_MODELS = ("tensorrt_llm", *TEXT_MODELS)


def token_inputs(prompt: Sequence[int] = PROMPT_IDS, tokens: int = 2, **more: Any) -> dict[str, Array]:
    """Inputs of `tensorrt_llm`; one response without the prompt unless `more` says otherwise."""
    inputs = {
        "input_ids": ints(*prompt),
        "input_lengths": ints(len(prompt)),
        "request_output_len": ints(tokens),
        "exclude_input_in_output": flag(),
        **more,
    }
    return {name: array for name, array in inputs.items() if array is not None}


def text_inputs(prompt: str | bytes = "one two", tokens: int = 2, **more: Any) -> dict[str, Array]:
    """Inputs of the text models; one response without the prompt unless `more` says otherwise."""
    inputs = {
        "text_input": text(prompt),
        "max_tokens": ints(tokens),
        "exclude_input_in_output": flag(),
        **more,
    }
    return {name: array for name, array in inputs.items() if array is not None}


def inputs_for(model: str, tokens: int, *, streaming: bool = False) -> dict[str, Array]:
    """Inputs that make a model of either kind answer with so many tokens."""
    if model == "tensorrt_llm":
        return token_inputs(tokens=tokens, streaming=flag(streaming))
    return text_inputs(tokens=tokens, stream=flag(streaming))


def stop_request(request_id: str) -> service_pb2.ModelInferRequest:
    """The contract's stop request: ends every live request of that id."""
    inputs = {
        "input_ids": ints(0),
        "input_lengths": ints(1),
        "request_output_len": ints(0),
        "stop": flag(),
    }
    return infer_request("tensorrt_llm", inputs, request_id=request_id)
