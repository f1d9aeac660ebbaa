"""The smallest good requests, to be spoilt one input at a time; None leaves an input out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.harness.triton_request import Array, flag, ints, text

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
